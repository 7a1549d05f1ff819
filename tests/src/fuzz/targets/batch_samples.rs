//! Record batches of every kind that a log can hold.

use std::io::Write as _;

use broker::log::proof::compress;
use protocol::record_batch::{
    BatchBuilder, Compression, EndTxnMarker, HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordHeader, TimestampType,
    set_crc,
};

/// When the logs of the fuzzer live.
pub const NOW_MS: i64 = 1_700_000_000_000;

const LENGTH: std::ops::Range<usize> = 8..12;
const ATTRIBUTES_LOW: usize = 22;

pub const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn code(compression: Compression) -> u8 {
    CODECS.iter().position(|codec| *codec == compression).unwrap_or_default() as u8
}

/// Makes length and checksum of exactly one batch right.
pub fn seal(batch: &mut [u8]) {
    if batch.len() < HEADER_BYTES {
        return;
    }
    let length = (batch.len() - LOG_OVERHEAD_BYTES) as i32;
    batch[LENGTH].copy_from_slice(&length.to_be_bytes());
    set_crc(batch);
}

/// The batch with its records in another codec; as it is where it cannot be compressed.
pub fn recompressed(batch: &[u8], compression: Compression) -> Vec<u8> {
    let Some((header, body)) = batch.split_at_checked(HEADER_BYTES) else { return batch.to_vec() };
    let Ok(compressed) = compress(compression, body) else { return batch.to_vec() };
    let mut batch = [header, &compressed].concat();
    batch[ATTRIBUTES_LOW] = batch[ATTRIBUTES_LOW] & !7 | code(compression);
    seal(&mut batch);
    batch
}

fn records(builder: BatchBuilder, count: i64) -> BatchBuilder {
    (0..count).fold(builder, |builder, number| {
        let key = format!("key-{}", number % 3);
        let value = format!(
            "value {number} of a record that is long enough to be compressed, compressed, compressed"
        );
        let value = (number % 4 != 3).then_some(value.as_bytes());
        let headers = [
            RecordHeader { name: "trace", value: Some(b"0123456789abcdef") },
            RecordHeader { name: "empty", value: None },
        ];
        let headers = if number % 2 == 0 { &headers[..] } else { &[] };
        builder.record_with_headers(NOW_MS + number, Some(key.as_bytes()), value, headers)
    })
}

/// As producers send them.
pub fn produced() -> Vec<Vec<u8>> {
    let plain = records(BatchBuilder::new(), 3).build().to_vec();
    let mut all: Vec<Vec<u8>> = CODECS.iter().map(|codec| recompressed(&plain, *codec)).collect();
    all.push(records(BatchBuilder::new().producer(42, 1, 5), 2).build().to_vec());
    all.push(BatchBuilder::new().record(NOW_MS, None, Some(b"no key")).build().to_vec());
    all.push(large_windows(&plain));
    all
}

/// zstd with a window as large as its content says, and a content size in the frame.
fn large_windows(plain: &[u8]) -> Vec<u8> {
    let compress = || -> std::io::Result<Vec<u8>> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1)?;
        encoder.window_log(27)?;
        encoder.include_checksum(true)?;
        encoder.write_all(&plain[HEADER_BYTES..])?;
        encoder.finish()
    };
    let Ok(body) = compress() else { return plain.to_vec() };
    let mut batch = [&plain[..HEADER_BYTES], &body].concat();
    batch[ATTRIBUTES_LOW] = batch[ATTRIBUTES_LOW] & !7 | code(Compression::Zstd);
    seal(&mut batch);
    batch
}

/// Runs of batches as they stand in a log: offsets ascend, epochs do not fall, transactions end.
pub fn copied() -> Vec<Vec<u8>> {
    let batch = |base: i64, epoch: i32, count: i64| {
        records(BatchBuilder::new().base_offset(base).leader_epoch(epoch), count).build().to_vec()
    };
    let transactional = |base: i64, producer: i64, sequence: i32| {
        let builder = BatchBuilder::new().base_offset(base).leader_epoch(2).producer(producer, 0, sequence);
        records(builder.transactional(), 2).build().to_vec()
    };
    let marker = |base: i64, producer: i64, committed: bool| {
        let marker = EndTxnMarker { committed, coordinator_epoch: 1 };
        BatchBuilder::new()
            .base_offset(base)
            .leader_epoch(2)
            .producer(producer, 0, -1)
            .end_txn_marker(NOW_MS, marker)
            .build()
    };
    let compressed: Vec<u8> = CODECS
        .iter()
        .zip(0..)
        .flat_map(|(codec, place)| recompressed(&batch(2 * place, 1, 2), *codec))
        .collect();
    let append_time = records(
        BatchBuilder::new().base_offset(0).leader_epoch(0).timestamp_type(TimestampType::LogAppendTime),
        2,
    );
    let compacted = BatchBuilder::new()
        .base_offset(0)
        .leader_epoch(3)
        .skip_offsets(2)
        .record(NOW_MS, Some(b"key-1"), Some(b"value"))
        .skip_offsets(3)
        .record(NOW_MS, Some(b"key-2"), None);
    vec![
        [batch(0, 0, 3), batch(3, 0, 1), batch(4, 1, 2), batch(6, 4, 3)].concat(),
        [
            transactional(0, 7, 0),
            transactional(2, 8, 0),
            marker(4, 7, true).to_vec(),
            marker(5, 8, false).to_vec(),
        ]
        .concat(),
        compressed,
        append_time.build().to_vec(),
        compacted.build().to_vec(),
        [batch(0, 0, 2), batch(2_000_000_000, 1, 1), batch(5_000_000_000, 1, 1)].concat(),
    ]
}

/// Numbers that mean something in a batch.
pub fn words() -> Vec<Vec<u8>> {
    vec![
        vec![0xff; 8],
        vec![2],
        vec![0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0],
        vec![0x28, 0xb5, 0x2f, 0xfd],
        vec![0x04, 0x22, 0x4d, 0x18],
        vec![0x1f, 0x8b, 0x08],
        NOW_MS.to_be_bytes().to_vec(),
        vec![0x7f, 0xff, 0xff, 0xff],
        vec![0, 0, 0, 0, 0, 0, 0, 1],
    ]
}
