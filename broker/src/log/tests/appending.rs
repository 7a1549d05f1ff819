use common::ids::{LeaderEpoch, Offset};
use protocol::record_batch::{BatchHeader, TimestampType, check_crc};

use super::support::*;
use crate::log::{AppendError, AppendOrigin, LeaderAppend, LogConfig};

#[test]
fn a_leader_numbers_and_stamps_batches_in_place() {
    let mut test = TestLog::new(config());
    test.append(plain(3, 0), AppendOrigin::Client, 4).unwrap();
    let mut batch = plain(2, 9);
    let append = LeaderAppend {
        leader_epoch: LeaderEpoch(5),
        origin: AppendOrigin::Client,
        now_ms: NOW,
        relaxed: false,
    };
    let info = test.log.append_as_leader(&mut batch, append).unwrap();
    assert_eq!((info.first_offset, info.last_offset), (Offset(3), Offset(4)));
    assert_eq!((info.duplicate, info.log_append_time_ms, info.bytes), (false, -1, batch.len()));
    let header = BatchHeader::parse(&batch).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch), (3, 5));
    assert!(check_crc(&batch).is_ok());
    let slice = test.log.read(Offset(3), 1 << 20, Offset(5), true).unwrap().unwrap();
    assert_eq!(bytes_of(&slice), batch);
    assert_eq!(test.log.end_offset_for_epoch(LeaderEpoch(4)), Some((LeaderEpoch(4), Offset(3))));
    assert!(matches!(
        test.append(plain(1, 0), AppendOrigin::Client, 4),
        Err(AppendError::LeaderEpochFell { latest_epoch: LeaderEpoch(5), .. })
    ));
    assert!(test.log.start_epoch(LeaderEpoch(4), Offset(5)).is_err());
}

#[test]
fn append_time_replaces_the_producers() {
    let stamped = LogConfig { message_timestamp_type: TimestampType::LogAppendTime, ..config() };
    let mut test = TestLog::new(stamped);
    let info = test.produce(plain(2, -5_000)).unwrap();
    assert_eq!(info.log_append_time_ms, NOW);
    let slice = test.log.read(Offset(0), 1 << 20, Offset(2), true).unwrap().unwrap();
    let bytes = bytes_of(&slice);
    let header = BatchHeader::parse(&bytes).unwrap();
    assert!(check_crc(&bytes).is_ok());
    assert_eq!((header.max_timestamp, header.timestamp_type()), (NOW, TimestampType::LogAppendTime));
    assert_eq!(test.log.offset_for_timestamp(NOW).unwrap().unwrap().offset, Offset(0));
}

#[test]
fn a_lying_greatest_timestamp_is_set_right() {
    let mut test = TestLog::new(config());
    let mut batch = plain(2, 0);
    batch[35..43].copy_from_slice(&i64::MAX.to_be_bytes());
    protocol::record_batch::set_crc(&mut batch);
    test.produce(batch).unwrap();
    let found = test.log.offset_of_max_timestamp().unwrap().unwrap();
    assert_eq!((found.timestamp_ms, found.offset), (NOW + 1, Offset(1)));
}

#[test]
fn retries_get_the_first_append_and_gaps_are_refused() {
    let mut test = TestLog::new(config());
    for sequence in 0..4 {
        test.produce(idempotent(7, 0, 3 * sequence, 3)).unwrap();
    }
    let again = test.produce(idempotent(7, 0, 3, 3)).unwrap();
    assert_eq!((again.duplicate, again.first_offset, again.last_offset), (true, Offset(3), Offset(5)));
    assert_eq!(test.log.log_end_offset(), Offset(12));
    assert!(matches!(
        test.produce(idempotent(7, 0, 15, 1)),
        Err(AppendError::OutOfOrderSequence { sequence: 15, last_sequence: 11, .. })
    ));
    test.produce(idempotent(7, 1, 0, 1)).unwrap();
    assert!(matches!(test.produce(idempotent(7, 0, 12, 1)), Err(AppendError::InvalidProducerEpoch { .. })));
    // After a restart the last batch is still known, from the snapshot; after a crash from the batches.
    for crash in [false, true] {
        if crash {
            test.crash()
        } else {
            test.restart()
        }
        let again = test.produce(idempotent(7, 1, 0, 1)).unwrap();
        assert_eq!((again.duplicate, again.first_offset), (true, Offset(12)));
    }
}

#[test]
fn copied_batches_are_kept_as_they_are() {
    let mut test = TestLog::new(config());
    let mut records = copied(0, 3, 2);
    records.extend(copied(2, 3, 2));
    records.extend(copied(10, 6, 1)); // a cleaner's gap
    let whole = records.len();
    records.extend(&copied(11, 6, 5)[..70]); // cut off by the fetch size
    let info = test.log.append_as_follower(&records, NOW).unwrap();
    assert_eq!((info.batches, info.bytes, info.last_offset), (3, whole, Offset(10)));
    assert_eq!(test.batches(1 << 20), [(0, 1), (2, 3), (10, 10)]);
    assert_eq!(test.log.latest_epoch(), Some(LeaderEpoch(6)));
    assert_eq!(test.log.end_offset_for_epoch(LeaderEpoch(3)), Some((LeaderEpoch(3), Offset(10))));
    let nothing = test.log.append_as_follower(&copied(11, 6, 5)[..30], NOW).unwrap();
    assert_eq!(nothing.batches, 0);
    assert!(matches!(
        test.log.append_as_follower(&copied(10, 6, 5), NOW),
        Err(AppendError::OutOfOrderOffset { log_end_offset: Offset(11), .. })
    ));
    assert!(matches!(
        test.log.append_as_follower(&copied(11, 5, 1), NOW),
        Err(AppendError::LeaderEpochFell { .. })
    ));
    for bit in [170, 400, 600] {
        let mut damaged = copied(11, 6, 1);
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(test.log.append_as_follower(&damaged, NOW).is_err(), "bit {bit}");
    }
    // One bad batch refuses all of them.
    let mut records = copied(11, 6, 1);
    records.extend(copied(11, 6, 1));
    assert!(test.log.append_as_follower(&records, NOW).is_err());
    assert_eq!(test.log.log_end_offset(), Offset(11));
}

#[test]
fn a_trimmed_source_is_taken_only_into_an_empty_log() {
    let mut test = TestLog::new(config());
    test.log.truncate_fully_and_start_at(Offset(13)).unwrap();
    assert!(test.log.append_as_follower(&copied(8, 0, 5), NOW).is_err(), "all of it lies below");
    test.log.append_as_follower(&copied(10, 0, 5), NOW).unwrap();
    assert_eq!((test.log.log_start_offset(), test.log.log_end_offset()), (Offset(13), Offset(15)));
    let slice = test.log.read(Offset(13), 1 << 20, Offset(15), true).unwrap().unwrap();
    assert_eq!(slice.first_offset, Offset(10));
    assert!(test.log.append_as_follower(&copied(12, 0, 5), NOW).is_err(), "not empty any more");
    test.restart();
    assert_eq!((test.log.log_start_offset(), test.log.log_end_offset()), (Offset(13), Offset(15)));
}

#[test]
fn segments_roll_by_size_time_and_index() {
    let mut test = TestLog::new(config());
    test.fill(20);
    assert!(test.log.segment_count() > 2);
    assert!(test.batches(1).len() == 20);

    let mut test = TestLog::new(LogConfig { segment_ms: 10, ..LogConfig::default() });
    test.produce(plain(1, 0)).unwrap();
    assert!(!test.produce(plain(1, 10)).unwrap().rolled);
    assert!(test.produce(plain(1, 11)).unwrap().rolled);

    let full = LogConfig { segment_index_bytes: 24, index_interval_bytes: 1, ..LogConfig::default() };
    let mut test = TestLog::new(full);
    test.fill(3);
    assert_eq!(test.log.segment_count(), 1);
    test.fill(1);
    assert_eq!(test.log.segment_count(), 2);
}

#[test]
fn a_large_fetch_is_spread_over_segments() {
    let mut test = TestLog::new(config());
    let mut records = Vec::new();
    for number in 0..40 {
        records.extend(copied(3 * number, 0, 3));
    }
    records.extend(copied(3_000_000_000, 1, 1)); // further than a relative offset reaches
    test.log.append_as_follower(&records, NOW).unwrap();
    assert!(test.log.segment_count() > 5);
    assert_eq!(test.batches(500).len(), 41);
    test.crash();
    assert_eq!(test.batches(500).len(), 41);
}

#[test]
fn a_failed_log_takes_nothing_more() {
    let mut test = TestLog::new(config());
    test.fill(1);
    std::fs::remove_dir_all(test.directory.path()).unwrap();
    let mut failed = false;
    for _ in 0..20 {
        failed |= matches!(test.produce(plain(3, 0)), Err(AppendError::Storage(_)));
    }
    assert!(failed, "a new segment cannot be made");
    assert!(test.log.flush().is_err());
    assert!(test.log.truncate_to(Offset(0)).is_err());
    std::fs::create_dir_all(test.directory.path()).unwrap();
}
