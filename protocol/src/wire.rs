//! Kafka's primitive types over bytes, for the messages that we define ourselves, and the macro that
//! writes such a message down as a list of fields.
//!
//! Everything that is read is bounded by the bytes at hand before anything is allocated.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{BrokerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::error::{DecodeError, EncodeError};

/// Tagged fields that one structure may carry, known and unknown ones together.
pub(crate) const MAX_TAGS: u32 = 256;

/// An array grows in steps, since a value in memory can be a hundred times its size on the wire.
const MAX_INITIAL_CAPACITY: usize = 64;

/// Reads one message.
pub(crate) struct Reader<'a> {
    data: &'a [u8],
    position: usize,
    /// The buffer behind `data`: strings and bytes are slices of it, copies where it is not given.
    shared: Option<&'a Bytes>,
    pub version: i16,
    pub flexible: bool,
}

impl<'a> Reader<'a> {
    pub fn new(shared: &'a Bytes, version: i16, flexible: bool) -> Reader<'a> {
        Reader { data: shared, position: 0, shared: Some(shared), version, flexible }
    }

    /// Over bytes that are written to later on: what is read is copied.
    pub fn over_slice(data: &'a [u8], version: i16, flexible: bool) -> Reader<'a> {
        Reader { data, position: 0, shared: None, version, flexible }
    }

    pub fn left(&self) -> usize {
        self.data.len() - self.position
    }

    /// All must have been read.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes(left)),
        }
    }

    fn range(&mut self, length: usize) -> Result<Range<usize>, DecodeError> {
        if length > self.left() {
            return Err(DecodeError::Truncated { needed: length, left: self.left() });
        }
        let start = self.position;
        self.position += length;
        Ok(start..self.position)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let range = self.range(N)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.data[range]);
        Ok(bytes)
    }

    fn bytes_of(&self, range: Range<usize>) -> Bytes {
        match self.shared {
            Some(shared) => shared.slice(range),
            None => Bytes::copy_from_slice(&self.data[range]),
        }
    }

    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_be_bytes(self.take()?))
    }

    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        Ok(i8::from_be_bytes(self.take()?))
    }

    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.take()?))
    }

    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.take()?))
    }

    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        Ok(Uuid::from_bytes(self.take()?))
    }

    /// At most five bytes, at most 32 bits.
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for index in 0..5 {
            let byte = self.u8()?;
            if index == 4 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Varint)
    }

    /// A length or count, `None` for null. Never more than `left() / unit`.
    fn count(&mut self, plain: i32, compact: bool, unit: usize) -> Result<Option<usize>, DecodeError> {
        let count = if compact { i64::from(self.unsigned_varint()?) - 1 } else { i64::from(plain) };
        match usize::try_from(count) {
            Ok(count) if count <= self.left() / unit => Ok(Some(count)),
            Err(_) if count == -1 => Ok(None),
            _ => Err(DecodeError::Count { count, left: self.left() }),
        }
    }

    /// Length of a nullable string.
    fn string_range(&mut self) -> Result<Option<Range<usize>>, DecodeError> {
        let plain = if self.flexible { 0 } else { i32::from(self.i16()?) };
        let length = self.count(plain, self.flexible, 1)?;
        length.map(|length| self.range(length)).transpose()
    }

    pub fn nullable_string(&mut self) -> Result<Option<StrBytes>, DecodeError> {
        let range = self.string_range()?;
        range
            .map(|range| StrBytes::from_utf8(self.bytes_of(range)).map_err(|_| DecodeError::Utf8))
            .transpose()
    }

    pub fn string(&mut self) -> Result<StrBytes, DecodeError> {
        self.nullable_string()?.ok_or(DecodeError::Null)
    }

    /// Where nullable bytes lie in the data.
    pub fn nullable_bytes_range(&mut self) -> Result<Option<Range<usize>>, DecodeError> {
        let plain = if self.flexible { 0 } else { self.i32()? };
        let length = self.count(plain, self.flexible, 1)?;
        length.map(|length| self.range(length)).transpose()
    }

    pub fn nullable_bytes(&mut self) -> Result<Option<Bytes>, DecodeError> {
        Ok(self.nullable_bytes_range()?.map(|range| self.bytes_of(range)))
    }

    /// Elements of an array of which each takes `min_bytes` or more.
    pub fn nullable_array_length(&mut self, min_bytes: usize) -> Result<Option<usize>, DecodeError> {
        let plain = if self.flexible { 0 } else { self.i32()? };
        self.count(plain, self.flexible, min_bytes.max(1))
    }

    pub fn array<T>(
        &mut self,
        min_bytes: usize,
        read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        self.nullable_array(min_bytes, read)?.ok_or(DecodeError::Null)
    }

    pub fn nullable_array<T>(
        &mut self,
        min_bytes: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(length) = self.nullable_array_length(min_bytes)? else { return Ok(None) };
        let mut values = Vec::with_capacity(length.min(MAX_INITIAL_CAPACITY));
        for _ in 0..length {
            values.push(read(self)?);
        }
        Ok(Some(values))
    }

    /// The tagged fields at the end of a flexible structure. `read` gets each tag with a reader over
    /// its content and returns whether it knows the tag; one it doesn't know is skipped.
    pub fn tags(
        &mut self,
        mut read: impl FnMut(u32, &mut Reader<'_>) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        if !self.flexible {
            return Ok(());
        }
        let count = self.unsigned_varint()?;
        if count > MAX_TAGS {
            return Err(DecodeError::TooManyTags { limit: MAX_TAGS });
        }
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            let length = self.unsigned_varint()? as usize;
            let range = self.range(length)?;
            let slice = self.shared.map(|shared| shared.slice(range.clone()));
            let mut content = Reader {
                data: &self.data[range],
                position: 0,
                shared: slice.as_ref(),
                version: self.version,
                flexible: true,
            };
            if read(tag, &mut content)? && content.left() > 0 {
                return Err(DecodeError::TagLength);
            }
        }
        Ok(())
    }

    /// Tagged fields of a structure that knows none.
    pub fn skip_tags(&mut self) -> Result<(), DecodeError> {
        self.tags(|_, _| Ok(false))
    }
}

/// Writes one message.
pub(crate) struct Writer<'a> {
    pub out: &'a mut BytesMut,
    pub version: i16,
    pub flexible: bool,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut BytesMut, version: i16, flexible: bool) -> Writer<'a> {
        Writer { out, version, flexible }
    }

    pub fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.put_u8((value as u8) | 0x80);
            value >>= 7;
        }
        self.out.put_u8(value as u8);
    }

    fn compact_length(&mut self, length: usize) -> Result<(), EncodeError> {
        let length = u32::try_from(length).ok().filter(|&length| length < u32::MAX);
        self.unsigned_varint(length.ok_or(EncodeError::TooLong(usize::MAX))? + 1);
        Ok(())
    }

    fn plain_length(&mut self, length: usize) -> Result<(), EncodeError> {
        self.out.put_i32(i32::try_from(length).map_err(|_| EncodeError::TooLong(length))?);
        Ok(())
    }

    pub fn nullable_string(&mut self, value: Option<&str>) -> Result<(), EncodeError> {
        match value {
            Some(text) if self.flexible => self.compact_length(text.len())?,
            Some(text) => {
                let length = i16::try_from(text.len()).map_err(|_| EncodeError::TooLong(text.len()))?;
                self.out.put_i16(length);
            }
            None if self.flexible => self.out.put_u8(0),
            None => self.out.put_i16(-1),
        }
        self.out.put_slice(value.unwrap_or_default().as_bytes());
        Ok(())
    }

    pub fn string(&mut self, value: &str) -> Result<(), EncodeError> {
        self.nullable_string(Some(value))
    }

    /// The length in front of bytes that the caller appends, or of an array's elements.
    pub fn length(&mut self, length: usize) -> Result<(), EncodeError> {
        if self.flexible { self.compact_length(length) } else { self.plain_length(length) }
    }

    pub fn null_length(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        } else {
            self.out.put_i32(-1);
        }
    }

    /// The end of a structure without tagged fields.
    pub fn no_tags(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        }
    }

    /// One tagged field; their count was written before.
    pub fn tag(
        &mut self,
        tag: u32,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let mut content = BytesMut::new();
        write(&mut Writer::new(&mut content, self.version, true))?;
        self.unsigned_varint(tag);
        self.unsigned_varint(u32::try_from(content.len()).map_err(|_| EncodeError::TooLong(content.len()))?);
        self.out.put_slice(&content);
        Ok(())
    }
}

/// A type of which fields can be.
pub(crate) trait Field: Sized {
    /// The fewest bytes that a value takes: bounds the count of an array of them.
    const MIN_BYTES: usize;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError>;
}

/// A structure of fields, as opposed to one value. Where it may be null a byte in front tells.
pub(crate) trait Structure: Field {}

macro_rules! number_field {
    ($($type:ty, $read:ident, $put:ident;)*) => {$(
        impl Field for $type {
            const MIN_BYTES: usize = size_of::<$type>();
            fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.$read()
            }
            fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
                writer.out.$put(*self);
                Ok(())
            }
        }
    )*};
}

number_field! {
    i8, i8, put_i8;
    i16, i16, put_i16;
    i32, i32, put_i32;
    i64, i64, put_i64;
}

impl Field for bool {
    const MIN_BYTES: usize = 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(reader.u8()? != 0)
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.out.put_u8(u8::from(*self));
        Ok(())
    }
}

impl Field for Uuid {
    const MIN_BYTES: usize = 16;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.uuid()
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.out.put_slice(self.as_bytes());
        Ok(())
    }
}

impl Field for StrBytes {
    const MIN_BYTES: usize = 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.string()
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.string(self)
    }
}

impl Field for TopicName {
    const MIN_BYTES: usize = 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(TopicName(reader.string()?))
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.string(&self.0)
    }
}

impl Field for BrokerId {
    const MIN_BYTES: usize = 4;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(BrokerId(reader.i32()?))
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.out.put_i32(self.0);
        Ok(())
    }
}

impl Field for Option<StrBytes> {
    const MIN_BYTES: usize = 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.nullable_string()
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.nullable_string(self.as_deref())
    }
}

impl<T: Field> Field for Vec<T> {
    const MIN_BYTES: usize = 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array(T::MIN_BYTES, T::read)
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.length(self.len())?;
        self.iter().try_for_each(|value| value.write(writer))
    }
}

impl<T: Field> Field for Option<Vec<T>> {
    const MIN_BYTES: usize = 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.nullable_array(T::MIN_BYTES, T::read)
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Some(values) => values.write(writer),
            None => {
                writer.null_length();
                Ok(())
            }
        }
    }
}

impl<T: Structure> Field for Option<T> {
    const MIN_BYTES: usize = 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.i8()? {
            -1 => Ok(None),
            1 => T::read(reader).map(Some),
            other => Err(DecodeError::Count { count: other.into(), left: reader.left() }),
        }
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Some(value) => {
                writer.out.put_i8(1);
                value.write(writer)
            }
            None => {
                writer.out.put_i8(-1);
                Ok(())
            }
        }
    }
}

/// A structure as its schema lists it: fields in wire order, each from a version on where that is not
/// the first, and with its default where that is not zero, empty or null; then the tagged fields, which
/// are written where they differ from their default.
macro_rules! structure {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident: $type:ty $([since $since:literal])? $(= $default:expr)?, )*
        }
        $(tagged {
            $( $(#[$tag_meta:meta])* $tag:literal => $tagged:ident: $tagged_type:ty $(= $tagged_default:expr)?, )*
        })?
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
            $($( $(#[$tag_meta])* pub $tagged: $tagged_type, )*)?
        }

        impl Default for $name {
            fn default() -> Self {
                $name {
                    $( $field: $crate::wire::structure!(@default $($default)?), )*
                    $($( $tagged: $crate::wire::structure!(@default $($tagged_default)?), )*)?
                }
            }
        }

        impl $crate::wire::Structure for $name {}

        impl $crate::wire::Field for $name {
            const MIN_BYTES: usize =
                0 $( + $crate::wire::structure!(@min_bytes $type, $($since)?) )*;

            #[allow(unused_variables, unused_mut)]
            fn read(
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::error::DecodeError> {
                let mut read = Self::default();
                $(
                    if $crate::wire::structure!(@present reader, $($since)?) {
                        read.$field = $crate::wire::Field::read(reader)?;
                    }
                )*
                reader.tags(|tag, content| {
                    match tag {
                        $($( $tag => read.$tagged = $crate::wire::Field::read(content)?, )*)?
                        _ => return Ok(false),
                    }
                    #[allow(unreachable_code)]
                    Ok(true)
                })?;
                Ok(read)
            }

            #[allow(unused_variables, unused_mut)]
            fn write(
                &self,
                writer: &mut $crate::wire::Writer<'_>,
            ) -> Result<(), $crate::error::EncodeError> {
                $(
                    if $crate::wire::structure!(@present writer, $($since)?) {
                        $crate::wire::Field::write(&self.$field, writer)?;
                    }
                )*
                if writer.flexible {
                    let defaults = Self::default();
                    let mut count = 0;
                    $($( count += u32::from(self.$tagged != defaults.$tagged); )*)?
                    writer.unsigned_varint(count);
                    $($(
                        if self.$tagged != defaults.$tagged {
                            writer.tag($tag, |content| $crate::wire::Field::write(&self.$tagged, content))?;
                        }
                    )*)?
                }
                Ok(())
            }
        }
    )*};
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@present $at:ident,) => { true };
    (@present $at:ident, $since:literal) => { $at.version >= $since };
    (@min_bytes $type:ty,) => { <$type as $crate::wire::Field>::MIN_BYTES };
    // Not there in older versions.
    (@min_bytes $type:ty, $since:literal) => { 0 };
}
pub(crate) use structure;

/// Kafka-protocol's way to fill a message in a chain of calls.
macro_rules! setters {
    ($($name:ident { $($setter:ident, $field:ident: $type:ty;)* })*) => {$(
        impl $name {
            $(
                pub fn $setter(mut self, value: $type) -> Self {
                    self.$field = value;
                    self
                }
            )*
        }
    )*};
}
pub(crate) use setters;
