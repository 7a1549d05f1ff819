//! Appending: as a leader, which checks, numbers and stamps batches, or as a follower or mirror, which
//! keeps them as they come.

use std::sync::atomic::Ordering;

use common::ids::{LeaderEpoch, Offset};
use protocol::record_batch::{
    Batch, BatchError, BatchHeader, TimestampType, check_crc, set_base_offset, set_leader_epoch,
};

use super::error::{AppendError, LogError};
use super::log::Log;
use super::producer_state::{BatchContent, ProducerBatch};
use super::recent_batches::BatchPlace;
use super::scanner::control_content;
use super::segment::MAX_RELATIVE;
use super::validator;

/// Who wrote the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    Client,
    /// A coordinator in this broker: state records, transaction markers.
    Coordinator,
}

/// How a leader appends.
#[derive(Clone, Copy, Debug)]
pub struct LeaderAppend {
    pub leader_epoch: LeaderEpoch,
    pub origin: AppendOrigin,
    pub now_ms: i64,
    /// `produce.validation=relaxed`: header and CRC only.
    pub relaxed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    pub first_offset: Offset,
    /// `first_offset - 1` when nothing was appended.
    pub last_offset: Offset,
    /// -1 where records keep the producer's time.
    pub log_append_time_ms: i64,
    pub log_start_offset: Offset,
    /// The batch was here before; the offsets are those of its first append.
    pub duplicate: bool,
    pub bytes: usize,
    pub batches: usize,
    /// A new segment was begun.
    pub rolled: bool,
}

/// A batch in the bytes that are being appended; the header is as it is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedBatch {
    pub position: usize,
    pub header: BatchHeader,
    pub content: BatchContent,
}

impl Log {
    /// Checks, numbers and writes batches. Offsets and the leader's epoch are written into `records`.
    pub fn append_as_leader(
        &mut self,
        records: &mut [u8],
        append: LeaderAppend,
    ) -> Result<AppendInfo, AppendError> {
        self.check_online()?;
        let mut batches = validator::validate(records, &self.config, &append)?;
        let segment_bytes = self.config.segment_bytes as usize;
        if records.len() > segment_bytes {
            return Err(AppendError::RecordListTooLarge { bytes: records.len(), segment_bytes });
        }
        let first_offset = Offset(self.log_end);
        if let Some(latest_epoch) = self.epochs.latest()
            && append.leader_epoch < latest_epoch
        {
            return Err(AppendError::LeaderEpochFell {
                first_offset,
                epoch: append.leader_epoch,
                latest_epoch,
            });
        }
        let mut next_offset = self.log_end;
        for batch in &mut batches {
            batch.header.base_offset = next_offset;
            batch.header.leader_epoch = append.leader_epoch.0;
            next_offset = next_offset
                .checked_add(i64::from(batch.header.last_offset_delta) + 1)
                .ok_or(AppendError::OffsetOverflow { log_end_offset: first_offset })?;
        }
        for batch in &batches {
            let Some(producer_batch) = ProducerBatch::of(&batch.header, batch.content) else { continue };
            if append.origin == AppendOrigin::Client
                && let Some(first) = self.producers.duplicate_of(&producer_batch)
            {
                return Ok(AppendInfo {
                    first_offset: first.first_offset(),
                    last_offset: first.last_offset,
                    log_append_time_ms: self.append_time_of(first.timestamp_ms),
                    log_start_offset: self.log_start_offset(),
                    duplicate: true,
                    bytes: 0,
                    batches: 0,
                    rolled: false,
                });
            }
            self.producers.check(&producer_batch, append.origin)?;
        }
        for batch in &batches {
            let bytes = &mut records[batch.position..];
            set_base_offset(bytes, batch.header.base_offset);
            set_leader_epoch(bytes, batch.header.leader_epoch);
        }
        let rolled = self.write(records, &batches, append.now_ms)?;
        Ok(AppendInfo {
            first_offset,
            last_offset: Offset(self.log_end - 1),
            log_append_time_ms: self.append_time_of(append.now_ms),
            log_start_offset: self.log_start_offset(),
            duplicate: false,
            bytes: records.len(),
            batches: batches.len(),
            rolled,
        })
    }

    fn append_time_of(&self, timestamp_ms: i64) -> i64 {
        match self.config.message_timestamp_type {
            TimestampType::CreateTime => -1,
            TimestampType::LogAppendTime => timestamp_ms,
        }
    }

    /// Writes batches of another log as they are: a follower's fetch, or a mirror's. A last batch that is
    /// cut off is dropped. A first batch that begins below the log end is taken only into an empty
    /// log, whose start stays where it was asked for (decision 8).
    pub fn append_as_follower(&mut self, records: &[u8], now_ms: i64) -> Result<AppendInfo, AppendError> {
        self.check_online()?;
        let (batches, bytes) = self.check_copied(records)?;
        let first = batches.first().map_or(self.log_end, |batch| batch.header.base_offset);
        if first < self.log_end {
            let start = self.log_start;
            self.truncate_fully_and_start_at(Offset(first))?;
            self.log_start = start;
        }
        let written = self.write(&records[..bytes], &batches, now_ms);
        if written.is_err() && self.log_end < self.log_start {
            self.truncate_fully_and_start_at(Offset(self.log_start))?;
        }
        let rolled = written?;
        Ok(AppendInfo {
            first_offset: Offset(first),
            last_offset: Offset(self.log_end - 1),
            log_append_time_ms: -1,
            log_start_offset: self.log_start_offset(),
            duplicate: false,
            bytes,
            batches: batches.len(),
            rolled,
        })
    }

    /// The whole batches of `records` and how many bytes they have. One bad batch refuses all.
    pub(super) fn check_copied(&self, records: &[u8]) -> Result<(Vec<PlacedBatch>, usize), AppendError> {
        let mut batches = Vec::new();
        let mut position = 0;
        let mut next_offset = self.log_end;
        let mut latest_epoch = self.epochs.latest().unwrap_or(LeaderEpoch::UNKNOWN);
        while position < records.len() {
            let rest = &records[position..];
            let header = match BatchHeader::parse(rest) {
                Ok(header) => header,
                Err(BatchError::Incomplete { .. }) => break,
                Err(error) => return Err(validator::refused(position, error)),
            };
            let Some(bytes) = rest.get(..header.size_bytes()) else { break };
            let invalid = |reason: &str| Err(AppendError::corrupt(position, reason));
            if header.base_offset < 0
                || header.last_offset_delta < 0
                || header.next_offset() <= header.base_offset
            {
                return invalid("impossible offsets");
            }
            // A cleaner may have taken records out, but never put one in.
            if header.records_count < 0
                || i64::from(header.records_count) > i64::from(header.last_offset_delta) + 1
            {
                return invalid("record count and last offset delta do not fit");
            }
            if header.is_transactional() && !header.has_producer_id() {
                return invalid("a transactional batch names no producer");
            }
            header.compression().map_err(|error| validator::refused(position, error))?;
            check_crc(bytes).map_err(|error| validator::refused(position, error))?;
            let (first_offset, last_offset) = (Offset(header.base_offset), Offset(header.last_offset()));
            let into_empty = batches.is_empty() && self.is_empty() && header.last_offset() >= self.log_end;
            if header.base_offset < next_offset && !into_empty {
                return Err(AppendError::OutOfOrderOffset {
                    first_offset,
                    last_offset,
                    log_end_offset: Offset(next_offset),
                });
            }
            let epoch = LeaderEpoch(header.leader_epoch);
            if epoch < latest_epoch {
                return Err(AppendError::LeaderEpochFell { first_offset, epoch, latest_epoch });
            }
            latest_epoch = epoch;
            let content = control_content(&Batch { position, header, bytes })
                .map_err(|error| validator::refused(position, error))?;
            batches.push(PlacedBatch { position, header, content });
            next_offset = header.next_offset();
            position += bytes.len();
        }
        Ok((batches, position))
    }

    /// Writes checked batches and takes them into indexes, epochs and producer state. Returns whether a
    /// new segment was begun.
    fn write(&mut self, records: &[u8], batches: &[PlacedBatch], now_ms: i64) -> Result<bool, LogError> {
        let mark = self.mark();
        let result = self.write_groups(records, batches, now_ms);
        self.taking_back(mark, result)
    }

    fn write_groups(
        &mut self,
        records: &[u8],
        batches: &[PlacedBatch],
        now_ms: i64,
    ) -> Result<bool, LogError> {
        let mut rolled = false;
        let mut rest = batches;
        while let Some(first) = rest.first() {
            if self.needs_roll(&first.header, now_ms)? {
                self.roll(self.next_base(&first.header), now_ms)?;
                rolled = true;
            }
            // As many as fit the segment go with one write.
            let room = u64::from(self.config.segment_bytes).saturating_sub(self.active().size_bytes());
            let base_offset = self.active().base_offset();
            let count = rest
                .iter()
                .take_while(|batch| {
                    let end = (batch.position - first.position) as u64 + batch.header.size_bytes() as u64;
                    end <= room && batch.header.last_offset() - base_offset <= MAX_RELATIVE
                })
                .count()
                .max(1);
            let (group, later) = rest.split_at(count);
            let end = later.first().map_or(records.len(), |batch| batch.position);
            self.write_group(&records[first.position..end], group)?;
            rest = later;
        }
        if self.unflushed_records >= self.config.flush_messages {
            self.flush()?;
        }
        Ok(rolled)
    }

    fn write_group(&mut self, bytes: &[u8], group: &[PlacedBatch]) -> Result<(), LogError> {
        let mut position = self.active().size_bytes();
        let index_interval_bytes = self.config.index_interval_bytes;
        self.directory_changed |= position == 0;
        self.active_mut().append(bytes, group.iter().map(|batch| &batch.header), index_interval_bytes)?;
        for PlacedBatch { header, content, .. } in group {
            let bytes = header.size_bytes() as u64;
            self.recent.push(BatchPlace {
                first_offset: header.base_offset,
                last_offset: header.last_offset(),
                position,
                bytes,
            });
            position += bytes;
            self.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset));
            self.take_producer(header, *content)?;
            self.log_end = header.next_offset();
            self.gap_start = None;
            self.unflushed_records += i64::from(header.records_count);
        }
        Ok(())
    }

    /// The batch is the newest of the log.
    pub(super) fn take_producer(
        &mut self,
        header: &BatchHeader,
        content: BatchContent,
    ) -> Result<(), LogError> {
        match ProducerBatch::of(header, content) {
            None => self.producers.end_offset = Offset(header.next_offset()),
            Some(batch) => {
                let aborted = self.producers.apply(&batch);
                if matches!(content, BatchContent::Marker { .. }) {
                    self.producers.forget_replicated(Offset(self.high_watermark.load(Ordering::Relaxed)));
                }
                if let Some(aborted) = aborted {
                    self.active_mut().push_aborted(aborted)?;
                }
            }
        }
        Ok(())
    }
}
