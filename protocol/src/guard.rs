//! `kafka-protocol`'s decoders made safe for bytes of a peer.
//!
//! They hand counts from the wire to `Vec::with_capacity`, so that five bytes can abort the process.
//! They are generic over the buffer, though, and this buffer refuses what cannot be true:
//!
//! - Flexible versions: each unsigned varint (counts and lengths come no other way) is checked against
//!   the bytes left.
//! - Older versions: a count is an int32 like any other. A first pass hands back each int32 lowered to
//!   the bytes left + 1. A count that was lowered runs out of bytes, since an element takes at least
//!   one, so the second pass, with the true numbers, only happens where all counts are true.
//! - Counts are bounded by a number of values, since one byte may become a structure of a hundred.

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::Decodable;
use kafka_protocol::protocol::buf::{ByteBuf, NotEnoughBytesError};

use crate::error::DecodeError;
use crate::wire::MAX_TAGS;

/// Numbers, strings and counts that one message may hold. A fetch of 100,000 partitions has 800,000.
pub(crate) const MAX_VALUES: u32 = 1 << 20;

/// The number of a tag is no count, and may be above the few bytes left at the end of a message.
const ALWAYS_ALLOWED: u64 = 256;

/// Decodes the whole of `bytes`, which a peer sent.
pub(crate) fn decode<T: Decodable>(bytes: Bytes, version: i16, flexible: bool) -> Result<T, DecodeError> {
    if !flexible {
        pass::<T>(bytes.clone(), version, true)?;
    }
    pass(bytes, version, false)
}

fn pass<T: Decodable>(bytes: Bytes, version: i16, lower_int32: bool) -> Result<T, DecodeError> {
    let mut guard = Guard::new(bytes, lower_int32);
    let decoded = T::decode(&mut guard, version);
    if let Some(refusal) = guard.refusal {
        return Err(refusal);
    }
    let message = decoded.map_err(|error| DecodeError::Malformed(error.to_string()))?;
    match guard.bytes.len() {
        0 => Ok(message),
        left => Err(DecodeError::TrailingBytes(left)),
    }
}

struct Guard {
    bytes: Bytes,
    lower_int32: bool,
    values_left: u32,
    /// The bytes of an unsigned varint read so far. A boolean is one byte of the same kind: one that is
    /// neither 0 nor 1 may join what follows, which only makes the number larger.
    varint: u64,
    varint_bytes: u32,
    /// The number that the last read ended, if it was a varint.
    last_varint: Option<u64>,
    /// Unknown tagged fields read one after the other.
    unknown_tags: u32,
    varints_since_value: u32,
    refusal: Option<DecodeError>,
}

impl Guard {
    fn new(bytes: Bytes, lower_int32: bool) -> Guard {
        Guard {
            bytes,
            lower_int32,
            values_left: MAX_VALUES,
            varint: 0,
            varint_bytes: 0,
            last_varint: None,
            unknown_tags: 0,
            varints_since_value: 0,
            refusal: None,
        }
    }

    fn refuse(&mut self, error: DecodeError) -> TryGetError {
        self.refusal.get_or_insert(error);
        // Only its being an error counts: `pass` returns the refusal.
        TryGetError { requested: 1, available: 0 }
    }

    fn count_value(&mut self) -> Result<(), TryGetError> {
        match self.values_left.checked_sub(1) {
            Some(left) => {
                self.values_left = left;
                Ok(())
            }
            None => Err(self.refuse(DecodeError::TooManyValues { limit: MAX_VALUES })),
        }
    }

    /// Before each read that is no part of a varint.
    fn other_value(&mut self) -> Result<(), TryGetError> {
        self.varint = 0;
        self.varint_bytes = 0;
        self.last_varint = None;
        self.unknown_tags = 0;
        self.varints_since_value = 0;
        self.count_value()
    }

    /// The most that a count may be.
    fn highest_count(&self) -> u64 {
        (self.bytes.len() as u64 + 1).min(u64::from(MAX_VALUES))
    }

    fn varint_byte(&mut self, byte: u8) -> Result<(), TryGetError> {
        if self.varint_bytes == 4 && byte > 0x0f {
            return Err(self.refuse(DecodeError::Varint));
        }
        self.varint |= u64::from(byte & 0x7f) << (7 * self.varint_bytes);
        self.varint_bytes += 1;
        if byte >= 0x80 {
            return Ok(());
        }
        let value = self.varint;
        self.varint = 0;
        self.varint_bytes = 0;
        self.last_varint = Some(value);
        self.varints_since_value += 1;
        self.count_value()?;
        if value > self.highest_count().max(ALWAYS_ALLOWED) {
            let left = self.bytes.len();
            return Err(self.refuse(DecodeError::Count { count: value as i64, left }));
        }
        Ok(())
    }

    /// An unknown tagged field is read as two varints, number and length, then that many bytes. Where
    /// bytes follow a varint otherwise, it is their length + 1.
    fn bytes_follow(&mut self, size: usize) -> Result<(), DecodeError> {
        let unknown_tag = self.last_varint == Some(size as u64) && self.varints_since_value >= 2;
        let run = if unknown_tag { self.unknown_tags + 1 } else { 0 };
        if run > MAX_TAGS {
            return Err(DecodeError::TooManyTags { limit: MAX_TAGS });
        }
        self.last_varint = None;
        self.varints_since_value = 0;
        self.unknown_tags = run;
        Ok(())
    }
}

macro_rules! guarded {
    ($($get:ident -> $type:ty;)*) => {$(
        fn $get(&mut self) -> Result<$type, TryGetError> {
            self.other_value()?;
            self.bytes.$get()
        }
    )*};
}

impl Buf for Guard {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        let byte = self.bytes.try_get_u8()?;
        self.varint_byte(byte)?;
        Ok(byte)
    }

    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        self.other_value()?;
        let value = self.bytes.try_get_i32()?;
        if !self.lower_int32 {
            return Ok(value);
        }
        let highest = i32::try_from(self.highest_count()).unwrap_or(i32::MAX);
        Ok(value.min(highest))
    }

    guarded! {
        try_get_i8 -> i8;
        try_get_i16 -> i16;
        try_get_u16 -> u16;
        try_get_u32 -> u32;
        try_get_i64 -> i64;
        try_get_f64 -> f64;
    }

    fn try_copy_to_slice(&mut self, into: &mut [u8]) -> Result<(), TryGetError> {
        self.other_value()?;
        self.bytes.try_copy_to_slice(into)
    }
}

impl ByteBuf for Guard {
    fn peek_bytes(&mut self, range: std::ops::Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.bytes.split_to(size)
    }

    fn try_get_bytes(&mut self, size: usize) -> Result<Bytes, NotEnoughBytesError> {
        if self.bytes.len() < size {
            return Err(NotEnoughBytesError);
        }
        if let Err(refusal) = self.bytes_follow(size) {
            self.refuse(refusal);
            return Err(NotEnoughBytesError);
        }
        Ok(self.bytes.split_to(size))
    }
}

#[cfg(test)]
mod tests;
