//! Reading: ranges of segment files that hold whole batches. Nothing is copied here.

use std::fs::File;
use std::sync::Arc;

use common::ids::Offset;

use super::error::{LogError, ReadError};
use super::log::Log;
use super::recent_batches::BatchPlace;
use super::segment::{LOG, MAX_RELATIVE};
use super::transaction_index::AbortedTransaction;

/// A range of a segment file: one or more whole batches.
#[derive(Clone, Debug)]
pub struct LogSlice {
    pub file: Arc<File>,
    pub position: u64,
    pub length: usize,
    /// Base offset of the first batch, which may lie below the offset asked for.
    pub first_offset: Offset,
    /// Every offset in the slice lies below it.
    pub end_offset: Offset,
}

impl Log {
    /// Batches from the one that holds `from`, all of them below `upper` (high watermark, last stable
    /// offset or log end), as many as fit `max_bytes`. With `min_one_batch` the first comes even if it
    /// alone is larger. None: there is nothing to read yet, or the first does not fit.
    pub fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        upper: Offset,
        min_one_batch: bool,
    ) -> Result<Option<LogSlice>, ReadError> {
        self.check_not_retired()?;
        if from.0 < self.log_start || from.0 > self.log_end {
            return Err(ReadError::OutOfRange {
                offset: from,
                log_start_offset: self.log_start_offset(),
                log_end_offset: self.log_end_offset(),
            });
        }
        let upper = upper.0.min(self.log_end);
        let mut index = self.segment_for(from.0);
        while from.0 < upper && index < self.segments.len() && self.segments[index].base_offset() < upper {
            match self.holding(index, from.0)? {
                Some(first) => return Ok(self.slice(index, first, max_bytes, upper, min_one_batch)?),
                // A cleaner took what stood from here to the segment's end.
                None => index = self.behind_hole(index)?,
            }
        }
        Ok(None)
    }

    /// The segment behind one that ends below its successor's beginning. Unless a cleaner was there, or offsets
    /// are out of a segment's reach, something that stood there is gone, and must not be passed over in silence.
    fn behind_hole(&self, index: usize) -> Result<usize, LogError> {
        let (segment, next) = (&self.segments[index], self.segment_end(index));
        let is_last = index + 1 == self.segments.len();
        if !is_last && next > self.compacted_end && next - segment.base_offset() <= MAX_RELATIVE {
            return Err(LogError::corrupt(
                &segment.path(LOG),
                format!("it ends before offset {next}, with which the next segment begins"),
            ));
        }
        Ok(index + 1)
    }

    fn slice(
        &self,
        index: usize,
        first: BatchPlace,
        max_bytes: usize,
        upper: i64,
        min_one_batch: bool,
    ) -> Result<Option<LogSlice>, LogError> {
        if first.last_offset >= upper {
            return Ok(None);
        }
        let segment = &self.segments[index];
        let segment_end = self.segment_end(index);
        let (mut end, mut end_offset) = (segment.size_bytes(), segment_end.min(upper));
        if upper < segment_end
            && let Some(beyond) = self.holding(index, upper)?
        {
            (end, end_offset) = (beyond.position, beyond.first_offset.min(upper));
        }
        let limit = first.position.saturating_add(max_bytes as u64);
        if limit < end {
            let first_end = first.position + first.bytes;
            if first_end > limit {
                if !min_one_batch {
                    return Ok(None);
                }
                (end, end_offset) = (first_end, first.last_offset + 1);
            } else {
                let last = self.beginning_by(index, limit, first)?;
                // The batch that begins at or below the limit fits only if it also ends there.
                (end, end_offset) = if last.position + last.bytes <= limit {
                    (last.position + last.bytes, last.last_offset + 1)
                } else {
                    (last.position, last.first_offset)
                };
            }
        }
        Ok(Some(LogSlice {
            file: segment.file()?,
            position: first.position,
            length: (end - first.position) as usize,
            first_offset: Offset(first.first_offset),
            end_offset: Offset(end_offset),
        }))
    }

    /// The first batch of the segment whose last offset is at or above `offset`.
    pub(super) fn holding(&self, index: usize, offset: i64) -> Result<Option<BatchPlace>, LogError> {
        if index + 1 == self.segments.len()
            && let Some(place) = self.recent.holding(offset)
        {
            return Ok(Some(place));
        }
        self.segments[index].holding(offset)
    }

    fn beginning_by(&self, index: usize, limit: u64, known: BatchPlace) -> Result<BatchPlace, LogError> {
        if index + 1 == self.segments.len()
            && let Some(place) = self.recent.beginning_by(limit)
        {
            return Ok(place);
        }
        self.segments[index].beginning_by(limit, known)
    }

    /// The aborted transactions that a reader of committed data needs for a slice: those with a batch
    /// in from..upper, where `upper` is the slice's end.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        let mut found = Vec::new();
        for segment in &self.segments[self.segment_for(from.0)..] {
            for aborted in segment.aborted()? {
                if aborted.last_offset >= from && aborted.first_offset < upper {
                    found.push(aborted);
                }
                // All that was decided later began above.
                if aborted.last_stable_offset >= upper {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }
}
