//! Decompression of batch bodies as a stream under a budget, and compression for the cleaner. What a
//! batch claims about its size is never believed: memory follows the bytes that really come out, and those
//! are counted.

use std::io::{self, Read, Write as _};

use protocol::record_batch::Compression;

/// snappy-java's stream header: magic, version, compatible version.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
/// Snappy's densest element copies 64 bytes for 3, so no honest block claims more.
const SNAPPY_MAX_RATIO: usize = 24;
/// Windows of up to 128 MiB, what zstd's own highest level writes. Memory is touched only as it fills.
const ZSTD_MAX_WINDOW_LOG: u32 = 27;
/// The defaults of Kafka's producer.
const ZSTD_LEVEL: i32 = 3;
const SNAPPY_BLOCK_BYTES: usize = 32 * 1024;

/// The uncompressed bytes of `body`.
pub(crate) fn decompressor<'a>(compression: Compression, body: &'a [u8]) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match compression {
        Compression::None => Box::new(body),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(body)),
        Compression::Snappy => Box::new(SnappyReader::new(body)),
        Compression::Lz4 => {
            check_lz4_frame(body)?;
            Box::new(lz4_flex::frame::FrameDecoder::new(body))
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
            decoder.window_log_max(ZSTD_MAX_WINDOW_LOG)?;
            Box::new(decoder)
        }
    })
}

/// The decoder takes the end of the bytes for the end of the frame. Consumers do not, and would fail on a
/// batch whose frame has no end mark, so it must not get in.
fn check_lz4_frame(body: &[u8]) -> io::Result<()> {
    const BLOCK_CHECKSUM: u8 = 0x10;
    const CONTENT_SIZE: u8 = 0x08;
    const CONTENT_CHECKSUM: u8 = 0x04;
    const DICTIONARY_ID: u8 = 0x01;
    let cut_off = || io::Error::new(io::ErrorKind::UnexpectedEof, "lz4 frame without an end");
    let flags = *body.get(4).ok_or_else(cut_off)?;
    let has = |flag: u8, bytes: usize| if flags & flag != 0 { bytes } else { 0 };
    // Magic, flags, block descriptor, optional fields, header checksum.
    let mut position = 7 + has(CONTENT_SIZE, 8) + has(DICTIONARY_ID, 4);
    loop {
        let size = body.get(position..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(cut_off)?;
        // The top bit tells that the block is not compressed.
        let size = (u32::from_le_bytes(*size) & 0x7fff_ffff) as usize;
        position += 4;
        if size == 0 {
            let end = position + has(CONTENT_CHECKSUM, 4);
            return if end == body.len() { Ok(()) } else { Err(cut_off()) };
        }
        position = position.checked_add(size + has(BLOCK_CHECKSUM, 4)).ok_or_else(cut_off)?;
    }
}

/// Snappy as producers write it: snappy-java's chunks, or one bare block.
struct SnappyReader<'a> {
    rest: &'a [u8],
    framed: bool,
    block: Vec<u8>,
    read: usize,
}

impl<'a> SnappyReader<'a> {
    fn new(body: &'a [u8]) -> SnappyReader<'a> {
        let framed = body.starts_with(&XERIAL_MAGIC) && body.len() >= XERIAL_HEADER_BYTES;
        let rest = if framed { &body[XERIAL_HEADER_BYTES..] } else { body };
        SnappyReader { rest, framed, block: Vec::new(), read: 0 }
    }

    fn next_block(&mut self) -> io::Result<()> {
        let block = if self.framed {
            let Some((length, rest)) = self.rest.split_first_chunk::<4>() else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "cut-off snappy chunk length"));
            };
            let length = u32::from_be_bytes(*length) as usize;
            let Some((block, rest)) = rest.split_at_checked(length) else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "cut-off snappy chunk"));
            };
            self.rest = rest;
            block
        } else {
            std::mem::take(&mut self.rest)
        };
        let invalid = |error: snap::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let length = snap::raw::decompress_len(block).map_err(invalid)?;
        if length > block.len().saturating_mul(SNAPPY_MAX_RATIO) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a snappy block claims an impossible length",
            ));
        }
        self.block.resize(length, 0);
        self.read = 0;
        snap::raw::Decoder::new().decompress(block, &mut self.block).map_err(invalid)?;
        Ok(())
    }
}

impl Read for SnappyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.block.len() {
            if self.rest.is_empty() {
                return Ok(0);
            }
            self.next_block()?;
        }
        let waiting = &self.block[self.read..];
        let count = waiting.len().min(buffer.len());
        buffer[..count].copy_from_slice(&waiting[..count]);
        self.read += count;
        Ok(count)
    }
}

/// Appends `bytes` to `out`, compressed as Kafka's own clients do by default. For the cleaner, which
/// rewrites batches in the codec they came in.
pub(crate) fn compress(compression: Compression, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    match compression {
        Compression::None => out.extend_from_slice(bytes),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            encoder.write_all(bytes)?;
            encoder.finish()?;
        }
        Compression::Snappy => compress_snappy(bytes, out)?,
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(out);
            encoder.write_all(bytes)?;
            encoder.finish().map_err(io::Error::other)?;
        }
        Compression::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
            encoder.write_all(bytes)?;
            encoder.finish()?;
        }
    }
    Ok(())
}

/// snappy-java's stream: consumers written in Java understand no other.
fn compress_snappy(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&XERIAL_MAGIC);
    out.extend_from_slice(&1_u32.to_be_bytes());
    out.extend_from_slice(&1_u32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for chunk in bytes.chunks(SNAPPY_BLOCK_BYTES) {
        let block = encoder.compress_vec(chunk).map_err(io::Error::other)?;
        out.extend_from_slice(&(block.len() as u32).to_be_bytes());
        out.extend_from_slice(&block);
    }
    Ok(())
}
