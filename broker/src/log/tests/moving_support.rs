//! A log in one of two directories, and its move to the other.

use std::path::Path;
use std::sync::Arc;

use common::ids::*;
use uuid::Uuid;

use super::support::*;
use crate::log::*;

pub const HERE: u128 = 1;
pub const THERE: u128 = 2;

pub fn id() -> TopicIdPartition {
    TopicIdPartition::new(TopicId(Uuid::from_u128(7)), 0)
}

/// The directories `here` and `there` below a common one.
pub fn open_directories(root: &Path, unusable: Option<&str>) -> LogManager {
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

pub fn root() -> tempfile::TempDir {
    let root = directory();
    for name in ["here", "there"] {
        std::fs::create_dir(root.path().join(name)).unwrap();
    }
    root
}

pub fn append(log: &SharedLog, batch: Vec<u8>, epoch: i32) -> bool {
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

pub fn placement() -> LogPlacement {
    LogPlacement {
        id: id(),
        topic: "orders".into(),
        topic_record: MetadataOffset(3),
        directory: Some(DirectoryId(Uuid::from_u128(HERE))),
        config: Arc::new(config()),
    }
}

/// A log in `here` with transactions, epochs, a raised start and an applied cut, all of it flushed.
pub fn filled(manager: &LogManager) -> Arc<SharedLog> {
    let log = manager.create(placement(), NOW).unwrap();
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
pub struct Facts {
    pub start: Offset,
    pub end: Offset,
    pub stable: Offset,
    pub epochs: Vec<Option<(LeaderEpoch, Offset)>>,
    pub producers: Vec<ActiveProducer>,
    pub aborted: Vec<AbortedTransaction>,
    pub batches: Vec<Vec<u8>>,
}

pub fn facts(log: &Log) -> Facts {
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

pub fn there(manager: &LogManager) -> Arc<LogDirectory> {
    manager.directories().iter().find(|directory| directory.id().0.as_u128() == THERE).unwrap().clone()
}

pub fn caught_up(manager: &LogManager, log: &SharedLog, future: &SharedLog) -> Result<(), MoveError> {
    while manager.copy_to_future(log, future, NOW)? != CopyStep::CaughtUp {}
    Ok(())
}

/// The move as the worker makes it, with writes in between. False: a step failed.
pub fn move_there(manager: &LogManager) -> bool {
    let log = manager.log(id()).unwrap();
    if log.directory().id().0.as_u128() == THERE {
        return true;
    }
    if manager.future(id()).is_none() && manager.create_future(&log, &there(manager), NOW).is_err() {
        return false;
    }
    let Some(future) = manager.future(id()) else { return false };
    let moved = caught_up(manager, &log, &future)
        .and_then(|()| manager.make_future_durable(&future))
        .and_then(|()| caught_up(manager, &log, &future))
        .and_then(|()| manager.replace_by_future(&log, &future));
    if moved.is_err() {
        let _ = manager.give_up_future(&future);
    }
    moved.is_ok()
}

/// The partition's directories by their kind of name.
pub fn names(root: &Path) -> Vec<String> {
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

/// A log that has begun to move: its root, its manager, itself, and its empty copy.
pub fn moving() -> (tempfile::TempDir, Arc<LogManager>, Arc<SharedLog>, Arc<SharedLog>) {
    let root = root();
    let manager = Arc::new(open_directories(root.path(), None));
    let log = filled(&manager);
    manager.create_future(&log, &there(&manager), NOW).unwrap();
    let future = manager.future(id()).unwrap();
    (root, manager, log, future)
}
