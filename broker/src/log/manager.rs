//! The logs of a broker: opened at start, created and deleted as metadata says, maintained from one
//! place. There is no thread, task or timer of a single log.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::ids::{
    BrokerEpoch, CutId, DirectoryId, MetadataOffset, Offset, TopicIdPartition, TopicPartition,
};
use parking_lot::{Mutex, RwLock};

use super::config::LogConfig;
use super::directory::{LogDirectory, LogDirectoryFailure};
use super::disk;
use super::error::LogError;
use super::future::{FoundFuture, Futures};
use super::log::{Log, OpenState};
use super::partition_metadata::PartitionMetadata;
use super::replaced_files::ReplacedFiles;
use super::shared_log::SharedLog;
use super::startup;

pub struct LogManagerConfig {
    /// Formatted and locked by the caller.
    pub directories: Vec<(PathBuf, DirectoryId)>,
    /// Further directories that could not be read; what they hold is offline.
    pub unusable: Vec<PathBuf>,
    /// For logs found at start; their topics' own configuration follows with `update_config`.
    pub default_log_config: Arc<LogConfig>,
    /// Threads a directory that open logs at start (`num.recovery.threads.per.data.dir`).
    pub recovery_threads: usize,
    /// Threads a directory that close logs at the end: they wait for the disk, not for a processor.
    pub close_threads: usize,
    pub on_directory_failure: LogDirectoryFailure,
}

/// A log found at start, before metadata says whether it is live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLog {
    pub id: TopicIdPartition,
    pub topic: Arc<str>,
    /// Metadata offset of the topic's record (decision 3).
    pub topic_record: MetadataOffset,
    pub directory: DirectoryId,
}

/// A log to be made.
#[derive(Clone, Debug)]
pub struct LogPlacement {
    pub id: TopicIdPartition,
    pub topic: Arc<str>,
    pub topic_record: MetadataOffset,
    /// None: the directory that has the fewest logs.
    pub directory: Option<DirectoryId>,
    pub config: Arc<LogConfig>,
}

/// A cut that a replica has to apply.
#[derive(Clone, Debug)]
pub struct PendingCut {
    pub log: Arc<SharedLog>,
    pub offset: Offset,
    pub cut: CutId,
}

pub struct LogManager {
    pub(super) directories: Vec<Arc<LogDirectory>>,
    pub(super) logs: RwLock<HashMap<TopicIdPartition, Arc<SharedLog>>>,
    unusable: Vec<PathBuf>,
    pub(super) close_threads: usize,
    /// Logs that could not be opened. They are not served; a follower's is built anew from its leader.
    refused: Mutex<HashMap<TopicIdPartition, RefusedLog>>,
    /// Renamed directories whose files still have to go.
    pub(super) deleted: Mutex<Vec<PathBuf>>,
    pub(super) replaced: ReplacedFiles,
    /// Copies of replicas that move to another directory, and those whose replica is not here.
    pub(super) futures: RwLock<Futures>,
    pub(super) idle_futures: Mutex<Vec<FoundFuture>>,
    /// Where replicas are wanted that are not here yet.
    pub(super) preferred: Mutex<HashMap<TopicPartition, DirectoryId>>,
    previous_broker_epoch: Option<BrokerEpoch>,
    clean_shutdown: bool,
}

/// A log that could not be opened, and where it lies.
#[derive(Clone, Debug)]
pub(super) struct RefusedLog {
    pub error: LogError,
    pub directory: Arc<LogDirectory>,
    pub path: PathBuf,
}

impl LogManager {
    /// Opens all logs; blocks. Damage to one log leaves that log out, a failed directory all of its.
    pub fn open(config: LogManagerConfig, now_ms: i64) -> Result<LogManager, LogError> {
        let opened = startup::open_directories(&config, now_ms)?;
        let manager = LogManager {
            directories: opened.directories,
            logs: RwLock::new(opened.logs),
            unusable: config.unusable,
            close_threads: config.close_threads,
            refused: Mutex::new(opened.refused),
            deleted: Mutex::new(opened.deleted),
            replaced: ReplacedFiles::default(),
            futures: RwLock::default(),
            idle_futures: Mutex::default(),
            preferred: Mutex::default(),
            previous_broker_epoch: opened.previous_broker_epoch,
            clean_shutdown: opened.clean_shutdown,
        };
        manager.resume_moves(opened.futures, now_ms);
        Ok(manager)
    }

    pub fn directories(&self) -> &[Arc<LogDirectory>] {
        &self.directories
    }

    /// Directories that could not be read at the start.
    pub fn unusable(&self) -> &[PathBuf] {
        &self.unusable
    }

    /// A log that is missing may lie in a directory that is.
    fn has_lost_a_directory(&self) -> bool {
        !self.unusable.is_empty() || self.directories.iter().any(|directory| !directory.is_online())
    }

    /// Every directory was closed in order.
    pub fn was_clean_shutdown(&self) -> bool {
        self.clean_shutdown
    }

    /// The broker epoch under which the directories were closed in order; None after an unclean stop
    /// (KIP-966: that replica leaves ISR and ELR).
    pub fn previous_broker_epoch(&self) -> Option<BrokerEpoch> {
        self.previous_broker_epoch
    }

    pub fn log(&self, id: TopicIdPartition) -> Option<Arc<SharedLog>> {
        self.logs.read().get(&id).cloned()
    }

    pub fn logs(&self) -> Vec<Arc<SharedLog>> {
        self.logs.read().values().cloned().collect()
    }

    /// Renames each log that `is_live` denies, so that it is never served; to be called once metadata
    /// is known. An operator may delete or inspect the `-stray` directories.
    pub fn quarantine_strays(&self, is_live: &dyn Fn(&FoundLog) -> bool) -> Vec<FoundLog> {
        let mut strays = Vec::new();
        for log in self.logs() {
            let found = FoundLog {
                id: log.id(),
                topic: log.topic().clone(),
                topic_record: log.topic_record(),
                directory: log.directory().id(),
            };
            if is_live(&found) {
                continue;
            }
            let given_up = self.cancel_future(found.id);
            if let Err(error) = given_up.and_then(|_| log.reporting(self.retire(&log, "stray"))) {
                tracing::error!(topic = %found.topic, partition = found.id.partition, %error,
                    "stray log could not be renamed");
            } else {
                tracing::warn!(topic = %found.topic, partition = found.id.partition, id = %found.id.topic_id,
                    "log belongs to no topic and is set aside");
            }
            strays.push(found);
        }
        self.drop_stray_futures(is_live);
        strays
    }

    /// The log of that topic record, or a new one.
    pub fn create(&self, placement: LogPlacement, now_ms: i64) -> Result<Arc<SharedLog>, LogError> {
        if let Some(log) = self.log(placement.id) {
            if log.topic_record() == placement.topic_record {
                log.write().update_config(placement.config);
                return Ok(log);
            }
            // The topic was deleted and came back with its id: what is here is the old one's.
            self.cancel_future(placement.id)?;
            log.reporting(self.retire(&log, "stray"))?;
        }
        if let Some(refused) = self.refused.lock().get(&placement.id) {
            return Err(refused.error.clone());
        }
        let is_online = |id: &DirectoryId| self.directories.iter().any(|d| d.id() == *id && d.is_online());
        // One that was somewhere may lie in the directory that is missing: an empty one must not lead in its place.
        let may_choose = placement.directory.is_none() || !self.has_lost_a_directory();
        let preferred =
            if may_choose { self.take_preferred(&placement.topic, placement.id.partition) } else { None };
        let directory = self.directory_for(preferred.filter(is_online).or(placement.directory))?;
        let created = self.create_in(&directory, placement, now_ms);
        directory.reporting(created)
    }

    fn directory_for(&self, wanted: Option<DirectoryId>) -> Result<Arc<LogDirectory>, LogError> {
        let candidates = self.directories.iter().filter(|directory| directory.is_online());
        let chosen = match wanted {
            Some(id) if self.has_lost_a_directory() || self.directories.iter().any(|d| d.id() == id) => {
                candidates.into_iter().find(|directory| directory.id() == id)
            }
            // Never assigned, or to a disk that was replaced while every other is there.
            _ => candidates.min_by_key(|directory| directory.logs.load(Ordering::Relaxed)),
        };
        chosen.cloned().ok_or_else(|| LogError::Offline {
            path: self
                .directories
                .first()
                .map(|directory| directory.path().to_path_buf())
                .unwrap_or_default(),
        })
    }

    fn create_in(
        &self,
        directory: &Arc<LogDirectory>,
        placement: LogPlacement,
        now_ms: i64,
    ) -> Result<Arc<SharedLog>, LogError> {
        let LogPlacement { id, topic, topic_record, config, .. } = placement;
        let path = directory.path().join(format!("{topic}-{}", id.partition));
        if path.exists() {
            // Not in the map, so of another topic, or half made when the broker died.
            self.set_aside(directory, &path, "stray")?;
        }
        disk::create_directory(&path)?;
        let made = (|| {
            PartitionMetadata { topic_id: id.topic_id, topic_record }.write(&path)?;
            let state = OpenState {
                clean_shutdown: true,
                recovery_point: Offset::ZERO,
                log_start_offset: Offset::ZERO,
            };
            // A replica that was here under the same id has applied cuts; this one has not.
            directory.cuts.lock().forget(id)?;
            Log::open(&path, id.topic_id, config, state, now_ms)
        })();
        // Half made, it would only be set aside at the next attempt.
        let log = made.inspect_err(|_| drop(fs::remove_dir_all(&path)))?;
        let shared = Arc::new(SharedLog::new(id, topic, topic_record, directory.clone(), log, Offset::ZERO));
        directory.logs.fetch_add(1, Ordering::Relaxed);
        let mut logs = self.logs.write();
        Ok(logs.entry(id).or_insert(shared).clone())
    }

    /// A log that could not be opened gives way: the leader has it all. False: it is no such log.
    pub fn set_aside_refused(&self, id: TopicIdPartition) -> Result<bool, LogError> {
        let Some(refused) = self.refused.lock().remove(&id) else { return Ok(false) };
        let renamed = self.set_aside(&refused.directory, &refused.path, "stray");
        refused.directory.reporting(renamed)?;
        tracing::warn!(log = %refused.path.display(), error = %refused.error, "a log that could not be opened is set aside");
        Ok(true)
    }

    /// Takes the log out of service at once; its files go with the next `maintain`. False: there is none.
    pub fn delete(&self, id: TopicIdPartition) -> Result<bool, LogError> {
        self.set_aside_refused(id)?;
        self.cancel_future(id)?;
        let Some(log) = self.log(id) else { return Ok(false) };
        let renamed = log.reporting(self.retire(&log, "delete"))?;
        self.deleted.lock().push(renamed);
        Ok(true)
    }

    /// Ends the use of a log and renames its directory.
    fn retire(&self, log: &Arc<SharedLog>, suffix: &str) -> Result<PathBuf, LogError> {
        self.logs.write().remove(&log.id());
        log.directory().logs.fetch_sub(1, Ordering::Relaxed);
        let mut guard = log.write();
        guard.set_offline();
        let renamed = self.set_aside(log.directory(), guard.directory(), suffix)?;
        drop(guard);
        match log.directory().cuts.lock().forget(log.id()) {
            // A log that comes back under this id has it forgotten before it is used (`create_in`).
            Err(error) if error.is_exhausted() => {}
            other => other?,
        }
        Ok(renamed)
    }

    pub(super) fn set_aside(
        &self,
        directory: &LogDirectory,
        path: &Path,
        suffix: &str,
    ) -> Result<PathBuf, LogError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let renamed = directory.path().join(startup::aside_name(name, suffix));
        disk::rename(path, &renamed)?;
        Ok(renamed)
    }

    /// The last cut that this replica has applied (decision 10d); None: none yet.
    pub fn applied_cut(&self, id: TopicIdPartition) -> Option<CutId> {
        let log = self.log(id)?;
        let cuts = log.directory().cuts.lock();
        cuts.get(id)
    }
}
