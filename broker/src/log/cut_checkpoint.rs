//! `cut-checkpoint`, one a log directory: the last cut that each replica in it has applied
//! (decision 10d). Written after what the cut removed is gone for good, so that a power cut can only
//! make a replica cut again, never make it believe it had.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::ids::{CutId, TopicId, TopicIdPartition};

use super::checkpoint::{Durability, counted_entries, entries_of, read_text, replace_file};
use super::error::LogError;

const CUT_CHECKPOINT: &str = "cut-checkpoint";
/// A line with the version, one with the CRC-32C of what follows, one with the number of entries, one line an
/// entry. Version 0, without the CRC, is read as well. A wrong id would have a replica cut again or not at all.
const VERSION: &str = "1";

#[derive(Debug)]
pub(crate) struct CutCheckpoint {
    path: PathBuf,
    applied: BTreeMap<TopicIdPartition, CutId>,
}

impl CutCheckpoint {
    pub fn load(log_dir: &Path) -> Result<CutCheckpoint, LogError> {
        let path = log_dir.join(CUT_CHECKPOINT);
        let mut applied = BTreeMap::new();
        if let Some(text) = read_text(&path)? {
            for line in entries(&path, &text)? {
                let mut words = line.split(' ');
                let entry = (|| {
                    let topic_id = TopicId::parse(words.next()?)?;
                    let partition = words.next()?.parse().ok()?;
                    let cut = CutId(words.next()?.parse().ok()?);
                    words.next().is_none().then_some((TopicIdPartition::new(topic_id, partition), cut))
                })();
                let Some((id, cut)) = entry else {
                    return Err(LogError::corrupt(&path, format!("malformed entry `{line}`")));
                };
                applied.insert(id, cut);
            }
        }
        Ok(CutCheckpoint { path, applied })
    }

    pub fn empty(log_dir: &Path) -> CutCheckpoint {
        CutCheckpoint { path: log_dir.join(CUT_CHECKPOINT), applied: BTreeMap::new() }
    }

    pub fn get(&self, id: TopicIdPartition) -> Option<CutId> {
        self.applied.get(&id).copied()
    }

    /// Notes all at once, durably. An id below the noted one changes nothing.
    pub fn note(
        &mut self,
        cuts: impl IntoIterator<Item = (TopicIdPartition, CutId)>,
    ) -> Result<(), LogError> {
        let mut changed = self.applied.clone();
        for (id, cut) in cuts {
            let noted = changed.entry(id).or_insert(cut);
            *noted = (*noted).max(cut);
        }
        self.replace(changed)
    }

    /// The replica is gone; one that comes back under the same id has applied nothing.
    pub fn forget(&mut self, id: TopicIdPartition) -> Result<(), LogError> {
        let mut changed = self.applied.clone();
        changed.remove(&id);
        self.replace(changed)
    }

    fn replace(&mut self, changed: BTreeMap<TopicIdPartition, CutId>) -> Result<(), LogError> {
        if changed == self.applied {
            return Ok(());
        }
        let mut counted = format!("{}\n", changed.len());
        for (id, cut) in &changed {
            counted.push_str(&format!("{} {} {cut}\n", id.topic_id, id.partition));
        }
        let text = format!("{VERSION}\n{:08x}\n{counted}", crc_fast::crc32_iscsi(counted.as_bytes()));
        replace_file(&self.path, text.as_bytes(), Durability::Power)?;
        self.applied = changed;
        Ok(())
    }
}

/// The lines of either version, checked.
fn entries<'a>(path: &Path, text: &'a str) -> Result<Vec<&'a str>, LogError> {
    let Some(summed) = text.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix('\n')) else {
        return entries_of(path, text);
    };
    let (crc, counted) = summed.split_once('\n').unwrap_or((summed, ""));
    if u32::from_str_radix(crc, 16) != Ok(crc_fast::crc32_iscsi(counted.as_bytes())) {
        return Err(LogError::corrupt(path, "its CRC is another"));
    }
    counted_entries(path, counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_noted_forgotten_and_never_go_back() {
        let directory = tempfile::tempdir().unwrap();
        let id =
            |partition| TopicIdPartition::new(TopicId::parse("-_v7-_v7-_v7-_v7-_v7-w").unwrap(), partition);
        let mut checkpoint = CutCheckpoint::load(directory.path()).unwrap();
        assert_eq!(checkpoint.get(id(0)), None);
        checkpoint.note([(id(0), CutId(5)), (id(1), CutId(6))]).unwrap();
        checkpoint.note([(id(0), CutId(4))]).unwrap();
        let mut checkpoint = CutCheckpoint::load(directory.path()).unwrap();
        assert_eq!((checkpoint.get(id(0)), checkpoint.get(id(1))), (Some(CutId(5)), Some(CutId(6))));
        checkpoint.forget(id(0)).unwrap();
        let checkpoint = CutCheckpoint::load(directory.path()).unwrap();
        assert_eq!((checkpoint.get(id(0)), checkpoint.get(id(1))), (None, Some(CutId(6))));
        std::fs::write(directory.path().join(CUT_CHECKPOINT), "0\n1\nnonsense\n").unwrap();
        assert!(CutCheckpoint::load(directory.path()).is_err());
    }

    #[test]
    fn d03_no_flipped_bit_passes_and_the_version_without_a_crc_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(CUT_CHECKPOINT);
        let id = TopicIdPartition::new(TopicId::parse("-_v7-_v7-_v7-_v7-_v7-w").unwrap(), 3);
        std::fs::write(&path, "0\n1\n-_v7-_v7-_v7-_v7-_v7-w 3 41\n").unwrap();
        let mut checkpoint = CutCheckpoint::load(directory.path()).unwrap();
        assert_eq!(checkpoint.get(id), Some(CutId(41)));
        checkpoint.note([(id, CutId(77))]).unwrap();
        let intact = std::fs::read(&path).unwrap();
        assert!(intact.starts_with(b"1\n"));
        for bit in 0..intact.len() * 8 {
            let mut damaged = intact.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &damaged).unwrap();
            match CutCheckpoint::load(directory.path()) {
                Err(LogError::Corrupt { .. }) => {}
                // A capital letter in the CRC is the same number.
                Ok(checkpoint) if checkpoint.get(id) == Some(CutId(77)) => {}
                other => panic!("bit {bit}: {other:?}"),
            }
        }
        for length in 0..intact.len() {
            std::fs::write(&path, &intact[..length]).unwrap();
            assert!(CutCheckpoint::load(directory.path()).is_err(), "{length} bytes");
        }
    }
}
