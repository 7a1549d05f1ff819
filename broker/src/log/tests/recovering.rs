use common::ids::{LeaderEpoch, Offset};

use super::support::*;
use crate::log::{AppendOrigin, LogConfig, LogError, OpenState};

#[test]
fn a_clean_stop_is_taken_up_without_reading_batches() {
    let mut test = TestLog::new(config());
    test.fill(20);
    let before = test.batches(1 << 20);
    test.restart();
    assert!(test.log.recovery_report().is_none());
    assert_eq!((test.log.log_end_offset(), test.log.recovery_point()), (Offset(60), Offset(60)));
    assert_eq!(test.batches(1 << 20), before);
    test.fill(5);
    test.restart();
    assert_eq!(test.batches(1 << 20).len(), 25);
}

/// D2: the log is cut at every byte of its last two batches.
#[test]
fn d02_a_torn_tail_keeps_the_whole_batches() {
    let mut test = TestLog::new(config());
    test.fill(2);
    for sequence in [0, 3, 6] {
        test.produce(idempotent(9, 0, sequence, 3)).unwrap();
    }
    let path = test.directory.path().join("00000000000000000000.log");
    let intact = std::fs::read(&path).unwrap();
    assert_eq!(test.log.segment_count(), 1);
    let ends: Vec<usize> = protocol::record_batch::batches(&intact)
        .map(|batch| batch.unwrap())
        .map(|batch| batch.position + batch.bytes.len())
        .collect();
    for length in ends[2]..=intact.len() {
        std::fs::write(&path, &intact[..length]).unwrap();
        test.reopen(crashed());
        let whole = ends.iter().filter(|end| **end <= length).count();
        assert_eq!(test.log.log_end_offset(), Offset(3 * whole as i64), "{length} bytes");
        assert_eq!(std::fs::read(&path).unwrap().len(), ends[whole - 1]);
        let report = test.log.recovery_report().unwrap();
        assert_eq!(report.truncated_bytes, (length - ends[whole - 1]) as u64);
        assert!(report.corrupt.is_empty());
        // What was lost can be sent again, what was kept is recognised.
        let kept = test.produce(idempotent(9, 0, 3 * (whole as i32 - 3), 3)).unwrap();
        assert!(kept.duplicate);
        if whole < 5 {
            assert!(!test.produce(idempotent(9, 0, 3 * (whole as i32 - 2), 3)).unwrap().duplicate);
        }
    }
}

#[test]
fn a_hole_in_a_closed_segment_ends_the_log_and_is_reported() {
    let mut test = TestLog::new(config());
    test.fill(20);
    let segments = test.log.segment_count();
    let second = segment_files(&test)[1].clone();
    let mut bytes = std::fs::read(&second).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&second, bytes).unwrap();
    test.crash();
    let report = test.log.recovery_report().unwrap();
    assert_eq!(report.corrupt.len(), 1);
    assert_eq!(report.corrupt[0].path, second);
    assert_eq!(report.corrupt[0].deleted_segments, segments - 2);
    assert_eq!(test.log.segment_count(), 2);
    let left = test.batches(1 << 20);
    assert_eq!(left.last().unwrap().1 + 1, test.log.log_end_offset().0);
    test.fill(3);
    test.crash();
    assert_eq!(test.batches(1 << 20).len(), left.len() + 3);
}

fn segment_files(test: &TestLog) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(test.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    files.sort();
    files
}

#[test]
fn what_is_below_the_recovery_point_is_not_read_again() {
    let mut test = TestLog::new(config());
    test.fill(20);
    test.log.flush().unwrap();
    let recovery_point = test.log.recovery_point();
    assert_eq!(recovery_point, Offset(60));
    test.fill(1);
    // A rotten byte in the first segment is a reader's business, not recovery's.
    let first = segment_files(&test)[0].clone();
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&first, &bytes).unwrap();
    test.reopen(OpenState { recovery_point, ..crashed() });
    assert_eq!(test.log.recovery_report().unwrap().segments, 1);
    assert_eq!(test.log.log_end_offset(), Offset(63));
    // Nor does a missing index there cost the log behind it.
    std::fs::remove_file(first.with_extension("index")).unwrap();
    test.reopen(OpenState { recovery_point, ..crashed() });
    assert_eq!(test.batches(1 << 20).len(), 21);
    assert!(first.with_extension("index").exists());
}

/// D3, D4: damaged, emptied or missing index, snapshot and epoch files are built anew.
#[test]
fn d03_d04_companions_of_the_log_are_rebuilt() {
    for clean_stop in [true, false] {
        for extension in ["index", "timeindex", "snapshot", "leader-epoch-checkpoint"] {
            for damage in ["remove", "empty", "tear", "flip"] {
                let mut test = TestLog::new(config());
                for epoch in 0..20 {
                    test.append(idempotent(4, 0, 3 * epoch, 3), AppendOrigin::Client, epoch / 5).unwrap();
                }
                test.restart();
                test.log.close().unwrap();
                for entry in std::fs::read_dir(test.directory.path()).unwrap() {
                    let path = entry.unwrap().path();
                    if !path.to_str().unwrap().ends_with(extension) {
                        continue;
                    }
                    let mut bytes = std::fs::read(&path).unwrap();
                    match damage {
                        "remove" => {
                            std::fs::remove_file(&path).unwrap();
                            continue;
                        }
                        "empty" => bytes.clear(),
                        "tear" => drop(bytes.pop()),
                        _ => bytes[0] ^= 0x40,
                    }
                    std::fs::write(&path, bytes).unwrap();
                }
                let state = if clean_stop { clean() } else { crashed() };
                test.reopen(state);
                let what = format!("{damage} {extension}, clean {clean_stop}");
                assert_eq!(test.batches(1 << 20).len(), 20, "{what}");
                assert!(
                    test.produce(idempotent(4, 0, 57, 3))
                        .unwrap_or_else(|_| {
                            test.append(idempotent(4, 0, 57, 3), AppendOrigin::Client, 3).unwrap()
                        })
                        .duplicate,
                    "{what}"
                );
                // An emptied epoch file is one without epochs; a missing one too, after a clean stop.
                if extension != "leader-epoch-checkpoint" || !clean_stop {
                    assert_eq!(
                        test.log.end_offset_for_epoch(LeaderEpoch(1)),
                        Some((LeaderEpoch(1), Offset(30))),
                        "{what}"
                    );
                }
                let found = test.log.offset_for_timestamp(NOW + 30).unwrap().unwrap();
                assert_eq!(found.offset, Offset(30), "{what}");
            }
        }
    }
}

#[test]
fn a_log_without_segments_does_not_begin_again_unnoticed() {
    let mut test = TestLog::new(config());
    test.fill(3);
    test.log.close().unwrap();
    for path in segment_files(&test) {
        std::fs::remove_file(path).unwrap();
    }
    let state = OpenState { recovery_point: Offset(9), ..clean() };
    let opened = crate::log::Log::open(
        test.directory.path(),
        common::ids::TopicId::ZERO,
        test.config.clone(),
        state,
        NOW,
    );
    assert!(matches!(opened, Err(LogError::Corrupt { .. })));
    std::fs::write(test.directory.path().join("0000000000000000abcd.log"), b"").unwrap();
    let opened = crate::log::Log::open(
        test.directory.path(),
        common::ids::TopicId::ZERO,
        test.config.clone(),
        clean(),
        NOW,
    );
    assert!(matches!(opened, Err(LogError::Corrupt { .. })));
}

#[test]
fn transactions_come_back_after_a_crash() {
    let mut test = TestLog::new(LogConfig { segment_bytes: 400, ..config() });
    let append = |test: &mut TestLog, batch| test.append(batch, AppendOrigin::Coordinator, 0).unwrap();
    append(&mut test, transactional(1, 0, 2)); // 0, 1
    append(&mut test, transactional(2, 0, 2)); // 2, 3
    append(&mut test, marker(1, false)); // 4
    append(&mut test, transactional(3, 0, 2)); // 5, 6
    append(&mut test, marker(3, true)); // 7
    append(&mut test, marker(2, false)); // 8
    append(&mut test, transactional(1, 2, 2)); // 9, 10
    let check = |test: &TestLog| {
        let aborted: Vec<_> = test
            .log
            .aborted_transactions(Offset(0), Offset(11))
            .unwrap()
            .iter()
            .map(|aborted| {
                (
                    aborted.producer_id.0,
                    aborted.first_offset.0,
                    aborted.last_offset.0,
                    aborted.last_stable_offset.0,
                )
            })
            .collect();
        assert_eq!(aborted, [(1, 0, 4, 2), (2, 2, 8, 9)]);
        assert_eq!(test.log.last_stable_offset(Offset(11)), Offset(9));
        let of_slice = test.log.aborted_transactions(Offset(5), Offset(7)).unwrap();
        assert_eq!(of_slice.len(), 1);
        assert!(test.log.aborted_transactions(Offset(9), Offset(11)).unwrap().is_empty());
        let active = test.log.active_producers();
        assert_eq!(active.len(), 3);
        assert_eq!(active[0].current_transaction_first_offset, Some(Offset(9)));
        assert_eq!(active[1].coordinator_epoch, 1);
    };
    check(&test);
    test.crash();
    check(&test);
    test.restart();
    check(&test);
    // With every snapshot gone.
    for entry in std::fs::read_dir(test.directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "snapshot" || extension == "txnindex") {
            std::fs::remove_file(path).unwrap();
        }
    }
    test.reopen(crashed());
    check(&test);
}
