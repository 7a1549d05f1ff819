//! One cleaning of one log: the newest offset of each key of the dirty part, then every segment up to
//! where the map reaches written anew and swapped in. Blocks; runs where it may.

use common::ids::Offset;
use protocol::record_batch::Batch;

use super::CleanerSettings;
use super::cleaned_segment::{CleanedSegment, remove_cleaned};
use super::filter::{BadBatch, Scratch, filter_batch, map_batch};
use super::offset_map::OffsetMap;
use super::plan::{Cleanable, SegmentView, group_segments};
use super::reader::SegmentReader;
use super::source::CleaningSource;
use super::throttle::Throttle;
use super::transactions::CleanedTransactions;
use crate::log::error::LogError;
use crate::log::shared_log::SharedLog;

#[derive(Debug)]
pub(crate) enum PassError {
    /// The log was cut, closed or deleted, or the cleaner stops. Nothing is wrong.
    Aborted,
    Failed(LogError),
}

impl From<LogError> for PassError {
    fn from(error: LogError) -> PassError {
        match error {
            LogError::Offline { .. } => PassError::Aborted,
            other => PassError::Failed(other),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassReport {
    pub end_offset: i64,
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub segments_before: usize,
    pub segments_after: usize,
    pub records_dropped: u64,
}

pub(crate) struct Pass<'a> {
    pub log: &'a SharedLog,
    pub settings: &'a CleanerSettings,
    pub throttle: &'a Throttle,
    /// Makes the recovery point durable: below it recovery looks for no gaps, and a cleaned log has some.
    pub checkpoint: &'a dyn Fn() -> Result<(), LogError>,
    /// Files whose segments were replaced.
    pub discard: &'a dyn Fn(Vec<std::path::PathBuf>),
}

impl Pass<'_> {
    pub fn run(&self, plan: &Cleanable, now_ms: i64) -> Result<PassReport, PassError> {
        let source = self.log.maintain().begin_cleaning(plan, now_ms)?;
        let map = self.build_map(&source, plan)?;
        let end_offset = map.latest_offset() + 1;
        let mut report = PassReport { end_offset, ..PassReport::default() };
        let cleaned = source.segments.iter().take_while(|view| view.base_offset < end_offset).count();
        let segments = &source.segments[..cleaned];
        let next_base = source.next_bases.get(cleaned.wrapping_sub(1)).copied().unwrap_or(end_offset);
        if cleaned > 0 {
            // A power cut must not take records for whose sake others went.
            self.log.flush_up_to(next_base, false)?;
            (self.checkpoint)()?;
            // The last of them is cleaned whole, also where the map was full in its middle: aborted records and spent
            // markers go up to its end.
            self.log.maintain().note_compacted(next_base)?;
        }
        let mut transactions = CleanedTransactions::new(source.aborted.clone());
        let mut scratch = Scratch::default();
        for group in group_segments(segments, next_base, &source.config) {
            let group = &segments[group];
            let bytes =
                self.clean_group(&source, group, &map, &mut transactions, &mut scratch, &mut report)?;
            let replaced = self.log.maintain().replace_segments(&source, group, now_ms)?;
            let Some(old_files) = replaced else {
                if let Some(first) = group.first() {
                    remove_cleaned(&source.directory, first.base_offset)?;
                }
                return Err(PassError::Aborted);
            };
            (self.discard)(old_files);
            report.segments_before += group.len();
            report.segments_after += 1;
            report.bytes_before += group.iter().map(|view| view.size_bytes).sum::<u64>();
            report.bytes_after += bytes;
        }
        let mut log = self.log.maintain();
        if log.truncations() != source.truncations() {
            return Err(PassError::Aborted);
        }
        log.set_cleaned_to(Some(Offset(end_offset)));
        Ok(report)
    }

    fn build_map(&self, source: &CleaningSource, plan: &Cleanable) -> Result<OffsetMap, PassError> {
        let keys = (plan.first_uncleanable - plan.first_dirty).max(0) as u64;
        let mut map = OffsetMap::new(self.settings.map_bytes(), self.settings.dedupe_load_factor, keys);
        let clean = source.next_bases.partition_point(|next_base| *next_base <= plan.first_dirty);
        let dirty = &source.segments[clean.min(source.segments.len())..];
        // Of transactions decided before, no marker will come that ends them here.
        let begin = dirty.first().map_or(i64::MAX, |view| view.base_offset);
        let aborted = source.aborted.iter().filter(|aborted| aborted.last_offset.0 >= begin).copied();
        let mut transactions = CleanedTransactions::new(aborted.collect());
        let mut scratch = Scratch::default();
        for (view, next_base) in dirty.iter().zip(&source.next_bases[clean.min(source.next_bases.len())..]) {
            let mut full = false;
            let map_one = |batch: &Batch<'_>, _: &mut Vec<u8>| {
                full =
                    full || !map_batch(batch, plan.first_dirty, &mut map, &mut transactions, &mut scratch)?;
                Ok(())
            };
            self.each_batch(source, view, map_one, |_| Ok(()))?;
            if full {
                break;
            }
            // What a gap at the segment's end hides has been seen too.
            map.note_latest(next_base - 1);
        }
        Ok(map)
    }

    /// Writes what is left of the group's segments to one `.cleaned` segment; returns its size.
    fn clean_group(
        &self,
        source: &CleaningSource,
        group: &[SegmentView],
        map: &OffsetMap,
        transactions: &mut CleanedTransactions,
        scratch: &mut Scratch,
        report: &mut PassReport,
    ) -> Result<u64, PassError> {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(0) };
        let interval = source.config.index_interval_bytes;
        let mut cleaned = CleanedSegment::create(&source.directory, first.base_offset, interval)?;
        let mut write = || {
            for view in group {
                let mut aborted = Vec::new();
                let filter = |batch: &Batch<'_>, out: &mut Vec<u8>| {
                    let filtered = filter_batch(batch, map, transactions, &source.rules, scratch, out)?;
                    report.records_dropped += u64::from(filtered.records_dropped);
                    aborted.extend(filtered.aborted);
                    Ok(())
                };
                self.each_batch(source, view, filter, |bytes| cleaned.append(bytes))?;
                for transaction in aborted {
                    cleaned.push_aborted(transaction)?;
                }
            }
            Ok(())
        };
        let written = write();
        let bytes = cleaned.size_bytes();
        let finished = written.and_then(|()| Ok(cleaned.finish(source.modified_of(last.base_offset))?));
        if finished.is_err() {
            // Best effort: a start sweeps such files away too.
            let _ = remove_cleaned(&source.directory, first.base_offset);
        }
        finished.map(|()| bytes)
    }

    /// Goes through a segment in chunks: `visit` may put bytes aside for each batch, `write` gets them.
    fn each_batch(
        &self,
        source: &CleaningSource,
        view: &SegmentView,
        mut visit: impl FnMut(&Batch<'_>, &mut Vec<u8>) -> Result<(), BadBatch>,
        mut write: impl FnMut(&[u8]) -> Result<(), LogError>,
    ) -> Result<(), PassError> {
        if view.size_bytes == 0 {
            return Ok(());
        }
        let opened = self.log.read().closed_segment(source, view)?;
        let Some((file, path)) = opened else { return Err(PassError::Aborted) };
        let mut reader = SegmentReader::new(file, path.clone(), view.size_bytes, self.settings.chunk_bytes());
        let mut out = Vec::new();
        loop {
            let read = reader.next_chunk(|batch| {
                visit(batch, &mut out).map_err(|BadBatch(reason)| {
                    LogError::corrupt(&path, format!("at byte {}: {reason}", batch.position))
                })
            });
            let read = match read {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                // A cut under the reader's feet looks like damage.
                Err(error) => return Err(self.judged(source, error)),
            };
            write(&out)?;
            if !self.throttle.take(read + out.len() as u64) || self.is_cut(source) {
                return Err(PassError::Aborted);
            }
            out.clear();
        }
    }

    fn is_cut(&self, source: &CleaningSource) -> bool {
        let log = self.log.read();
        log.truncations() != source.truncations() || log.check_online().is_err()
    }

    fn judged(&self, source: &CleaningSource, error: LogError) -> PassError {
        if self.is_cut(source) { PassError::Aborted } else { error.into() }
    }
}
