//! PURE: two runs of batches against each other (invariant 4). Equal batches are compared as bytes;
//! where their bounds differ, since each log is cleaned at its own time, record by record.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol::record_batch::{BatchHeader, check_crc};

use super::compaction::{CompactionRules, Lack, Lacking};
use super::expand::{ComparedRecord, Content, expand};

/// Offsets of the compared range by outcome. Only differing and missing ones are failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub equal: i64,
    /// Held by one side only, and shown to be what the other one's cleaner has dropped.
    pub compacted: i64,
    pub differing: i64,
    pub missing: i64,
    pub first_difference: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Local,
    Source,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Local => Side::Source,
            Side::Source => Side::Local,
        }
    }
}

/// What the comparison waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    More(Side),
    Done,
}

#[derive(Default)]
struct Lane {
    batches: VecDeque<(BatchHeader, Bytes)>,
    records: VecDeque<ComparedRecord>,
    ended: bool,
    /// What the other side has and this one lacks.
    lacking: Lacking,
}

pub struct Comparison {
    from: i64,
    to: i64,
    /// Where a log may be compacted. Then both are read on beyond the range, as far as it takes to tell what
    /// a cleaner has dropped.
    compaction: Option<CompactionRules>,
    local: Lane,
    source: Lane,
    tally: Tally,
}

impl Comparison {
    /// Over the offsets from `from` up to `to`.
    pub fn new(from: i64, to: i64, compaction: Option<CompactionRules>) -> Comparison {
        Comparison {
            from,
            to,
            compaction,
            local: Lane::default(),
            source: Lane::default(),
            tally: Tally::default(),
        }
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn lane(&mut self, side: Side) -> &mut Lane {
        match side {
            Side::Local => &mut self.local,
            Side::Source => &mut self.source,
        }
    }

    /// The next batches of one side, in order. Those outside of the range are left out.
    pub fn push(&mut self, side: Side, header: BatchHeader, batch: Bytes) {
        let ends = if self.compaction.is_some() { i64::MAX } else { self.to };
        if header.last_offset() >= self.from && header.base_offset < ends {
            self.lane(side).batches.push_back((header, batch));
        }
    }

    /// The side has nothing more in the range.
    pub fn end(&mut self, side: Side) {
        self.lane(side).ended = true;
    }

    /// Compares as far as what is there allows.
    pub fn advance(&mut self) -> Result<Need, String> {
        loop {
            if self.local.records.is_empty()
                && self.source.records.is_empty()
                && let (Some((header, local)), Some((_, source))) =
                    (self.local.batches.front(), self.source.batches.front())
            {
                let within = header.base_offset >= self.from && header.last_offset() < self.to;
                // Compared bytes need no CRC: a damaged copy differs from an undamaged one.
                if within && local == source && !self.waits() {
                    self.tally.equal += i64::from(header.records_count.max(0));
                    self.local.batches.pop_front();
                    self.source.batches.pop_front();
                    continue;
                }
            }
            let local = front(&mut self.local)?;
            let source = front(&mut self.source)?;
            if !self.waits() && local.is_beyond(self.to) && source.is_beyond(self.to) {
                return Ok(Need::Done);
            }
            match (local, source) {
                (Front::Waiting, _) => return Ok(Need::More(Side::Local)),
                (_, Front::Waiting) => return Ok(Need::More(Side::Source)),
                (Front::Ended, Front::Ended) => {
                    self.settle();
                    return Ok(Need::Done);
                }
                (Front::At(here), Front::At(there)) if here == there => self.compare_front(here),
                (Front::At(here), Front::At(there)) if here < there => self.one_sided(Side::Local, here)?,
                (_, Front::At(there)) => self.one_sided(Side::Source, there)?,
                (Front::At(here), Front::Ended) => self.one_sided(Side::Local, here)?,
            }
        }
    }

    fn counts(&self, offset: i64) -> bool {
        (self.from..self.to).contains(&offset)
    }

    /// Something is lacking that may yet be explained.
    fn waits(&self) -> bool {
        !self.local.lacking.is_empty() || !self.source.lacking.is_empty()
    }

    fn compare_front(&mut self, offset: i64) {
        let (Some(local), Some(source)) = (self.local.records.pop_front(), self.source.records.pop_front())
        else {
            return;
        };
        if self.waits() {
            self.explain(Side::Local, &local);
            self.explain(Side::Source, &source);
        }
        if !self.counts(offset) {
            return;
        }
        if local == source {
            self.tally.equal += 1;
        } else {
            self.tally.differing += 1;
            self.differs_at(offset);
        }
    }

    fn one_sided(&mut self, side: Side, offset: i64) -> Result<(), String> {
        let Some(record) = self.lane(side).records.pop_front() else { return Ok(()) };
        self.explain(side, &record);
        if !self.counts(offset) {
            return Ok(());
        }
        let lack = match self.compaction {
            None => Lack::Missing,
            Some(rules) => self.lane(side.other()).lacking.lacks(&record, &rules)?,
        };
        match lack {
            Lack::Held => {}
            Lack::Explained => self.tally.compacted += 1,
            Lack::Missing => {
                self.tally.missing += 1;
                self.differs_at(offset);
            }
        }
        Ok(())
    }

    /// What a record that `side` has tells of those that are lacking.
    fn explain(&mut self, side: Side, record: &ComparedRecord) {
        let explained = match record.kind() {
            Content::Data { key: Some(key), .. } => self.lane(side).lacking.has(key),
            Content::Control { commit: Some(commit) } => {
                self.lane(side.other()).lacking.ended(record.producer_id(), commit)
            }
            _ => 0,
        };
        self.tally.compacted += explained;
    }

    fn settle(&mut self) {
        for side in [Side::Local, Side::Source] {
            let settled = std::mem::take(&mut self.lane(side).lacking).settle();
            self.tally.compacted += settled.explained;
            self.tally.missing += settled.missing;
            if let Some(first) = settled.first_missing {
                self.differs_at(first);
            }
        }
    }

    fn differs_at(&mut self, offset: i64) {
        let first = self.tally.first_difference.map_or(offset, |first| first.min(offset));
        self.tally.first_difference = Some(first);
    }
}

enum Front {
    At(i64),
    Waiting,
    Ended,
}

impl Front {
    fn is_beyond(&self, to: i64) -> bool {
        match self {
            Front::At(offset) => *offset >= to,
            Front::Waiting => false,
            Front::Ended => true,
        }
    }
}

/// The offset of a side's next record; its batch is unpacked when it comes to the front.
fn front(lane: &mut Lane) -> Result<Front, String> {
    loop {
        if let Some(record) = lane.records.front() {
            return Ok(Front::At(record.offset));
        }
        let Some((header, batch)) = lane.batches.pop_front() else {
            return Ok(if lane.ended { Front::Ended } else { Front::Waiting });
        };
        check_crc(&batch).map_err(|error| format!("batch at {}: {error}", header.base_offset))?;
        lane.records = expand(&header, &batch)?;
    }
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
