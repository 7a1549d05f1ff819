//! A replica moves between log directories. Each step on the disks is failed in turn, and what a new start finds
//! is compared with what was acknowledged: one log, whole, in one of them, and a move that goes on.

use common::ids::*;

use super::moving_support::*;
use super::support::*;
use crate::log::disk::faults::{Fault, Faults};
use crate::log::*;

/// A crash, a failed disk, a power cut at every step of a move.
#[test]
fn at_whatever_step_a_move_ends_there_is_one_whole_log_and_the_move_goes_on() {
    let steps = {
        let root = root();
        let manager = open_directories(root.path(), None);
        filled(&manager);
        let faults = Faults::watch(root.path());
        assert!(move_there(&manager));
        faults.steps()
    };
    assert!(steps > 30, "{steps}");
    for (fault, power) in [(Fault::Died, false), (Fault::Died, true), (Fault::Broken, false)] {
        for step in 0..=steps {
            let what = format!("{fault:?} at step {step}, power {power}");
            let root = root();
            let manager = open_directories(root.path(), None);
            let before = facts(&filled(&manager).read());
            let faults = Faults::watch(root.path());
            if power {
                faults.model_power();
            }
            faults.at(step, fault);
            let moved = move_there(&manager);
            assert!(moved || step < steps, "{what}");
            if fault == Fault::Broken {
                // The process lives, and deletes what was given up.
                manager.maintain(NOW);
            }
            if power {
                faults.cut_power();
            }
            faults.revive();
            drop((faults, manager));
            let manager = open_directories(root.path(), None);
            let live = names(root.path()).into_iter().filter(|name| name.ends_with("/orders-0")).count();
            assert_eq!(live, 1, "{what}: {:?}", names(root.path()));
            let log = manager.log(id()).unwrap();
            assert_eq!(facts(&log.read()), before, "{what}");
            assert_eq!(log.high_watermark(), Offset(38), "{what}");
            assert_eq!(manager.applied_cut(id()), Some(CutId(5)), "{what}");
            assert!(append(&log, plain(1, 0), 9), "{what}");
            // Asked for anew where the crash came before anything stood on the disk.
            assert!(move_there(&manager), "{what}");
            let log = manager.log(id()).unwrap();
            assert_eq!((log.directory().id().0.as_u128(), log.read().log_end_offset()), (THERE, Offset(41)));
            manager.maintain(NOW);
            assert_eq!(names(root.path()), ["there/orders-0"], "{what}");
        }
    }
}

#[test]
fn whoever_has_seen_a_copy_fail_gives_up_that_one_only() {
    let root = root();
    let manager = open_directories(root.path(), None);
    let log = filled(&manager);
    manager.create_future(&log, &there(&manager), NOW).unwrap();
    let failed = manager.future(id()).unwrap();
    // Asked for anew meanwhile.
    manager.create_future(&log, &there(&manager), NOW).unwrap();
    let wanted = manager.future(id()).unwrap();
    assert!(!manager.give_up_future(&failed).unwrap());
    assert!(manager.is_under_way(&wanted) && !manager.is_under_way(&failed));
    assert!(manager.give_up_future(&wanted).unwrap());
    assert!(manager.future(id()).is_none());
    manager.maintain(NOW);
    assert_eq!(names(root.path()), ["here/orders-0"]);
}

/// Whoever copies holds the logs still; their files have other names.
#[test]
fn a_topic_that_is_deleted_while_its_replica_moves_takes_no_directory_along() {
    let are_online = |manager: &LogManager| manager.directories().iter().all(|found| found.is_online());
    let steps = {
        let (root, manager, log, future) = moving();
        assert!(manager.delete(id()).unwrap());
        let ended = manager.copy_to_future(&log, &future, NOW);
        assert!(matches!(ended, Err(MoveError::Current(LogError::Offline { .. }))), "{ended:?}");
        assert!(are_online(&manager) && !manager.give_up_future(&future).unwrap());
        manager.maintain(NOW);
        assert!(names(root.path()).is_empty());

        let (root, manager, log, future) = moving();
        let faults = Faults::watch(root.path());
        caught_up(&manager, &log, &future).unwrap();
        manager.make_future_durable(&future).unwrap();
        faults.steps()
    };
    let mut deleted = 0;
    for step in 0..steps {
        let (root, manager, log, future) = moving();
        let faults = Faults::watch(root.path());
        let (deleting, both) = (manager.clone(), [log.clone(), future.clone()]);
        faults.meanwhile(step, move || {
            if both.iter().all(|log| log.is_free()) {
                assert!(deleting.delete(id()).unwrap());
            }
        });
        let copied = caught_up(&manager, &log, &future).and_then(|()| manager.make_future_durable(&future));
        assert!(are_online(&manager), "deleted at step {step}: {copied:?}");
        deleted += usize::from(manager.log(id()).is_none());
    }
    assert!(deleted > 3, "{deleted} of {steps}");
}

/// Nothing could be cut for want of a descriptor; what stands in the copy is not what stands in the log.
#[test]
fn a_cut_that_the_copy_could_not_follow_at_once_is_not_forgotten() {
    let root = root();
    let manager = open_directories(root.path(), None);
    let log = filled(&manager);
    manager.create_future(&log, &there(&manager), NOW).unwrap();
    let future = manager.future(id()).unwrap();
    caught_up(&manager, &log, &future).unwrap();
    assert!(log.write().truncate_to(Offset(12)).unwrap());
    for _ in 0..20 {
        assert!(append(&log, plain(2, 77), 9));
    }
    for _ in 0..2 {
        future.maintain().close_idle_files();
    }
    let faults = Faults::watch(future.directory().path());
    faults.fail_opens(true);
    let refused = manager.copy_to_future(&log, &future, NOW);
    assert!(matches!(&refused, Err(MoveError::Future(error)) if error.is_exhausted()), "{refused:?}");
    faults.fail_opens(false);
    caught_up(&manager, &log, &future).unwrap();
    let expected = facts(&log.read());
    manager.replace_by_future(&log, &future).unwrap();
    assert_eq!(facts(&future.read()), expected);
}
