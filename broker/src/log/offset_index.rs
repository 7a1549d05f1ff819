//! `.index`: for some batches their last offset, relative to the segment's base, and their position.
//! Eight bytes an entry, big endian, as Kafka's.

use std::path::{Path, PathBuf};

use super::error::LogError;
use super::index_file::IndexFile;
use super::lazy_file::LazyFile;

const ENTRY_BYTES: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct OffsetIndex {
    file: IndexFile<ENTRY_BYTES>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    pub relative_offset: u32,
    pub position: u32,
}

impl OffsetIndex {
    pub fn open(path: &Path) -> Result<OffsetIndex, LogError> {
        Ok(OffsetIndex { file: IndexFile::open(path)? })
    }

    pub fn len(&self) -> u32 {
        self.file.len()
    }

    pub fn push(&mut self, entry: OffsetEntry, path: impl FnOnce() -> PathBuf) -> Result<(), LogError> {
        self.file.push(encode(entry), path)
    }

    pub fn last(&self, path: impl FnOnce() -> PathBuf) -> Result<Option<OffsetEntry>, LogError> {
        match self.len().checked_sub(1) {
            None => Ok(None),
            Some(index) => self.file.entry(index, path).map(|bytes| Some(decode(bytes))),
        }
    }

    /// The last entry at or below `relative_offset`.
    pub fn floor_offset(
        &self,
        relative_offset: u32,
        path: impl Fn() -> PathBuf,
    ) -> Result<Option<OffsetEntry>, LogError> {
        self.last_that(path, |entry| entry.relative_offset <= relative_offset)
    }

    /// The last entry whose batch begins at or below `position`.
    pub fn floor_position(
        &self,
        position: u64,
        path: impl Fn() -> PathBuf,
    ) -> Result<Option<OffsetEntry>, LogError> {
        self.last_that(path, |entry| u64::from(entry.position) <= position)
    }

    fn last_that(
        &self,
        path: impl Fn() -> PathBuf,
        holds: impl Fn(OffsetEntry) -> bool,
    ) -> Result<Option<OffsetEntry>, LogError> {
        let after = self.file.partition_point(&path, |bytes| holds(decode(bytes)))?;
        match after.checked_sub(1) {
            None => Ok(None),
            Some(index) => self.file.entry(index, path).map(|bytes| Some(decode(bytes))),
        }
    }

    /// Keeps the entries whose batches begin below `position`.
    pub fn truncate_to_position(
        &mut self,
        position: u64,
        path: impl Fn() -> PathBuf,
    ) -> Result<(), LogError> {
        let keep = self.file.partition_point(&path, |bytes| u64::from(decode(bytes).position) < position)?;
        self.file.truncate(keep, path)
    }

    pub fn clear(&mut self, path: impl FnOnce() -> PathBuf) -> Result<(), LogError> {
        self.file.truncate(0, path)
    }

    pub fn write_out(&mut self, path: impl FnOnce() -> PathBuf) -> Result<(), LogError> {
        self.file.write_out(path)
    }

    pub fn file(&self) -> &LazyFile {
        self.file.file()
    }
}

fn encode(entry: OffsetEntry) -> [u8; ENTRY_BYTES] {
    let joined = u64::from(entry.relative_offset) << 32 | u64::from(entry.position);
    joined.to_be_bytes()
}

fn decode(bytes: [u8; ENTRY_BYTES]) -> OffsetEntry {
    let joined = u64::from_be_bytes(bytes);
    OffsetEntry { relative_offset: (joined >> 32) as u32, position: joined as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_agree_with_a_plain_list_across_memory_and_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("00000000000000000000.index");
        let mut index = OffsetIndex::open(&path).unwrap();
        let entries: Vec<OffsetEntry> =
            (0..1300).map(|n| OffsetEntry { relative_offset: 3 * n + 2, position: 5000 * n }).collect();
        for entry in &entries {
            index.push(*entry, || path.clone()).unwrap();
        }
        assert!(std::fs::metadata(&path).unwrap().len() >= 8 * 1024, "most entries are in the file");
        let check = |index: &OffsetIndex| {
            for offset in [0, 1, 2, 3, 4, 5, 1700, 3898, 3899, 3900, 9999] {
                let expected = entries.iter().rfind(|entry| entry.relative_offset <= offset).copied();
                assert_eq!(index.floor_offset(offset, || path.clone()).unwrap(), expected, "offset {offset}");
            }
            for position in [0, 4999, 5000, 5001, 1299 * 5000, u64::MAX] {
                let expected = entries.iter().rfind(|entry| u64::from(entry.position) <= position).copied();
                assert_eq!(index.floor_position(position, || path.clone()).unwrap(), expected);
            }
        };
        check(&index);
        index.write_out(|| path.clone()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1300 * 8);
        check(&OffsetIndex::open(&path).unwrap());
        for keep in [1290, 700, 0] {
            index.truncate_to_position(5000 * keep, || path.clone()).unwrap();
            assert_eq!(u64::from(index.len()), keep);
            let last = (keep as usize).checked_sub(1).map(|last| entries[last]);
            assert_eq!(index.last(|| path.clone()).unwrap(), last);
        }
    }

    #[test]
    fn a_torn_file_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("00000000000000000000.index");
        std::fs::write(&path, [0; 13]).unwrap();
        assert!(OffsetIndex::open(&path).is_err());
    }
}
