//! Batches of records, and the records of batches.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use protocol::record_batch::{BatchBuilder, Compression, HEADER_BYTES, LOG_OVERHEAD_BYTES, batches, set_crc};

const LENGTH: usize = 8;
const ATTRIBUTES: usize = 21;

/// Records are of now: retention deletes older ones, as it should.
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// One batch with a record for each value.
pub fn batch<T: AsRef<str>>(values: &[T]) -> Bytes {
    let (mut builder, timestamp) = (BatchBuilder::new(), now_ms());
    for value in values {
        builder.push(timestamp, None, Some(value.as_ref().as_bytes()), &[]);
    }
    builder.build()
}

/// One batch with a record for each key; without a value it is a tombstone.
pub fn keyed<K: AsRef<str>>(records: &[(K, Option<&str>)]) -> Bytes {
    let (mut builder, timestamp) = (BatchBuilder::new(), now_ms());
    for (key, value) in records {
        builder.push(timestamp, Some(key.as_ref().as_bytes()), value.map(str::as_bytes), &[]);
    }
    builder.build()
}

/// Values `prefix-0` and so on.
pub fn values(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

/// A batch with its records compressed, as clients do it.
pub fn compressed(plain: &[u8], codec: Compression) -> Result<Bytes> {
    let body = &plain[HEADER_BYTES..];
    let body = match codec {
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            std::io::Write::write_all(&mut encoder, body)?;
            encoder.finish()?
        }
        Compression::Zstd => zstd::bulk::compress(body, 3)?,
        other => anyhow::bail!("{other:?} is not made here"),
    };
    let mut batch = BytesMut::from(&plain[..HEADER_BYTES]);
    batch.extend_from_slice(&body);
    let length = (batch.len() - LOG_OVERHEAD_BYTES) as i32;
    batch[LENGTH..LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    batch[ATTRIBUTES..ATTRIBUTES + 2].copy_from_slice(&(codec as i16).to_be_bytes());
    set_crc(&mut batch);
    Ok(batch.freeze())
}

/// The values of uncompressed batches, in order.
pub fn values_of(bytes: &[u8]) -> Result<Vec<String>> {
    let mut values = Vec::new();
    for batch in batches(bytes) {
        for record in batch?.records() {
            values.push(String::from_utf8_lossy(record?.value.unwrap_or_default()).into_owned());
        }
    }
    Ok(values)
}

/// Offset, key and value of each record of uncompressed batches.
pub fn records_of(bytes: &[u8]) -> Result<Vec<(i64, String, Option<String>)>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut records = Vec::new();
    for batch in batches(bytes) {
        let batch = batch?;
        for record in batch.records() {
            let record = record?;
            let offset = batch.header.base_offset + i64::from(record.offset_delta);
            records.push((offset, text(record.key.unwrap_or_default()), record.value.map(text)));
        }
    }
    Ok(records)
}
