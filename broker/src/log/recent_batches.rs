//! Where the newest batches of the active segment lie, so that the reads that matter most, those of
//! followers and of consumers at the tail, ask no index and no file.

use std::collections::VecDeque;

/// Enough for readers some dozen batches behind; 32 bytes each.
const CAPACITY: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchPlace {
    pub first_offset: i64,
    pub last_offset: i64,
    pub position: u64,
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct RecentBatches {
    places: VecDeque<BatchPlace>,
}

impl RecentBatches {
    pub fn push(&mut self, place: BatchPlace) {
        if self.places.len() == CAPACITY {
            self.places.pop_front();
        }
        self.places.push_back(place);
    }

    pub fn clear(&mut self) {
        self.places = VecDeque::new();
    }

    /// The first batch whose last offset is at or above `offset`. None: not known here.
    pub fn holding(&self, offset: i64) -> Option<BatchPlace> {
        // Batches before the oldest known one may hold the offset just as well.
        if self.places.front()?.first_offset > offset {
            return None;
        }
        let index = self.places.partition_point(|place| place.last_offset < offset);
        self.places.get(index).copied()
    }

    /// The last batch that begins at or below `position`. None: not known here.
    pub fn beginning_by(&self, position: u64) -> Option<BatchPlace> {
        let after = self.places.partition_point(|place| place.position <= position);
        after.checked_sub(1).and_then(|index| self.places.get(index)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: i64) -> BatchPlace {
        // Ten offsets each, but only the first seven are in the batch: a cleaned source leaves gaps.
        BatchPlace {
            first_offset: 10 * number,
            last_offset: 10 * number + 6,
            position: 100 * number as u64,
            bytes: 100,
        }
    }

    #[test]
    fn lookups_know_what_they_do_not_know() {
        let mut recent = RecentBatches::default();
        assert_eq!(recent.holding(0), None);
        assert_eq!(recent.beginning_by(0), None);
        for number in 0..CAPACITY as i64 + 3 {
            recent.push(place(number));
        }
        for (offset, expected) in
            [(29, None), (30, Some(3)), (36, Some(3)), (37, Some(4)), (2586, Some(258)), (2587, None)]
        {
            assert_eq!(recent.holding(offset), expected.map(place), "offset {offset}");
        }
        for (position, expected) in [(299, None), (300, Some(3)), (399, Some(3)), (9_999_999, Some(258))] {
            assert_eq!(recent.beginning_by(position), expected.map(place), "position {position}");
        }
    }
}
