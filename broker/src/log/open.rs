//! Opening a log: what stands in its directory is taken up, after a clean stop without a scan.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use common::ids::{Offset, TopicId};

use super::checkpoint::Durability;
use super::cleaner::{CLEANED, DROPPING, SWAP, complete_interrupted, read_compacted_end};
use super::config::LogConfig;
use super::disk::remove;
use super::epoch_cache::EpochCache;
use super::error::LogError;
use super::log::{Log, OpenState};
use super::producer_snapshot;
use super::producer_state::ProducerState;
use super::recent_batches::RecentBatches;
use super::recovery::RecoveryReport;
use super::segment::{LOG, OFFSET_INDEX, Segment, TIME_INDEX, TRANSACTION_INDEX};
use super::truncate::{RESTARTING, complete_restart};

/// Extensions of files that an interrupted cleaning or deletion left behind.
const LEFT_BEHIND: [&str; 2] = ["tmp", "deleted"];

struct Found {
    segments: BTreeSet<i64>,
    snapshots: BTreeSet<i64>,
    /// The log was being emptied, and begins here.
    restarted: Option<i64>,
}

impl Log {
    /// Opens the log in `directory`, which exists. After an unclean stop what lies past the recovery
    /// point is checked batch by batch, its torn end cut off, its indexes built anew.
    pub fn open(
        directory: &Path,
        topic_id: TopicId,
        config: Arc<LogConfig>,
        state: OpenState,
        now_ms: i64,
    ) -> Result<Log, LogError> {
        let directory: Arc<Path> = Arc::from(directory);
        let found = look_through(&directory)?;
        let state = match found.restarted.map(Offset) {
            // What the checkpoints say is of before.
            Some(start) => OpenState { recovery_point: start, log_start_offset: start, ..state },
            None => state,
        };
        let compacted_end = read_compacted_end(&directory)?;
        let mut segments = Vec::with_capacity(found.segments.len().max(1));
        let mut damaged = Vec::new();
        for base_offset in &found.segments {
            let (segment, needs_rebuild) = Segment::open(directory.clone(), *base_offset, now_ms)?;
            if needs_rebuild {
                damaged.push(*base_offset);
            }
            segments.push(segment);
        }
        let has_files = !segments.is_empty();
        if segments.is_empty() {
            // A log that never had a batch has no file. One that had must not begin again unnoticed.
            if state.recovery_point > state.log_start_offset && compacted_end != DROPPING {
                return Err(LogError::corrupt(
                    &directory,
                    format!(
                        "no segment is left, although offsets {}..{} were on disk",
                        state.log_start_offset, state.recovery_point
                    ),
                ));
            }
            segments.push(Segment::new(directory.clone(), state.log_start_offset.0, now_ms));
        }
        let first = segments[0].base_offset();
        // After a crash retention may have been ahead of the checkpoint.
        let lost_its_start = state.recovery_point.0 < first && state.recovery_point.0 > 0;
        if first > state.log_start_offset.0 && (state.clean_shutdown || lost_its_start) {
            tracing::warn!(log = %directory.display(), first, log_start = state.log_start_offset.0,
                recovery_point = state.recovery_point.0, "the log's first segments are gone: it begins above them");
        }
        let (epochs, epochs_damaged) = match EpochCache::load(&directory) {
            Err(error @ LogError::Corrupt { .. }) => {
                tracing::warn!(%error, "leader epochs are taken from the batches");
                (EpochCache::default(), true)
            }
            other => match other? {
                Some(epochs) => (epochs, false),
                // Only recovery from the very beginning brings them all back by itself.
                None => (EpochCache::default(), state.clean_shutdown || state.recovery_point.0 > first),
            },
        };
        let mut log = Log {
            directory,
            topic_id,
            config,
            segments,
            log_start: state.log_start_offset.0.max(first),
            log_end: first,
            gap_start: None,
            recovery_point: state.recovery_point.0.max(first),
            epochs,
            producers: ProducerState::at(Offset(first)),
            snapshots: found.snapshots.into_iter().map(Offset).collect(),
            recent: RecentBatches::default(),
            unflushed_records: 0,
            last_flush_ms: now_ms,
            directory_changed: false,
            newly_made: !has_files || (!state.clean_shutdown && state.recovery_point.0 <= first),
            truncations: 0,
            cut_since: None,
            cleaned_to: None,
            compacted_end,
            failed: false,
            retired: false,
            recovery: None,
            high_watermark: AtomicI64::new(0),
        };
        if epochs_damaged {
            log.epochs_from_batches()?;
        }
        if state.clean_shutdown && damaged.is_empty() && log.resume().is_ok() {
            log.recovery_point = log.log_end;
        } else {
            let from = if state.clean_shutdown { log.active().base_offset() } else { log.recovery_point };
            let report = log.recover(from, &damaged)?;
            log.report(report);
        }
        log.finish_opening()?;
        for segment in &log.segments {
            segment.close_files();
        }
        Ok(log)
    }

    /// After a clean stop.
    fn resume(&mut self) -> Result<(), LogError> {
        self.log_end = self.active_mut().resume()?;
        self.producers = self.producer_state_at(self.log_end)?;
        Ok(())
    }

    fn report(&mut self, report: RecoveryReport) {
        if report.has_lost_batches() {
            tracing::warn!(log = %self.directory.display(), log_end = self.log_end,
                truncated_bytes = report.truncated_bytes, segments = report.segments, "log recovered");
        }
        for corrupt in &report.corrupt {
            tracing::error!(segment = %corrupt.path.display(), position = corrupt.position,
                reason = corrupt.reason, deleted_segments = corrupt.deleted_segments, "corrupt segment");
        }
        self.recovery = Some(Box::new(report));
    }

    fn finish_opening(&mut self) -> Result<(), LogError> {
        if self.compacted_end == DROPPING {
            tracing::warn!(log = %self.directory.display(), "the log was being dropped when the broker stopped");
            return self.truncate_fully_and_start_at(Offset(self.log_start));
        }
        if self.log_start > self.log_end {
            // The tail was lost, but what was deleted stays deleted.
            tracing::warn!(log = %self.directory.display(), log_start = self.log_start, log_end = self.log_end,
                "the log ends below its start and begins anew there");
            return self.truncate_fully_and_start_at(Offset(self.log_start));
        }
        self.epochs.truncate_from_end(Offset(self.log_end));
        self.epochs.truncate_from_start(Offset(self.log_start));
        match self.epochs.save(&self.directory, Durability::Process) {
            // What the file has on a full disk is below or beside the truth, and is mended as it was now.
            Err(error) if error.is_exhausted() => {}
            other => other?,
        }
        self.drop_snapshots_above(self.log_end)?;
        // Of use are those that segments begin with, and the newest; each orderly stop leaves one more.
        let newest = self.snapshots.last().copied();
        let bases: BTreeSet<i64> = self.segments.iter().map(Segment::base_offset).collect();
        let (kept, stale): (Vec<Offset>, Vec<Offset>) =
            self.snapshots.iter().partition(|offset| Some(**offset) == newest || bases.contains(&offset.0));
        self.snapshots = kept;
        for offset in stale {
            producer_snapshot::remove(&self.directory, offset)?;
        }
        Ok(())
    }
}

/// Finds segments and snapshots, and removes what no log needs.
fn look_through(directory: &Path) -> Result<Found, LogError> {
    let mut found = Found { segments: BTreeSet::new(), snapshots: BTreeSet::new(), restarted: None };
    let mut indexes = Vec::new();
    let (mut all, mut restarting) = (Vec::new(), None);
    let (mut cleaned, mut swaps) = (Vec::new(), Vec::new());
    let failed = |error| LogError::io("list", directory, error);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else { continue };
        if LEFT_BEHIND.contains(&extension) {
            remove(&path)?;
            continue;
        }
        if extension == CLEANED || extension == SWAP {
            if extension == CLEANED {
                cleaned.push(path)
            } else {
                swaps.push(path)
            }
            continue;
        }
        let kind = match extension {
            LOG | OFFSET_INDEX | TIME_INDEX | TRANSACTION_INDEX | "snapshot" | RESTARTING => extension,
            _ => continue,
        };
        let base_offset = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .filter(|stem| stem.len() == 20)
            .and_then(|stem| stem.parse::<i64>().ok());
        let Some(base_offset) = base_offset.filter(|offset| *offset >= 0) else {
            return Err(LogError::corrupt(&path, "the file name is no offset of 20 digits"));
        };
        all.push(path.clone());
        match kind {
            RESTARTING => restarting = Some(base_offset),
            LOG => drop(found.segments.insert(base_offset)),
            "snapshot" => drop(found.snapshots.insert(base_offset)),
            _ => indexes.push((base_offset, path)),
        }
    }
    if let Some(start) = restarting {
        let restarting = |path: &Path| path.extension().is_some_and(|extension| extension == RESTARTING);
        // From the newest file down, as when it began, and what a cleaner had left.
        all.retain(|path| !restarting(path));
        all.sort();
        all.reverse();
        complete_restart(directory, start, &[all, cleaned, swaps].concat())?;
        return Ok(Found { restarted: Some(start), ..look_through(directory)? });
    }
    if complete_interrupted(directory, &cleaned, &swaps)? {
        return look_through(directory);
    }
    for (base_offset, path) in indexes {
        if !found.segments.contains(&base_offset) {
            tracing::warn!(path = %path.display(), "deleting an index without a segment");
            remove(&path)?;
        }
    }
    Ok(found)
}
