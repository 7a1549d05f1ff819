//! Recovery after an unclean stop: batches past the recovery point are checked, CRC included; what is
//! behind the first bad one goes, since no log may have a hole.

use std::path::PathBuf;

use common::ids::{LeaderEpoch, Offset};
use protocol::record_batch::{Batch, BatchHeader, HEADER_BYTES, check_crc};

use super::disk;
use super::error::LogError;
use super::log::Log;
use super::producer_state::{BatchContent, ProducerBatch};
use super::scanner::{SWEEP_BYTES, control_content};
use super::segment::{LOG, MAX_RELATIVE, Segment};

/// What recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Segments that were read.
    pub segments: usize,
    /// Cut off the end of the log.
    pub truncated_bytes: u64,
    /// Damage other than a torn end.
    pub corrupt: Vec<CorruptSegment>,
}

impl RecoveryReport {
    pub(crate) fn has_lost_batches(&self) -> bool {
        self.truncated_bytes > 0 || !self.corrupt.is_empty()
    }
}

/// A segment with a bad batch in it although others followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptSegment {
    pub path: PathBuf,
    pub position: u64,
    pub reason: String,
    /// They stood behind the damage.
    pub deleted_segments: usize,
}

impl Log {
    /// Checks the segments that reach past `from`, and rebuilds those named in `damaged`, whose indexes
    /// are missing or torn.
    pub(super) fn recover(&mut self, from: i64, damaged: &[i64]) -> Result<RecoveryReport, LogError> {
        let mut report = RecoveryReport::default();
        let tail = self.segment_for(from);
        let mut index = 0;
        while index < self.segments.len() {
            if index >= tail || damaged.contains(&self.segments[index].base_offset()) {
                report.segments += 1;
                if !self.recover_segment(index, index >= tail, &mut report)? {
                    break;
                }
            }
            index += 1;
        }
        self.producers = self.producer_state_at(self.log_end)?;
        self.recovery_point = self.recovery_point.min(self.log_end);
        Ok(report)
    }

    /// False: the log ends inside this segment, and those behind it are gone. A segment below the
    /// recovery point (not `unflushed`) only gets its indexes back: its batches were on disk, and one
    /// that has rotted since costs its readers an error, not everybody the log behind it.
    fn recover_segment(
        &mut self,
        index: usize,
        unflushed: bool,
        report: &mut RecoveryReport,
    ) -> Result<bool, LogError> {
        let base_offset = self.segments[index].base_offset();
        let file_bytes = self.segments[index].size_bytes();
        let limit = self.segments.get(index + 1).map_or(i64::MAX, Segment::base_offset);
        // Snapshots above stem from a time that may not be this log's any more.
        if index + 1 == self.segments.len() {
            self.drop_snapshots_above(base_offset)?;
        }
        let mut producers = self.producer_state_at(base_offset)?;
        if unflushed {
            self.epochs.truncate_from_end(Offset(base_offset));
        }
        let index_interval_bytes = self.config.index_interval_bytes;
        if file_bytes == 0 && !self.segments[index].path(LOG).exists() {
            // Never written, and shall get no file by being looked at.
            self.log_end = base_offset;
            return Ok(true);
        }
        self.segments[index].clear_indexes()?;
        let mut reader = BatchReader::new(&self.segments[index], file_bytes, unflushed)?;
        let mut next_offset = base_offset;
        let mut stopped = None;
        loop {
            let position = self.segments[index].size_bytes();
            let (header, content) = match reader.read(position, next_offset, limit) {
                Ok(None) => {
                    // A power cut may leave a segment's name without what stood before it. (What the
                    // cleaner has taken out lies below the recovery point.)
                    let within_reach = limit - base_offset <= MAX_RELATIVE + 1;
                    if unflushed && within_reach && next_offset < limit {
                        stopped =
                            Some(format!("it ends at offset {next_offset}, the next begins at {limit}"));
                    }
                    break;
                }
                Ok(Some((header, _))) if position == 0 && header.base_offset < base_offset => {
                    return Err(LogError::corrupt(
                        &self.segments[index].path(LOG),
                        format!("it begins with offset {}, not with the one in its name", header.base_offset),
                    ));
                }
                Ok(Some(batch)) => batch,
                Err(BadBatch::Storage(error)) => return Err(error),
                Err(BadBatch::Invalid(reason)) => {
                    stopped = Some(reason);
                    break;
                }
            };
            self.segments[index].note_batch(&header, index_interval_bytes)?;
            if unflushed {
                self.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset));
            }
            if let Some(batch) = ProducerBatch::of(&header, content)
                && let Some(aborted) = producers.apply(&batch)
            {
                self.segments[index].push_aborted(aborted)?;
            }
            next_offset = header.next_offset();
        }
        self.segments[index].finish()?;
        let last = index + 1 == self.segments.len();
        let Some(reason) = stopped else {
            if last {
                self.log_end = next_offset;
            }
            return Ok(true);
        };
        let position = self.segments[index].size_bytes();
        let path = self.segments[index].path(LOG);
        let later: Vec<Segment> = self.segments.drain(index + 1..).collect();
        report.truncated_bytes += file_bytes - position + later.iter().map(Segment::size_bytes).sum::<u64>();
        if !last {
            report.corrupt.push(CorruptSegment { path, position, reason, deleted_segments: later.len() });
        }
        for segment in later.iter().rev() {
            segment.delete()?;
        }
        self.segments[index].cut_file_to_size()?;
        self.log_end = next_offset;
        self.drop_snapshots_above(next_offset)?;
        Ok(false)
    }

    /// The epochs of all batches, when the checkpoint is damaged.
    pub(super) fn epochs_from_batches(&mut self) -> Result<(), LogError> {
        for index in 0..self.segments.len() {
            if self.segments[index].size_bytes() == 0 {
                continue;
            }
            let mut scanner = self.segments[index].scanner(0, SWEEP_BYTES)?;
            // A torn end is the business of recovery.
            while let Ok(Some((_, header))) = scanner.next() {
                self.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset));
            }
        }
        Ok(())
    }
}

enum BadBatch {
    Invalid(String),
    Storage(LogError),
}

/// Reads whole batches and checks them.
struct BatchReader {
    file: std::sync::Arc<std::fs::File>,
    path: PathBuf,
    end: u64,
    check_crc: bool,
    bytes: Vec<u8>,
}

impl BatchReader {
    fn new(segment: &Segment, end: u64, check_crc: bool) -> Result<BatchReader, LogError> {
        Ok(BatchReader { file: segment.file()?, path: segment.path(LOG), end, check_crc, bytes: Vec::new() })
    }

    /// The batch at `position`, which has to lie in next_offset..limit.
    fn read(
        &mut self,
        position: u64,
        next_offset: i64,
        limit: i64,
    ) -> Result<Option<(BatchHeader, BatchContent)>, BadBatch> {
        let left = self.end.saturating_sub(position);
        if left == 0 {
            return Ok(None);
        }
        let invalid = |reason: &dyn std::fmt::Display| BadBatch::Invalid(reason.to_string());
        if left < HEADER_BYTES as u64 {
            return Err(invalid(&"cut-off header"));
        }
        self.fill(position, HEADER_BYTES)?;
        let header = BatchHeader::parse(&self.bytes).map_err(|error| invalid(&error))?;
        if header.size_bytes() as u64 > left {
            return Err(invalid(&"cut-off batch"));
        }
        self.fill(position, header.size_bytes())?;
        if self.check_crc {
            check_crc(&self.bytes).map_err(|error| invalid(&error))?;
        }
        if header.last_offset_delta < 0
            || header.next_offset() <= header.base_offset
            || (header.base_offset < next_offset && position > 0)
            || header.last_offset() >= limit
        {
            return Err(invalid(&"offsets do not ascend"));
        }
        let content = control_content(&Batch { position: 0, header, bytes: &self.bytes })
            .map_err(|error| invalid(&error))?;
        Ok(Some((header, content)))
    }

    fn fill(&mut self, position: u64, length: usize) -> Result<(), BadBatch> {
        self.bytes.resize(length, 0);
        disk::read_at(&self.file, &self.path, &mut self.bytes, position).map_err(BadBatch::Storage)
    }
}
