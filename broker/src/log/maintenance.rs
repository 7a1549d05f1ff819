//! Rolling segments, flushing, closing.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::ids::Offset;
use protocol::record_batch::BatchHeader;

use super::checkpoint::Durability;
use super::disk;
use super::error::LogError;
use super::log::Log;
use super::partition_metadata::PartitionMetadata;
use super::producer_snapshot;
use super::segment::{MAX_RELATIVE, Segment};

/// Bytes of an offset index entry, by which `segment.index.bytes` is counted.
const OFFSET_ENTRY_BYTES: u32 = 8;
const TIME_ENTRY_BYTES: u32 = 12;

/// What has to be synced for a flush; done without the log's lock.
#[derive(Debug)]
pub(crate) struct FlushJob {
    files: Vec<(PathBuf, Arc<File>)>,
    directories: Vec<PathBuf>,
    up_to: i64,
    truncations: u64,
}

impl FlushJob {
    /// Names before contents: a shortened file must not become durable before the removal of what stood
    /// behind it.
    pub fn run(&self) -> Result<(), LogError> {
        self.directories.iter().try_for_each(|directory| disk::sync_directory(directory))?;
        self.files.iter().try_for_each(|(path, file)| disk::sync(file, path))
    }
}

impl Log {
    pub(super) fn needs_roll(&mut self, header: &BatchHeader, now_ms: i64) -> Result<bool, LogError> {
        let segment_bytes = u64::from(self.config.segment_bytes);
        let (segment_ms, index_bytes) = (self.roll_after_ms(), self.config.segment_index_bytes);
        let active = self.active_mut();
        if active.size_bytes() == 0 {
            // An empty segment that begins too far below what comes is of no use: the relative offset would not fit.
            return Ok(header.last_offset() - active.base_offset() > MAX_RELATIVE
                && header.base_offset > active.base_offset());
        }
        if active.size_bytes() + header.size_bytes() as u64 > segment_bytes
            || header.last_offset() - active.base_offset() > MAX_RELATIVE
            || active.offset_entries() >= index_bytes / OFFSET_ENTRY_BYTES
            || active.time_entries() >= index_bytes / TIME_ENTRY_BYTES
        {
            return Ok(true);
        }
        if segment_ms < 0 {
            return Ok(false);
        }
        // As Kafka: by the records' own time where they have one, so that replayed old data does not
        // make a segment a record.
        let reference = if header.max_timestamp >= 0 { header.max_timestamp } else { now_ms };
        Ok(reference.saturating_sub(active.begun_ms()?) > segment_ms)
    }

    /// Where a segment for this batch begins: where the batches before it end, so that no segment that was
    /// only just written ends below its successor, unless the batch would be out of reach from there.
    pub(super) fn next_base(&self, header: &BatchHeader) -> i64 {
        let end = self.end_of_batches();
        let reach = header.last_offset() - end;
        if reach > MAX_RELATIVE { header.base_offset } else { end }
    }

    /// The log end, or below it where a cut went into a gap.
    pub(super) fn end_of_batches(&self) -> i64 {
        self.gap_start.unwrap_or(self.log_end)
    }

    /// `segment.ms`, less a part of `segment.jitter.ms` that is the active segment's own, so that logs
    /// made together do not roll together. A compacted log rolls by `max.compaction.lag.ms` at the
    /// latest: only closed segments can be cleaned.
    fn roll_after_ms(&self) -> i64 {
        let config = &self.config;
        let lag =
            (config.compact && config.max_compaction_lag_ms > 0).then_some(config.max_compaction_lag_ms);
        let limit = match lag {
            Some(lag) if config.segment_ms < 0 => lag,
            Some(lag) => lag.min(config.segment_ms),
            None => config.segment_ms,
        };
        let most = config.segment_jitter_ms.min(limit);
        if most <= 0 {
            return limit;
        }
        // The directory names topic and partition.
        let of_log = crc_fast::crc32_iscsi(self.directory.as_os_str().as_encoded_bytes());
        let of_segment = (self.active().base_offset() as u64).wrapping_add(u64::from(of_log) << 32 | 1);
        let spread = of_segment.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        limit - (spread % most as u64) as i64
    }

    /// Begins a new segment at `base_offset`, which is at or above the end of its batches.
    pub(super) fn roll(&mut self, base_offset: i64, now_ms: i64) -> Result<(), LogError> {
        let was_empty = self.active().size_bytes() == 0;
        if !was_empty {
            self.active_mut().finish()?;
        }
        let end_offset = std::mem::replace(&mut self.producers.end_offset, Offset(base_offset));
        if let Err(error) = self.write_producer_snapshot(Durability::Process) {
            // Nothing has happened yet.
            self.producers.end_offset = end_offset;
            return Err(error);
        }
        if was_empty {
            self.active().delete()?;
            self.segments.pop();
        }
        self.segments.push(Segment::new(self.directory.clone(), base_offset, now_ms));
        self.recent.clear();
        self.directory_changed = true;
        Ok(())
    }

    pub(super) fn write_producer_snapshot(&mut self, durability: Durability) -> Result<(), LogError> {
        let offset = self.producers.end_offset;
        if self.snapshots.last() == Some(&offset) {
            return Ok(());
        }
        producer_snapshot::write(&self.directory, &self.producers, durability)?;
        self.snapshots.push(offset);
        Ok(())
    }

    /// Begins a new segment when the active one is older than `segment.ms`, even if nothing is written.
    pub fn roll_if_due(&mut self, now_ms: i64) -> Result<bool, LogError> {
        self.check_online()?;
        let segment_ms = self.roll_after_ms();
        let due = segment_ms >= 0
            && self.active().size_bytes() > 0
            && now_ms.saturating_sub(self.active().created_ms()) > segment_ms
            && now_ms.saturating_sub(self.active_mut().begun_ms()?) > segment_ms;
        if due {
            let result = self.roll(self.end_of_batches(), now_ms);
            self.failing(result)?;
        }
        Ok(due)
    }

    /// Everything up to the returned offset, the new recovery point, is on disk afterwards.
    pub fn flush(&mut self) -> Result<Offset, LogError> {
        self.check_online()?;
        let job = self.begin_flush(self.log_end, false)?;
        let result = job.run();
        self.finish_flush(&job, result)
    }

    /// First half of a flush, under the lock. Segments that begin below `up_to` take part. After a
    /// truncation, which lowers the recovery point itself, the flush has to be `forced`.
    pub(crate) fn begin_flush(&mut self, up_to: i64, forced: bool) -> Result<FlushJob, LogError> {
        self.check_online()?;
        let result = self.collect_flush(up_to, forced, Durability::Power);
        self.failing(result)
    }

    /// The same for a caller who flushes many logs and syncs the file system: the job holds no descriptors,
    /// and nothing is synced on the way.
    pub(crate) fn begin_flush_of_all(&mut self, up_to: i64, forced: bool) -> Result<FlushJob, LogError> {
        self.check_online()?;
        let result = self.collect_flush(up_to, forced, Durability::Process);
        let job = self.failing(result)?;
        Ok(FlushJob { files: Vec::new(), directories: Vec::new(), ..job })
    }

    fn collect_flush(
        &mut self,
        up_to: i64,
        forced: bool,
        durability: Durability,
    ) -> Result<FlushJob, LogError> {
        let mut files = Vec::new();
        if forced || up_to > self.recovery_point {
            // Epochs first: recovery reads batches from the recovery point on only.
            self.epochs.save(&self.directory, durability)?;
            let first = self.segment_for(self.recovery_point);
            for index in first..self.segments.len() {
                if self.segments[index].base_offset() >= up_to && !forced {
                    break;
                }
                self.segments[index].write_out()?;
                if durability == Durability::Power {
                    files.extend(self.segments[index].files()?);
                }
            }
        }
        let mut directories = Vec::new();
        if std::mem::take(&mut self.directory_changed) {
            directories.push(self.directory.to_path_buf());
        }
        if durability == Durability::Process {
            self.newly_made = false;
        } else if !files.is_empty() && std::mem::take(&mut self.newly_made) {
            files.extend(PartitionMetadata::files(&self.directory)?);
            directories.extend(self.directory.parent().map(Path::to_path_buf));
        }
        Ok(FlushJob { files, directories, up_to, truncations: self.truncations })
    }

    /// Second half. A failed sync is final: the kernel may have dropped the pages.
    pub(crate) fn finish_flush(
        &mut self,
        job: &FlushJob,
        result: Result<(), LogError>,
    ) -> Result<Offset, LogError> {
        let result = self.unless_retired(result);
        self.failing(result)?;
        if job.truncations == self.truncations && job.up_to > self.recovery_point {
            self.recovery_point = job.up_to;
            if job.up_to == self.log_end {
                self.unflushed_records = 0;
            }
        }
        Ok(self.recovery_point())
    }

    /// Up to where a flush is due: closed segments always, and the active one by `flush.ms`.
    pub(crate) fn flush_due(&mut self, now_ms: i64) -> Option<i64> {
        if now_ms.saturating_sub(self.last_flush_ms) >= self.config.flush_ms {
            self.last_flush_ms = now_ms;
            return (self.recovery_point < self.log_end).then_some(self.log_end);
        }
        let closed = self.active().base_offset().min(self.log_end);
        (self.recovery_point < closed).then_some(closed)
    }

    /// Leaves the log so that it can be opened without a scan.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.check_online()?;
        let result = self.write_for_close(Durability::Power);
        self.failing(result)?;
        self.flush()?;
        self.close_files();
        Ok(())
    }

    /// The same in two halves, between which the caller syncs the whole file system: most logs of a large
    /// broker have little to write, and a sync of each would take longer than a stop may.
    pub(crate) fn begin_close(&mut self) -> Result<FlushJob, LogError> {
        self.check_online()?;
        let result = self.write_for_close(Durability::Process);
        self.failing(result)?;
        let job = self.begin_flush_of_all(self.log_end, false)?;
        self.close_files();
        Ok(job)
    }

    fn close_files(&self) {
        for segment in &self.segments {
            segment.close_files();
        }
    }

    fn write_for_close(&mut self, durability: Durability) -> Result<(), LogError> {
        if self.recovery_point < self.log_end || self.active().times_behind() {
            self.active_mut().finish()?;
        }
        // The next start drops an epoch without a batch; so thousands of logs that were only led have nothing to write,
        // neither now nor then.
        self.epochs.truncate_from_end(Offset(self.log_end));
        self.epochs.save(&self.directory, durability)?;
        self.producers.end_offset = Offset(self.log_end);
        // An empty log needs none, and most logs of a large broker are empty.
        if !(self.producers.is_empty() && self.log_end == self.segments[0].base_offset()) {
            self.write_producer_snapshot(durability)?;
        }
        Ok(())
    }

    /// Descriptors that nobody used since the last call are given back.
    pub(crate) fn close_idle_files(&self) {
        for segment in &self.segments {
            segment.close_idle_files();
        }
    }
}
