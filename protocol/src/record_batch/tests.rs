use bytes::Bytes;
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression as KafkaCompression, Record as KafkaRecord, RecordBatchDecoder, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType as KafkaTimestampType,
};
use proptest::prelude::*;

use super::*;

fn three() -> BatchBuilder {
    BatchBuilder::new()
        .base_offset(1000)
        .leader_epoch(5)
        .producer(42, 3, 7)
        .record(1_700_000_000_000, Some(b"k"), Some(b"v"))
        .record_with_headers(
            1_700_000_000_900,
            None,
            Some(b"value"),
            &[
                RecordHeader { name: "h", value: Some(b"1") },
                RecordHeader { name: "h", value: Some(b"2") },
                RecordHeader { name: "n", value: None },
            ],
        )
        .record(1_699_999_999_999, Some(b""), None)
}

/// Written down by hand from Kafka's description of the format; the CRC by a bitwise CRC-32C.
const GOLDEN: &[u8] = &[
    0, 0, 0, 0, 0, 0, 0x03, 0xe8, // base offset
    0, 0, 0, 0x3a, // length
    0, 0, 0, 5, // leader epoch
    2, // magic
    0, 0, 0, 0, // CRC
    0, 0, // attributes
    0, 0, 0, 0, // last offset delta
    0, 0, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, // base timestamp
    0, 0, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, // max timestamp
    0, 0, 0, 0, 0, 0, 0, 42, // producer id
    0, 3, // producer epoch
    0, 0, 0, 7, // base sequence
    0, 0, 0, 1, // records
    16, 0, 0, 0, 2, b'k', 2, b'v', 0, // a record
];

/// CRC-32C bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[test]
fn golden_bytes() {
    let mut golden = GOLDEN.to_vec();
    let crc = crc32c(&golden[21..]);
    golden[17..21].copy_from_slice(&crc.to_be_bytes());
    let built = BatchBuilder::new()
        .base_offset(1000)
        .leader_epoch(5)
        .producer(42, 3, 7)
        .record(1_700_000_000_000, Some(b"k"), Some(b"v"))
        .build();
    assert_eq!(built.len(), 12 + 0x3a);
    assert_eq!(&built[..], &golden[..]);

    let header = BatchHeader::parse(&golden).unwrap();
    let expected = BatchHeader {
        base_offset: 1000,
        length: 0x3a,
        leader_epoch: 5,
        magic: 2,
        crc,
        attributes: 0,
        last_offset_delta: 0,
        base_timestamp: 1_700_000_000_000,
        max_timestamp: 1_700_000_000_000,
        producer_id: 42,
        producer_epoch: 3,
        base_sequence: 7,
        records_count: 1,
    };
    assert_eq!(header, expected);
    assert_eq!((header.size_bytes(), header.last_offset(), header.next_offset()), (golden.len(), 1000, 1001));
    assert_eq!(check_crc(&golden), Ok(()));
}

#[test]
fn kafka_protocol_reads_what_is_built() {
    let bytes = three().build();
    check_crc(&bytes).unwrap();
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!(header.max_timestamp, 1_700_000_000_900);
    assert_eq!(header.last_sequence(), 9);
    let set = RecordBatchDecoder::decode(&mut bytes.clone()).unwrap();
    let offsets: Vec<_> = set.records.iter().map(|record| (record.offset, record.sequence)).collect();
    assert_eq!(offsets, [(1000, 7), (1001, 8), (1002, 9)]);
    assert_eq!(set.records[0].key.as_deref(), Some(&b"k"[..]));
    assert_eq!(set.records[1].timestamp, 1_700_000_000_900);
    assert_eq!((set.records[2].key.as_deref(), &set.records[2].value), (Some(&b""[..]), &None));
    assert_eq!((set.records[0].producer_id, set.records[0].producer_epoch), (42, 3));
    assert_eq!(set.records[0].partition_leader_epoch, 5);
}

#[test]
fn records_are_read_with_doubled_headers() {
    let bytes = three().build();
    let batch = batches(&bytes).next().unwrap().unwrap();
    let records: Vec<_> = batch.records().collect::<Result<_, _>>().unwrap();
    assert_eq!(records.iter().map(|record| record.offset_delta).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(records.iter().map(|record| record.timestamp_delta).collect::<Vec<_>>(), [0, 900, -1]);
    let headers: Vec<_> = records[1].headers().collect();
    assert_eq!(headers, [(&b"h"[..], Some(&b"1"[..])), (b"h", Some(b"2")), (b"n", None)]);
    assert_eq!(records[1].headers().len(), 3);
}

#[test]
fn batches_in_a_row() {
    let (first, second) = (three().build(), three().base_offset(1003).build());
    let both = [&first[..], &second[..]].concat();
    let found: Vec<_> = batches(&both).map(|batch| batch.unwrap()).collect();
    assert_eq!(found.iter().map(|batch| batch.position).collect::<Vec<_>>(), [0, first.len()]);
    assert_eq!(found.iter().map(|batch| batch.header.base_offset).collect::<Vec<_>>(), [1000, 1003]);
    assert_eq!(found[1].bytes, &second[..]);
    // Cut anywhere in the second one: the first is whole, then one error, then the end.
    for cut in first.len() + 1..both.len() {
        let mut iterator = batches(&both[..cut]);
        assert!(iterator.next().unwrap().is_ok());
        assert!(matches!(iterator.next(), Some(Err(BatchError::Incomplete { .. }))), "{cut}");
        assert!(iterator.next().is_none());
    }
}

#[test]
fn base_offset_and_epoch_lie_outside_the_crc() {
    let mut bytes = three().build_mut();
    set_base_offset(&mut bytes, i64::MAX - 10);
    set_leader_epoch(&mut bytes, 77);
    check_crc(&bytes).unwrap();
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch), (i64::MAX - 10, 77));
}

#[test]
fn log_append_time_renews_the_crc() {
    let mut bytes = three().build_mut();
    set_max_timestamp(&mut bytes, TimestampType::LogAppendTime, 99);
    check_crc(&bytes).unwrap();
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!((header.timestamp_type(), header.max_timestamp), (TimestampType::LogAppendTime, 99));
    assert_eq!(header.base_timestamp, 1_700_000_000_000);
    set_max_timestamp(&mut bytes, TimestampType::CreateTime, 1_700_000_000_900);
    assert_eq!(&bytes[..], &three().build()[..]);
}

#[test]
fn each_flipped_bit_behind_the_crc_is_noticed() {
    let bytes = three().build();
    for at in 17..bytes.len() {
        let mut broken = bytes.to_vec();
        broken[at] ^= 0x10;
        assert!(matches!(check_crc(&broken), Err(BatchError::Crc { .. })), "{at}");
    }
    assert!(matches!(check_crc(&bytes[..60]), Err(BatchError::Incomplete { .. })));
}

/// N6, as far as the header tells.
#[test]
fn what_is_no_header() {
    let bytes = three().build();
    for length in 0..HEADER_BYTES {
        assert!(
            matches!(BatchHeader::parse(&bytes[..length]), Err(BatchError::Incomplete { .. })),
            "{length}"
        );
    }
    for magic in [0, 1, 3, -1] {
        let mut other = bytes.to_vec();
        other[16] = magic as u8;
        assert_eq!(BatchHeader::parse(&other), Err(BatchError::Magic(magic)));
    }
    for length in [-1, 0, 48, i32::MIN] {
        let mut other = bytes.to_vec();
        other[8..12].copy_from_slice(&length.to_be_bytes());
        assert_eq!(BatchHeader::parse(&other), Err(BatchError::Length(length)));
    }
    let mut other = bytes.to_vec();
    other[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    assert!(matches!(batches(&other).next(), Some(Err(BatchError::Incomplete { .. }))));
}

#[test]
fn attributes() {
    let with = |attributes: i16| BatchHeader { attributes, ..BatchHeader::parse(&three().build()).unwrap() };
    assert_eq!(with(4).compression(), Ok(Compression::Zstd));
    assert_eq!(with(5).compression(), Err(BatchError::Compression(5)));
    assert_eq!(with(8).timestamp_type(), TimestampType::LogAppendTime);
    assert!(with(0x10).is_transactional() && !with(0x10).is_control());
    assert!(with(0x20).is_control() && with(0x40).has_delete_horizon());
}

#[test]
fn sequences_wrap() {
    assert_eq!(increment_sequence(i32::MAX, 1), 0);
    assert_eq!(increment_sequence(i32::MAX - 1, 3), 1);
    assert_eq!(increment_sequence(5, 0), 5);
    let header = BatchHeader::parse(&three().build()).unwrap();
    assert_eq!(BatchHeader { base_sequence: i32::MAX, ..header }.last_sequence(), 1);
    assert_eq!(BatchHeader { base_sequence: NO_SEQUENCE, ..header }.last_sequence(), NO_SEQUENCE);
}

#[test]
fn markers() {
    for committed in [true, false] {
        let marker = EndTxnMarker { committed, coordinator_epoch: 12 };
        let bytes = BatchBuilder::new().producer(8, 1, NO_SEQUENCE).end_txn_marker(5, marker).build();
        let batch = batches(&bytes).next().unwrap().unwrap();
        assert!(batch.header.is_control() && batch.header.is_transactional());
        assert_eq!(read_end_txn_marker(&batch), Ok(Some(marker)));
        let set = RecordBatchDecoder::decode(&mut bytes.clone()).unwrap();
        assert!(set.records[0].control);
        assert_eq!(set.records[0].value.as_deref(), Some(&[0, 0, 0, 0, 0, 12][..]));
    }
    let other = BatchBuilder::new().record(5, Some(&[0, 0, 0, 2]), Some(b"")).build();
    let batch = batches(&other).next().unwrap().unwrap();
    assert_eq!(read_control_record(&batch).unwrap().0, ControlRecordType::LeaderChange);
    assert_eq!(read_end_txn_marker(&batch), Ok(None));
    for (key, value) in
        [(&[0, 0, 0][..], &b""[..]), (&[0xff, 0, 0, 1], b""), (&[0, 0, 0, 1], &[0, 0, 0, 0, 0])]
    {
        let broken = BatchBuilder::new().record(5, Some(key), Some(value)).build();
        assert!(read_end_txn_marker(&batches(&broken).next().unwrap().unwrap()).is_err(), "{key:?}");
    }
}

#[test]
fn records_that_are_none() {
    let records = |bytes: &'static [u8], count| Records::new(bytes, count).collect::<Result<Vec<_>, _>>();
    let good: &[u8] = &[16, 0, 0, 0, 2, b'k', 2, b'v', 0];
    assert_eq!(records(good, 1).unwrap().len(), 1);
    assert!(records(good, 2).is_err(), "fewer than counted");
    assert!(records(good, 0).is_err(), "more than counted");
    assert!(records(good, -1).is_err());
    for bytes in [
        &[18, 0, 0, 0, 2, b'k', 2, b'v', 0][..],
        &[1, 0][..],
        &[0][..],
        &[16, 0, 0, 0, 20, b'k', 2, b'v', 0],
        &[16, 0, 0, 0, 3, b'k', 2, b'v', 0],
        &[16, 0, 0, 0, 2, b'k', 2, b'v', 1],
        &[16, 0, 0, 0, 2, b'k', 2, b'v', 2],
        &[0x80, 0x80, 0x80, 0x80, 0x80, 1],
        // A million headers.
        &[20, 0, 0, 0, 1, 1, 0x80, 0x89, 0x7a, 1, 1],
        // A header without a name.
        &[16, 0, 0, 0, 1, 1, 2, 1, 1],
    ] {
        let mut iterator = Records::new(bytes, 1);
        assert!(iterator.next().unwrap().is_err(), "{bytes:?}");
        assert!(iterator.next().is_none());
    }
}

fn kafka_record(
    index: usize,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    header: Option<Vec<u8>>,
) -> KafkaRecord {
    let mut headers = IndexMap::new();
    if let Some(header) = header {
        headers.insert(StrBytes::from_static_str("h"), Some(Bytes::from(header)));
    }
    KafkaRecord {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 2,
        producer_id: 7,
        producer_epoch: 1,
        timestamp_type: KafkaTimestampType::Creation,
        offset: 10 + index as i64,
        sequence: 20 + index as i32,
        timestamp: 1000 + index as i64,
        key: key.map(Bytes::from),
        value: value.map(Bytes::from),
        headers,
    }
}

type Parts = (Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>);

proptest! {
    /// Two writers of one format.
    #[test]
    fn built_as_kafka_protocol_builds(
        records in prop::collection::vec(any::<Parts>(), 1..20),
    ) {
        let mut builder = BatchBuilder::new().base_offset(10).leader_epoch(2).producer(7, 1, 20);
        for (index, (key, value, header)) in records.iter().enumerate() {
            let headers: Vec<_> =
                header.iter().map(|value| RecordHeader { name: "h", value: Some(value) }).collect();
            builder.push(1000 + index as i64, key.as_deref(), value.as_deref(), &headers);
        }
        let theirs: Vec<_> = records
            .iter()
            .enumerate()
            .map(|(index, (key, value, header))| kafka_record(index, key.clone(), value.clone(), header.clone()))
            .collect();
        let mut bytes = bytes::BytesMut::new();
        let options = RecordEncodeOptions { version: 2, compression: KafkaCompression::None };
        RecordBatchEncoder::encode(&mut bytes, theirs.iter(), &options).unwrap();
        let built = builder.build();
        prop_assert_eq!(&built[..], &bytes[..]);

        let batch = batches(&built).next().unwrap().unwrap();
        let read: Vec<_> = batch
            .records()
            .map(|record| record.unwrap())
            .map(|record| {
                let header = record.headers().next().and_then(|(_, value)| value.map(<[u8]>::to_vec));
                (record.key.map(<[u8]>::to_vec), record.value.map(<[u8]>::to_vec), header)
            })
            .collect();
        prop_assert_eq!(read, records);
    }

    #[test]
    fn random_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..300), count in any::<i32>()) {
        for batch in batches(&bytes).flatten() {
            let _ = read_end_txn_marker(&batch);
        }
        for record in Records::new(&bytes, count).flatten() {
            prop_assert_eq!(record.headers().count(), record.headers().len());
        }
    }
}
