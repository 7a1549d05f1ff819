//! `.timeindex`: the highest timestamp so far and the last offset of its batch, relative to the
//! segment's base. Twelve bytes an entry, big endian, both strictly or weakly ascending, as Kafka's.

use std::path::{Path, PathBuf};

use super::error::LogError;
use super::index_file::IndexFile;
use super::lazy_file::LazyFile;

const ENTRY_BYTES: usize = 12;

#[derive(Debug, Default)]
pub(crate) struct TimeIndex {
    file: IndexFile<ENTRY_BYTES>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub timestamp_ms: i64,
    pub relative_offset: u32,
}

impl TimeIndex {
    pub fn open(path: &Path) -> Result<TimeIndex, LogError> {
        Ok(TimeIndex { file: IndexFile::open(path)? })
    }

    pub fn len(&self) -> u32 {
        self.file.len()
    }

    /// Appends unless the timestamp is not above the last one's.
    pub fn push(&mut self, entry: TimeEntry, path: impl Fn() -> PathBuf) -> Result<(), LogError> {
        match self.last(&path)? {
            Some(last) if entry.timestamp_ms <= last.timestamp_ms => Ok(()),
            _ => self.file.push(encode(entry), path),
        }
    }

    pub fn last(&self, path: impl FnOnce() -> PathBuf) -> Result<Option<TimeEntry>, LogError> {
        match self.len().checked_sub(1) {
            None => Ok(None),
            Some(index) => self.file.entry(index, path).map(|bytes| Some(decode(bytes))),
        }
    }

    /// The last entry below `timestamp_ms`: no batch up to its offset reaches the timestamp.
    pub fn last_below(
        &self,
        timestamp_ms: i64,
        path: impl Fn() -> PathBuf,
    ) -> Result<Option<TimeEntry>, LogError> {
        let after = self.file.partition_point(&path, |bytes| decode(bytes).timestamp_ms < timestamp_ms)?;
        match after.checked_sub(1) {
            None => Ok(None),
            Some(index) => self.file.entry(index, path).map(|bytes| Some(decode(bytes))),
        }
    }

    /// Keeps the entries below `relative_offset`.
    pub fn truncate_to(&mut self, relative_offset: u32, path: impl Fn() -> PathBuf) -> Result<(), LogError> {
        let keep =
            self.file.partition_point(&path, |bytes| decode(bytes).relative_offset < relative_offset)?;
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

fn encode(entry: TimeEntry) -> [u8; ENTRY_BYTES] {
    let joined = (entry.timestamp_ms as u64 as u128) << 32 | u128::from(entry.relative_offset);
    let mut bytes = [0; ENTRY_BYTES];
    bytes.copy_from_slice(&joined.to_be_bytes()[4..]);
    bytes
}

fn decode(bytes: [u8; ENTRY_BYTES]) -> TimeEntry {
    let joined = bytes.iter().fold(0_u128, |joined, byte| joined << 8 | u128::from(*byte));
    TimeEntry { timestamp_ms: (joined >> 32) as u64 as i64, relative_offset: joined as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_ascend_and_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("00000000000000000000.timeindex");
        let mut index = TimeIndex::open(&path).unwrap();
        for (timestamp_ms, relative_offset) in [(100, 4), (100, 9), (90, 12), (250, 20), (i64::MAX, 30)] {
            index.push(TimeEntry { timestamp_ms, relative_offset }, || path.clone()).unwrap();
        }
        index.write_out(|| path.clone()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[..12], [0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 4]);
        let mut index = TimeIndex::open(&path).unwrap();
        assert_eq!(index.len(), 3);
        let below = |timestamp| {
            index.last_below(timestamp, || path.clone()).unwrap().map(|entry| entry.relative_offset)
        };
        assert_eq!([below(100), below(101), below(250), below(i64::MAX)], [None, Some(4), Some(4), Some(20)]);
        index.truncate_to(20, || path.clone()).unwrap();
        assert_eq!(
            index.last(|| path.clone()).unwrap(),
            Some(TimeEntry { timestamp_ms: 100, relative_offset: 4 })
        );
    }
}
