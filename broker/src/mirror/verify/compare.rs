//! PURE: two runs of batches against each other (invariant 4). Equal batches are compared as bytes;
//! where their bounds differ, since each log is cleaned at its own time, record by record.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol::record_batch::{BatchHeader, check_crc};

use super::expand::{ComparedRecord, expand};

/// Offsets of the compared range by outcome. Only differing and missing ones are failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub equal: i64,
    /// Held by one side only, of a topic whose logs are compacted.
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
}

pub struct Comparison {
    from: i64,
    to: i64,
    compacted: bool,
    local: Lane,
    source: Lane,
    tally: Tally,
}

impl Comparison {
    /// Over the offsets from `from` up to `to`.
    pub fn new(from: i64, to: i64, compacted: bool) -> Comparison {
        Comparison {
            from,
            to,
            compacted,
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
        let (from, to) = (self.from, self.to);
        if header.last_offset() >= from && header.base_offset < to {
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
                if within && local == source {
                    self.tally.equal += i64::from(header.records_count.max(0));
                    self.local.batches.pop_front();
                    self.source.batches.pop_front();
                    continue;
                }
            }
            let local = front(&mut self.local)?;
            let source = front(&mut self.source)?;
            match (local, source) {
                (Front::Waiting, _) => return Ok(Need::More(Side::Local)),
                (_, Front::Waiting) => return Ok(Need::More(Side::Source)),
                (Front::Ended, Front::Ended) => return Ok(Need::Done),
                (Front::At(here), Front::At(there)) if here == there => self.compare_front(here),
                (Front::At(here), Front::At(there)) if here < there => self.one_sided(Side::Local, here),
                (_, Front::At(there)) => self.one_sided(Side::Source, there),
                (Front::At(here), Front::Ended) => self.one_sided(Side::Local, here),
            }
        }
    }

    fn counts(&self, offset: i64) -> bool {
        (self.from..self.to).contains(&offset)
    }

    fn compare_front(&mut self, offset: i64) {
        let (local, source) = (self.local.records.pop_front(), self.source.records.pop_front());
        if !self.counts(offset) {
            return;
        }
        if local == source {
            self.tally.equal += 1;
        } else {
            self.tally.differing += 1;
            self.tally.first_difference.get_or_insert(offset);
        }
    }

    fn one_sided(&mut self, side: Side, offset: i64) {
        self.lane(side).records.pop_front();
        if !self.counts(offset) {
            return;
        }
        if self.compacted {
            self.tally.compacted += 1;
        } else {
            self.tally.missing += 1;
            self.tally.first_difference.get_or_insert(offset);
        }
    }
}

enum Front {
    At(i64),
    Waiting,
    Ended,
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
mod tests {
    use super::*;
    use protocol::record_batch::{BatchBuilder, batches};

    fn batch(base: i64, values: &[&str]) -> Bytes {
        let mut builder = BatchBuilder::new().base_offset(base).leader_epoch(3);
        for value in values {
            builder.push(7, Some(b"k"), Some(value.as_bytes()), &[]);
        }
        builder.build()
    }

    fn compare(from: i64, to: i64, compacted: bool, local: &[Bytes], source: &[Bytes]) -> Tally {
        let mut comparison = Comparison::new(from, to, compacted);
        let (mut local, mut source) = (local.iter(), source.iter());
        loop {
            let side = match comparison.advance().unwrap() {
                Need::Done => return comparison.tally(),
                Need::More(side) => side,
            };
            let lane = if side == Side::Local { &mut local } else { &mut source };
            match lane.next() {
                Some(bytes) => {
                    let header = batches(bytes).next().unwrap().unwrap().header;
                    comparison.push(side, header, bytes.clone());
                }
                None => comparison.end(side),
            }
        }
    }

    #[test]
    fn equal_logs() {
        let log = [batch(0, &["a", "b"]), batch(2, &["c"])];
        let tally = compare(0, 3, false, &log, &log);
        assert_eq!(tally, Tally { equal: 3, ..Tally::default() });
    }

    #[test]
    fn only_the_common_range_counts() {
        let log = [batch(0, &["a", "b", "c", "d"]), batch(4, &["e"])];
        assert_eq!(compare(2, 4, false, &log, &log).equal, 2);
    }

    #[test]
    fn another_value_differs_at_its_offset() {
        let here = [batch(0, &["a", "b"]), batch(2, &["c"])];
        let there = [batch(0, &["a", "x"]), batch(2, &["c"])];
        let tally = compare(0, 3, false, &here, &there);
        assert_eq!((tally.equal, tally.differing, tally.first_difference), (2, 1, Some(1)));
    }

    #[test]
    fn other_batch_bounds_with_the_same_records_are_equal() {
        let here = [batch(0, &["a", "b", "c"])];
        let there = [batch(0, &["a"]), batch(1, &["b", "c"])];
        assert_eq!(compare(0, 3, false, &here, &there).equal, 3);
    }

    #[test]
    fn a_record_of_one_side_only_is_missing_or_compacted() {
        let here = [batch(0, &["a", "b"])];
        let there = [batch(0, &["a"]), batch(1, &["b", "c"])];
        let tally = compare(0, 3, false, &here, &there);
        assert_eq!((tally.equal, tally.missing, tally.first_difference), (2, 1, Some(2)));
        let cleaned = compare(0, 3, true, &here, &there);
        assert_eq!((cleaned.equal, cleaned.compacted, cleaned.missing), (2, 1, 0));
    }

    #[test]
    fn another_leader_epoch_alone_is_not_a_difference_of_records() {
        let mut builder = BatchBuilder::new().base_offset(0).leader_epoch(9);
        builder.push(7, Some(b"k"), Some(b"a"), &[]);
        assert_eq!(compare(0, 1, false, &[batch(0, &["a"])], &[builder.build()]).equal, 1);
    }

    #[test]
    fn a_damaged_batch_is_an_error_and_not_a_difference() {
        let mut damaged = batch(0, &["a"]).to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        let mut comparison = Comparison::new(0, 1, false);
        let header = batches(&damaged).next().unwrap().unwrap().header;
        comparison.push(Side::Local, header, Bytes::from(damaged));
        comparison.push(Side::Source, header, batch(0, &["a"]));
        assert!(comparison.advance().is_err());
    }
}
