//! One partition's replica on disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use common::ids::{LeaderEpoch, Offset, TopicId};

use super::config::LogConfig;
use super::epoch_cache::EpochCache;
use super::error::{AppendError, LogError};
use super::producer_state::{ActiveProducer, ProducerState};
use super::recent_batches::RecentBatches;
use super::recovery::RecoveryReport;
use super::segment::Segment;

/// What the log manager's checkpoints say of a log before it is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenState {
    /// The broker stopped in order: nothing needs to be scanned.
    pub clean_shutdown: bool,
    /// Everything below is known to be on disk.
    pub recovery_point: Offset,
    pub log_start_offset: Offset,
}

/// A log belongs to one partition and is used under its lock. Invariants: offsets ascend over segments
/// and batches; leader epochs never fall; the last segment is the one that is written; producer state
/// and epoch cache are those of `log_end`.
#[derive(Debug)]
pub struct Log {
    pub(super) directory: Arc<Path>,
    pub(super) topic_id: TopicId,
    pub(super) config: Arc<LogConfig>,
    /// By base offset, never empty.
    pub(super) segments: Vec<Segment>,
    pub(super) log_start: i64,
    pub(super) log_end: i64,
    /// Where the batches end, when a cut left the log end in a gap above them.
    pub(super) gap_start: Option<i64>,
    pub(super) recovery_point: i64,
    pub(super) epochs: EpochCache,
    pub(super) producers: ProducerState,
    /// Offsets of the producer snapshots on disk, ascending.
    pub(super) snapshots: Vec<Offset>,
    pub(super) recent: RecentBatches,
    pub(super) unflushed_records: i64,
    pub(super) last_flush_ms: i64,
    /// Files were made or deleted since the directory was synced.
    pub(super) directory_changed: bool,
    /// Made by this process, and neither its entry in the parent directory nor its identity is durable yet.
    pub(super) newly_made: bool,
    /// Counts truncations, so that a flush that ran beside one does not raise the recovery point.
    pub(super) truncations: u64,
    /// The lowest offset that was cut to since a move of the log looked last (`future`).
    pub(super) cut_since: Option<i64>,
    /// Where the last cleaning ended; None: never cleaned.
    pub(super) cleaned_to: Option<i64>,
    /// Below it records may be missing because of records above it (`cleaner::source`).
    pub(super) compacted_end: i64,
    pub(super) failed: bool,
    /// Its directory has another name by now, or is gone: it was deleted, or has moved.
    pub(super) retired: bool,
    pub(super) recovery: Option<Box<RecoveryReport>>,
    /// As the partition last told; for pruning only.
    pub(super) high_watermark: AtomicI64,
}

impl Log {
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    pub fn update_config(&mut self, config: Arc<LogConfig>) {
        self.config = config;
    }

    pub fn log_start_offset(&self) -> Offset {
        Offset(self.log_start)
    }

    pub fn log_end_offset(&self) -> Offset {
        Offset(self.log_end)
    }

    /// Everything below is known to be on disk. Not above the last batch: that is the log end which a restart finds,
    /// and one below what was noted has lost something.
    pub fn recovery_point(&self) -> Offset {
        Offset(self.recovery_point.min(self.end_of_batches()))
    }

    /// What recovery found when the log was opened after an unclean stop, or with damaged files.
    pub fn recovery_report(&self) -> Option<&RecoveryReport> {
        self.recovery.as_deref()
    }

    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(Segment::size_bytes).sum()
    }

    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Below it every transaction is decided, and seen to be so below `high_watermark`.
    pub fn last_stable_offset(&self, high_watermark: Offset) -> Offset {
        let undecided = self.producers.first_undecided_offset(high_watermark);
        // What lies below the log start is out of sight; a transaction that began there holds the start.
        undecided.map_or(high_watermark, |first| first.max(Offset(self.log_start)).min(high_watermark))
    }

    /// The newest epoch in the epoch cache.
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest()
    }

    /// The epoch under which the record at `offset` was written.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.epochs.epoch_at(offset)
    }

    /// Kafka's OffsetForLeaderEpoch: the greatest known epoch at or below the asked one, and its end.
    /// None is Kafka's UNDEFINED.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.epochs.end_offset_for(epoch, Offset(self.log_end))
    }

    /// The same on a mirror partition, where nothing is undefined (decision 8): above the newest epoch
    /// lies the log end, an empty cache gives -1 and the log start.
    pub fn mirrored_end_offset_for_epoch(&self, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        self.epochs.mirrored_end_offset_for(epoch, Offset(self.log_start), Offset(self.log_end))
    }

    /// A leader's own epoch enters the cache. Refused below the newest: epochs in a log never fall.
    pub fn start_epoch(&mut self, epoch: LeaderEpoch, offset: Offset) -> Result<(), AppendError> {
        if let Some(latest_epoch) = self.epochs.latest()
            && epoch < latest_epoch
        {
            return Err(AppendError::LeaderEpochFell { first_offset: offset, epoch, latest_epoch });
        }
        self.epochs.assign(epoch, offset);
        Ok(())
    }

    pub fn active_producers(&self) -> Vec<ActiveProducer> {
        self.producers.active()
    }

    /// No batch at or above the log start.
    pub fn is_empty(&self) -> bool {
        self.log_start == self.log_end
    }

    /// Called as the high watermark moves; what only waited for it is forgotten with the next marker.
    pub fn note_high_watermark(&self, high_watermark: Offset) {
        self.high_watermark.store(high_watermark.0, Ordering::Relaxed);
    }

    pub fn is_offline(&self) -> bool {
        self.failed
    }

    /// Ends the use of the log: its directory is about to be renamed.
    pub(super) fn set_offline(&mut self) {
        self.failed = true;
        self.retired = true;
        for segment in &self.segments {
            segment.close_files();
        }
    }

    pub(super) fn check_online(&self) -> Result<(), LogError> {
        if self.failed { Err(self.offline()) } else { Ok(()) }
    }

    /// What cannot be done with the files of a log that was deleted or has moved says nothing of its disk.
    pub(super) fn check_not_retired(&self) -> Result<(), LogError> {
        if self.retired { Err(self.offline()) } else { Ok(()) }
    }

    /// The same for work that was begun under the log's lock and went on without it: the log may have been taken
    /// out of service meanwhile, and its files with it.
    pub(super) fn unless_retired<T>(&self, result: Result<T, LogError>) -> Result<T, LogError> {
        match result {
            Err(error) if self.retired && error.is_missing() => Err(self.offline()),
            other => other,
        }
    }

    fn offline(&self) -> LogError {
        LogError::Offline { path: self.directory.to_path_buf() }
    }

    /// After a failed write nothing is known of the files any more. Where something merely ran out, whoever
    /// passes the result on has left the log whole.
    pub(super) fn failing<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        if result.as_ref().is_err_and(|error| !error.is_exhausted()) {
            self.failed = true;
        }
        result
    }

    pub(super) fn active(&self) -> &Segment {
        // `segments` is never empty.
        &self.segments[self.segments.len() - 1]
    }

    pub(super) fn active_mut(&mut self) -> &mut Segment {
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }

    /// Index of the segment into whose range `offset` falls.
    pub(super) fn segment_for(&self, offset: i64) -> usize {
        self.segments.partition_point(|segment| segment.base_offset() <= offset).saturating_sub(1)
    }

    /// The first offset that cannot be in the segment any more.
    pub(super) fn segment_end(&self, index: usize) -> i64 {
        self.segments.get(index + 1).map_or(self.log_end, Segment::base_offset)
    }
}
