//! What became of an input, as one number: which readers took it and how the others refused it.

use std::fmt::{self, Display, Write as _};

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Grows as an input passes from reader to reader. Nothing here allocates.
#[derive(Clone, Copy, Debug)]
pub struct Trail {
    hash: u64,
    /// The main reader took the input.
    pub accepted: bool,
    /// Between quotation marks in a message: what the input said, not what became of it.
    quoted: bool,
}

impl Default for Trail {
    fn default() -> Trail {
        Trail { hash: FNV_OFFSET, accepted: false, quoted: false }
    }
}

impl Trail {
    fn byte(&mut self, byte: u8) {
        self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    }

    pub fn note(&mut self, value: impl Into<i64>) {
        value.into().to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    /// A size, coarsely.
    pub fn size(&mut self, size: usize) {
        self.note((usize::BITS - size.leading_zeros()) as i32);
    }

    /// A refusal, without the numbers and the quotations in it.
    pub fn refused(&mut self, error: impl Display) {
        self.quoted = false;
        // Hashing cannot fail, and a message that cannot be written is as good as none.
        let _ = write!(self, "{error}");
    }

    /// Notes whether it went well and gives the value.
    pub fn result<T, E: Display>(&mut self, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => {
                self.byte(1);
                Some(value)
            }
            Err(error) => {
                self.refused(error);
                None
            }
        }
    }

    pub fn accept(&mut self) {
        self.accepted = true;
        self.byte(2);
    }

    pub fn signature(&self) -> u64 {
        self.hash
    }
}

impl fmt::Write for Trail {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            match byte {
                b'`' | b'"' => self.quoted = !self.quoted,
                b'0'..=b'9' | b'-' => {}
                _ if self.quoted => {}
                _ => self.byte(byte),
            }
        }
        Ok(())
    }
}
