//! What the log manager does now and then for all logs, and when the broker stops. Everything here
//! blocks, so it is called from threads that may.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::fault;
use common::ids::{BrokerEpoch, CutId, Offset, TopicIdPartition};
use parking_lot::Mutex;

use super::checkpoint::{
    CLEANER_CHECKPOINT, Durability, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, PartitionOffsets,
    RECOVERY_POINT_CHECKPOINT, write_offsets,
};
use super::directory::LogDirectory;
use super::disk;
use super::error::LogError;
use super::log::Log;
use super::manager::{LogManager, PendingCut};
use super::shared_log::SharedLog;
use super::startup::write_clean_shutdown;

/// Above so many logs one sync of the file system is cheaper than one of each file.
const FILE_SYNCS: usize = 16;

impl LogManager {
    /// In a fixed order, so that checkpoints can be compared; with the copies that are to be logs here.
    fn logs_in(&self, directory: &LogDirectory) -> Vec<Arc<SharedLog>> {
        let is_here = |log: &&Arc<SharedLog>| log.directory().id() == directory.id();
        let mut logs: Vec<_> = self.logs.read().values().filter(is_here).cloned().collect();
        logs.extend(self.futures.read().values().filter(is_here).cloned());
        logs.sort_unstable_by_key(|log| log.id());
        logs
    }

    fn online(&self) -> impl Iterator<Item = &Arc<LogDirectory>> {
        self.directories.iter().filter(|directory| directory.is_online())
    }

    /// Every few seconds: flushes closed segments (and open ones where `flush.ms` says so), then writes
    /// the checkpoints of directories in which anything changed. Costs nothing while nothing is written.
    pub fn checkpoint(&self, now_ms: i64) {
        for directory in self.online() {
            let result = self.checkpoint_directory(directory, now_ms);
            if let Err(error) = directory.reporting(result) {
                tracing::error!(directory = %directory.path().display(), %error, "checkpoint failed");
            }
        }
        self.delete_due(now_ms);
    }

    fn checkpoint_directory(&self, directory: &LogDirectory, now_ms: i64) -> Result<(), LogError> {
        if directory.written.swap(false, Ordering::Relaxed) {
            for log in self.logs_in(directory) {
                if !log.take_written() {
                    continue;
                }
                let due = {
                    let mut guard = log.maintain();
                    let due = guard.flush_due(now_ms);
                    let waits_for_time = guard.config().flush_ms != i64::MAX
                        && guard.recovery_point() < guard.log_end_offset();
                    if waits_for_time {
                        log.keep_written();
                    }
                    due
                };
                if let Some(up_to) = due {
                    match log.flush_up_to(up_to, false) {
                        // Deleted or moved meanwhile, or refused until a restart: the others are flushed.
                        Err(LogError::Offline { .. }) => {}
                        other => {
                            other.inspect_err(|_| log.keep_written())?;
                        }
                    }
                }
            }
            // On a full disk the next pass tries again.
            let again = |_: &LogError| directory.written.store(true, Ordering::Relaxed);
            self.write_recovery_points(directory).inspect_err(again)?;
        }
        if directory.high_watermark_moved.swap(false, Ordering::Relaxed) {
            let again = |_: &LogError| directory.high_watermark_moved.store(true, Ordering::Relaxed);
            self.write_high_watermarks(directory).inspect_err(again)?;
        }
        Ok(())
    }

    pub(super) fn write_high_watermarks(&self, directory: &LogDirectory) -> Result<(), LogError> {
        // Cuts write this file as well as the periodic upkeep: one at a time, the newest last.
        let _one_writer = directory.checkpointed.lock();
        let offsets: Vec<_> = self
            .logs_in(directory)
            .iter()
            .map(|log| (log.topic().clone(), log.id().partition, log.high_watermark()))
            .collect();
        write_offsets(&directory.path().join(HIGH_WATERMARK_CHECKPOINT), &offsets, Durability::Power)
    }

    pub(super) fn write_recovery_points(&self, directory: &LogDirectory) -> Result<(), LogError> {
        let logs = self.logs_in(directory);
        let offsets = |of: fn(&Log) -> Offset| -> PartitionOffsets {
            logs.iter()
                .map(|log| (log.topic().clone(), log.id().partition, of(&log.read())))
                .filter(|entry| entry.2 > Offset::ZERO)
                .collect()
        };
        let mut written = directory.checkpointed.lock();
        let checkpoints = [
            (RECOVERY_POINT_CHECKPOINT, offsets(Log::recovery_point)),
            (LOG_START_CHECKPOINT, offsets(Log::log_start_offset)),
            (CLEANER_CHECKPOINT, offsets(|log| log.cleaned_to().unwrap_or(Offset::ZERO))),
        ];
        for ((name, offsets), written) in checkpoints.into_iter().zip(written.iter_mut()) {
            if *written != offsets {
                write_offsets(&directory.path().join(name), &offsets, Durability::Power)?;
                *written = offsets;
            }
        }
        Ok(())
    }

    /// To be called after cuts (`SharedLog::cut`), before the logs are written again: after a power cut nobody would
    /// look at what was written below a recovery point that is too high.
    pub fn checkpoint_lowered_recovery_points(&self) -> Result<(), LogError> {
        for directory in self.online() {
            if directory.recovery_point_lowered.swap(false, Ordering::Relaxed) {
                let written = self.write_recovery_points(directory);
                directory.reporting(written).inspect_err(|_| {
                    directory.recovery_point_lowered.store(true, Ordering::Relaxed);
                })?;
            }
        }
        Ok(())
    }

    /// After a cleaning: where it ended is on disk.
    pub(super) fn checkpoint_cleaned(&self, log: &SharedLog) -> Result<(), LogError> {
        let directory = log.directory();
        directory.reporting(self.write_recovery_points(directory))
    }

    /// Every `log.retention.check.interval.ms`: rolls and deletes segments that are due, gives back
    /// descriptors nobody uses, removes the files of deleted logs.
    pub fn maintain(&self, now_ms: i64) {
        for log in self.logs() {
            if !log.directory().is_online() {
                continue;
            }
            let high_watermark = log.high_watermark();
            let mut guard = log.maintain();
            let result = guard
                .roll_if_due(now_ms)
                .and_then(|rolled| Ok((rolled, guard.delete_old_segments(now_ms, high_watermark)?)));
            guard.close_idle_files();
            drop(guard);
            match log.reporting(result) {
                Ok((false, 0)) | Err(LogError::Offline { .. }) => {}
                Ok((_, deleted)) => {
                    log.keep_written();
                    log.touch();
                    if deleted > 0 {
                        tracing::info!(topic = %log.topic(), partition = log.id().partition, deleted,
                            "old segments deleted");
                    }
                }
                Err(error) => {
                    tracing::error!(topic = %log.topic(), partition = log.id().partition, %error, "retention failed");
                }
            }
        }
        for path in std::mem::take(&mut *self.deleted.lock()) {
            if let Err(error) = fs::remove_dir_all(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "deleted log could not be removed; tried again later");
                self.deleted.lock().push(path);
            }
        }
    }

    /// Cuts each log to its offset, makes files and checkpoints durable, and then notes the cuts
    /// (decision 10d). One result a cut, in order.
    pub fn apply_cuts(&self, cuts: &[PendingCut]) -> Vec<Result<(), LogError>> {
        let mut results: Vec<Result<(), LogError>> = cuts
            .iter()
            .map(|pending| {
                let mut guard = pending.log.write();
                let cut = guard.truncate_to(pending.offset).map(|_| ());
                let log_end = guard.log_end_offset();
                drop(guard);
                pending.log.set_high_watermark(pending.log.high_watermark().min(log_end));
                pending.log.reporting(cut)
            })
            .collect();
        for directory in &self.directories {
            let mine: Vec<usize> = (0..cuts.len())
                .filter(|index| {
                    cuts[*index].log.directory().id() == directory.id() && results[*index].is_ok()
                })
                .collect();
            if mine.is_empty() {
                continue;
            }
            let made_durable = self.make_durable(directory, mine.iter().map(|index| &cuts[*index]));
            if let Err(error) = directory.reporting(made_durable) {
                for index in mine {
                    results[index] = Err(error.clone());
                }
            }
        }
        results
    }

    fn make_durable<'a>(
        &self,
        directory: &LogDirectory,
        cuts: impl ExactSizeIterator<Item = &'a PendingCut> + Clone,
    ) -> Result<(), LogError> {
        // Even a log that lies below its cut is synced: it may have been cut before a crash, and a power
        // cut could still bring the tail back.
        if cuts.len() <= FILE_SYNCS {
            for pending in cuts.clone() {
                let log_end = pending.log.read().log_end_offset();
                pending.log.flush_up_to(log_end.0, true)?;
            }
        } else {
            let mut jobs = Vec::with_capacity(cuts.len());
            for pending in cuts.clone() {
                let mut guard = pending.log.write();
                let log_end = guard.log_end_offset();
                jobs.push((&pending.log, guard.begin_flush_of_all(log_end.0, true)?));
            }
            disk::sync_file_system(directory.path())?;
            for (log, job) in jobs {
                log.write().finish_flush(&job, Ok(()))?;
            }
        }
        self.write_recovery_points(directory)?;
        self.write_high_watermarks(directory)?;
        for pending in cuts.clone() {
            fault::point_blocking("log.cut.note", pending.log.id());
        }
        directory.cuts.lock().note(cuts.map(|pending| (pending.log.id(), pending.cut)))
    }

    /// Notes cuts that a replica has applied without cutting: LOSS cuts of replicas that keep their tail.
    pub fn note_cuts(&self, cuts: &[(TopicIdPartition, CutId)]) -> Result<(), LogError> {
        for directory in self.online() {
            let mine = cuts
                .iter()
                .copied()
                .filter(|(id, _)| self.log(*id).is_some_and(|log| log.directory().id() == directory.id()));
            let result = directory.cuts.lock().note(mine);
            directory.reporting(result)?;
        }
        Ok(())
    }

    /// Flushes everything, writes the checkpoints, and marks each directory that is whole as closed in
    /// order under `broker_epoch`. Nothing may be written afterwards.
    pub fn close(&self, broker_epoch: BrokerEpoch) -> Result<(), LogError> {
        let mut first_error = None;
        std::thread::scope(|scope| {
            let closing: Vec<_> = self
                .online()
                .map(|directory| {
                    scope.spawn(move || directory.reporting(self.close_directory(directory, broker_epoch)))
                })
                .collect();
            for thread in closing {
                match thread.join() {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => first_error = first_error.take().or(Some(error)),
                    Err(_) => tracing::error!("closing a log directory panicked"),
                }
            }
        });
        first_error.map_or(Ok(()), Err)
    }

    fn close_directory(&self, directory: &LogDirectory, broker_epoch: BrokerEpoch) -> Result<(), LogError> {
        let logs = self.logs_in(directory);
        if logs.len() <= FILE_SYNCS {
            close_logs(&logs, self.close_threads)?;
        } else {
            let begun: Result<Vec<_>, LogError> =
                logs.iter().map(|log| log.maintain().begin_close()).collect();
            disk::sync_file_system(directory.path())?;
            for (log, job) in logs.iter().zip(begun?) {
                log.maintain().finish_flush(&job, Ok(()))?;
            }
        }
        self.write_recovery_points(directory)?;
        self.write_high_watermarks(directory)?;
        write_clean_shutdown(directory.path(), broker_epoch)
    }
}

/// Each log waits for the disk several times: together they wait hardly longer than one.
fn close_logs(logs: &[Arc<SharedLog>], threads: usize) -> Result<(), LogError> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let work = || {
        while failed.lock().is_none()
            && let Some(log) = logs.get(next.fetch_add(1, Ordering::Relaxed))
        {
            if let Err(error) = log.maintain().close() {
                failed.lock().get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(logs.len()) {
            scope.spawn(work);
        }
        work();
    });
    failed.into_inner().map_or(Ok(()), Err)
}
