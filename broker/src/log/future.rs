//! Replicas on their way to another log directory (KIP-113).
//!
//! A copy, the *future* log, grows in a directory `topic-0.<unique>-future` of the target. Once it has
//! everything, it takes the place of the current one in three renames, each of them synced before the next: it
//! becomes `-complete`, the current one `-delete`, and then it gets the partition's own name. So whatever a
//! crash leaves, at most one directory has that name, and where none has, the complete copy takes it
//! (`settle_moves`). A copy that was not complete when the broker stopped begins anew: what was cut off the
//! current log meanwhile is not known, and epochs alone would not tell (decision 10d).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::ids::{DirectoryId, Offset, TopicIdPartition, TopicPartition};

use super::directory::LogDirectory;
use super::disk;
use super::error::{AppendError, LogError, ReadError};
use super::log::{Log, OpenState};
use super::manager::{FoundLog, LogManager};
use super::partition_metadata::PartitionMetadata;
use super::shared_log::SharedLog;
use super::startup::{MAX_NAME_BYTES, aside_name, parse_name};

pub(super) const FUTURE: &str = "future";
pub(super) const COMPLETE: &str = "complete";

/// Copied in one step: other work of the disk gets its turn in between.
const COPY_BYTES: usize = 1 << 20;
/// Replicas that are wanted in a directory before they are here.
const MAX_PREFERRED: usize = 100_000;

/// A copy that was under way when the broker stopped.
#[derive(Clone, Debug)]
pub(super) struct FoundFuture {
    pub id: TopicIdPartition,
    pub name: TopicPartition,
    pub metadata: PartitionMetadata,
    pub directory: Arc<LogDirectory>,
    pub path: PathBuf,
}

/// What a step of a move has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStep {
    Copied { bytes: usize },
    CaughtUp,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum MoveError {
    /// Of the current log: what cannot be read cannot be moved.
    #[error("the replica cannot be read: {0}")]
    Current(LogError),
    /// Of the copy; its directory is told.
    #[error("the copy cannot be written: {0}")]
    Future(LogError),
    #[error("what was read of the replica is refused by the copy: {0}")]
    Refused(AppendError),
}

/// `orders-0.<unique>-future` as `orders-0`; None: it is no such name.
pub(super) fn parse_aside(name: &str, suffix: &str) -> Option<TopicPartition> {
    let (name, _) = name.strip_suffix(suffix)?.strip_suffix('-')?.rsplit_once('.')?;
    parse_name(name)
}

fn is_complete(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| parse_aside(name, COMPLETE).is_some())
}

/// As in Kafka (KAFKA-4893): no directory can be named so.
pub fn is_movable(topic: &str, partition: i32) -> bool {
    let name = format!("{topic}-{partition}");
    name.len() + aside_name("", COMPLETE).len() <= MAX_NAME_BYTES
}

/// Completes or takes back the moves at whose end the broker stopped. `all_there`: no directory is missing that
/// could hold a current log.
pub(super) fn settle_moves(directories: &[Arc<LogDirectory>], all_there: bool) -> Result<(), LogError> {
    let mut complete = Vec::new();
    for directory in directories.iter().filter(|directory| directory.is_online()) {
        let found = named(directory, |name| parse_aside(name, COMPLETE));
        match directory.reporting(found) {
            Ok(found) => complete.extend(found.into_iter().map(|found| (directory, found))),
            Err(error) if error.is_fatal_to_directory() => {}
            Err(error) => return Err(error),
        }
    }
    if complete.is_empty() {
        return Ok(());
    }
    let mut current = HashSet::new();
    for directory in directories.iter().filter(|directory| directory.is_online()) {
        let found = directory.reporting(named(directory, parse_name));
        for (path, name) in found.unwrap_or_default() {
            if let Some(metadata) = PartitionMetadata::read(&path)? {
                current.insert((metadata.topic_id, name.partition));
            }
        }
    }
    for (directory, (path, name)) in complete {
        let Some(metadata) = PartitionMetadata::read(&path)? else { continue };
        let settled = if current.contains(&(metadata.topic_id, name.partition)) {
            // The current one was not given up yet, and may have grown since.
            let future = directory.path().join(aside_name(&name.to_string(), FUTURE));
            disk::rename(&path, &future)
        } else if all_there {
            tracing::info!(directory = %path.display(), "the move to this directory is completed");
            let live = directory.path().join(name.to_string());
            disk::rename(&path, &live).and_then(|()| disk::sync_directory(directory.path()))
        } else {
            tracing::warn!(directory = %path.display(),
                "moved here, but perhaps moved on to a directory that is missing: left alone");
            Ok(())
        };
        match directory.reporting(settled) {
            Err(error) if !error.is_fatal_to_directory() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The partition directories whose names are of one kind.
fn named(
    directory: &LogDirectory,
    parse: impl Fn(&str) -> Option<TopicPartition>,
) -> Result<Vec<(PathBuf, TopicPartition)>, LogError> {
    let failed = |error| LogError::io("list", directory.path(), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory.path()).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(name) = entry.file_name().to_str().and_then(&parse) {
            found.push((entry.path(), name));
        }
    }
    Ok(found)
}

impl LogManager {
    /// Copies that were under way begin anew beside the logs that are here; the others wait for a start at
    /// which theirs is there.
    pub(super) fn resume_moves(&self, found: Vec<FoundFuture>, now_ms: i64) {
        for future in found {
            let resumed = match self.log(future.id) {
                Some(current) if current.topic_record() == future.metadata.topic_record => {
                    self.begin_anew(&future, &current, now_ms)
                }
                _ => {
                    self.idle_futures.lock().push(future);
                    continue;
                }
            };
            if let Err(error) = future.directory.reporting(resumed) {
                tracing::error!(directory = %future.path.display(), %error, "the move cannot go on");
            }
        }
    }

    fn begin_anew(&self, future: &FoundFuture, current: &SharedLog, now_ms: i64) -> Result<(), LogError> {
        if future.directory.id() == current.directory().id() {
            return fs::remove_dir_all(&future.path)
                .map_err(|error| LogError::io("delete", &future.path, error));
        }
        let failed = |error| LogError::io("list", &future.path, error);
        for entry in fs::read_dir(&future.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != "metadata") {
                disk::remove(&path)?;
            }
        }
        let log = open_future(&future.path, current, now_ms)?;
        self.insert_future(current, future.directory.clone(), log);
        Ok(())
    }

    fn insert_future(&self, current: &SharedLog, directory: Arc<LogDirectory>, log: Log) -> Arc<SharedLog> {
        directory.logs.fetch_add(1, Ordering::Relaxed);
        let (topic, record) = (current.topic().clone(), current.topic_record());
        let future = Arc::new(SharedLog::new(current.id(), topic, record, directory, log, Offset::ZERO));
        tracing::info!(topic = %current.topic(), partition = current.id().partition,
            from = %current.directory().path().display(), to = %future.directory().path().display(),
            "the replica moves to another log directory");
        self.futures.write().insert(current.id(), future.clone());
        future
    }

    /// The copy of a replica that moves.
    pub fn future(&self, id: TopicIdPartition) -> Option<Arc<SharedLog>> {
        self.futures.read().get(&id).cloned()
    }

    /// It was not given up, and no other has come in its place.
    pub fn is_under_way(&self, future: &Arc<SharedLog>) -> bool {
        self.future(future.id()).is_some_and(|own| Arc::ptr_eq(&own, future))
    }

    pub fn has_futures(&self) -> bool {
        !self.futures.read().is_empty()
    }

    pub fn futures(&self) -> Vec<Arc<SharedLog>> {
        self.futures.read().values().cloned().collect()
    }

    /// A replica that comes here is made in this directory.
    pub fn prefer_directory(&self, topic: &str, partition: i32, directory: DirectoryId) {
        let mut preferred = self.preferred.lock();
        let name = TopicPartition::new(topic, partition);
        if preferred.len() < MAX_PREFERRED || preferred.contains_key(&name) {
            preferred.insert(name, directory);
        }
    }

    pub(super) fn take_preferred(&self, topic: &str, partition: i32) -> Option<DirectoryId> {
        let mut preferred = self.preferred.lock();
        if preferred.is_empty() { None } else { preferred.remove(&TopicPartition::new(topic, partition)) }
    }

    /// An empty copy in `directory`, instead of any other.
    pub fn create_future(
        &self,
        current: &SharedLog,
        directory: &Arc<LogDirectory>,
        now_ms: i64,
    ) -> Result<(), LogError> {
        self.cancel_future(current.id())?;
        let name = format!("{}-{}", current.topic(), current.id().partition);
        let path = directory.path().join(aside_name(&name, FUTURE));
        let created = disk::create_directory(&path).and_then(|()| {
            let metadata =
                PartitionMetadata { topic_id: current.id().topic_id, topic_record: current.topic_record() };
            let made = metadata.write(&path).and_then(|()| open_future(&path, current, now_ms));
            made.inspect_err(|_| drop(fs::remove_dir_all(&path)))
        });
        let log = directory.reporting(created)?;
        self.insert_future(current, directory.clone(), log);
        Ok(())
    }

    /// The replica stays where it is. False: it was not moving.
    pub fn cancel_future(&self, id: TopicIdPartition) -> Result<bool, LogError> {
        let Some(future) = self.futures.write().remove(&id) else { return Ok(false) };
        self.discard_future(&future)?;
        Ok(true)
    }

    /// The same by whoever has seen this copy fail. False: it stays. Another may be under way by now; or it is
    /// complete, and the current log not served any more, so that it may be the only one: the next start
    /// decides (`settle_moves`).
    pub fn give_up_future(&self, future: &Arc<SharedLog>) -> Result<bool, LogError> {
        let is_served = self
            .log(future.id())
            .is_some_and(|current| current.directory().is_online() && !current.read().is_offline());
        if !is_served && is_complete(future.read().directory()) {
            return Ok(false);
        }
        {
            let mut futures = self.futures.write();
            if !futures.get(&future.id()).is_some_and(|own| Arc::ptr_eq(own, future)) {
                return Ok(false);
            }
            futures.remove(&future.id());
        }
        self.discard_future(future)?;
        Ok(true)
    }

    fn discard_future(&self, future: &SharedLog) -> Result<(), LogError> {
        let directory = future.directory();
        directory.logs.fetch_sub(1, Ordering::Relaxed);
        let mut log = future.write();
        log.set_offline();
        if directory.is_online() {
            let renamed = self.set_aside(directory, log.directory(), "delete");
            self.deleted.lock().push(directory.reporting(renamed)?);
        }
        Ok(())
    }

    /// Copies on their way to a directory that failed are given up; a restart takes them up again.
    pub fn drop_futures_in(&self, directory: DirectoryId) {
        self.futures.write().retain(|_, future| future.directory().id() != directory);
    }

    /// Copies of replicas that are not here any more.
    pub(super) fn drop_stray_futures(&self, is_live: &dyn Fn(&FoundLog) -> bool) {
        let idle = std::mem::take(&mut *self.idle_futures.lock());
        for future in idle {
            let found = FoundLog {
                id: future.id,
                topic: future.name.topic.clone(),
                topic_record: future.metadata.topic_record,
                directory: future.directory.id(),
            };
            if is_live(&found) {
                self.idle_futures.lock().push(future);
                continue;
            }
            let renamed = self.set_aside(&future.directory, &future.path, "delete");
            match future.directory.reporting(renamed) {
                Ok(renamed) => self.deleted.lock().push(renamed),
                Err(error) => {
                    tracing::error!(directory = %future.path.display(), %error, "cannot be deleted")
                }
            }
        }
    }

    /// Brings the copy nearer to the current log. To be called by one at a time for a partition.
    pub fn copy_to_future(
        &self,
        current: &SharedLog,
        future: &SharedLog,
        now_ms: i64,
    ) -> Result<CopyStep, MoveError> {
        let written = |result: Result<(), LogError>| future.reporting(result).map_err(MoveError::Future);
        let (cut, start, end) = {
            let mut log = current.maintain();
            (log.take_cut_since(), log.log_start_offset(), log.log_end_offset())
        };
        let followed = follow_cut(future, cut, start, end);
        if let (Err(_), Some(cut)) = (&followed, cut) {
            // It still has to go from the copy.
            current.maintain().note_cut(cut.0);
        }
        written(followed)?;
        let from = future.read().log_end_offset();
        let (slice, truncations) = {
            let log = current.read();
            let slice = log.read(from, COPY_BYTES, end, true);
            (slice, log.truncations())
        };
        let slice = match slice {
            Ok(Some(slice)) => slice,
            Ok(None) => {
                future.set_high_watermark(current.high_watermark().min(from));
                return Ok(CopyStep::CaughtUp);
            }
            // Cut meanwhile: the next step knows.
            Err(ReadError::OutOfRange { .. }) => return Ok(CopyStep::Copied { bytes: 0 }),
            Err(ReadError::Storage(error)) => {
                return current.reporting(Err(error)).map_err(MoveError::Current);
            }
        };
        let mut bytes = vec![0; slice.length];
        let read = disk::read_at(&slice.file, current.directory().path(), &mut bytes, slice.position);
        if current.read().truncations() != truncations {
            return Ok(CopyStep::Copied { bytes: 0 });
        }
        current.reporting(read).map_err(MoveError::Current)?;
        match future.write().append_as_follower(&bytes, now_ms) {
            Ok(_) => {}
            Err(AppendError::Storage(error)) => return written(Err(error)).map(|()| CopyStep::CaughtUp),
            Err(error) => return Err(MoveError::Refused(error)),
        }
        future.set_high_watermark(current.high_watermark().min(future.read().log_end_offset()));
        Ok(CopyStep::Copied { bytes: bytes.len() })
    }

    /// What the copy has is on its disk, and the checkpoints say so: the switch then has little to sync.
    pub fn make_future_durable(&self, future: &SharedLog) -> Result<(), MoveError> {
        let durable = future.flush().and_then(|_| self.write_recovery_points(future.directory()));
        future.reporting(durable).map_err(MoveError::Future)
    }
}

/// What was cut off the current log goes from the copy, whatever came in its place: it reaches from `start` to
/// `end` now.
fn follow_cut(future: &SharedLog, cut: Option<Offset>, start: Offset, end: Offset) -> Result<(), LogError> {
    let mut log = future.write();
    let cut_to = Some(cut.map_or(end, |cut| cut.min(end))).filter(|cut| *cut < log.log_end_offset());
    if cut_to.is_some_and(|cut| cut <= log.log_start_offset()) || log.log_end_offset() < start {
        log.truncate_fully_and_start_at(start)?;
    } else if let Some(cut) = cut_to {
        log.truncate_to(cut)?;
    }
    log.increase_log_start_offset(start);
    Ok(())
}

fn open_future(path: &Path, current: &SharedLog, now_ms: i64) -> Result<Log, LogError> {
    let (config, start) = {
        let mut log = current.maintain();
        // From here on it counts.
        log.take_cut_since();
        (log.config().clone(), log.log_start_offset())
    };
    let state = OpenState { clean_shutdown: true, recovery_point: start, log_start_offset: start };
    Log::open(path, current.id().topic_id, config, state, now_ms)
}

/// By directory, the copies that are found at a start.
pub(super) fn found_future(
    path: PathBuf,
    name: TopicPartition,
    directory: &Arc<LogDirectory>,
) -> Result<Option<FoundFuture>, LogError> {
    let Some(metadata) = PartitionMetadata::read(&path)? else { return Ok(None) };
    let id = TopicIdPartition::new(metadata.topic_id, name.partition);
    Ok(Some(FoundFuture { id, name, metadata, directory: directory.clone(), path }))
}

pub(super) type Futures = HashMap<TopicIdPartition, Arc<SharedLog>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies() {
        let name = aside_name("a.b-future-3", FUTURE);
        assert_eq!(parse_aside(&name, FUTURE), Some(TopicPartition::new("a.b-future", 3)));
        assert_eq!(parse_aside(&name, COMPLETE), None);
        assert_eq!(parse_aside("orders-0", FUTURE), None);
        // A topic may be named like this; its partitions' directories are no copies.
        assert_eq!(parse_aside("x.y-future-0", FUTURE), None);
        assert!(is_movable("orders", 0) && !is_movable(&"t".repeat(240), 0));
    }
}
