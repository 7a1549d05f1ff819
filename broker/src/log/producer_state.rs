//! What a log knows of its producers (KIP-98): the last batches of each, for sequence checks and
//! duplicates, and the transactions that are open, which hold the last stable offset.

use std::collections::{BTreeMap, HashMap};

use common::ids::{Offset, ProducerEpoch, ProducerId};
use protocol::record_batch::{BatchHeader, NO_SEQUENCE, increment_sequence};

use super::append::AppendOrigin;
use super::error::AppendError;
use super::transaction_index::AbortedTransaction;

/// Kafka remembers five batches a producer, since five may be in flight at once.
pub(crate) const REMEMBERED_BATCHES: usize = 5;
const NO_COORDINATOR_EPOCH: i32 = -1;

/// A batch as far as its producer is concerned.
#[derive(Clone, Copy, Debug)]
pub struct ProducerBatch {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub base_sequence: i32,
    pub first_offset: Offset,
    pub last_offset: Offset,
    pub timestamp_ms: i64,
    pub transactional: bool,
    pub content: BatchContent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchContent {
    Data,
    /// The end of a transaction.
    Marker {
        commit: bool,
        coordinator_epoch: i32,
    },
    /// A control batch that decides nothing: emptied by a cleaner, or of a type this version does not know.
    OtherControl,
}

impl ProducerBatch {
    /// None: the batch names no producer.
    pub fn of(header: &BatchHeader, content: BatchContent) -> Option<ProducerBatch> {
        header.has_producer_id().then(|| ProducerBatch {
            producer_id: ProducerId(header.producer_id),
            producer_epoch: ProducerEpoch(header.producer_epoch),
            base_sequence: header.base_sequence,
            first_offset: Offset(header.base_offset),
            last_offset: Offset(header.last_offset()),
            timestamp_ms: header.max_timestamp,
            transactional: header.is_transactional(),
            content,
        })
    }

    fn last_sequence(&self) -> i32 {
        increment_sequence(self.base_sequence, (self.last_offset.0 - self.first_offset.0) as i32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedBatch {
    pub last_sequence: i32,
    pub last_offset: Offset,
    pub offset_delta: i32,
    pub timestamp_ms: i64,
}

impl RememberedBatch {
    fn first_sequence(&self) -> i32 {
        increment_sequence(self.last_sequence, self.offset_delta.wrapping_neg())
    }

    pub fn first_offset(&self) -> Offset {
        Offset(self.last_offset.0 - i64::from(self.offset_delta))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    pub producer_epoch: ProducerEpoch,
    pub coordinator_epoch: i32,
    pub last_timestamp_ms: i64,
    pub transaction_first_offset: Option<Offset>,
    /// The newest is last.
    batches: [Option<RememberedBatch>; REMEMBERED_BATCHES],
}

impl ProducerEntry {
    pub fn new(producer_epoch: ProducerEpoch) -> ProducerEntry {
        ProducerEntry {
            producer_epoch,
            coordinator_epoch: NO_COORDINATOR_EPOCH,
            last_timestamp_ms: -1,
            transaction_first_offset: None,
            batches: [None; REMEMBERED_BATCHES],
        }
    }

    pub fn last_batch(&self) -> Option<&RememberedBatch> {
        self.batches[REMEMBERED_BATCHES - 1].as_ref()
    }

    pub fn last_sequence(&self) -> i32 {
        self.last_batch().map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    pub fn remember(&mut self, batch: RememberedBatch) {
        self.batches.rotate_left(1);
        self.batches[REMEMBERED_BATCHES - 1] = Some(batch);
    }

    fn enter_epoch(&mut self, epoch: ProducerEpoch) {
        if epoch != self.producer_epoch {
            self.producer_epoch = epoch;
            self.batches = [None; REMEMBERED_BATCHES];
        }
    }
}

/// For DescribeProducers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub last_sequence: i32,
    pub last_timestamp_ms: i64,
    pub coordinator_epoch: i32,
    pub current_transaction_first_offset: Option<Offset>,
}

/// What the cleaner must leave of a producer so that its state can be read from the log again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastRecord {
    /// None: only a marker is known of this epoch.
    pub data_offset: Option<Offset>,
    pub producer_epoch: ProducerEpoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CompletedTransaction {
    first_offset: Offset,
    last_offset: Offset,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    producers: HashMap<ProducerId, ProducerEntry>,
    /// Open transactions by first offset.
    open: BTreeMap<Offset, ProducerId>,
    /// Decided, but the high watermark may not have passed the marker yet: readers must not see past
    /// the first offset before they can see the marker.
    unreplicated: Vec<CompletedTransaction>,
    /// State is that of the log up to here.
    pub end_offset: Offset,
}

impl ProducerState {
    pub fn at(end_offset: Offset) -> ProducerState {
        ProducerState {
            producers: HashMap::new(),
            open: BTreeMap::new(),
            unreplicated: Vec::new(),
            end_offset,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// The remembered batch that `batch` repeats.
    pub fn duplicate_of(&self, batch: &ProducerBatch) -> Option<RememberedBatch> {
        let entry = self.producers.get(&batch.producer_id)?;
        if entry.producer_epoch != batch.producer_epoch || batch.content != BatchContent::Data {
            return None;
        }
        entry.batches.iter().flatten().copied().find(|remembered| {
            remembered.first_sequence() == batch.base_sequence
                && remembered.last_sequence == batch.last_sequence()
        })
    }

    /// Whether the leader may append `batch`. Copied batches are not asked: their leader has decided.
    pub fn check(&self, batch: &ProducerBatch, origin: AppendOrigin) -> Result<(), AppendError> {
        let Some(entry) = self.producers.get(&batch.producer_id) else { return Ok(()) };
        let producer_id = batch.producer_id;
        if batch.producer_epoch < entry.producer_epoch {
            return Err(AppendError::InvalidProducerEpoch {
                producer_id,
                epoch: batch.producer_epoch,
                current_epoch: entry.producer_epoch,
            });
        }
        if let BatchContent::Marker { coordinator_epoch, .. } = batch.content {
            if coordinator_epoch < entry.coordinator_epoch {
                return Err(AppendError::TransactionCoordinatorFenced {
                    producer_id,
                    epoch: coordinator_epoch,
                    current_epoch: entry.coordinator_epoch,
                });
            }
            return Ok(());
        }
        if origin == AppendOrigin::Client {
            let sequence = batch.base_sequence;
            let last_sequence = entry.last_sequence();
            let in_order = if batch.producer_epoch != entry.producer_epoch {
                sequence == 0
            } else {
                i64::from(sequence) == i64::from(last_sequence) + 1
                    || (sequence == 0 && last_sequence == i32::MAX)
            };
            if !in_order {
                return Err(AppendError::OutOfOrderSequence { producer_id, sequence, last_sequence });
            }
        }
        if entry.transaction_first_offset.is_some() && !batch.transactional {
            return Err(AppendError::InvalidTransactionState { producer_id });
        }
        Ok(())
    }

    /// Takes up a batch that is in the log. An aborted transaction comes back for the index.
    pub fn apply(&mut self, batch: &ProducerBatch) -> Option<AbortedTransaction> {
        self.end_offset = Offset(batch.last_offset.0 + 1);
        if batch.producer_id.0 < 0 || batch.content == BatchContent::OtherControl {
            return None;
        }
        let entry = self
            .producers
            .entry(batch.producer_id)
            .or_insert_with(|| ProducerEntry::new(batch.producer_epoch));
        // An older epoch here comes from a leader that knew better, or a source that lies: data stays
        // data, but the state never goes back.
        if batch.producer_epoch > entry.producer_epoch {
            entry.enter_epoch(batch.producer_epoch);
        }
        match batch.content {
            BatchContent::Marker { commit, coordinator_epoch } => {
                entry.coordinator_epoch = entry.coordinator_epoch.max(coordinator_epoch);
                entry.last_timestamp_ms = batch.timestamp_ms;
                let first_offset = entry.transaction_first_offset.take()?;
                self.open.remove(&first_offset);
                self.unreplicated.push(CompletedTransaction { first_offset, last_offset: batch.last_offset });
                let last_stable_offset =
                    self.open.keys().next().copied().unwrap_or(Offset(batch.last_offset.0 + 1));
                (!commit).then_some(AbortedTransaction {
                    producer_id: batch.producer_id,
                    first_offset,
                    last_offset: batch.last_offset,
                    last_stable_offset,
                })
            }
            _ => {
                entry.last_timestamp_ms = batch.timestamp_ms;
                if batch.producer_epoch == entry.producer_epoch {
                    entry.remember(RememberedBatch {
                        last_sequence: batch.last_sequence(),
                        last_offset: batch.last_offset,
                        offset_delta: (batch.last_offset.0 - batch.first_offset.0) as i32,
                        timestamp_ms: batch.timestamp_ms,
                    });
                }
                if batch.transactional && entry.transaction_first_offset.is_none() {
                    entry.transaction_first_offset = Some(batch.first_offset);
                    self.open.insert(batch.first_offset, batch.producer_id);
                }
                None
            }
        }
    }

    /// First offset of the oldest open transaction.
    pub fn first_open_offset(&self) -> Option<Offset> {
        self.open.keys().next().copied()
    }

    /// First offset of a transaction that readers below `high_watermark` cannot see decided.
    pub fn first_undecided_offset(&self, high_watermark: Offset) -> Option<Offset> {
        let waiting = self
            .unreplicated
            .iter()
            .filter(|completed| completed.last_offset >= high_watermark)
            .map(|completed| completed.first_offset)
            .min();
        match (self.first_open_offset(), waiting) {
            (Some(open), Some(waiting)) => Some(open.min(waiting)),
            (open, waiting) => open.or(waiting),
        }
    }

    pub fn forget_replicated(&mut self, high_watermark: Offset) {
        self.unreplicated.retain(|completed| completed.last_offset >= high_watermark);
    }

    /// Producers that were silent for `expiration_ms` and have no open transaction are forgotten.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        self.producers.retain(|_, entry| {
            entry.transaction_first_offset.is_some()
                || now_ms.saturating_sub(entry.last_timestamp_ms) < expiration_ms
        });
    }

    /// False: the producer is known already, or another one's transaction begins at the same offset.
    #[must_use]
    pub fn insert(&mut self, producer_id: ProducerId, entry: ProducerEntry) -> bool {
        let taken = entry
            .transaction_first_offset
            .is_some_and(|first_offset| self.open.insert(first_offset, producer_id).is_some());
        self.producers.insert(producer_id, entry).is_none() && !taken
    }

    pub fn entries(&self) -> impl ExactSizeIterator<Item = (ProducerId, &ProducerEntry)> {
        self.producers.iter().map(|(producer_id, entry)| (*producer_id, entry))
    }

    pub(crate) fn last_records(&self) -> HashMap<ProducerId, LastRecord> {
        self.entries()
            .map(|(producer_id, entry)| {
                let data_offset = entry.last_batch().map(|batch| batch.last_offset);
                (producer_id, LastRecord { data_offset, producer_epoch: entry.producer_epoch })
            })
            .collect()
    }

    pub fn active(&self) -> Vec<ActiveProducer> {
        let mut active: Vec<ActiveProducer> = self
            .entries()
            .map(|(producer_id, entry)| ActiveProducer {
                producer_id,
                producer_epoch: entry.producer_epoch,
                last_sequence: entry.last_sequence(),
                last_timestamp_ms: entry.last_timestamp_ms,
                coordinator_epoch: entry.coordinator_epoch,
                current_transaction_first_offset: entry.transaction_first_offset,
            })
            .collect();
        active.sort_by_key(|producer| producer.producer_id);
        active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(producer_id: i64, epoch: i16, sequence: i32, first: i64, count: i64) -> ProducerBatch {
        ProducerBatch {
            producer_id: ProducerId(producer_id),
            producer_epoch: ProducerEpoch(epoch),
            base_sequence: sequence,
            first_offset: Offset(first),
            last_offset: Offset(first + count - 1),
            timestamp_ms: 1000 + first,
            transactional: false,
            content: BatchContent::Data,
        }
    }

    fn transactional(producer_id: i64, first: i64) -> ProducerBatch {
        ProducerBatch { transactional: true, ..data(producer_id, 0, first as i32, first, 1) }
    }

    fn marker(producer_id: i64, offset: i64, commit: bool) -> ProducerBatch {
        ProducerBatch {
            transactional: true,
            content: BatchContent::Marker { commit, coordinator_epoch: 3 },
            ..data(producer_id, 0, -1, offset, 1)
        }
    }

    fn state(batches: &[ProducerBatch]) -> ProducerState {
        let mut state = ProducerState::at(Offset(0));
        for batch in batches {
            state.apply(batch);
        }
        state
    }

    #[test]
    fn sequences() {
        let written = state(&[data(1, 2, 0, 0, 10)]);
        let verdict =
            |epoch, sequence| match written.check(&data(1, epoch, sequence, 10, 5), AppendOrigin::Client) {
                Ok(()) => "ok",
                Err(AppendError::OutOfOrderSequence { last_sequence: 9, .. }) => "out of order",
                Err(AppendError::InvalidProducerEpoch { .. }) => "fenced",
                Err(other) => panic!("{other}"),
            };
        assert_eq!(verdict(2, 10), "ok");
        assert_eq!(verdict(2, 11), "out of order");
        assert_eq!(verdict(2, 9), "out of order");
        assert_eq!(verdict(2, 0), "out of order");
        assert_eq!(verdict(3, 0), "ok");
        assert_eq!(verdict(3, 10), "out of order");
        assert_eq!(verdict(1, 10), "fenced");
        // An unknown producer may begin anywhere: retention may have taken its state.
        assert!(written.check(&data(2, 0, 77, 10, 1), AppendOrigin::Client).is_ok());
    }

    #[test]
    fn sequences_wrap() {
        let mut state = ProducerState::at(Offset(0));
        let last = data(1, 0, i32::MAX - 1, 0, 2);
        assert_eq!(last.last_sequence(), i32::MAX);
        state.apply(&last);
        assert!(state.check(&data(1, 0, 0, 2, 1), AppendOrigin::Client).is_ok());
        let across = data(1, 0, i32::MAX - 1, 0, 5);
        assert_eq!(across.last_sequence(), 2);
        let state = self::state(&[across]);
        assert_eq!(state.duplicate_of(&across).unwrap().first_offset(), Offset(0));
        assert!(state.check(&data(1, 0, 3, 5, 1), AppendOrigin::Client).is_ok());
    }

    #[test]
    fn the_last_five_batches_are_recognised() {
        let batches: Vec<_> = (0..7).map(|n| data(1, 0, 10 * n, 100 + 10 * i64::from(n), 10)).collect();
        let state = state(&batches);
        for (number, batch) in batches.iter().enumerate() {
            let again = ProducerBatch { first_offset: Offset(900), last_offset: Offset(909), ..*batch };
            let first = state.duplicate_of(&again).map(|remembered| remembered.first_offset().0);
            assert_eq!(first, (number >= 2).then_some(100 + 10 * number as i64));
        }
        assert!(state.duplicate_of(&data(1, 1, 60, 900, 10)).is_none(), "another epoch");
        assert!(state.duplicate_of(&data(1, 0, 60, 900, 9)).is_none(), "another length");
    }

    #[test]
    fn transactions_hold_the_last_stable_offset() {
        let mut state = state(&[transactional(1, 1), transactional(2, 2)]);
        assert_eq!(state.first_open_offset(), Some(Offset(1)));
        assert_eq!(state.apply(&marker(1, 3, true)), None);
        assert_eq!(state.first_open_offset(), Some(Offset(2)));
        assert_eq!(
            state.first_undecided_offset(Offset(3)),
            Some(Offset(1)),
            "marker above the high watermark"
        );
        assert_eq!(state.first_undecided_offset(Offset(4)), Some(Offset(2)));
        let aborted = state.apply(&marker(2, 4, false)).unwrap();
        assert_eq!((aborted.first_offset, aborted.last_offset), (Offset(2), Offset(4)));
        assert_eq!(aborted.last_stable_offset, Offset(5));
        state.forget_replicated(Offset(5));
        assert_eq!(state.first_undecided_offset(Offset(0)), None);
        assert_eq!(state.apply(&marker(2, 5, false)), None, "an empty transaction is not indexed");
    }

    #[test]
    fn markers_are_fenced_and_transactions_are_kept_apart() {
        let state = state(&[transactional(1, 1), marker(1, 2, true), transactional(1, 3)]);
        let mut old = marker(1, 4, true);
        old.content = BatchContent::Marker { commit: true, coordinator_epoch: 2 };
        assert!(matches!(
            state.check(&old, AppendOrigin::Coordinator),
            Err(AppendError::TransactionCoordinatorFenced { current_epoch: 3, .. })
        ));
        assert!(matches!(
            state.check(&data(1, 0, 4, 4, 1), AppendOrigin::Client),
            Err(AppendError::InvalidTransactionState { .. })
        ));
    }

    #[test]
    fn silent_producers_expire_unless_a_transaction_is_open() {
        let mut state = state(&[data(1, 0, 0, 0, 1), transactional(2, 1), data(3, 0, 0, 500, 1)]);
        state.expire(1500, 100);
        let left: Vec<i64> = state.active().iter().map(|producer| producer.producer_id.0).collect();
        assert_eq!(left, [2, 3]);
    }
}
