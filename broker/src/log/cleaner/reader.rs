//! The whole batches of a closed segment, some hundred kilobytes at a time.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::record_batch::{Batch, BatchError, BatchHeader, LOG_OVERHEAD_BYTES};

use crate::log::disk;
use crate::log::error::LogError;

/// The least that has to be seen of a batch to know how long it is.
const PEEK_BYTES: u64 = LOG_OVERHEAD_BYTES as u64;

pub(crate) struct SegmentReader {
    file: Arc<File>,
    path: PathBuf,
    position: u64,
    end: u64,
    chunk_bytes: usize,
    buffer: Vec<u8>,
}

impl SegmentReader {
    pub fn new(file: Arc<File>, path: PathBuf, end: u64, chunk_bytes: usize) -> SegmentReader {
        SegmentReader { file, path, position: 0, end, chunk_bytes, buffer: Vec::new() }
    }

    /// Calls `visit` for each batch of the next chunk, and returns how many bytes were read; 0 at the end.
    pub fn next_chunk<E: From<LogError>>(
        &mut self,
        mut visit: impl FnMut(&Batch<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let left = self.end.saturating_sub(self.position);
        if left == 0 {
            return Ok(0);
        }
        let mut length = left.min(self.chunk_bytes as u64);
        if length >= PEEK_BYTES {
            // A batch may be larger than a chunk.
            self.fill(PEEK_BYTES)?;
            if let Some(bytes) = self.buffer.last_chunk::<4>() {
                let whole = PEEK_BYTES + u64::from(u32::from_be_bytes(*bytes));
                length = length.max(whole.min(left));
            }
        }
        self.fill(length)?;
        let mut done = 0;
        while done < self.buffer.len() {
            let rest = &self.buffer[done..];
            let at = self.position + done as u64;
            let header = match BatchHeader::parse(rest) {
                Ok(header) => header,
                Err(BatchError::Incomplete { .. }) if done > 0 && length < left => break,
                Err(error) => return Err(self.corrupt(at, &error).into()),
            };
            let Some(bytes) = rest.get(..header.size_bytes()) else {
                if done > 0 && length < left {
                    break;
                }
                return Err(self.corrupt(at, &"cut-off batch").into());
            };
            if header.base_offset < 0
                || header.last_offset_delta < 0
                || header.next_offset() <= header.base_offset
            {
                return Err(self.corrupt(at, &"impossible offsets").into());
            }
            visit(&Batch { position: at as usize, header, bytes })?;
            done += bytes.len();
        }
        self.position += done as u64;
        Ok(done as u64)
    }

    /// Damage at a place of the file, for the one who has to look at it.
    pub fn corrupt(&self, position: u64, reason: &dyn std::fmt::Display) -> LogError {
        LogError::corrupt(&self.path, format!("at byte {position}: {reason}"))
    }

    fn fill(&mut self, length: u64) -> Result<(), LogError> {
        self.buffer.resize(length as usize, 0);
        disk::read_at(&self.file, &self.path, &mut self.buffer, self.position)
    }
}
