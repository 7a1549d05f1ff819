//! Offsets by time, for ListOffsets.

use std::ops::ControlFlow;

use common::ids::{LeaderEpoch, Offset};
use protocol::record_batch::{BatchHeader, HEADER_BYTES, TimestampType};

use super::disk;
use super::error::LogError;
use super::log::Log;
use super::record_walk::walk_records;
use super::scanner::SWEEP_BYTES;
use super::segment::{LOG, Segment};

/// Batches in the log were checked when they came; this only stops a damaged one from growing for ever.
const MAX_UNCOMPRESSED_BYTES: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedOffset {
    pub timestamp_ms: i64,
    pub offset: Offset,
    /// -1 where it is not known.
    pub leader_epoch: LeaderEpoch,
}

impl Log {
    /// The first record, by offset, with a timestamp at or above `timestamp_ms`.
    pub fn offset_for_timestamp(&self, timestamp_ms: i64) -> Result<Option<TimestampedOffset>, LogError> {
        for segment in &self.segments[self.segment_for(self.log_start)..] {
            if segment.max_timestamp()?.is_none_or(|max| max.timestamp_ms < timestamp_ms) {
                continue;
            }
            let start = segment.position_by_time(timestamp_ms)?;
            if let Some(found) = self.first_record(segment, start, |timestamp| timestamp >= timestamp_ms)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first record with the greatest timestamp of all.
    pub fn offset_of_max_timestamp(&self) -> Result<Option<TimestampedOffset>, LogError> {
        let mut greatest: Option<(i64, &Segment)> = None;
        for segment in &self.segments[self.segment_for(self.log_start)..] {
            if let Some(max) = segment.max_timestamp()?
                && greatest.is_none_or(|(timestamp_ms, _)| max.timestamp_ms > timestamp_ms)
            {
                greatest = Some((max.timestamp_ms, segment));
            }
        }
        let Some((timestamp_ms, segment)) = greatest else { return Ok(None) };
        let start = segment.position_by_time(timestamp_ms)?;
        self.first_record(segment, start, |timestamp| timestamp >= timestamp_ms)
    }

    fn first_record(
        &self,
        segment: &Segment,
        start: u64,
        wanted: impl Fn(i64) -> bool,
    ) -> Result<Option<TimestampedOffset>, LogError> {
        if segment.size_bytes() == 0 {
            return Ok(None);
        }
        let mut scanner = segment.scanner(start, SWEEP_BYTES)?;
        while let Some((position, header)) = scanner.next()? {
            // Markers are no records.
            if !wanted(header.max_timestamp) || header.last_offset() < self.log_start || header.is_control() {
                continue;
            }
            if let Some((offset, timestamp_ms)) = self.first_in_batch(segment, position, &header, &wanted)? {
                return Ok(Some(TimestampedOffset {
                    timestamp_ms,
                    offset: Offset(offset),
                    leader_epoch: LeaderEpoch(header.leader_epoch),
                }));
            }
        }
        Ok(None)
    }

    fn first_in_batch(
        &self,
        segment: &Segment,
        position: u64,
        header: &BatchHeader,
        wanted: &impl Fn(i64) -> bool,
    ) -> Result<Option<(i64, i64)>, LogError> {
        let path = segment.path(LOG);
        let mut bytes = vec![0; header.size_bytes()];
        disk::read_at(&*segment.file()?, &path, &mut bytes, position)?;
        let corrupt =
            |error: &dyn std::fmt::Display| LogError::corrupt(&path, format!("at byte {position}: {error}"));
        let compression = header.compression().map_err(|error| corrupt(&error))?;
        let append_time = header.timestamp_type() == TimestampType::LogAppendTime;
        let mut found = None;
        walk_records(
            compression,
            &bytes[HEADER_BYTES..],
            header.records_count,
            MAX_UNCOMPRESSED_BYTES,
            |record| {
                // Copied batches were not looked into when they came.
                if !(0..=header.last_offset_delta).contains(&record.offset_delta) {
                    return ControlFlow::Continue(());
                }
                let offset = header.base_offset + i64::from(record.offset_delta);
                let timestamp = if append_time {
                    header.max_timestamp
                } else {
                    header.base_timestamp.wrapping_add(record.timestamp_delta)
                };
                if offset >= self.log_start && wanted(timestamp) {
                    found = Some((offset, timestamp));
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
        )
        .map_err(|error| corrupt(&error))?;
        Ok(found)
    }
}
