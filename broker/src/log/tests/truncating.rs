use common::ids::{LeaderEpoch, Offset};

use super::support::*;
use crate::log::disk::faults::Faults;
use crate::log::{AppendOrigin, LogConfig};

#[test]
fn truncation_takes_batches_epochs_and_producers() {
    for target in 0..=36_i64 {
        for crash in [false, true] {
            let mut test = TestLog::new(config());
            for number in 0..12 {
                test.append(idempotent(4, 0, 3 * number, 3), AppendOrigin::Client, number).unwrap();
            }
            assert_eq!(test.log.truncate_to(Offset(target)).unwrap(), target < 36);
            let whole = target / 3;
            assert_eq!(test.log.log_end_offset(), Offset(3 * whole), "target {target}");
            let check = |test: &TestLog| {
                assert_eq!(test.batches(1 << 20).len() as i64, whole);
                assert_eq!(test.log.latest_epoch(), (whole > 0).then_some(LeaderEpoch(whole as i32 - 1)));
                let active = test.log.active_producers();
                let expected = (whole > 0).then_some(3 * whole as i32 - 1);
                assert_eq!(
                    active.first().map(|producer| producer.last_sequence),
                    expected,
                    "target {target}"
                );
            };
            check(&test);
            if crash {
                test.crash()
            } else {
                test.restart()
            }
            check(&test);
            let next = idempotent(4, 0, 3 * whole as i32, 3);
            test.append(next, AppendOrigin::Client, 20).unwrap();
            if crash {
                test.crash()
            } else {
                test.restart()
            }
            assert_eq!(test.batches(1 << 20).len() as i64, whole + 1);
            assert_eq!(test.log.latest_epoch(), Some(LeaderEpoch(20)));
        }
    }
}

/// Either nothing was begun, or the log is offline until a restart completes the cut.
#[test]
fn no_descriptors_for_a_truncation_leave_no_half_cut_log() {
    let (mut refused, mut offline) = (0, 0);
    for opens in 0.. {
        let mut test = TestLog::new(config());
        for number in 0..12 {
            test.append(idempotent(4, 0, 3 * number, 3), AppendOrigin::Client, number).unwrap();
        }
        test.restart();
        assert!(test.log.segment_count() > 1);
        let faults = Faults::watch(test.directory.path());
        faults.leave_opens(Some(opens));
        let cut = test.log.truncate_to(Offset(10));
        drop(faults);
        match cut {
            Ok(cut) => {
                assert!(cut && refused > 0 && offline > 0, "{refused} refused, {offline} offline");
                return;
            }
            Err(error) if test.log.is_offline() => {
                offline += 1;
                assert!(error.is_exhausted());
                test.crash();
                assert!(test.log.truncate_to(Offset(10)).unwrap() || test.log.log_end_offset() == Offset(9));
            }
            Err(_) => {
                refused += 1;
                assert_eq!(test.batches(1 << 20).len(), 12, "after {opens} opens");
                assert!(test.log.truncate_to(Offset(10)).unwrap());
            }
        }
        assert_eq!(test.batches(1 << 20), [(0, 2), (3, 5), (6, 8)], "after {opens} opens");
        test.append(idempotent(4, 0, 9, 3), AppendOrigin::Client, 20).unwrap();
    }
}

#[test]
fn an_emptied_log_begins_where_it_was_told() {
    let mut test = TestLog::new(config());
    test.fill(10);
    test.log.truncate_fully_and_start_at(Offset(500)).unwrap();
    assert_eq!((test.log.log_start_offset(), test.log.log_end_offset()), (Offset(500), Offset(500)));
    test.crash();
    assert_eq!((test.log.log_start_offset(), test.log.log_end_offset()), (Offset(500), Offset(500)));
    test.fill(1);
    assert_eq!(test.batches(1 << 20), [(500, 502)]);
    // Below the start: everything goes, and the log begins at the target.
    assert!(test.log.truncate_to(Offset(20)).unwrap());
    assert_eq!((test.log.log_start_offset(), test.log.log_end_offset()), (Offset(20), Offset(20)));
    test.fill(1);
    assert_eq!(test.batches(1 << 20), [(20, 22)]);
}

#[test]
fn a_raised_start_inside_a_batch_survives_truncation() {
    let mut test = TestLog::new(config());
    test.fill(4);
    assert!(test.log.increase_log_start_offset(Offset(4)));
    assert!(!test.log.increase_log_start_offset(Offset(4)));
    assert!(test.log.truncate_to(Offset(5)).unwrap());
    // The batch 3..=5 went, so nothing is left.
    assert!(test.log.is_empty());
    assert_eq!(test.log.log_end_offset(), Offset(4));
}

/// The log end is kept where the cut went into a gap, and a crash finds no hole behind it.
#[test]
fn what_follows_a_cut_into_a_gap_survives_a_crash() {
    let mut test = TestLog::new(LogConfig { segment_bytes: 400, ..config() });
    for base_offset in [0, 2, 20] {
        test.log.append_as_follower(&copied(base_offset, 1, 2), NOW).unwrap();
    }
    assert!(test.log.truncate_to(Offset(10)).unwrap());
    assert_eq!(test.log.log_end_offset(), Offset(10));
    // Too large for what is left of the segment.
    test.append(plain(8, 7), AppendOrigin::Client, 1).unwrap();
    test.crash();
    assert_eq!(test.log.log_end_offset(), Offset(18));
    assert_eq!(test.batches(1 << 20), [(0, 1), (2, 3), (10, 17)]);
}
