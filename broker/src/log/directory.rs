//! One of `log.dirs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::ids::{DirectoryId, TopicIdPartition};
use parking_lot::Mutex;

use super::checkpoint::PartitionOffsets;
use super::cut_checkpoint::CutCheckpoint;
use super::error::LogError;

/// Called once for each directory that failed, from whichever thread saw it.
pub type LogDirectoryFailure = Arc<dyn Fn(&LogDirectory, &LogError) + Send + Sync>;

/// Formatted and locked by whoever started the broker.
pub struct LogDirectory {
    path: PathBuf,
    id: DirectoryId,
    online: AtomicBool,
    pub(super) logs: AtomicUsize,
    pub(super) cuts: Mutex<CutCheckpoint>,
    /// Some log was written since the last checkpoint.
    pub(super) written: AtomicBool,
    pub(super) high_watermark_moved: AtomicBool,
    /// Some log was cut below its recovery point, which the checkpoint does not know yet.
    pub(super) recovery_point_lowered: AtomicBool,
    /// Logs that were written since the cleaner looked last.
    pub(super) touched: Mutex<Vec<TopicIdPartition>>,
    /// Recovery points, log starts and where cleanings ended, as last written: each write costs a sync, so
    /// none is made in vain.
    pub(super) checkpointed: Mutex<[PartitionOffsets; 3]>,
    on_failure: LogDirectoryFailure,
}

impl LogDirectory {
    pub(super) fn open(path: PathBuf, id: DirectoryId, on_failure: LogDirectoryFailure) -> LogDirectory {
        let (cuts, failure) = match CutCheckpoint::load(&path) {
            Ok(cuts) => (cuts, None),
            Err(error) => (CutCheckpoint::empty(&path), Some(error)),
        };
        let directory = LogDirectory {
            path,
            id,
            online: AtomicBool::new(true),
            logs: AtomicUsize::new(0),
            cuts: Mutex::new(cuts),
            written: AtomicBool::new(false),
            high_watermark_moved: AtomicBool::new(false),
            recovery_point_lowered: AtomicBool::new(false),
            touched: Mutex::default(),
            checkpointed: Mutex::default(),
            on_failure,
        };
        if let Some(error) = failure {
            // Without it nobody knows which cuts the replicas here have applied: neither cutting again
            // nor leaving them uncut would be right (decision 10d).
            directory.fail(&error);
        }
        directory
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn id(&self) -> DirectoryId {
        self.id
    }

    pub fn is_online(&self) -> bool {
        self.online.load(Ordering::Acquire)
    }

    /// The disk failed: everything in the directory is offline until the broker is restarted. Damage to one log's
    /// files is that log's alone.
    pub fn report(&self, error: &LogError) {
        if error.is_fatal_to_directory() {
            self.fail(error);
        }
    }

    fn fail(&self, error: &LogError) {
        if self.online.swap(false, Ordering::AcqRel) {
            tracing::error!(directory = %self.path.display(), %error, "log directory failed and is offline");
            (self.on_failure)(self, error);
        }
    }

    pub(super) fn reporting<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error) = &result {
            self.report(error);
        }
        result
    }
}

impl std::fmt::Debug for LogDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogDirectory").field("path", &self.path).field("id", &self.id).finish_non_exhaustive()
    }
}
