use common::ids::Offset;
use protocol::record_batch::{BatchBuilder, set_base_offset, set_crc};

use super::support::*;
use crate::log::{ReadError, proof};

fn offsets(
    test: &TestLog,
    from: i64,
    max_bytes: usize,
    upper: i64,
    min_one_batch: bool,
) -> Option<(i64, i64, usize)> {
    let slice = test.log.read(Offset(from), max_bytes, Offset(upper), min_one_batch).unwrap()?;
    let bytes = bytes_of(&slice);
    let count = protocol::record_batch::batches(&bytes).filter(|batch| batch.is_ok()).count();
    Some((slice.first_offset.0, slice.end_offset.0, count))
}

#[test]
fn reads_give_whole_batches_within_the_bounds() {
    let mut test = TestLog::new(LogConfig { segment_bytes: 1 << 20, ..config() });
    test.fill(10); // three records each
    let bytes = test.log.size_bytes() as usize / 10;
    // The second time without what is remembered of the newest batches.
    for _ in 0..2 {
        for (from, max_bytes, upper, min_one_batch, expected) in [
            (0, 1 << 20, 30, true, Some((0, 30, 10))),
            (4, 1 << 20, 30, true, Some((3, 30, 9))),
            (4, 1 << 20, 12, true, Some((3, 12, 3))),
            (4, 1 << 20, 13, true, Some((3, 12, 3))), // a bound inside a batch
            (4, 1 << 20, 6, true, Some((3, 6, 1))),
            (4, 1 << 20, 5, true, None),
            (4, 1 << 20, 4, true, None),
            (29, 1 << 20, 99, true, Some((27, 30, 1))),
            (30, 1 << 20, 99, true, None),
            (4, 1, 30, true, Some((3, 6, 1))),
            (4, 1, 30, false, None),
            (4, bytes, 30, false, Some((3, 6, 1))),
            (4, 2 * bytes + 1, 30, false, Some((3, 9, 2))),
            (4, 3 * bytes - 1, 30, true, Some((3, 9, 2))),
            (18, 3 * bytes, 30, true, Some((18, 27, 3))),
        ] {
            assert_eq!(
                offsets(&test, from, max_bytes, upper, min_one_batch),
                expected,
                "from {from}, {max_bytes} bytes, below {upper}"
            );
        }
        test.restart();
    }
    for offset in [-1, 31] {
        assert!(matches!(
            test.log.read(Offset(offset), 100, Offset(30), true),
            Err(ReadError::OutOfRange { log_end_offset: Offset(30), .. })
        ));
    }
}

use crate::log::LogConfig;

#[test]
fn every_offset_is_found_with_every_size() {
    let mut test = TestLog::new(config());
    let mut records = Vec::new();
    for number in 0..60 {
        records.extend(copied(5 * number, 0, 1 + number % 4)); // with gaps
    }
    test.log.append_as_follower(&records, NOW).unwrap();
    for _ in 0..2 {
        for max_bytes in [1, 150, 400, 1 << 20] {
            assert_eq!(test.batches(max_bytes).len(), 60);
            for from in 0..298 {
                let slice = test.log.read(Offset(from), max_bytes, Offset(1000), true).unwrap();
                let (first, count) = (from / 5, 1 + from / 5 % 4);
                let expected = if from % 5 < count { first } else { first + 1 };
                assert_eq!(slice.map(|slice| slice.first_offset.0), (expected < 60).then_some(5 * expected));
            }
        }
        test.restart();
    }
}

#[test]
fn offsets_by_time() {
    let mut test = TestLog::new(config());
    for start in [100, 300, 200, 400, 400, 50, 500] {
        test.produce(plain(3, start)).unwrap();
    }
    for _ in 0..2 {
        for (timestamp, expected) in [
            (0, Some((0, 100))),
            (101, Some((1, 101))),
            (103, Some((3, 300))), // the first by offset, not by time
            (302, Some((5, 302))),
            (303, Some((9, 400))),
            (403, Some((18, 500))),
            (502, Some((20, 502))),
            (503, None),
        ] {
            let found = test.log.offset_for_timestamp(NOW + timestamp).unwrap();
            let found = found.map(|found| (found.offset.0, found.timestamp_ms - NOW));
            assert_eq!(found, expected, "timestamp {timestamp}");
        }
        let greatest = test.log.offset_of_max_timestamp().unwrap().unwrap();
        assert_eq!((greatest.offset, greatest.timestamp_ms), (Offset(20), NOW + 502));
        test.restart();
    }
    test.log.increase_log_start_offset(Offset(4));
    assert_eq!(test.log.offset_for_timestamp(0).unwrap().unwrap().offset, Offset(4));
}

#[test]
fn a_damaged_index_never_gives_a_wrong_answer() {
    let mut test = TestLog::new(LogConfig { segment_bytes: 1 << 20, ..config() });
    test.fill(40);
    test.restart();
    test.log.close().unwrap();
    let path = test.directory.path().join("00000000000000000000.index");
    let intact = std::fs::read(&path).unwrap();
    for bit in 0..intact.len() * 8 {
        let mut damaged = intact.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, damaged).unwrap();
        let log = open(test.directory.path(), &test.config, clean());
        assert_eq!(log.log_end_offset(), Offset(120), "bit {bit}");
        for from in [0, 31, 62, 119] {
            let slice = log.read(Offset(from), 300, Offset(120), true).unwrap().unwrap();
            assert_eq!(slice.first_offset.0, from / 3 * 3, "bit {bit}");
            assert!(protocol::record_batch::batches(&bytes_of(&slice)).all(|batch| batch.is_ok()));
        }
        drop(log);
    }
}

/// Copied batches are not looked into when they come; a source may have numbered a record beyond its batch.
#[test]
fn a_record_outside_of_its_batch_is_nobodys() {
    let beyond = BatchBuilder::new().record(NOW, Some(b"a"), Some(b"1")).skip_offsets(i32::MAX - 2);
    let mut batch = beyond.record(NOW + 5, Some(b"b"), Some(b"2")).build().to_vec();
    batch[23..27].copy_from_slice(&1_i32.to_be_bytes());
    set_base_offset(&mut batch, i64::MAX - 2);
    set_crc(&mut batch);
    let mut test = TestLog::new(config());
    test.log.append_as_follower(&batch, NOW).unwrap();
    assert_eq!(test.log.offset_for_timestamp(NOW).unwrap().unwrap().offset, Offset(i64::MAX - 2));
    assert_eq!(test.log.offset_for_timestamp(NOW + 1).unwrap(), None);
    assert!(proof::clean(&batch, NOW).unwrap_err().contains("record 1 lies outside"));
}
