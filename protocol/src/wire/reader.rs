//! Reads primitive types off bytes.

use std::ops::Range;

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::MAX_TAGS;
use crate::error::DecodeError;

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
