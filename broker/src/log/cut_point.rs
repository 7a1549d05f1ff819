//! Producer state at an earlier offset, and where a log can be cut without losing the decision of a
//! transaction (decision 10b).

use common::ids::Offset;

use super::error::LogError;
use super::log::Log;
use super::producer_snapshot;
use super::producer_state::{ProducerBatch, ProducerState};
use super::scanner::SWEEP_BYTES;

/// PURE. `open_below` tells for an offset where a cut at it would really cut (a batch goes whole), and
/// the first offset of the oldest transaction that would be open then.
pub fn decided_cut<E>(
    at_most: Offset,
    log_start: Offset,
    log_end: Offset,
    open_below: impl Fn(Offset) -> Result<(Offset, Option<Offset>), E>,
) -> Result<Offset, E> {
    let mut cut = at_most.min(log_end);
    while cut > log_start {
        let (real, first_open) = open_below(cut)?;
        cut = real;
        match first_open {
            Some(first) if first < cut => cut = first,
            _ => break,
        }
    }
    // At the log start nothing is left, so nothing is open.
    Ok(cut.max(log_start).min(at_most))
}

impl Log {
    /// The highest offset at or below `at_most` at which no transaction is open. Cutting at the last
    /// stable offset can take a marker that stood above it and so reopen an older transaction;
    /// hence again, until it stays.
    pub fn decided_cut_point(&self, at_most: Offset) -> Result<Offset, LogError> {
        let (start, end) = (Offset(self.log_start), Offset(self.log_end));
        decided_cut(at_most, start, end, |cut| {
            // A cut inside a batch takes all of it.
            let place = self.holding(self.segment_for(cut.0), cut.0)?;
            let cut = place.map_or(cut, |place| Offset(place.first_offset).min(cut));
            let first_open = if cut == end {
                self.producers.first_open_offset()
            } else {
                self.producer_state_at(cut.0)?.first_open_offset()
            };
            Ok((cut, first_open))
        })
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
