//! A partition's log as a list of batches, with what has reached the disk told apart from what has not.
//! Epochs, producers and cut points are the product's own.

use std::convert::Infallible;

use broker::log::{
    AppendError, AppendOrigin, BatchContent, EpochCache, ProducerBatch, ProducerState, decided_cut,
};
use common::ids::*;

use super::random::Random;

/// A batch, byte for byte: two are the same bytes exactly if they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub base: i64,
    pub count: i64,
    pub epoch: i32,
    /// Unique for each batch that a client made.
    pub value: u64,
    pub producer: Option<ProducerPart>,
    pub marker: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerPart {
    pub id: i64,
    pub sequence: i32,
    pub transactional: bool,
}

impl Batch {
    pub fn next(&self) -> i64 {
        self.base + self.count
    }

    fn as_producer_batch(&self) -> Option<ProducerBatch> {
        let producer = self.producer?;
        Some(ProducerBatch {
            producer_id: ProducerId(producer.id),
            producer_epoch: ProducerEpoch(0),
            base_sequence: producer.sequence,
            first_offset: Offset(self.base),
            last_offset: Offset(self.next() - 1),
            timestamp_ms: 0,
            transactional: producer.transactional,
            content: match self.marker {
                None => BatchContent::Data,
                Some(commit) => BatchContent::Marker { commit, coordinator_epoch: 0 },
            },
        })
    }
}

/// Why copied batches were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyRefusal {
    OutOfOrder,
    EpochFell,
}

#[derive(Debug)]
pub struct ModelLog {
    pub start: i64,
    pub batches: Vec<Batch>,
    pub epochs: EpochCache,
    producers: ProducerState,
    /// So many batches are on the disk as they are here.
    synced: usize,
    /// What the disk still holds behind them: cut since, but the cut may be undone by a loss of power.
    ghost: Vec<Batch>,
}

impl Default for ModelLog {
    fn default() -> ModelLog {
        ModelLog {
            start: 0,
            batches: Vec::new(),
            epochs: EpochCache::default(),
            producers: ProducerState::at(Offset(0)),
            synced: 0,
            ghost: Vec::new(),
        }
    }
}

impl ModelLog {
    pub fn end(&self) -> i64 {
        self.batches.last().map_or(self.start, Batch::next)
    }

    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest()
    }

    /// Index of the first batch that ends above `offset`.
    pub fn index_of(&self, offset: i64) -> usize {
        self.batches.partition_point(|batch| batch.next() <= offset)
    }

    /// The batch that ends at `offset`.
    pub fn ending_at(&self, offset: i64) -> Option<Batch> {
        let index = self.index_of(offset).checked_sub(1)?;
        self.batches.get(index).copied().filter(|batch| batch.next() == offset)
    }

    pub fn read(&self, from: i64, upper: i64, most: usize) -> Vec<Batch> {
        let rest = self.batches.get(self.index_of(from)..).unwrap_or_default();
        rest.iter().take(most).take_while(|batch| batch.next() <= upper).copied().collect()
    }

    pub fn end_of_epoch(&self, epoch: LeaderEpoch, mirroring: bool) -> Option<(LeaderEpoch, Offset)> {
        let end = Offset(self.end());
        if mirroring {
            Some(self.epochs.mirrored_end_offset_for(epoch, Offset(self.start), end))
        } else {
            self.epochs.end_offset_for(epoch, end)
        }
    }

    /// False: the epoch is below one that is in the log.
    pub fn start_epoch(&mut self, epoch: LeaderEpoch) -> bool {
        if self.epochs.latest().is_some_and(|latest| epoch < latest) {
            return false;
        }
        self.epochs.assign(epoch, Offset(self.end()));
        true
    }

    pub fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        let undecided = self.producers.first_undecided_offset(Offset(high_watermark));
        undecided.map_or(high_watermark, |first| first.0.max(self.start).min(high_watermark))
    }

    pub fn has_open_transaction(&self) -> bool {
        self.producers.first_open_offset().is_some()
    }

    /// Producers with an open transaction.
    pub fn open_producers(&self) -> Vec<i64> {
        let active = self.producers.active();
        let open = active.iter().filter(|producer| producer.current_transaction_first_offset.is_some());
        open.map(|producer| producer.producer_id.0).collect()
    }

    /// Offset after the batch, and whether it was there already.
    pub fn append_as_leader(
        &mut self,
        mut batch: Batch,
        epoch: LeaderEpoch,
        origin: AppendOrigin,
    ) -> Result<(i64, bool), AppendError> {
        let first_offset = Offset(self.end());
        if let Some(latest_epoch) = self.epochs.latest().filter(|latest| epoch < *latest) {
            return Err(AppendError::LeaderEpochFell { first_offset, epoch, latest_epoch });
        }
        batch.base = first_offset.0;
        batch.epoch = epoch.0;
        if let Some(of_producer) = batch.as_producer_batch() {
            if origin == AppendOrigin::Client
                && let Some(first) = self.producers.duplicate_of(&of_producer)
            {
                return Ok((first.last_offset.0 + 1, true));
            }
            self.producers.check(&of_producer, origin)?;
        }
        self.push(batch);
        Ok((batch.next(), false))
    }

    fn push(&mut self, batch: Batch) {
        self.epochs.assign(LeaderEpoch(batch.epoch), Offset(batch.base));
        if let Some(of_producer) = batch.as_producer_batch() {
            self.producers.apply(&of_producer);
        }
        self.batches.push(batch);
    }

    /// As `Log::append_as_follower`: one bad batch refuses all.
    pub fn append_copied(&mut self, batches: &[Batch]) -> Result<(), CopyRefusal> {
        let mut next = self.end();
        let mut latest = self.epochs.latest().unwrap_or(LeaderEpoch::UNKNOWN);
        for batch in batches {
            if batch.base < next {
                return Err(CopyRefusal::OutOfOrder);
            }
            if LeaderEpoch(batch.epoch) < latest {
                return Err(CopyRefusal::EpochFell);
            }
            latest = LeaderEpoch(batch.epoch);
            next = batch.next();
        }
        batches.iter().for_each(|batch| self.push(*batch));
        Ok(())
    }

    pub fn truncate_to(&mut self, target: i64) {
        if target >= self.end() {
            return;
        }
        if target <= self.start {
            return self.start_over(target);
        }
        self.keep(self.index_of(target));
        self.epochs.truncate_from_end(Offset(self.end()));
        self.rebuild_producers();
    }

    pub fn start_over(&mut self, start: i64) {
        self.keep(0);
        self.start = start;
        self.epochs.clear();
        self.rebuild_producers();
    }

    /// Removes batches; a batch that holds the target goes whole.
    fn keep(&mut self, count: usize) {
        if count < self.synced {
            let mut ghost = self.batches[count..self.synced].to_vec();
            ghost.append(&mut self.ghost);
            self.ghost = ghost;
            self.synced = count;
        }
        self.batches.truncate(count);
    }

    fn rebuild_producers(&mut self) {
        self.producers = producers_of(&self.batches, self.end());
    }

    pub fn forget_empty_epochs(&mut self) -> bool {
        let before = self.epochs.latest();
        self.epochs.truncate_from_end(Offset(self.end()));
        self.epochs.latest() != before
    }

    /// What was cut cannot come back any more.
    pub fn settle_truncations(&mut self) {
        self.ghost.clear();
    }

    pub fn sync(&mut self) {
        self.synced = self.batches.len();
        self.ghost.clear();
    }

    /// Decision 10b, by the product's own walk.
    pub fn decided_cut_point(&self, at_most: i64) -> i64 {
        let found = decided_cut(Offset(at_most), Offset(self.start), Offset(self.end()), |cut| {
            let kept = &self.batches[..self.index_of(cut.0)];
            let end = kept.last().map_or(self.start, Batch::next);
            Ok::<_, Infallible>((Offset(end), producers_of(kept, end).first_open_offset()))
        });
        let Ok(cut) = found;
        cut.0
    }

    /// The process is gone; without power also what was not synced, in part or whole, and a cut that had
    /// not reached the disk may be undone.
    pub fn crash(&mut self, power: bool, random: &mut Random) {
        if power {
            if !self.ghost.is_empty() && random.chance(400) {
                self.batches.truncate(self.synced);
                self.batches.append(&mut self.ghost);
            } else {
                let kept = random.between(self.synced as i64, self.batches.len() as i64);
                self.batches.truncate(kept as usize);
            }
        }
        let mut epochs = EpochCache::default();
        for batch in &self.batches {
            epochs.assign(LeaderEpoch(batch.epoch), Offset(batch.base));
        }
        if let Some(latest) = self.epochs.latest().filter(|_| !power && random.chance(500)) {
            // The checkpoint had the epoch of a leader that has written nothing yet.
            epochs.assign(latest, Offset(self.end()));
        }
        self.epochs = epochs;
        self.rebuild_producers();
        self.sync();
    }
}

fn producers_of(batches: &[Batch], end: i64) -> ProducerState {
    let mut producers = ProducerState::at(Offset(end));
    for of_producer in batches.iter().filter_map(Batch::as_producer_batch) {
        producers.apply(&of_producer);
    }
    producers.forget_replicated(Offset(i64::MAX));
    producers
}
