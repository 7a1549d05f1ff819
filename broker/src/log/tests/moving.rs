//! A replica moves between log directories, with all that belongs to it.

use common::ids::*;
use uuid::Uuid;

use super::moving_support::*;
use super::support::*;
use crate::log::disk::faults::Faults;
use crate::log::*;

#[test]
fn a_replica_moves_with_all_that_belongs_to_it() {
    let root = root();
    let manager = open_directories(root.path(), None);
    let log = filled(&manager);
    // An epoch that has brought no batch yet.
    log.write().start_epoch(LeaderEpoch(9), Offset(40)).unwrap();
    let before = facts(&log.read());
    assert!(move_there(&manager));
    let moved = manager.log(id()).unwrap();
    assert_eq!(facts(&moved.read()), before);
    assert_eq!((moved.directory().id().0.as_u128(), moved.high_watermark()), (THERE, Offset(38)));
    assert_eq!(manager.applied_cut(id()), Some(CutId(5)));
    assert!(manager.future(id()).is_none());
    assert!(!append(&log, plain(1, 0), 9), "the old one takes nothing any more");
    manager.maintain(NOW);
    assert_eq!(names(root.path()), ["there/orders-0"]);
    assert!(append(&moved, idempotent(5, 0, 24, 3), 9), "the producer goes on");
    let before = facts(&moved.read());
    for clean in [true, false] {
        if clean {
            manager.close(BrokerEpoch(2)).unwrap();
        }
        let manager = open_directories(root.path(), None);
        let log = manager.log(id()).unwrap();
        assert_eq!(facts(&log.read()), before, "clean {clean}");
        assert_eq!(manager.applied_cut(id()), Some(CutId(5)));
        // And on without an orderly stop.
        assert!(append(&log, plain(1, 0), 9));
        log.write().truncate_to(before.end).unwrap();
    }
}

#[test]
fn what_is_cut_while_it_moves_does_not_stay_in_the_copy() {
    for (cut, restart) in [(30, None), (12, None), (3, None), (0, Some(500)), (20, Some(20))] {
        let root = root();
        let manager = open_directories(root.path(), None);
        let log = filled(&manager);
        manager.create_future(&log, &there(&manager), NOW).unwrap();
        let future = manager.future(id()).unwrap();
        caught_up(&manager, &log, &future).unwrap();
        match restart {
            Some(start) => log.write().truncate_fully_and_start_at(Offset(start)).unwrap(),
            None => drop(log.write().truncate_to(Offset(cut)).unwrap()),
        }
        // Other batches at the same offsets, under the same epoch.
        for _ in 0..12 {
            assert!(append(&log, plain(2, 77), 9));
        }
        caught_up(&manager, &log, &future).unwrap();
        let old = facts(&log.read());
        manager.replace_by_future(&log, &future).unwrap();
        assert_eq!(facts(&future.read()), old, "cut to {cut}, {restart:?}");
    }
}

#[test]
fn a_move_is_given_up_or_goes_elsewhere() {
    let root = root();
    let manager = open_directories(root.path(), None);
    let log = filled(&manager);
    manager.create_future(&log, &there(&manager), NOW).unwrap();
    assert_eq!(names(root.path()), ["here/orders-0", "there/future"]);
    assert!(manager.cancel_future(id()).unwrap() && !manager.cancel_future(id()).unwrap());
    manager.maintain(NOW);
    assert_eq!(names(root.path()), ["here/orders-0"]);
    // The topic goes, and with it the copy.
    manager.create_future(&log, &there(&manager), NOW).unwrap();
    assert!(manager.delete(id()).unwrap());
    manager.maintain(NOW);
    assert!(names(root.path()).is_empty());
    // Also where the broker was down when it went.
    let log = filled(&manager);
    manager.create_future(&log, &there(&manager), NOW).unwrap();
    drop((log, manager));
    let manager = open_directories(root.path(), None);
    assert!(manager.future(id()).is_some());
    manager.quarantine_strays(&|_| false);
    manager.maintain(NOW);
    assert_eq!(names(root.path()), ["here/stray"]);
}

/// A complete copy takes the log's place only where nobody else could have it.
#[test]
fn a_complete_copy_waits_while_a_directory_is_missing() {
    let root = root();
    let manager = open_directories(root.path(), None);
    let before = facts(&filled(&manager).read());
    assert!(move_there(&manager));
    drop(manager);
    let complete = root.path().join("there").join(format!("orders-0.{}-complete", "a".repeat(32)));
    std::fs::rename(root.path().join("there/orders-0"), &complete).unwrap();
    let manager = open_directories(root.path(), Some("here"));
    assert!(manager.log(id()).is_none() && complete.exists());
    drop(manager);
    let manager = open_directories(root.path(), None);
    assert_eq!(facts(&manager.log(id()).unwrap().read()), before);
}

/// Where the broker has lost a directory, the replica may lie in it.
#[test]
fn a_wish_for_a_directory_makes_no_empty_replica_beside_one_that_is_missing() {
    let root = root();
    drop(filled(&open_directories(root.path(), None)));
    let wished = DirectoryId(Uuid::from_u128(THERE));
    let manager = open_directories(root.path(), Some("here"));
    manager.prefer_directory("orders", 0, wished);
    let refused = manager.create(placement(), NOW).map(|log| log.directory().id());
    assert!(matches!(refused, Err(LogError::Offline { .. })), "{refused:?}");
    // One that was nowhere yet.
    let new = LogPlacement { id: TopicIdPartition { partition: 1, ..id() }, directory: None, ..placement() };
    assert_eq!(manager.create(new, NOW).unwrap().directory().id(), wished);
    drop(manager);
    let manager = open_directories(root.path(), None);
    manager.prefer_directory("orders", 2, wished);
    let elsewhere = LogPlacement { id: TopicIdPartition { partition: 2, ..id() }, ..placement() };
    assert_eq!(manager.create(elsewhere, NOW).unwrap().directory().id(), wished);
}

/// The cleaner looks at logs that were written since it looked last, at whatever time in a move it looks.
#[test]
fn the_cleaner_hears_of_writes_after_a_move() {
    let prepared = || {
        let (root, manager, log, future) = moving();
        caught_up(&manager, &log, &future).unwrap();
        manager.take_touched();
        (root, manager, log, future)
    };
    let steps = {
        let (root, manager, log, future) = prepared();
        let faults = Faults::watch(root.path());
        manager.replace_by_future(&log, &future).unwrap();
        faults.steps()
    };
    for step in 0..steps {
        let (root, manager, log, future) = prepared();
        let faults = Faults::watch(root.path());
        let looking = manager.clone();
        faults.meanwhile(step, move || drop(looking.take_touched()));
        manager.replace_by_future(&log, &future).unwrap();
        manager.take_touched();
        assert!(append(&future, plain(1, 0), 9));
        assert_eq!(manager.take_touched(), [id()], "looked at step {step}");
    }
}
