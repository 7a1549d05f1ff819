//! A file of entries of one size, appended at the end: the common part of offset and time index.
//!
//! Entries gather in memory and reach the file some hundred at a time, with a flush, or when the
//! segment is closed. What a crash takes is rebuilt from the batches, as every index past the
//! recovery point is. Kafka preallocates its index files; these always have their true length, which
//! is what Kafka's have once they are closed.

use std::path::{Path, PathBuf};

use super::disk;
use super::error::LogError;
use super::lazy_file::LazyFile;

/// Written out when this many bytes wait.
const PENDING_BYTES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct IndexFile<const ENTRY: usize> {
    file: LazyFile,
    written: u32,
    pending: Vec<u8>,
}

impl<const ENTRY: usize> IndexFile<ENTRY> {
    /// Takes up an existing file; Err(corrupt) when its length is no multiple of an entry's.
    pub fn open(path: &Path) -> Result<IndexFile<ENTRY>, LogError> {
        let length = match std::fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(LogError::io("stat", path, error)),
        };
        if length % ENTRY as u64 != 0 || length > i32::MAX as u64 {
            return Err(LogError::corrupt(path, format!("{length} bytes are no whole number of entries")));
        }
        Ok(IndexFile {
            file: LazyFile::default(),
            written: (length / ENTRY as u64) as u32,
            pending: Vec::new(),
        })
    }

    pub fn len(&self) -> u32 {
        self.written + (self.pending.len() / ENTRY) as u32
    }

    pub fn push(&mut self, entry: [u8; ENTRY], path: impl FnOnce() -> PathBuf) -> Result<(), LogError> {
        self.pending.extend_from_slice(&entry);
        if self.pending.len() < PENDING_BYTES {
            return Ok(());
        }
        match self.write_out(path) {
            // The batches are there, and entries can be built anew: they wait in memory for space.
            Err(error) if error.is_exhausted() => Ok(()),
            other => other,
        }
    }

    pub fn entry(&self, index: u32, path: impl FnOnce() -> PathBuf) -> Result<[u8; ENTRY], LogError> {
        let mut entry = [0; ENTRY];
        if let Some(waiting) = index.checked_sub(self.written) {
            let start = waiting as usize * ENTRY;
            if let Some(bytes) = self.pending.get(start..start + ENTRY) {
                entry.copy_from_slice(bytes);
            }
            return Ok(entry);
        }
        let path = path();
        let file = self.file.get(|| path.clone())?;
        disk::read_at(&file, &path, &mut entry, u64::from(index) * ENTRY as u64)?;
        Ok(entry)
    }

    /// Number of leading entries for which `holds` is true; `holds` must be monotonic.
    pub fn partition_point(
        &self,
        path: impl Fn() -> PathBuf,
        mut holds: impl FnMut([u8; ENTRY]) -> bool,
    ) -> Result<u32, LogError> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(self.entry(middle, &path)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Entries in memory go to the file, which exists afterwards.
    pub fn write_out(&mut self, path: impl FnOnce() -> PathBuf) -> Result<(), LogError> {
        let path = path();
        let file = self.file.get(|| path.clone())?;
        if !self.pending.is_empty() {
            disk::write_at(&file, &path, &self.pending, u64::from(self.written) * ENTRY as u64)?;
            self.written += (self.pending.len() / ENTRY) as u32;
            self.pending = Vec::new();
        }
        Ok(())
    }

    pub fn truncate(&mut self, entries: u32, path: impl FnOnce() -> PathBuf) -> Result<(), LogError> {
        if entries >= self.len() {
            return Ok(());
        }
        if entries >= self.written {
            self.pending.truncate((entries - self.written) as usize * ENTRY);
            return Ok(());
        }
        self.pending = Vec::new();
        let path = path();
        let file = self.file.get(|| path.clone())?;
        disk::set_length(&file, &path, u64::from(entries) * ENTRY as u64)?;
        self.written = entries;
        Ok(())
    }

    pub fn file(&self) -> &LazyFile {
        &self.file
    }
}
