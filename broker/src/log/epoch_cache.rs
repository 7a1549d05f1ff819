//! Where each leader epoch begins in a log (KIP-101), kept in `leader-epoch-checkpoint`.
//!
//! The file is written with each flush, before the recovery point moves, and at once after a
//! truncation; what is younger than the recovery point comes back from the batches themselves.

use std::path::Path;

use common::ids::{LeaderEpoch, Offset};

use super::checkpoint::{Durability, entries_of, read_text, replace_file};
use super::disk;
use super::error::LogError;

pub(crate) const EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";

/// Epochs and start offsets, both strictly ascending.
#[derive(Debug, Default)]
pub struct EpochCache {
    entries: Vec<(LeaderEpoch, Offset)>,
    dirty: bool,
}

impl EpochCache {
    /// None: there is no file.
    pub(crate) fn load(log_directory: &Path) -> Result<Option<EpochCache>, LogError> {
        let path = log_directory.join(EPOCH_CHECKPOINT);
        let Some(text) = read_text(&path)? else { return Ok(None) };
        let mut cache = EpochCache::default();
        for line in entries_of(&path, &text)? {
            let entry = line.split_once(' ').and_then(|(epoch, start)| {
                Some((LeaderEpoch(epoch.parse().ok()?), Offset(start.parse().ok()?)))
            });
            let Some((epoch, start)) = entry else {
                return Err(LogError::corrupt(&path, format!("malformed entry `{line}`")));
            };
            if cache.entries.last().is_some_and(|last| last.0 >= epoch || last.1 > start) || epoch.0 < 0 {
                return Err(LogError::corrupt(&path, "epochs do not ascend"));
            }
            cache.entries.push((epoch, start));
        }
        Ok(Some(cache))
    }

    /// Writes the file if anything changed since.
    pub(crate) fn save(&mut self, log_directory: &Path, durability: Durability) -> Result<(), LogError> {
        if !self.dirty {
            return Ok(());
        }
        let mut text = format!("0\n{}\n", self.entries.len());
        for (epoch, start) in &self.entries {
            text.push_str(&format!("{epoch} {start}\n"));
        }
        let path = log_directory.join(EPOCH_CHECKPOINT);
        // A leader that wrote nothing leaves the epochs as they were, and thousands of such logs stop together.
        if durability == Durability::Process
            && read_text(&path)
                .is_ok_and(|there| there.map_or(self.entries.is_empty(), |there| there == text))
        {
            // Where there is no file the batches tell, and nothing is what they tell then.
            return Ok(());
        }
        replace_file(&path, text.as_bytes(), durability)?;
        // After a write that a power cut may lose, the next flush has to write again.
        self.dirty = durability == Durability::Process;
        Ok(())
    }

    /// Until the next `save` an opening log has to take its epochs from the batches.
    pub fn remove_file(log_directory: &Path) -> Result<(), LogError> {
        disk::remove(&log_directory.join(EPOCH_CHECKPOINT))
    }

    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|entry| entry.0)
    }

    /// The epoch under which `offset` was written.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.1 <= offset);
        after.checked_sub(1).and_then(|index| self.entries.get(index)).map(|entry| entry.0)
    }

    /// `epoch` begins at `start`, if it does not stand there yet. Entries that contradict it are dropped:
    /// they can only stem from an epoch without a batch, or from before a truncation.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) {
        if epoch.0 < 0 || self.latest() == Some(epoch) {
            return;
        }
        while self.entries.last().is_some_and(|last| last.0 > epoch || last.1 >= start) {
            self.entries.pop();
        }
        if self.latest() != Some(epoch) {
            self.entries.push((epoch, start));
        }
        self.dirty = true;
    }

    /// Kafka's answer to OffsetForLeaderEpoch: the largest known epoch at or below the asked one and
    /// its end; None (UNDEFINED) when the asked epoch is above every known one.
    pub fn end_offset_for(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
        if epoch.0 < 0 {
            return None;
        }
        if self.latest() == Some(epoch) {
            return Some((epoch, log_end));
        }
        let higher = self.entries.partition_point(|entry| entry.0 <= epoch);
        let end = self.entries.get(higher)?.1;
        // All the epochs up to the asked one are gone from the log: whoever asks begins at our start.
        let floor =
            higher.checked_sub(1).and_then(|index| self.entries.get(index)).map_or(epoch, |entry| entry.0);
        Some((floor, end))
    }

    /// As on a mirror partition (decision 8), where nothing is ever undefined.
    pub fn mirrored_end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_start: Offset,
        log_end: Offset,
    ) -> (LeaderEpoch, Offset) {
        match self.latest() {
            None => (LeaderEpoch::UNKNOWN, log_start),
            Some(latest) => self.end_offset_for(epoch, log_end).unwrap_or((latest, log_end)),
        }
    }

    /// Drops the epochs that begin at or above `end`.
    pub fn truncate_from_end(&mut self, end: Offset) {
        let keep = self.entries.partition_point(|entry| entry.1 < end);
        if keep < self.entries.len() {
            self.entries.truncate(keep);
            self.dirty = true;
        }
    }

    /// The log starts at `start`: the epoch there begins with it, older ones are gone.
    pub fn truncate_from_start(&mut self, start: Offset) {
        let after = self.entries.partition_point(|entry| entry.1 <= start);
        let Some(kept) = after.checked_sub(1) else { return };
        self.entries.drain(..kept);
        if let Some(first) = self.entries.first_mut()
            && (kept > 0 || first.1 != start)
        {
            first.1 = start;
            self.dirty = true;
        }
    }

    pub fn clear(&mut self) {
        self.dirty |= !self.entries.is_empty();
        self.entries.clear();
    }

    /// The cache of a log with the same batches.
    pub fn take_over(&mut self, other: &EpochCache) {
        self.entries.clone_from(&other.entries);
        self.dirty = true;
    }

    #[cfg(test)]
    pub fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        let mut cache = EpochCache::default();
        for (epoch, start) in entries {
            cache.assign(LeaderEpoch(*epoch), Offset(*start));
        }
        cache
    }

    fn entries(cache: &EpochCache) -> Vec<(i32, i64)> {
        cache.entries().iter().map(|(epoch, start)| (epoch.0, start.0)).collect()
    }

    #[test]
    fn end_offsets_of_epochs() {
        let known = cache(&[(2, 10), (4, 20), (7, 30)]);
        for (asked, expected) in [
            (-1, None),
            (0, Some((0, 10))), // below all: begin at our start
            (1, Some((1, 10))),
            (2, Some((2, 20))),
            (3, Some((2, 20))),
            (4, Some((4, 30))),
            (6, Some((4, 30))),
            (7, Some((7, 44))),
            (8, None),
        ] {
            let answer = known.end_offset_for(LeaderEpoch(asked), Offset(44));
            assert_eq!(answer.map(|(epoch, end)| (epoch.0, end.0)), expected, "asked {asked}");
        }
        assert_eq!(cache(&[]).end_offset_for(LeaderEpoch(0), Offset(44)), None);
    }

    #[test]
    fn mirrored_end_offsets_are_never_undefined() {
        let known = cache(&[(2, 10), (4, 20)]);
        let answer = |cache: &EpochCache, asked| {
            let (epoch, end) = cache.mirrored_end_offset_for(LeaderEpoch(asked), Offset(5), Offset(44));
            (epoch.0, end.0)
        };
        assert_eq!(answer(&known, 9), (4, 44));
        assert_eq!(answer(&known, 4), (4, 44));
        assert_eq!(answer(&known, 3), (2, 20));
        assert_eq!(answer(&cache(&[]), 9), (-1, 5));
    }

    #[test]
    fn assigning_drops_what_contradicts() {
        for (before, epoch, start, after) in [
            (vec![], 3, 5, vec![(3, 5)]),
            (vec![(3, 5)], 3, 9, vec![(3, 5)]),
            (vec![(3, 5)], 4, 9, vec![(3, 5), (4, 9)]),
            (vec![(3, 5), (4, 9)], 5, 9, vec![(3, 5), (5, 9)]), // 4 had no batch
            (vec![(3, 5), (6, 9)], 4, 12, vec![(3, 5), (4, 12)]),
            (vec![(3, 5), (6, 9)], 3, 12, vec![(3, 5)]),
            (vec![(3, 5)], -1, 9, vec![(3, 5)]),
        ] {
            let mut cache = cache(&before);
            cache.assign(LeaderEpoch(epoch), Offset(start));
            assert_eq!(entries(&cache), after, "{before:?} + ({epoch}, {start})");
        }
    }

    #[test]
    fn truncation_at_both_ends() {
        let known = [(2, 10), (4, 20), (7, 30)];
        for (end, expected) in [(35, 3), (30, 2), (21, 2), (20, 1), (10, 0), (0, 0)] {
            let mut cache = cache(&known);
            cache.truncate_from_end(Offset(end));
            assert_eq!(entries(&cache), known[..expected], "end {end}");
        }
        for (start, expected) in [
            (5, vec![(2, 10), (4, 20), (7, 30)]),
            (10, vec![(2, 10), (4, 20), (7, 30)]),
            (15, vec![(2, 15), (4, 20), (7, 30)]),
            (20, vec![(4, 20), (7, 30)]),
            (99, vec![(7, 99)]),
        ] {
            let mut cache = cache(&known);
            cache.truncate_from_start(Offset(start));
            assert_eq!(entries(&cache), expected, "start {start}");
        }
    }

    #[test]
    fn what_stands_there_is_not_written_again() {
        use std::os::unix::fs::MetadataExt;

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(EPOCH_CHECKPOINT);
        let file = || std::fs::metadata(&path).unwrap().ino();
        let mut known = cache(&[(3, 0)]);
        known.save(directory.path(), Durability::Power).unwrap();
        let first = file();
        known.assign(LeaderEpoch(4), Offset(9));
        known.truncate_from_end(Offset(9));
        known.save(directory.path(), Durability::Process).unwrap();
        assert_eq!(file(), first);
        // Whether what stands there is on disk is not known.
        known.save(directory.path(), Durability::Power).unwrap();
        assert_ne!(file(), first);
        known.assign(LeaderEpoch(5), Offset(9));
        known.save(directory.path(), Durability::Process).unwrap();
        assert_eq!(entries(&EpochCache::load(directory.path()).unwrap().unwrap()), [(3, 0), (5, 9)]);
    }

    #[test]
    fn the_file_has_kafkas_form_and_damage_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let mut known = cache(&[(0, 0), (4, 20)]);
        known.save(directory.path(), Durability::Power).unwrap();
        let path = directory.path().join(EPOCH_CHECKPOINT);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n2\n0 0\n4 20\n");
        assert_eq!(entries(&EpochCache::load(directory.path()).unwrap().unwrap()), [(0, 0), (4, 20)]);
        for damaged in ["0\n2\n4 20\n0 0\n", "0\n1\nx 20\n", "0\n2\n0 0\n"] {
            std::fs::write(&path, damaged).unwrap();
            assert!(EpochCache::load(directory.path()).is_err(), "{damaged:?}");
        }
    }
}
