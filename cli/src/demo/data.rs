//! The demo's records: keyed, in batches of every codec that Kafka's clients write.

use std::io::Write;

use bytes::{Bytes, BytesMut};
use protocol::record_batch::{BatchBuilder, Compression, HEADER_BYTES, set_crc};

use crate::failure::Failure;

/// Records of one batch.
pub const RECORDS_PER_BATCH: usize = 100;
const ATTRIBUTES: usize = 21;
const LENGTH: usize = 8;
/// Bytes in front of what a batch's length counts.
const LOG_OVERHEAD: usize = 12;

pub const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// A batch of keyed records, `number` making its values unlike those of other batches.
pub fn batch(number: usize, codec: Compression, now_ms: i64) -> Result<Bytes, Failure> {
    let mut builder = BatchBuilder::new();
    for index in 0..RECORDS_PER_BATCH {
        let order = number * RECORDS_PER_BATCH + index;
        let key = format!("customer-{}", order % 997);
        let value = format!(
            "{{\"order\":{order},\"amount\":{}.{:02},\"state\":\"placed\",\"note\":\"{}\"}}",
            order % 500,
            order % 100,
            "lorem ipsum dolor sit amet ".repeat(1 + order % 4)
        );
        builder = builder.record(now_ms, Some(key.as_bytes()), Some(value.as_bytes()));
    }
    compress(builder.build_mut(), codec)
}

/// The batch with its body compressed.
fn compress(plain: BytesMut, codec: Compression) -> Result<Bytes, Failure> {
    let failed = |error: std::io::Error| Failure::refused(format!("cannot compress a batch: {error}"));
    let body = &plain[HEADER_BYTES..];
    let compressed = match codec {
        Compression::None => return Ok(plain.freeze()),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(body).and_then(|()| encoder.finish()).map_err(failed)?
        }
        Compression::Snappy => xerial_snappy(body)?,
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(body).map_err(failed)?;
            encoder.finish().map_err(|error| failed(std::io::Error::other(error)))?
        }
        Compression::Zstd => zstd::bulk::compress(body, 3).map_err(failed)?,
    };
    let mut batch = BytesMut::with_capacity(HEADER_BYTES + compressed.len());
    batch.extend_from_slice(&plain[..HEADER_BYTES]);
    batch.extend_from_slice(&compressed);
    let length = (batch.len() - LOG_OVERHEAD) as i32;
    batch[LENGTH..LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    batch[ATTRIBUTES..ATTRIBUTES + 2].copy_from_slice(&(codec as i16).to_be_bytes());
    set_crc(&mut batch);
    Ok(batch.freeze())
}

/// Snappy as Java's clients frame it.
fn xerial_snappy(body: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut out = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01".to_vec();
    let block = snap::raw::Encoder::new()
        .compress_vec(body)
        .map_err(|error| Failure::refused(format!("cannot compress a batch: {error}")))?;
    out.extend_from_slice(&(block.len() as u32).to_be_bytes());
    out.extend_from_slice(&block);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::record_batch::{BatchHeader, check_crc};

    #[test]
    fn every_codec_gives_a_whole_batch_with_its_crc() {
        for codec in CODECS {
            let batch = batch(7, codec, 1_000).unwrap();
            let header = BatchHeader::parse(&batch).unwrap();
            assert_eq!(header.compression().unwrap(), codec);
            assert_eq!(header.size_bytes(), batch.len());
            assert_eq!(header.records_count as usize, RECORDS_PER_BATCH);
            check_crc(&batch).unwrap();
        }
    }
}
