//! `.txnindex`: the aborted transactions whose marker lies in a segment, in the order of their markers.
//! Readers of committed data drop their batches. The file exists only where something was aborted.

use std::fs;
use std::io;
use std::path::Path;

use common::ids::{Offset, ProducerId};

use super::disk;
use super::error::LogError;

/// Version, producer id, first, last and last stable offset.
const ENTRY_BYTES: usize = 2 + 8 + 8 + 8 + 8;
const VERSION: i16 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// Of the marker.
    pub last_offset: Offset,
    /// Below it every transaction was decided when the marker was written.
    pub last_stable_offset: Offset,
}

/// A segment's entries; only their number is kept in memory.
#[derive(Debug, Default)]
pub(crate) struct TransactionIndex {
    entries: u32,
}

impl TransactionIndex {
    pub fn open(path: &Path) -> Result<TransactionIndex, LogError> {
        let length = match fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(LogError::io("stat", path, error)),
        };
        if length % ENTRY_BYTES as u64 != 0 {
            return Err(LogError::corrupt(path, format!("{length} bytes are no whole number of entries")));
        }
        Ok(TransactionIndex { entries: (length / ENTRY_BYTES as u64) as u32 })
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Aborts are rare: the file is opened, written and closed.
    pub fn push(&mut self, path: &Path, aborted: AbortedTransaction) -> Result<(), LogError> {
        let file = disk::open(path)?;
        disk::write_at(&file, path, &encode(aborted), u64::from(self.entries) * ENTRY_BYTES as u64)?;
        self.entries += 1;
        Ok(())
    }

    pub fn read(&self, path: &Path) -> Result<Vec<AbortedTransaction>, LogError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = disk::read_file(path)?.unwrap_or_default();
        if bytes.len() < self.entries as usize * ENTRY_BYTES {
            return Err(LogError::corrupt(path, "entries are missing"));
        }
        let mut entries = Vec::with_capacity(self.entries as usize);
        for entry in bytes.chunks_exact(ENTRY_BYTES) {
            entries.push(decode(entry).ok_or_else(|| LogError::corrupt(path, "unknown entry version"))?);
        }
        Ok(entries)
    }

    /// Keeps the transactions whose marker lies below `end`.
    pub fn truncate_to(&mut self, path: &Path, end: Offset) -> Result<(), LogError> {
        if self.is_empty() {
            return Ok(());
        }
        let keep = self.read(path)?.iter().take_while(|aborted| aborted.last_offset < end).count();
        disk::set_length(&disk::open(path)?, path, (keep * ENTRY_BYTES) as u64)?;
        self.entries = keep as u32;
        Ok(())
    }

    pub fn clear(&mut self, path: &Path) -> Result<(), LogError> {
        disk::remove(path)?;
        self.entries = 0;
        Ok(())
    }

    pub fn sync(&self, path: &Path) -> Result<(), LogError> {
        if self.is_empty() {
            return Ok(());
        }
        disk::sync(&disk::open(path)?, path)
    }
}

fn encode(aborted: AbortedTransaction) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
    let fields =
        [aborted.producer_id.0, aborted.first_offset.0, aborted.last_offset.0, aborted.last_stable_offset.0];
    for (place, field) in bytes[2..].chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_be_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<AbortedTransaction> {
    let (version, fields) = bytes.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) != VERSION {
        return None;
    }
    let mut fields = fields
        .chunks_exact(8)
        .map(|field| field.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)) as i64);
    Some(AbortedTransaction {
        producer_id: ProducerId(fields.next()?),
        first_offset: Offset(fields.next()?),
        last_offset: Offset(fields.next()?),
        last_stable_offset: Offset(fields.next()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aborted(producer_id: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer_id),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    #[test]
    fn entries_survive_reopening_and_are_cut_by_marker() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("00000000000000000000.txnindex");
        let mut index = TransactionIndex::open(&path).unwrap();
        assert!(index.read(&path).unwrap().is_empty());
        let all = [aborted(1 << 40, 3, 9, 4), aborted(7, 4, 12, 13), aborted(8, 20, 21, 22)];
        for entry in all {
            index.push(&path, entry).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 3 * 34);
        assert_eq!(&std::fs::read(&path).unwrap()[..10], &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        let mut index = TransactionIndex::open(&path).unwrap();
        assert_eq!(index.read(&path).unwrap(), all);
        index.truncate_to(&path, Offset(12)).unwrap();
        assert_eq!(TransactionIndex::open(&path).unwrap().read(&path).unwrap(), all[..1]);
        index.push(&path, all[2]).unwrap();
        assert_eq!(index.read(&path).unwrap(), [all[0], all[2]]);
        index.clear(&path).unwrap();
        assert!(!path.exists() && index.is_empty());
    }
}
