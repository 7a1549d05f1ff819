//! PURE: records of a compacted topic that one side lacks, held until something shows that its cleaner took
//! them: a newer record with the key on that side, or the end of their transaction. What nothing explains at
//! the end is missing.

use std::collections::{HashMap, HashSet};

use super::expand::{ComparedRecord, Content};

/// Held at once; logs that differ by more than that are compared once their cleaners have caught up.
const MOST_HELD: usize = 1_000_000;

/// How the cleaners of a topic work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionRules {
    pub now_ms: i64,
    /// The shorter one of the two sides.
    pub delete_retention_ms: i64,
}

impl CompactionRules {
    /// Tombstones and markers may be gone by now.
    fn may_be_gone(&self, record: &ComparedRecord) -> bool {
        record.timestamp().saturating_add(self.delete_retention_ms) <= self.now_ms
    }
}

/// What becomes of a record that a side lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Cleaners drop such a record by itself.
    Explained,
    Held,
    Missing,
}

/// The records that one side lacks, and the other has.
#[derive(Default)]
pub struct Lacking {
    by_key: HashMap<u128, Vec<Held>>,
    /// Keys of held records whose transaction has not ended.
    undecided: HashMap<i64, HashSet<u128>>,
    held: usize,
}

struct Held {
    offset: i64,
    /// Of a transaction that has not ended.
    producer: Option<i64>,
    /// A tombstone that may be gone by now.
    outlived: bool,
}

/// What is left at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    pub explained: i64,
    pub missing: i64,
    pub first_missing: Option<i64>,
}

impl Lacking {
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    pub fn lacks(&mut self, record: &ComparedRecord, rules: &CompactionRules) -> Result<Lack, String> {
        let (key, tombstone) = match record.kind() {
            // Markers go once nothing of their transaction is left.
            Content::Control { .. } => {
                return Ok(if rules.may_be_gone(record) { Lack::Explained } else { Lack::Missing });
            }
            // Written before the topic was compacted.
            Content::Data { key: None, .. } => return Ok(Lack::Explained),
            Content::Data { key: Some(key), tombstone } => (key, tombstone),
        };
        if self.held >= MOST_HELD {
            return Err(format!(
                "more than {MOST_HELD} records are on one side only: compare again when both logs are cleaned"
            ));
        }
        let producer = record.transaction();
        if let Some(producer) = producer {
            self.undecided.entry(producer).or_default().insert(key);
        }
        let outlived = tombstone && rules.may_be_gone(record);
        self.by_key.entry(key).or_default().push(Held { offset: record.offset, producer, outlived });
        self.held += 1;
        Ok(Lack::Held)
    }

    /// The side has a record with that key, above all that are held: how many that explains.
    pub fn has(&mut self, key: u128) -> i64 {
        let explained = self.by_key.remove(&key).map_or(0, |held| held.len());
        self.held -= explained;
        explained as i64
    }

    /// A transaction ended where its records are. Cleaners drop what was aborted, whatever its key.
    pub fn ended(&mut self, producer: i64, committed: bool) -> i64 {
        let mut explained = 0;
        for key in self.undecided.remove(&producer).unwrap_or_default() {
            let Some(held) = self.by_key.get_mut(&key) else { continue };
            if committed {
                let of_it = held.iter_mut().filter(|held| held.producer == Some(producer));
                of_it.for_each(|held| held.producer = None);
                continue;
            }
            let before = held.len();
            held.retain(|held| held.producer != Some(producer));
            explained += before - held.len();
            if held.is_empty() {
                self.by_key.remove(&key);
            }
        }
        self.held -= explained;
        explained as i64
    }

    /// Both sides have ended. A key whose newest record was a tombstone may be gone as a whole.
    pub fn settle(self) -> Settled {
        let mut settled = Settled::default();
        for held in self.by_key.into_values() {
            let count = held.len() as i64;
            if held.last().is_some_and(|newest| newest.outlived) {
                settled.explained += count;
                continue;
            }
            settled.missing += count;
            let first = held.first().map(|held| held.offset);
            settled.first_missing = [settled.first_missing, first].into_iter().flatten().min();
        }
        settled
    }
}
