//! A log as its partition and the log manager share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use common::ids::{MetadataOffset, Offset, TopicIdPartition};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::directory::LogDirectory;
use super::error::LogError;
use super::log::Log;

/// Lock order: a partition's own lock comes first, then the log's. The log manager takes the latter only.
#[derive(Debug)]
pub struct SharedLog {
    id: TopicIdPartition,
    topic: Arc<str>,
    topic_record: MetadataOffset,
    directory: Arc<LogDirectory>,
    log: RwLock<Log>,
    high_watermark: AtomicI64,
    written: AtomicBool,
    /// Stands in the directory's list of logs that the cleaner has to look at.
    touched: AtomicBool,
}

impl SharedLog {
    pub(super) fn new(
        id: TopicIdPartition,
        topic: Arc<str>,
        topic_record: MetadataOffset,
        directory: Arc<LogDirectory>,
        log: Log,
        high_watermark: Offset,
    ) -> SharedLog {
        let high_watermark = high_watermark.clamp(log.log_start_offset(), log.log_end_offset());
        log.note_high_watermark(high_watermark);
        SharedLog {
            id,
            topic,
            topic_record,
            directory,
            log: RwLock::new(log),
            high_watermark: AtomicI64::new(high_watermark.0),
            written: AtomicBool::new(false),
            touched: AtomicBool::new(false),
        }
    }

    pub fn id(&self) -> TopicIdPartition {
        self.id
    }

    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// The metadata offset of the topic's record: tells a topic from an earlier one with its id.
    pub fn topic_record(&self) -> MetadataOffset {
        self.topic_record
    }

    pub fn directory(&self) -> &Arc<LogDirectory> {
        &self.directory
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Log> {
        self.log.read()
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, Log> {
        let guard = self.log.write();
        if !self.written.swap(true, Ordering::Relaxed) {
            self.directory.written.store(true, Ordering::Relaxed);
        }
        self.touch();
        guard
    }

    /// For cuts outside of `LogManager::apply_cuts`. `LogManager::checkpoint_lowered_recovery_points` is due before the
    /// log is written again.
    pub fn cut<T>(&self, cut: impl FnOnce(&mut Log) -> Result<T, LogError>) -> Result<T, LogError> {
        let mut log = self.write();
        let before = log.recovery_point();
        let result = cut(&mut log);
        if log.recovery_point() < before {
            self.directory.recovery_point_lowered.store(true, Ordering::Relaxed);
        }
        result
    }

    /// As checkpointed when the log was opened, then as the partition set it last.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// To be called after each move, forward or back: this is what is checkpointed and what retention
    /// respects.
    pub fn set_high_watermark(&self, high_watermark: Offset) {
        if self.high_watermark.swap(high_watermark.0, Ordering::AcqRel) != high_watermark.0 {
            self.directory.high_watermark_moved.store(true, Ordering::Relaxed);
        }
    }

    /// Passes a result on; a failed disk takes the directory offline.
    pub fn reporting<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        self.directory.reporting(result)
    }

    /// Syncs everything up to the present log end; appends go on meanwhile.
    pub fn flush(&self) -> Result<Offset, LogError> {
        let up_to = self.log.read().log_end_offset();
        self.reporting(self.flush_up_to(up_to.0, false))
    }

    pub(super) fn flush_up_to(&self, up_to: i64, forced: bool) -> Result<Offset, LogError> {
        let job = self.log.write().begin_flush(up_to, forced)?;
        let result = job.run();
        self.log.write().finish_flush(&job, result)
    }

    /// Whether it was written since the last call.
    pub(super) fn take_written(&self) -> bool {
        self.written.swap(false, Ordering::Relaxed)
    }

    /// The cleaner will look at the log.
    pub(super) fn touch(&self) {
        if !self.touched.swap(true, Ordering::Relaxed) {
            self.directory.touched.lock().push(self.id);
        }
    }

    /// The next write touches the log again.
    pub(super) fn untouch(&self) {
        self.touched.store(false, Ordering::Relaxed);
    }

    /// Lets the next pass look at the log again.
    pub(super) fn keep_written(&self) {
        self.written.store(true, Ordering::Relaxed);
        self.directory.written.store(true, Ordering::Relaxed);
    }

    /// Whether somebody else could change the log now.
    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.log.try_write().is_some()
    }

    /// The manager's own access: does not count as a write.
    pub(super) fn maintain(&self) -> RwLockWriteGuard<'_, Log> {
        let guard = self.log.write();
        guard.note_high_watermark(self.high_watermark());
        guard
    }
}
