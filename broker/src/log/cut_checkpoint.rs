//! `cut-checkpoint`, one a log directory: the last cut that each replica in it has applied
//! (decision 10d). Written after what the cut removed is gone for good, so that a power cut can only
//! make a replica cut again, never make it believe it had.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::ids::{CutId, TopicId, TopicIdPartition};

use super::checkpoint::{Durability, entries_of, read_text, replace_file};
use super::error::LogError;

const CUT_CHECKPOINT: &str = "cut-checkpoint";

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
            for line in entries_of(&path, &text)? {
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
        let mut text = format!("0\n{}\n", changed.len());
        for (id, cut) in &changed {
            text.push_str(&format!("{} {} {cut}\n", id.topic_id, id.partition));
        }
        replace_file(&self.path, text.as_bytes(), Durability::Power)?;
        self.applied = changed;
        Ok(())
    }
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
}
