//! Writes primitive types.

use bytes::{BufMut, BytesMut};

use crate::error::EncodeError;

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
