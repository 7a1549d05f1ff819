//! What a log shows of itself to the cleaner, and how it takes cleaned segments in. The cleaner reads
//! closed segments without the log's lock; what changed meanwhile is found here, under it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::ids::Offset;

use super::cleaned_segment::modified;
use super::filter::CleaningRules;
use super::plan::{Cleanable, SegmentView, cleanable};
use super::replace::{FileStep, remove_unfinished, replacement};
use crate::log::checkpoint::{Durability, entries_of, read_text, replace_file};
use crate::log::config::LogConfig;
use crate::log::disk;
use crate::log::error::LogError;
use crate::log::log::Log;
use crate::log::producer_snapshot;
use crate::log::segment::{LOG, Segment};
use crate::log::transaction_index::AbortedTransaction;

const OFFSET_ENTRY_BYTES: u64 = 8;
const TIME_ENTRY_BYTES: u64 = 12;

/// In each partition's directory: below this offset the cleaner may have dropped records because of
/// others that stood further up. A cut below it would leave a log that lacks both (decision 10d).
const COMPACTED_END: &str = "compacted-end-checkpoint";
/// Stands there while the log is dropped for such a cut: one that a crash left half dropped must go too.
pub(crate) const DROPPING: i64 = i64::MAX;

/// A log as the cleaner found it.
pub(crate) struct CleaningSource {
    pub directory: Arc<Path>,
    pub config: Arc<LogConfig>,
    /// Closed segments below the first one that must not be touched.
    pub segments: Vec<SegmentView>,
    /// Base of the segment behind each of them.
    pub next_bases: Vec<i64>,
    pub aborted: Vec<AbortedTransaction>,
    pub rules: CleaningRules,
    truncations: u64,
}

impl CleaningSource {
    pub fn truncations(&self) -> u64 {
        self.truncations
    }

    /// Ages with the group's newest file, as in Kafka.
    pub fn modified_of(&self, base_offset: i64) -> std::time::SystemTime {
        modified(&crate::log::segment::segment_path(&self.directory, base_offset, LOG))
    }
}

pub(crate) fn forget_compacted_end(directory: &Path) -> Result<(), LogError> {
    disk::remove(&directory.join(COMPACTED_END))
}

pub(crate) fn read_compacted_end(directory: &Path) -> Result<i64, LogError> {
    let path = directory.join(COMPACTED_END);
    let Some(text) = read_text(&path)? else { return Ok(0) };
    match entries_of(&path, &text)?.as_slice() {
        [offset] => {
            offset.parse().map_err(|_| LogError::corrupt(&path, format!("malformed offset `{offset}`")))
        }
        _ => Err(LogError::corrupt(&path, "not one offset")),
    }
}

impl Log {
    /// Records may be missing in it because of newer ones.
    pub fn was_compacted(&self) -> bool {
        self.compacted_end > self.log_start_offset().0
    }

    /// Where the last cleaning ended; None: never cleaned.
    pub fn cleaned_to(&self) -> Option<Offset> {
        self.cleaned_to.map(Offset)
    }

    pub(crate) fn set_cleaned_to(&mut self, offset: Option<Offset>) {
        self.cleaned_to = offset.map(|offset| offset.0);
    }

    /// Below it records may be missing because of records above it.
    pub fn compacted_end(&self) -> Offset {
        Offset(self.compacted_end)
    }

    /// To be durable before the first segment is replaced: after a crash the log must still know.
    pub(crate) fn note_compacted(&mut self, end: i64) -> Result<(), LogError> {
        // Another log may have this one's path by now.
        self.check_online()?;
        if end <= self.compacted_end {
            return Ok(());
        }
        let text = format!("0\n1\n{end}\n");
        replace_file(&self.directory.join(COMPACTED_END), text.as_bytes(), Durability::Power)?;
        self.compacted_end = end;
        Ok(())
    }

    /// The log begins anew, or was never compacted.
    pub(in crate::log) fn forget_compacted(&mut self) -> Result<(), LogError> {
        self.cleaned_to = None;
        if std::mem::take(&mut self.compacted_end) > 0 {
            forget_compacted_end(&self.directory)?;
            // Should it come back after a power cut, what was copied meanwhile would go with it: a flush syncs the
            // directory before what was copied. Not here: that takes a descriptor, which may be what has run out.
            self.directory_changed = true;
        }
        Ok(())
    }

    /// How many times the log was cut; work on a log of before is void.
    pub(crate) fn truncations(&self) -> u64 {
        self.truncations
    }

    /// What may be cleaned now. None: nothing is closed yet.
    pub(crate) fn cleanable(
        &mut self,
        high_watermark: Offset,
        now_ms: i64,
    ) -> Result<Option<Cleanable>, LogError> {
        self.check_online()?;
        if self.segments.len() < 2 {
            return Ok(None);
        }
        let stable = self.last_stable_offset(high_watermark).0;
        let views = self.segment_views()?;
        let (start, end) = (self.log_start, self.log_end);
        Ok(cleanable(&views, start, end, self.cleaned_to, stable, &self.config, now_ms))
    }

    /// Times are asked for only where a lag needs them: they may have to be read from files.
    fn segment_views(&mut self) -> Result<Vec<SegmentView>, LogError> {
        let by_age = self.config.min_compaction_lag_ms > 0;
        let by_first = self.config.max_compaction_lag_ms < i64::MAX;
        self.segments
            .iter_mut()
            .map(|segment| {
                let newest = if by_age { segment.max_timestamp()? } else { None };
                let newest = newest.map(|max| max.timestamp_ms).filter(|time| *time >= 0);
                Ok(SegmentView {
                    base_offset: segment.base_offset(),
                    size_bytes: segment.size_bytes(),
                    offset_index_bytes: u64::from(segment.offset_entries()) * OFFSET_ENTRY_BYTES,
                    time_index_bytes: u64::from(segment.time_entries()) * TIME_ENTRY_BYTES,
                    newest_ms: newest.unwrap_or(segment.created_ms()),
                    first_timestamp_ms: if by_first { Some(segment.begun_ms()?) } else { None },
                })
            })
            .collect()
    }

    pub(crate) fn begin_cleaning(
        &mut self,
        plan: &Cleanable,
        now_ms: i64,
    ) -> Result<CleaningSource, LogError> {
        self.check_online()?;
        let all = self.segment_views()?;
        let count = all.iter().take_while(|view| view.base_offset < plan.first_uncleanable).count();
        let count = count.min(all.len().saturating_sub(1));
        let next_bases = all.iter().skip(1).take(count).map(|view| view.base_offset).collect();
        let first = self.segments[0].base_offset();
        Ok(CleaningSource {
            directory: self.directory.clone(),
            config: self.config.clone(),
            next_bases,
            aborted: self.aborted_transactions(Offset(first), Offset(plan.first_uncleanable))?,
            rules: CleaningRules {
                last_records: self.producers.last_records(),
                upper_bound: plan.first_uncleanable,
                delete_retention_ms: self.config.delete_retention_ms,
                now_ms,
            },
            segments: all.into_iter().take(count).collect(),
            truncations: self.truncations,
        })
    }

    /// The file of a closed segment; None: it is not the one that was planned with any more.
    pub(crate) fn closed_segment(
        &self,
        source: &CleaningSource,
        view: &SegmentView,
    ) -> Result<Option<(Arc<File>, PathBuf)>, LogError> {
        self.check_online()?;
        let segment = &self.segments[self.segment_for(view.base_offset)];
        if self.truncations != source.truncations || !is_same(segment, view) {
            return Ok(None);
        }
        Ok(Some((segment.file()?, segment.path(LOG))))
    }

    /// Swaps a cleaned segment in for a group of old ones. None: the log changed meanwhile. Else the
    /// old files, whose readers go on, and which are to be deleted later.
    pub(crate) fn replace_segments(
        &mut self,
        source: &CleaningSource,
        group: &[SegmentView],
        now_ms: i64,
    ) -> Result<Option<Vec<PathBuf>>, LogError> {
        self.check_online()?;
        let Some(first) = group.first() else { return Ok(None) };
        let start = self.segment_for(first.base_offset);
        let end = start + group.len();
        let unchanged = self.truncations == source.truncations
            && end < self.segments.len()
            && self.segments[start..end].iter().zip(group).all(|(segment, view)| is_same(segment, view));
        if !unchanged {
            return Ok(None);
        }
        let result = self.swap_in(start..end, first.base_offset, now_ms);
        self.failing(result).map(Some)
    }

    fn swap_in(
        &mut self,
        range: std::ops::Range<usize>,
        base_offset: i64,
        now_ms: i64,
    ) -> Result<Vec<PathBuf>, LogError> {
        let bases: Vec<i64> = self.segments[range.clone()].iter().map(Segment::base_offset).collect();
        let (steps, deleted) = replacement(&self.directory, &bases, base_offset, Path::exists);
        let committed = steps.iter().position(|step| matches!(step, FileStep::SyncDirectory(_)));
        for (index, step) in steps.iter().enumerate() {
            let done = step.run();
            if done.is_err() && Some(index) < committed {
                // Nothing was replaced yet, and a start must not complete it.
                remove_unfinished(&self.directory, base_offset)?;
            } else if done.is_err() {
                // Half replaced: a start completes it, and until then nobody may use the log.
                self.failed = true;
            }
            done?;
        }
        let (segment, damaged) = Segment::open(self.directory.clone(), base_offset, now_ms)?;
        if damaged {
            return Err(LogError::corrupt(&segment.path(LOG), "the cleaned segment's indexes do not fit"));
        }
        self.segments.splice(range, [segment]);
        let newest = self.snapshots.last().copied();
        let gone: Vec<Offset> =
            bases.into_iter().skip(1).map(Offset).filter(|base| Some(*base) != newest).collect();
        self.snapshots.retain(|offset| !gone.contains(offset));
        for offset in gone {
            producer_snapshot::remove(&self.directory, offset)?;
        }
        Ok(deleted)
    }
}

fn is_same(segment: &Segment, view: &SegmentView) -> bool {
    segment.base_offset() == view.base_offset && segment.size_bytes() == view.size_bytes
}
