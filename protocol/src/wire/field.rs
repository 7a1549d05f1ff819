//! The types that a field of a message can have, each with its way to and from the wire.

use bytes::BufMut;
use kafka_protocol::messages::{BrokerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Reader, Writer};
use crate::error::{DecodeError, EncodeError};

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
