//! A replica moves between log directories. Each step on the disks is failed in turn, and what a new start finds
//! is compared with what was acknowledged: one log, whole, in one of them, and a move that goes on.

use std::path::Path;
use std::sync::Arc;

use common::ids::*;
use uuid::Uuid;

use super::support::*;
use crate::log::disk::faults::{Fault, Faults};
use crate::log::*;

const HERE: u128 = 1;
const THERE: u128 = 2;

fn id() -> TopicIdPartition {
    TopicIdPartition::new(TopicId(Uuid::from_u128(7)), 0)
}

/// The directories `here` and `there` below a common one.
fn open(root: &Path, unusable: Option<&str>) -> LogManager {
    let all = [("here", HERE), ("there", THERE)];
    let usable = all.iter().filter(|(name, _)| Some(*name) != unusable);
    let directories = usable.map(|(name, id)| (root.join(name), DirectoryId(Uuid::from_u128(*id))));
    let config = LogManagerConfig {
        directories: directories.collect(),
        unusable: unusable.map(|name| root.join(name)).into_iter().collect(),
        default_log_config: Arc::new(config()),
        recovery_threads: 1,
        close_threads: 1,
        on_directory_failure: Arc::new(|_, _| {}),
    };
    LogManager::open(config, NOW).unwrap()
}

fn root() -> tempfile::TempDir {
    let root = directory();
    for name in ["here", "there"] {
        std::fs::create_dir(root.path().join(name)).unwrap();
    }
    root
}

fn append(log: &SharedLog, batch: Vec<u8>, epoch: i32) -> bool {
    let mut batch = batch;
    let append = LeaderAppend {
        leader_epoch: LeaderEpoch(epoch),
        origin: AppendOrigin::Coordinator,
        now_ms: NOW,
        relaxed: false,
    };
    match log.write().append_as_leader(&mut batch, append) {
        Ok(_) => true,
        Err(AppendError::Storage(error)) => {
            log.directory().report(&error);
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// A log in `here` with transactions, epochs, a raised start and an applied cut, all of it flushed.
fn filled(manager: &LogManager) -> Arc<SharedLog> {
    let placement = LogPlacement {
        id: id(),
        topic: "orders".into(),
        topic_record: MetadataOffset(3),
        directory: Some(DirectoryId(Uuid::from_u128(HERE))),
        config: Arc::new(config()),
    };
    let log = manager.create(placement, NOW).unwrap();
    for number in 0..8 {
        assert!(append(&log, idempotent(5, 0, 3 * number, 3), number / 3));
        assert!(append(&log, transactional(6, number, 1), number / 3));
        assert!(append(&log, marker(6, number % 2 == 0), number / 3));
    }
    log.write().increase_log_start_offset(Offset(7));
    log.set_high_watermark(Offset(38));
    log.flush().unwrap();
    manager.note_cuts(&[(id(), CutId(5))]).unwrap();
    manager.checkpoint(NOW);
    log
}

/// What a log is, beside its batches.
#[derive(Debug, PartialEq)]
struct Facts {
    start: Offset,
    end: Offset,
    stable: Offset,
    epochs: Vec<Option<(LeaderEpoch, Offset)>>,
    producers: Vec<ActiveProducer>,
    aborted: Vec<AbortedTransaction>,
    batches: Vec<Vec<u8>>,
}

fn facts(log: &Log) -> Facts {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let mut batches = Vec::new();
    let mut from = start;
    while let Some(slice) = log.read(from, 1, end, true).unwrap() {
        batches.push(bytes_of(&slice));
        from = from.max(slice.end_offset);
    }
    Facts {
        start,
        end,
        stable: log.last_stable_offset(end),
        epochs: (0..12).map(|epoch| log.end_offset_for_epoch(LeaderEpoch(epoch))).collect(),
        producers: log.active_producers(),
        aborted: log.aborted_transactions(start, end).unwrap(),
        batches,
    }
}

fn there(manager: &LogManager) -> Arc<LogDirectory> {
    manager.directories().iter().find(|directory| directory.id().0.as_u128() == THERE).unwrap().clone()
}

fn caught_up(manager: &LogManager, log: &SharedLog, future: &SharedLog) -> Result<(), MoveError> {
    while manager.copy_to_future(log, future, NOW)? != CopyStep::CaughtUp {}
    Ok(())
}

/// The move as the worker makes it, with writes in between. False: a step failed.
fn move_there(manager: &LogManager) -> bool {
    let log = manager.log(id()).unwrap();
    if log.directory().id().0.as_u128() == THERE {
        return true;
    }
    let step = |result: Result<(), MoveError>| result.is_ok();
    if manager.future(id()).is_none() && manager.create_future(&log, &there(manager), NOW).is_err() {
        return false;
    }
    let Some(future) = manager.future(id()) else { return false };
    step(caught_up(manager, &log, &future))
        && step(manager.make_future_durable(&future))
        && step(caught_up(manager, &log, &future))
        && step(manager.replace_by_future(&log, &future))
}

/// The partition's directories by their kind of name.
fn names(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for directory in ["here", "there"] {
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                let name = entry.file_name().into_string().unwrap();
                let kind =
                    name.rsplit_once('.').map_or(name.as_str(), |(_, end)| end.rsplit_once('-').unwrap().1);
                found.push(format!("{directory}/{kind}"));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_replica_moves_with_all_that_belongs_to_it() {
    let root = root();
    let manager = open(root.path(), None);
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
        let manager = open(root.path(), None);
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
        let manager = open(root.path(), None);
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
    let manager = open(root.path(), None);
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
    let manager = open(root.path(), None);
    assert!(manager.future(id()).is_some());
    manager.quarantine_strays(&|_| false);
    manager.maintain(NOW);
    assert_eq!(names(root.path()), ["here/stray"]);
}

/// A crash, a failed disk, a power cut at every step of a move.
#[test]
fn at_whatever_step_a_move_ends_there_is_one_whole_log_and_the_move_goes_on() {
    let steps = {
        let root = root();
        let manager = open(root.path(), None);
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
            let manager = open(root.path(), None);
            let before = facts(&filled(&manager).read());
            let faults = Faults::watch(root.path());
            if power {
                faults.model_power();
            }
            faults.at(step, fault);
            let moved = move_there(&manager);
            assert!(moved || step < steps, "{what}");
            if power {
                faults.cut_power();
            }
            faults.revive();
            drop((faults, manager));
            let manager = open(root.path(), None);
            let live = names(root.path()).into_iter().filter(|name| name.ends_with("/orders-0")).count();
            assert_eq!(live, 1, "{what}: {:?}", names(root.path()));
            let log = manager.log(id()).unwrap();
            assert_eq!(facts(&log.read()), before, "{what}");
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

/// A complete copy takes the log's place only where nobody else could have it.
#[test]
fn a_complete_copy_waits_while_a_directory_is_missing() {
    let root = root();
    let manager = open(root.path(), None);
    let before = facts(&filled(&manager).read());
    assert!(move_there(&manager));
    drop(manager);
    let complete = root.path().join("there").join(format!("orders-0.{}-complete", "a".repeat(32)));
    std::fs::rename(root.path().join("there/orders-0"), &complete).unwrap();
    let manager = open(root.path(), Some("here"));
    assert!(manager.log(id()).is_none() && complete.exists());
    drop(manager);
    let manager = open(root.path(), None);
    assert_eq!(facts(&manager.log(id()).unwrap().read()), before);
}
