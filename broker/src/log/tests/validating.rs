use std::io::Write as _;
use std::ops::ControlFlow;

use common::ids::{LeaderEpoch, Offset};
use protocol::record_batch::{BatchBuilder, Compression, HEADER_BYTES, set_crc};

use super::support::*;
use crate::log::record_walk::{WalkError, walk_records};
use crate::log::{AppendError, AppendOrigin, LeaderAppend, LogConfig};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn snappy_raw(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).unwrap()
}

fn snappy_xerial(bytes: &[u8]) -> Vec<u8> {
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for chunk in bytes.chunks(1000) {
        let block = snappy_raw(chunk);
        out.extend((block.len() as u32).to_be_bytes());
        out.extend(block);
    }
    out
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn lz4_linked(bytes: &[u8]) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new().block_mode(lz4_flex::frame::BlockMode::Linked);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ::zstd::stream::encode_all(bytes, 3).unwrap()
}

type Codec = (&'static str, u8, fn(&[u8]) -> Vec<u8>);
const CODECS: [Codec; 6] = [
    ("gzip", 1, gzip),
    ("snappy", 2, snappy_raw),
    ("snappy in chunks", 2, snappy_xerial),
    ("lz4", 3, lz4),
    ("lz4 with linked blocks", 3, lz4_linked),
    ("zstd", 4, zstd),
];

/// Large enough for several windows and chunks.
fn long() -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for number in 0..900_u32 {
        let value: Vec<u8> = (0..120).map(|place| (number * 31 + place * place) as u8).collect();
        builder.push(NOW + i64::from(number), Some(&number.to_be_bytes()), Some(&value), &[]);
    }
    builder.build().to_vec()
}

fn kind(result: Result<crate::log::AppendInfo, AppendError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(AppendError::Corrupt { .. }) => "corrupt",
        Err(AppendError::InvalidRecord { .. }) => "invalid record",
        Err(AppendError::InvalidTimestamp { .. }) => "invalid timestamp",
        Err(AppendError::MessageTooLarge { .. }) => "too large",
        Err(AppendError::UnsupportedFormat { .. }) => "format",
        Err(AppendError::RecordListTooLarge { .. }) => "list too large",
        Err(other) => panic!("{other}"),
    }
}

fn large() -> LogConfig {
    LogConfig { segment_bytes: 1 << 30, ..config() }
}

#[test]
fn every_codec_is_walked_and_kept() {
    let batch = long();
    for (name, code, compress) in CODECS {
        let mut test = TestLog::new(large());
        let packed = compressed(&batch, code, compress);
        assert_eq!(test.produce(packed.clone()).unwrap().last_offset, Offset(899), "{name}");
        let slice = test.log.read(Offset(0), 1 << 30, Offset(900), true).unwrap().unwrap();
        assert_eq!(bytes_of(&slice)[HEADER_BYTES..], packed[HEADER_BYTES..], "{name}");
        let found = test.log.offset_for_timestamp(NOW + 500).unwrap().unwrap();
        assert_eq!(found.offset, Offset(500), "{name}");
    }
}

#[test]
fn damage_inside_a_compressed_body_is_refused() {
    let batch = long();
    for (name, code, compress) in CODECS {
        let packed = compressed(&batch, code, compress);
        let mut test = TestLog::new(large());
        // Cut off, with a CRC that fits: no codec may take it for whole.
        for length in [HEADER_BYTES, HEADER_BYTES + 3, packed.len() / 2, packed.len() - 1] {
            let mut cut = packed[..length].to_vec();
            cut[8..12].copy_from_slice(&((length - 12) as i32).to_be_bytes());
            set_crc(&mut cut);
            assert_ne!(kind(test.produce(cut)), "ok", "{name}, {length} bytes");
        }
        // Any flipped bit either is refused or leaves something that was walked to its end.
        for place in (HEADER_BYTES..packed.len()).step_by(packed.len() / 40) {
            let mut damaged = packed.clone();
            damaged[place] ^= 0x10;
            assert_eq!(kind(test.produce(damaged.clone())), "corrupt", "{name}: CRC");
            set_crc(&mut damaged);
            let _ = kind(test.produce(damaged));
        }
    }
}

/// N8: bombs. A few kilobytes that claim or yield far more than a batch may hold. (The cap that a log
/// applies is too large for a quick test, so the walk is asked directly.)
#[test]
fn bombs_are_stopped() {
    const CAP: usize = 1 << 20;
    let body =
        BatchBuilder::new().record(NOW, None, Some(&vec![0; 2 * CAP])).build()[HEADER_BYTES..].to_vec();
    for (name, code, compress) in CODECS {
        let bomb = compress(&body);
        assert!(bomb.len() < body.len() / 15, "{name}: {} bytes", bomb.len());
        let compression = Compression::from_code(code).unwrap();
        let walk = |cap| walk_records(compression, &bomb, 1, cap, |_| ControlFlow::Continue(()));
        assert!(matches!(walk(CAP), Err(WalkError::TooLarge { cap: CAP })), "{name}");
        assert!(walk(3 * CAP).is_ok(), "{name}");
    }
    let header = plain(1, 0);
    // Claims of length that nothing stands behind.
    let mut test = TestLog::new(large());
    let claim = compressed(&header, 2, |_| vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]);
    assert_eq!(kind(test.produce(claim)), "corrupt");
    let chunk = compressed(&header, 2, |_| b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\x7f\xff\xff\xff\0\0".to_vec());
    assert_eq!(kind(test.produce(chunk)), "corrupt");
    let window = compressed(&header, 4, |_| vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0, 0, 0, 0, 0]);
    assert_eq!(kind(test.produce(window)), "corrupt");
}

/// N6: every field of the header that can lie.
#[test]
fn headers_that_lie_are_refused() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, &str); 17] = [
        ("intact", |_| {}, "ok"),
        ("magic 1", |batch| batch[16] = 1, "format"),
        ("magic 0", |batch| batch[16] = 0, "format"),
        ("magic 3", |batch| batch[16] = 3, "format"),
        ("base offset", |batch| batch[7] = 1, "invalid record"),
        ("leader epoch", |batch| batch[15] = 9, "ok"),
        ("length above", |batch| batch[11] += 1, "corrupt"),
        ("length below", |batch| batch[11] -= 1, "corrupt"),
        ("negative length", |batch| batch[8] = 0x80, "corrupt"),
        ("compression 5", |batch| batch[22] |= 5, "invalid record"),
        ("append time", |batch| batch[22] |= 8, "invalid timestamp"),
        ("transactional without a producer", |batch| batch[22] |= 16, "invalid record"),
        ("control", |batch| batch[22] |= 32, "invalid record"),
        ("delete horizon", |batch| batch[22] |= 64, "invalid record"),
        ("last offset delta", |batch| batch[26] += 1, "invalid record"),
        ("count", |batch| batch[60] += 1, "invalid record"),
        (
            "delta and count",
            |batch| (batch[26], batch[60]) = (batch[26] + 1, batch[60] + 1),
            "invalid record",
        ),
    ];
    for (name, change, expected) in cases {
        let mut batch = plain(3, 0);
        change(&mut batch);
        set_crc(&mut batch);
        assert_eq!(kind(TestLog::new(config()).produce(batch)), expected, "{name}");
    }
    let mut test = TestLog::new(config());
    assert_eq!(kind(test.produce(Vec::new())), "invalid record");
    assert_eq!(kind(test.produce([plain(1, 0), plain(1, 0)].concat())), "invalid record");
    assert_eq!(kind(test.produce(BatchBuilder::new().build().to_vec())), "invalid record");
    assert_eq!(kind(test.produce(idempotent(5, 0, -1, 1))), "invalid record");
    assert_eq!(kind(test.produce(idempotent(5, -1, 0, 1))), "invalid record");
    assert_eq!(kind(test.produce(marker(5, true))), "invalid record");
    let mut relaxed = plain(3, 0);
    let append = LeaderAppend {
        leader_epoch: LeaderEpoch(0),
        origin: AppendOrigin::Client,
        now_ms: NOW,
        relaxed: true,
    };
    relaxed[HEADER_BYTES + 1] ^= 0xff; // not looked at
    set_crc(&mut relaxed);
    assert_eq!(kind(test.log.append_as_leader(&mut relaxed, append)), "ok");
}

#[test]
fn no_cut_or_flipped_batch_gets_in() {
    let batch = BatchBuilder::new()
        .record_with_headers(
            NOW,
            Some(b"k"),
            None,
            &[protocol::record_batch::RecordHeader { name: "h", value: None }],
        )
        .record(NOW, None, Some(b"value"))
        .build()
        .to_vec();
    let mut test = TestLog::new(config());
    for length in 0..batch.len() {
        assert_ne!(kind(test.produce(batch[..length].to_vec())), "ok", "{length} bytes");
    }
    // Flips behind the CRC, with a CRC that fits: the walk has to hold on its own.
    for bit in HEADER_BYTES * 8..batch.len() * 8 {
        let mut damaged = batch.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(kind(test.produce(damaged.clone())), "corrupt", "bit {bit}");
        set_crc(&mut damaged);
        let _ = kind(test.produce(damaged));
    }
}

#[test]
fn record_errors_name_their_records() {
    let batch = || {
        BatchBuilder::new()
            .record(NOW, Some(b"k"), None)
            .record(NOW - 5000, None, Some(b"v"))
            .record(NOW + 5000, Some(b"k"), Some(b"v"))
            .build()
            .to_vec()
    };
    let limited =
        LogConfig { message_timestamp_before_max_ms: 1000, message_timestamp_after_max_ms: 1000, ..config() };
    let Err(AppendError::InvalidTimestamp { records, .. }) = TestLog::new(limited.clone()).produce(batch())
    else {
        panic!("timestamps out of range were taken");
    };
    assert_eq!(records.iter().map(|record| record.batch_index).collect::<Vec<_>>(), [1, 2]);
    let compacted = LogConfig { compact: true, ..limited };
    let Err(AppendError::InvalidRecord { records, message }) = TestLog::new(compacted).produce(batch())
    else {
        panic!("a record without a key was taken into a compacted topic");
    };
    assert_eq!(records.iter().map(|record| record.batch_index).collect::<Vec<_>>(), [1, 1, 2]);
    assert!(message.contains("3 record errors"), "{message}");
}

/// N7
#[test]
fn sizes() {
    let bytes = plain(3, 0).len();
    let limit = |max_message_bytes: usize, segment_bytes: usize| LogConfig {
        max_message_bytes: max_message_bytes as u32,
        segment_bytes: segment_bytes as u32,
        ..config()
    };
    assert_eq!(kind(TestLog::new(limit(bytes, bytes)).produce(plain(3, 0))), "ok");
    assert_eq!(kind(TestLog::new(limit(bytes - 1, bytes)).produce(plain(3, 0))), "too large");
    assert_eq!(kind(TestLog::new(limit(bytes, bytes - 1)).produce(plain(3, 0))), "list too large");
    // Neither holds for copies.
    let mut test = TestLog::new(limit(10, 20));
    test.log.append_as_follower(&copied(0, 0, 3), NOW).unwrap();
    test.log.append_as_follower(&copied(3, 0, 3), NOW).unwrap();
    assert_eq!(test.batches(1).len(), 2);
}

/// Nothing here could end such a transaction, and readers of committed records would wait for ever.
#[test]
fn a_client_opens_no_transaction_that_nobody_can_end() {
    let mut test = TestLog::new(config());
    let refused = test.produce(transactional(7, 0, 3));
    assert!(matches!(refused, Err(AppendError::TransactionsUnsupported)), "{refused:?}");
    assert_eq!(test.log.log_end_offset(), Offset(0));
}
