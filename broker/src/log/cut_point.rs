//! Producer state at an earlier offset, and where a log can be cut without losing the decision of a
//! transaction (decision 10b).

use common::ids::Offset;

use super::error::LogError;
use super::log::Log;
use super::producer_snapshot;
use super::producer_state::{ProducerBatch, ProducerState};
use super::scanner::SWEEP_BYTES;

impl Log {
    /// The highest offset at or below `at_most` at which no transaction is open. Cutting at the last
    /// stable offset can take a marker that stood above it and so reopen an older transaction;
    /// hence again, until it stays.
    pub fn decided_cut_point(&self, at_most: Offset) -> Result<Offset, LogError> {
        let mut cut = at_most.0.min(self.log_end);
        while cut > self.log_start {
            // A cut inside a batch takes all of it.
            if let Some(place) = self.holding(self.segment_for(cut), cut)? {
                cut = place.first_offset.min(cut);
            }
            let first_open = if cut == self.log_end {
                self.producers.first_open_offset()
            } else {
                self.producer_state_at(cut)?.first_open_offset()
            };
            match first_open {
                Some(first) if first.0 < cut => cut = first.0,
                _ => break,
            }
        }
        // At the log start nothing is left, so nothing is open.
        Ok(Offset(cut.max(self.log_start)).min(at_most))
    }

    /// The state of producers as of `end`: the newest snapshot at or below, and the batches since.
    pub(super) fn producer_state_at(&self, end: i64) -> Result<ProducerState, LogError> {
        let first = self.segments[0].base_offset();
        let snapshot = producer_snapshot::load_newest(&self.directory, &self.snapshots, Offset(end))?;
        let mut state = snapshot.unwrap_or_else(|| ProducerState::at(Offset(first)));
        let from = state.end_offset.0.max(first);
        for segment in &self.segments[self.segment_for(from)..] {
            if segment.base_offset() >= end || segment.size_bytes() == 0 {
                break;
            }
            let start = match segment.holding(from)? {
                Some(place) => place.position,
                None => continue,
            };
            let mut scanner = segment.scanner(start, SWEEP_BYTES)?;
            while let Some((position, header)) = scanner.next()? {
                if header.last_offset() >= end {
                    break;
                }
                if header.base_offset < from || !header.has_producer_id() {
                    continue;
                }
                let content = scanner.content(position, &header)?;
                if let Some(batch) = ProducerBatch::of(&header, content) {
                    state.apply(&batch);
                }
            }
        }
        state.end_offset = Offset(end);
        state.forget_replicated(Offset(i64::MAX));
        Ok(state)
    }
}
