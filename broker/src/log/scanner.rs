//! Batches of a segment file one after the other, by their headers.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::record_batch::{Batch, BatchError, BatchHeader, HEADER_BYTES, read_end_txn_marker};

use super::disk;
use super::error::LogError;
use super::producer_state::BatchContent;

/// To look for one batch near an index entry.
pub(crate) const LOOKUP_BYTES: usize = 512;
/// To go through a whole segment.
pub(crate) const SWEEP_BYTES: usize = 64 * 1024;

/// Reads headers ahead in steps of `buffer_bytes`; bodies are skipped.
#[derive(Debug)]
pub(crate) struct HeaderScanner {
    file: Arc<File>,
    path: PathBuf,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_start: u64,
    buffer_bytes: usize,
}

impl HeaderScanner {
    pub fn new(
        file: Arc<File>,
        path: PathBuf,
        position: u64,
        end: u64,
        buffer_bytes: usize,
    ) -> HeaderScanner {
        HeaderScanner { file, path, position, end, buffer: Vec::new(), buffer_start: position, buffer_bytes }
    }

    /// The next batch's position and header. What is no batch, or not all of one, is an error.
    pub fn next(&mut self) -> Result<Option<(u64, BatchHeader)>, LogError> {
        let position = self.position;
        let left = self.end.saturating_sub(position);
        if left == 0 {
            return Ok(None);
        }
        let corrupt = |path: &PathBuf, reason: &dyn std::fmt::Display| {
            LogError::corrupt(path, format!("at byte {position}: {reason}"))
        };
        if left < HEADER_BYTES as u64 {
            return Err(corrupt(&self.path, &"cut-off batch header"));
        }
        let header =
            BatchHeader::parse(self.header_bytes(position)?).map_err(|error| corrupt(&self.path, &error))?;
        let bytes = header.size_bytes() as u64;
        if bytes > left {
            return Err(corrupt(&self.path, &"cut-off batch"));
        }
        if header.base_offset < 0
            || header.last_offset_delta < 0
            || header.next_offset() <= header.base_offset
        {
            return Err(corrupt(&self.path, &"impossible offsets"));
        }
        self.position += bytes;
        Ok(Some((position, header)))
    }

    fn header_bytes(&mut self, position: u64) -> Result<&[u8], LogError> {
        let known = position >= self.buffer_start
            && position + HEADER_BYTES as u64 <= self.buffer_start + self.buffer.len() as u64;
        if !known {
            let length = (self.end - position).min(self.buffer_bytes as u64) as usize;
            self.buffer.resize(length, 0);
            self.buffer_start = position;
            disk::read_at(&self.file, &self.path, &mut self.buffer, position)?;
        }
        let start = (position - self.buffer_start) as usize;
        Ok(&self.buffer[start..start + HEADER_BYTES])
    }

    /// What the batch just returned by `next` means to its producer.
    pub fn content(&self, position: u64, header: &BatchHeader) -> Result<BatchContent, LogError> {
        if !header.is_control() {
            return Ok(BatchContent::Data);
        }
        let mut bytes = vec![0; header.size_bytes()];
        disk::read_at(&self.file, &self.path, &mut bytes, position)?;
        control_content(&Batch { position: 0, header: *header, bytes: &bytes })
            .map_err(|error| LogError::corrupt(&self.path, format!("at byte {position}: {error}")))
    }
}

/// What a batch means to its producer. A control batch without a record is one that a cleaner emptied.
pub(crate) fn control_content(batch: &Batch<'_>) -> Result<BatchContent, BatchError> {
    if !batch.header.is_control() {
        return Ok(BatchContent::Data);
    }
    if batch.header.records_count == 0 || !batch.header.has_producer_id() {
        return Ok(BatchContent::OtherControl);
    }
    if batch.header.compression()? != protocol::record_batch::Compression::None {
        return Err(BatchError::Record { index: 0, what: "a compressed control batch" });
    }
    Ok(match read_end_txn_marker(batch)? {
        Some(marker) => {
            BatchContent::Marker { commit: marker.committed, coordinator_epoch: marker.coordinator_epoch }
        }
        None => BatchContent::OtherControl,
    })
}
