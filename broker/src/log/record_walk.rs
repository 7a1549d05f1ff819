//! One walk over a batch's records without an allocation a record: where each begins and ends, its
//! offset and time, and where its key lies. Compressed bodies are walked as they are decompressed.

use std::cell::RefCell;
use std::io::Read;
use std::ops::ControlFlow;

use protocol::record_batch::Compression;

use super::compression::decompressor;

/// Window through which compressed bodies are seen; one a thread, kept.
const WINDOW_BYTES: usize = 32 * 1024;

/// A record. Positions count uncompressed bytes from the start of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    pub index: i32,
    pub offset_delta: i32,
    pub timestamp_delta: i64,
    pub start: usize,
    pub end: usize,
    pub key_start: usize,
    /// None: the record has no key.
    pub key_bytes: Option<usize>,
    /// The value is null: a tombstone, where topics are compacted.
    pub value_is_null: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkError {
    #[error("record {index}: {reason}")]
    Malformed { index: i32, reason: &'static str },
    #[error("{0}")]
    Decompression(std::io::Error),
    #[error("more than {cap} bytes uncompressed")]
    TooLarge { cap: usize },
    #[error("the records end before record {index} of {count}")]
    TooFew { index: i32, count: i32 },
    #[error("bytes follow the last of {count} records")]
    TooMany { count: i32 },
}

/// Calls `visit` for each of the `count` records of `body`. After `Break` nothing more is looked at.
pub(crate) fn walk_records(
    compression: Compression,
    body: &[u8],
    count: i32,
    cap: usize,
    visit: impl FnMut(&RecordPlace) -> ControlFlow<()>,
) -> Result<(), WalkError> {
    if compression == Compression::None {
        return walk(&mut SliceSource { bytes: body, position: 0 }, count, visit);
    }
    thread_local! {
        static WINDOW: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let reader = decompressor(compression, body).map_err(WalkError::Decompression)?;
    let mut window = WINDOW.take();
    window.resize(WINDOW_BYTES, 0);
    let mut source = StreamSource { reader, window, start: 0, end: 0, consumed: 0, cap };
    let result = walk(&mut source, count, visit);
    WINDOW.set(source.window);
    result
}

fn walk<S: ByteSource>(
    source: &mut S,
    count: i32,
    mut visit: impl FnMut(&RecordPlace) -> ControlFlow<()>,
) -> Result<(), WalkError> {
    for index in 0..count {
        if source.at_end()? {
            return Err(WalkError::TooFew { index, count });
        }
        let place = walk_record(source, index)?;
        if visit(&place).is_break() {
            return Ok(());
        }
    }
    if source.at_end()? { Ok(()) } else { Err(WalkError::TooMany { count }) }
}

fn walk_record<S: ByteSource>(source: &mut S, index: i32) -> Result<RecordPlace, WalkError> {
    let malformed = |reason| WalkError::Malformed { index, reason };
    let start = source.position();
    let length = source.varint(index)?;
    let body = source.position();
    let length = usize::try_from(length).map_err(|_| malformed("negative length"))?;
    let end = body.checked_add(length).ok_or_else(|| malformed("length overflows"))?;
    // The lengths inside must stay inside: a key that runs past its record must not be skipped over.
    let within = |source: &S, bytes: usize| bytes <= end.saturating_sub(source.position());
    source.byte(index)?; // attributes: none are in use
    let timestamp_delta = source.varlong(index)?;
    let offset_delta = source.varint(index)?;
    let key_length = source.varint(index)?;
    let key_start = source.position();
    let key_bytes = match key_length {
        -1 => None,
        length => Some(usize::try_from(length).map_err(|_| malformed("negative key length"))?),
    };
    if let Some(bytes) = key_bytes {
        if !within(source, bytes) {
            return Err(malformed("key ends past the record"));
        }
        source.skip(bytes, index)?;
    }
    let value_length = source.varint(index)?;
    if value_length != -1 {
        let bytes = usize::try_from(value_length).map_err(|_| malformed("negative value length"))?;
        if !within(source, bytes) {
            return Err(malformed("value ends past the record"));
        }
        source.skip(bytes, index)?;
    }
    let headers = source.varint(index)?;
    // Each header takes two bytes at least, which also bounds the loop.
    let headers = usize::try_from(headers).map_err(|_| malformed("negative number of headers"))?;
    if !within(source, headers.saturating_mul(2)) {
        return Err(malformed("more headers than bytes"));
    }
    for _ in 0..headers {
        let key = source.varint(index)?;
        let key = usize::try_from(key).map_err(|_| malformed("negative header key length"))?;
        if !within(source, key) {
            return Err(malformed("header key ends past the record"));
        }
        source.skip(key, index)?;
        let value = source.varint(index)?;
        if value != -1 {
            let value = usize::try_from(value).map_err(|_| malformed("negative header value length"))?;
            if !within(source, value) {
                return Err(malformed("header value ends past the record"));
            }
            source.skip(value, index)?;
        }
    }
    if source.position() != end {
        return Err(malformed("length does not match the content"));
    }
    let value_is_null = value_length == -1;
    Ok(RecordPlace { index, offset_delta, timestamp_delta, start, end, key_start, key_bytes, value_is_null })
}

trait ByteSource {
    fn byte(&mut self, index: i32) -> Result<u8, WalkError>;
    fn skip(&mut self, bytes: usize, index: i32) -> Result<(), WalkError>;
    fn position(&self) -> usize;
    fn at_end(&mut self) -> Result<bool, WalkError>;

    /// Zigzag, at most five bytes.
    #[inline]
    fn varint(&mut self, index: i32) -> Result<i32, WalkError> {
        let first = self.byte(index)?;
        if first < 0x80 {
            return Ok(i32::from(first >> 1) ^ -i32::from(first & 1));
        }
        let mut value = u32::from(first & 0x7f);
        for shift in [7, 14, 21, 28] {
            let byte = self.byte(index)?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                if shift == 28 && byte > 0x0f {
                    break;
                }
                return Ok((value >> 1) as i32 ^ -((value & 1) as i32));
            }
        }
        Err(WalkError::Malformed { index, reason: "number of more than 32 bits" })
    }

    /// Zigzag, at most ten bytes.
    #[inline]
    fn varlong(&mut self, index: i32) -> Result<i64, WalkError> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte(index)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                if shift == 63 && byte > 1 {
                    break;
                }
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(WalkError::Malformed { index, reason: "number of more than 64 bits" })
    }
}

struct SliceSource<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl ByteSource for SliceSource<'_> {
    #[inline]
    fn byte(&mut self, index: i32) -> Result<u8, WalkError> {
        let byte = *self.bytes.get(self.position).ok_or(WalkError::Malformed { index, reason: "cut off" })?;
        self.position += 1;
        Ok(byte)
    }

    #[inline]
    fn skip(&mut self, bytes: usize, index: i32) -> Result<(), WalkError> {
        if bytes > self.bytes.len() - self.position {
            return Err(WalkError::Malformed { index, reason: "cut off" });
        }
        self.position += bytes;
        Ok(())
    }

    #[inline]
    fn position(&self) -> usize {
        self.position
    }

    #[inline]
    fn at_end(&mut self) -> Result<bool, WalkError> {
        Ok(self.position == self.bytes.len())
    }
}

struct StreamSource<'a> {
    reader: Box<dyn Read + 'a>,
    window: Vec<u8>,
    start: usize,
    end: usize,
    consumed: usize,
    cap: usize,
}

impl StreamSource<'_> {
    /// False at the end of the stream.
    fn fill(&mut self) -> Result<bool, WalkError> {
        if self.start < self.end {
            return Ok(true);
        }
        loop {
            match self.reader.read(&mut self.window) {
                Ok(count) => {
                    (self.start, self.end) = (0, count);
                    if self.consumed.saturating_add(count) > self.cap {
                        return Err(WalkError::TooLarge { cap: self.cap });
                    }
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(WalkError::Decompression(error)),
            }
        }
    }
}

impl ByteSource for StreamSource<'_> {
    #[inline]
    fn byte(&mut self, index: i32) -> Result<u8, WalkError> {
        if self.start == self.end && !self.fill()? {
            return Err(WalkError::Malformed { index, reason: "cut off" });
        }
        let byte = self.window[self.start];
        self.start += 1;
        self.consumed += 1;
        Ok(byte)
    }

    fn skip(&mut self, mut bytes: usize, index: i32) -> Result<(), WalkError> {
        while bytes > 0 {
            if !self.fill()? {
                return Err(WalkError::Malformed { index, reason: "cut off" });
            }
            let step = bytes.min(self.end - self.start);
            self.start += step;
            self.consumed += step;
            bytes -= step;
        }
        Ok(())
    }

    fn position(&self) -> usize {
        self.consumed
    }

    fn at_end(&mut self) -> Result<bool, WalkError> {
        Ok(!self.fill()?)
    }
}
