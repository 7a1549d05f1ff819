//! Cutting a log: from its end, as a whole, or from its start.

use std::path::{Path, PathBuf};

use common::ids::Offset;

use super::checkpoint::Durability;
use super::cleaner::{DROPPING, forget_compacted_end};
use super::disk;
use super::epoch_cache::EpochCache;
use super::error::LogError;
use super::log::Log;
use super::producer_snapshot;
use super::producer_state::ProducerState;
use super::segment::{LOG, Segment, segment_path};

/// Ends the name of an empty file that stands beside the segments while they give way to an empty log; the
/// offset where that one starts is the name.
pub(super) const RESTARTING: &str = "restarting";

fn restarting_path(directory: &Path, start: i64) -> PathBuf {
    segment_path(directory, start, RESTARTING)
}

/// A crash came while the log was emptied: what is left of it goes, and it begins at `start`.
pub(super) fn complete_restart(directory: &Path, start: i64, left: &[PathBuf]) -> Result<(), LogError> {
    tracing::warn!(log = %directory.display(), start, "the log was being emptied when the broker stopped");
    for path in left {
        disk::remove(path)?;
    }
    EpochCache::remove_file(directory)?;
    forget_compacted_end(directory)?;
    drop(disk::open(&segment_path(directory, start, LOG))?);
    disk::sync_directory(directory)?;
    disk::remove(&restarting_path(directory, start))?;
    // Should it come back after a power cut, what is copied meanwhile would go with it.
    disk::sync_directory(directory)
}

impl Log {
    /// Removes every batch that holds an offset at or above `target`. At or below the log start nothing
    /// is left, and the log starts at `target`; nothing is left either below what was compacted. Returns
    /// whether anything was cut.
    pub fn truncate_to(&mut self, target: Offset) -> Result<bool, LogError> {
        self.check_online()?;
        if target.0 >= self.log_end {
            return Ok(false);
        }
        if target.0 <= self.log_start {
            self.truncate_fully_and_start_at(target)?;
            return Ok(true);
        }
        if target.0 < self.compacted_end {
            // The cleaner dropped records below for the sake of ones that go now: what is left would
            // lack both (decision 10d). Copied anew, the log is whole again.
            tracing::info!(log = %self.directory.display(), %target, compacted_end = self.compacted_end,
                "the cut lies below what was compacted: the whole log goes");
            let noted = self.note_compacted(DROPPING);
            self.failing(noted)?;
            self.truncate_fully_and_start_at(Offset(self.log_start))?;
            return Ok(true);
        }
        let result = self.cut_end(target.0);
        self.failing(result)?;
        Ok(true)
    }

    pub(super) fn cut_end(&mut self, target: i64) -> Result<(), LogError> {
        // Where descriptors run out here, nothing is begun yet.
        let place = self.segments[self.segment_for(target)].holding(target)?;
        let end = place.map_or(target, |place| place.first_offset.min(target));
        let cut = self.cut_files(target, place.map(|place| place.position), end);
        // Half a cut is no log: whatever ran out, a restart completes it.
        self.failed |= cut.is_err();
        let batches_end = cut?;
        self.truncations += 1;
        self.directory_changed = true;
        self.recent.clear();
        if end <= self.log_start {
            // The batch at the log start reached over the target.
            return self.start_over(target.min(self.log_start));
        }
        self.note_cut(end);
        self.log_end = end;
        self.gap_start = Some(batches_end).filter(|batches_end| *batches_end < end);
        self.recovery_point = self.recovery_point.min(end);
        self.cleaned_to = self.cleaned_to.map(|offset| offset.min(end));
        self.epochs.truncate_from_end(Offset(end));
        let finished = self.save_epochs_after_cut().and_then(|()| {
            self.drop_snapshots_above(end)?;
            self.producers = self.producer_state_at(end)?;
            Ok(())
        });
        self.failed |= finished.is_err();
        finished
    }

    /// Returns where the batches end that are left.
    fn cut_files(&mut self, target: i64, position: Option<u64>, end: i64) -> Result<i64, LogError> {
        // From the last one down: a crash in between must leave no hole.
        while self.segments.len() > 1 && self.active().base_offset() > target {
            self.active().delete()?;
            self.segments.pop();
        }
        match position {
            Some(position) => self.active_mut().truncate(position, end),
            None => self.active_mut().resume(),
        }
    }

    /// Empties the log, which then starts at `start`.
    pub fn truncate_fully_and_start_at(&mut self, start: Offset) -> Result<(), LogError> {
        self.check_online()?;
        let result = self.start_over(start.0);
        self.failing(result)
    }

    fn start_over(&mut self, start: i64) -> Result<(), LogError> {
        // A crash before the new segment's file is there must not leave a log that seems to have lost all.
        let restarting = restarting_path(&self.directory, start);
        match disk::open(&restarting) {
            // Room comes only with what is about to go.
            Err(error) if error.is_exhausted() => {}
            other => drop(other?),
        }
        match self.empty_out(start) {
            // Left to the next start, which completes it.
            Err(error) if !error.is_exhausted() => Err(error),
            emptied => disk::remove(&restarting).and(emptied),
        }
    }

    fn empty_out(&mut self, start: i64) -> Result<(), LogError> {
        while let Some(segment) = self.segments.last() {
            segment.delete()?;
            self.segments.pop();
        }
        let segment = Segment::new(self.directory.clone(), start, self.last_flush_ms);
        self.segments.push(segment);
        self.note_emptied();
        self.log_start = start;
        self.log_end = start;
        self.gap_start = None;
        self.recovery_point = start;
        self.truncations += 1;
        self.directory_changed = true;
        self.recent.clear();
        self.epochs.clear();
        self.producers = ProducerState::at(Offset(start));
        self.unflushed_records = 0;
        for offset in std::mem::take(&mut self.snapshots) {
            producer_snapshot::remove(&self.directory, offset)?;
        }
        self.save_epochs_after_cut()?;
        let created = self.active().create_file();
        // Also where there was no room for the file: what comes into the log is not to be dropped at the next start.
        self.forget_compacted().and(created)
    }

    /// At once: batches that come next bring epochs that contradict the ones just dropped. A file that
    /// cannot be replaced for want of space is removed: an opening log then takes its epochs from the
    /// batches.
    fn save_epochs_after_cut(&mut self) -> Result<(), LogError> {
        match self.epochs.save(&self.directory, Durability::Process) {
            Err(error) if error.is_exhausted() => EpochCache::remove_file(&self.directory),
            other => other,
        }
    }

    /// Forgets epochs that began at the log end and brought no batch: on a mirror the batches to come
    /// bring their own, which may be lower (decision 8). Returns whether there was one.
    pub fn forget_empty_epochs(&mut self) -> Result<bool, LogError> {
        self.check_online()?;
        let before = self.epochs.latest();
        self.epochs.truncate_from_end(Offset(self.log_end));
        let saved = self.epochs.save(&self.directory, Durability::Process);
        self.failing(saved)?;
        Ok(self.epochs.latest() != before)
    }

    pub(super) fn drop_snapshots_above(&mut self, end: i64) -> Result<(), LogError> {
        while let Some(offset) = self.snapshots.pop_if(|offset| offset.0 > end) {
            producer_snapshot::remove(&self.directory, offset)?;
        }
        Ok(())
    }

    /// Records below `start` are gone for readers; whole segments below it go with the next retention
    /// pass. The caller has checked that `start` is not above the high watermark. Returns whether the
    /// start moved.
    pub fn increase_log_start_offset(&mut self, start: Offset) -> bool {
        let start = start.0.min(self.log_end);
        if start <= self.log_start {
            return false;
        }
        self.log_start = start;
        self.epochs.truncate_from_start(Offset(start));
        true
    }
}
