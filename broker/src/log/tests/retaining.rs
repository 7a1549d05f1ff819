use common::ids::Offset;

use super::support::*;
use crate::log::LogConfig;

#[test]
fn old_segments_go_by_time() {
    let mut test = TestLog::new(LogConfig { retention_ms: 1000, ..config() });
    test.fill(20);
    let all = test.log.segment_count();
    assert_eq!(test.log.delete_old_segments(NOW + 900, Offset(60)).unwrap(), 0);
    // Timestamps are NOW + offset, so the first segments are past due first.
    let some = test.log.delete_old_segments(NOW + 1030, Offset(60)).unwrap();
    assert!(some > 0 && some < all);
    let start = test.log.log_start_offset();
    assert!(start > Offset(0) && start.0 <= 30);
    assert_eq!(test.batches(1 << 20).first().unwrap().0, start.0);
    // Never above the high watermark; else all, and the log goes on where it was.
    assert_eq!(test.log.delete_old_segments(NOW + 9000, start).unwrap(), 0);
    test.log.delete_old_segments(NOW + 9000, Offset(60)).unwrap();
    assert_eq!((test.log.log_start_offset(), test.log.log_end_offset()), (Offset(60), Offset(60)));
    test.crash();
    assert_eq!(test.log.log_end_offset(), Offset(60));
    test.fill(1);
    assert_eq!(test.batches(1 << 20), [(60, 62)]);
}

#[test]
fn old_segments_go_by_size() {
    let mut test = TestLog::new(LogConfig { retention_bytes: 1500, retention_ms: -1, ..config() });
    test.fill(40);
    test.log.delete_old_segments(NOW, Offset(120)).unwrap();
    let size = test.log.size_bytes();
    assert!((1500..1500 + 700).contains(&size), "{size} bytes");
    assert_eq!(test.log.delete_old_segments(NOW, Offset(120)).unwrap(), 0);
}

#[test]
fn segments_below_the_log_start_go_whatever_the_policy() {
    let policy = LogConfig { delete: false, compact: true, retention_ms: 1, retention_bytes: 1, ..config() };
    let mut test = TestLog::new(policy);
    test.fill(40);
    assert_eq!(test.log.delete_old_segments(NOW + 9000, Offset(120)).unwrap(), 0);
    test.log.increase_log_start_offset(Offset(50));
    let gone = test.log.delete_old_segments(NOW + 9000, Offset(120)).unwrap();
    assert!(gone > 0);
    assert_eq!(test.log.log_start_offset(), Offset(50));
    let first = test.batches(1 << 20)[0];
    assert!(first.0 <= 50 && first.1 >= 50);
}

#[test]
fn readers_keep_what_they_hold() {
    let mut test = TestLog::new(LogConfig { retention_ms: 1, ..config() });
    test.fill(20);
    let slice = test.log.read(Offset(0), 200, Offset(60), true).unwrap().unwrap();
    let before = bytes_of(&slice);
    test.log.delete_old_segments(NOW + 9000, Offset(60)).unwrap();
    assert_eq!(bytes_of(&slice), before);
}

#[test]
fn idle_producers_are_forgotten() {
    let mut test = TestLog::new(LogConfig { producer_id_expiration_ms: 100, ..config() });
    test.produce(idempotent(4, 0, 0, 1)).unwrap();
    test.log.delete_old_segments(NOW + 99, Offset(1)).unwrap();
    assert_eq!(test.log.active_producers().len(), 1);
    test.log.delete_old_segments(NOW + 100, Offset(1)).unwrap();
    assert!(test.log.active_producers().is_empty());
}
