//! A log that is emptied, and a crash at each step of it.

use common::ids::Offset;

use super::support::*;
use crate::log::disk::faults::{Fault, Faults};
use crate::log::{Log, LogConfig, OpenState};

/// Flushed, and with a raised start: what the checkpoints would say of it.
fn filled() -> TestLog {
    let mut test = TestLog::new(LogConfig { segment_bytes: 400, ..config() });
    test.fill(10);
    test.log.increase_log_start_offset(Offset(6));
    test.log.flush().unwrap();
    assert!(test.log.segment_count() > 3);
    test
}

fn checkpointed(clean_shutdown: bool) -> OpenState {
    OpenState { clean_shutdown, recovery_point: Offset(30), log_start_offset: Offset(6) }
}

fn left_behind(log: &Log) -> bool {
    let entries = std::fs::read_dir(log.directory()).unwrap();
    entries.map(|entry| entry.unwrap().path()).any(|path| path.extension().is_some_and(|e| e == "restarting"))
}

fn check(test: &mut TestLog, target: i64, whole: &[(i64, i64)], what: &str) -> bool {
    assert!(!left_behind(&test.log), "{what}");
    let (start, end) = (test.log.log_start_offset(), test.log.log_end_offset());
    let emptied = test.log.is_empty();
    if emptied {
        assert_eq!((start, end), (Offset(target), Offset(target)), "{what}");
    } else {
        assert_eq!((start, test.batches(1 << 20).as_slice()), (Offset(6), whole), "{what}");
    }
    // What comes next stays, whatever comes after.
    test.fill(1);
    let batches = test.batches(1 << 20);
    test.log.flush().unwrap();
    let recovery_point = test.log.recovery_point();
    test.reopen(OpenState { clean_shutdown: false, recovery_point, log_start_offset: start });
    assert_eq!(test.batches(1 << 20), batches, "{what}");
    emptied
}

#[test]
fn a_crash_while_a_log_is_emptied_leaves_all_of_it_or_an_empty_one_at_its_new_start() {
    for target in [500, 30, 15, 2, 0] {
        let steps = {
            let mut test = filled();
            let faults = Faults::watch(test.directory.path());
            test.log.truncate_fully_and_start_at(Offset(target)).unwrap();
            assert!(!left_behind(&test.log));
            faults.steps()
        };
        assert!(steps > 10, "{steps}");
        for clean_shutdown in [false, true] {
            let mut emptied = 0;
            for step in 0..=steps {
                let mut test = filled();
                let whole = test.batches(1 << 20);
                let faults = Faults::watch(test.directory.path());
                faults.at(step, Fault::Died);
                let done = test.log.truncate_fully_and_start_at(Offset(target));
                assert_eq!(done.is_ok(), step == steps);
                faults.revive();
                drop(faults);
                // Without the file that tells of it the checkpoints are of before.
                let state = match step == steps {
                    true => OpenState { log_start_offset: Offset(target), ..checkpointed(clean_shutdown) },
                    false => checkpointed(clean_shutdown),
                };
                test.reopen(state);
                let what = format!("to {target}, died at step {step} of {steps}, clean {clean_shutdown}");
                emptied += usize::from(check(&mut test, target, &whole, &what));
            }
            assert!(emptied >= steps - 2, "{emptied} of {steps}");
        }
    }
}

#[test]
fn power_fails_while_a_log_is_emptied() {
    let mut step = 0;
    loop {
        let mut test = filled();
        let whole = test.batches(1 << 20);
        let faults = Faults::watch(test.directory.path());
        faults.model_power();
        faults.at(step, Fault::Died);
        let done = test.log.truncate_fully_and_start_at(Offset(500)).is_ok();
        if done {
            // Copied anew, and durable: nothing may come back that takes it away.
            let copied = [500, 503].map(|offset| test.log.append_as_follower(&copied(offset, 0, 3), NOW));
            if copied.iter().all(Result::is_ok) && test.log.flush().is_ok() {
                faults.cut_power();
                faults.revive();
                drop(faults);
                test.reopen(OpenState { recovery_point: Offset(506), ..checkpointed(false) });
                assert_eq!(test.batches(1 << 20), [(500, 502), (503, 505)]);
                return;
            }
        }
        faults.cut_power();
        faults.revive();
        drop(faults);
        test.reopen(checkpointed(false));
        // Or some of what was copied anew, as much as had reached the disk.
        if test.log.is_empty() || test.log.log_start_offset() == Offset(6) {
            check(&mut test, 500, &whole, &format!("power cut at step {step}"));
        }
        step += 1;
    }
}

#[test]
fn a_full_disk_does_not_keep_a_log_from_being_emptied() {
    for step in 0..40 {
        let mut test = filled();
        let faults = Faults::watch(test.directory.path());
        faults.at(step, Fault::Full { steps: 3 });
        let _ = test.log.truncate_fully_and_start_at(Offset(500));
        assert_eq!(test.log.log_end_offset(), Offset(500));
        assert!(!left_behind(&test.log), "step {step}");
        faults.revive();
        test.fill(1);
        assert_eq!(test.batches(1 << 20), [(500, 502)]);
    }
}
