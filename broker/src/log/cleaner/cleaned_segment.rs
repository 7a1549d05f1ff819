//! A segment while the cleaner writes it: the four files under their names with `.cleaned` behind.
//! Until they are renamed nothing refers to them, and a start sweeps them away.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use protocol::record_batch::BatchHeader;

use super::replace::{CLEANED, suffixed};
use crate::log::disk;
use crate::log::error::LogError;
use crate::log::offset_index::{OffsetEntry, OffsetIndex};
use crate::log::segment::{
    LOG, MAX_RELATIVE, MaxTimestamp, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, segment_path,
};
use crate::log::time_index::{TimeEntry, TimeIndex};
use crate::log::transaction_index::{AbortedTransaction, TransactionIndex};

pub(crate) struct CleanedSegment {
    directory: PathBuf,
    base_offset: i64,
    file: File,
    size_bytes: u64,
    offsets: OffsetIndex,
    times: TimeIndex,
    transactions: TransactionIndex,
    max_timestamp: Option<MaxTimestamp>,
    bytes_since_entry: u64,
    index_interval_bytes: u64,
}

impl CleanedSegment {
    pub fn create(
        directory: &Path,
        base_offset: i64,
        index_interval_bytes: u32,
    ) -> Result<CleanedSegment, LogError> {
        remove_cleaned(directory, base_offset)?;
        let path = cleaned_path(directory, base_offset, LOG);
        let file = disk::open(&path)?;
        Ok(CleanedSegment {
            directory: directory.to_path_buf(),
            base_offset,
            file,
            size_bytes: 0,
            offsets: OffsetIndex::default(),
            times: TimeIndex::default(),
            transactions: TransactionIndex::default(),
            max_timestamp: None,
            bytes_since_entry: 0,
            index_interval_bytes: u64::from(index_interval_bytes),
        })
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn path(&self, extension: &str) -> PathBuf {
        cleaned_path(&self.directory, self.base_offset, extension)
    }

    /// Writes whole batches behind what is there.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        if bytes.is_empty() {
            return Ok(());
        }
        disk::write_at(&self.file, &self.path(LOG), bytes, self.size_bytes)?;
        for batch in protocol::record_batch::batches(bytes) {
            let batch = batch.map_err(|error| LogError::corrupt(&self.path(LOG), error.to_string()))?;
            self.note_batch(&batch.header)?;
        }
        Ok(())
    }

    /// The same entries as a segment gets that is appended to.
    fn note_batch(&mut self, header: &BatchHeader) -> Result<(), LogError> {
        if self.max_timestamp.is_none_or(|max| header.max_timestamp > max.timestamp_ms) {
            self.max_timestamp =
                Some(MaxTimestamp { timestamp_ms: header.max_timestamp, offset: header.last_offset() });
        }
        if self.bytes_since_entry > self.index_interval_bytes {
            let relative_offset = self.relative(header.last_offset());
            let position = self.size_bytes.min(MAX_RELATIVE as u64) as u32;
            let path = self.path(OFFSET_INDEX);
            self.offsets.push(OffsetEntry { relative_offset, position }, || path)?;
            self.push_time()?;
            self.bytes_since_entry = 0;
        }
        self.size_bytes += header.size_bytes() as u64;
        self.bytes_since_entry += header.size_bytes() as u64;
        Ok(())
    }

    fn relative(&self, offset: i64) -> u32 {
        (offset - self.base_offset).clamp(0, MAX_RELATIVE) as u32
    }

    fn push_time(&mut self) -> Result<(), LogError> {
        let Some(max) = self.max_timestamp else { return Ok(()) };
        let entry = TimeEntry { timestamp_ms: max.timestamp_ms, relative_offset: self.relative(max.offset) };
        let path = self.path(TIME_INDEX);
        self.times.push(entry, || path.clone())
    }

    pub fn push_aborted(&mut self, aborted: AbortedTransaction) -> Result<(), LogError> {
        let path = self.path(TRANSACTION_INDEX);
        self.transactions.push(&path, aborted)
    }

    /// Completes the indexes and makes all files durable; the log keeps the age of what it replaces.
    pub fn finish(mut self, modified: SystemTime) -> Result<(), LogError> {
        self.push_time()?;
        let (offsets, times) = (self.path(OFFSET_INDEX), self.path(TIME_INDEX));
        self.offsets.write_out(|| offsets.clone())?;
        self.times.write_out(|| times.clone())?;
        for path in [&offsets, &times] {
            let file = File::open(path).map_err(|error| LogError::io("open", path, error))?;
            disk::sync(&file, path)?;
        }
        self.transactions.sync(&self.path(TRANSACTION_INDEX))?;
        let path = self.path(LOG);
        self.file.set_modified(modified).map_err(|error| LogError::io("touch", &path, error))?;
        disk::sync(&self.file, &path)
    }
}

fn cleaned_path(directory: &Path, base_offset: i64, extension: &str) -> PathBuf {
    suffixed(&segment_path(directory, base_offset, extension), CLEANED)
}

/// What an earlier attempt left behind.
pub(crate) fn remove_cleaned(directory: &Path, base_offset: i64) -> Result<(), LogError> {
    for extension in [LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX] {
        disk::remove(&cleaned_path(directory, base_offset, extension))?;
    }
    Ok(())
}

/// When the file was last written, as Kafka keeps it through cleaning.
pub(crate) fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}
