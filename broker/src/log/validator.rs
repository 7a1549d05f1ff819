//! What a leader checks of batches that enter the cluster: the header against itself, the CRC, and,
//! unless validation is relaxed, each record in one walk.

use std::ops::ControlFlow;

use protocol::record_batch::{
    Batch, BatchError, BatchHeader, HEADER_BYTES, NO_TIMESTAMP, TimestampType, check_crc, set_max_timestamp,
};

use super::append::{AppendOrigin, LeaderAppend, PlacedBatch};
use super::config::LogConfig;
use super::error::{AppendError, RecordError};
use super::record_walk::{WalkError, walk_records};
use super::scanner::control_content;

/// A batch may grow to this many times `max.message.bytes`, or to the floor, when it is decompressed:
/// far beyond honest data, far below what a bomb needs.
const MAX_EXPANSION: usize = 64;
const EXPANSION_FLOOR_BYTES: usize = 64 << 20;
/// Refused records that a response names; Kafka names all, which lets a client choose the answer's size.
const MAX_RECORD_ERRORS: usize = 100;

/// Checks all batches in `records` and settles their timestamps. Offsets and epochs are left as they are.
pub(crate) fn validate(
    records: &mut [u8],
    config: &LogConfig,
    append: &LeaderAppend,
) -> Result<Vec<PlacedBatch>, AppendError> {
    let mut placed = Vec::with_capacity(1);
    let mut position = 0;
    while position < records.len() {
        let rest = &mut records[position..];
        let header = BatchHeader::parse(rest).map_err(|error| refused(position, error))?;
        let bytes = header.size_bytes();
        let Some(batch) = rest.get_mut(..bytes) else {
            return Err(AppendError::corrupt(position, "the batch is cut off"));
        };
        // One batch a partition, since version 3 of Produce.
        if append.origin == AppendOrigin::Client && position > 0 {
            return Err(AppendError::invalid("a Produce request may hold one batch a partition"));
        }
        if bytes > config.max_message_bytes as usize {
            return Err(AppendError::MessageTooLarge { bytes, max_bytes: config.max_message_bytes as usize });
        }
        check_header(&header, append.origin)?;
        check_crc(batch).map_err(|error| refused(position, error))?;
        let content = control_content(&Batch { position, header, bytes: batch })
            .map_err(|error| AppendError::invalid(error.to_string()))?;
        let header = settle_timestamps(batch, header, config, append)?;
        placed.push(PlacedBatch { position, header, content });
        position += bytes;
    }
    if placed.is_empty() {
        return Err(AppendError::invalid("there is no batch to append"));
    }
    Ok(placed)
}

pub(crate) fn refused(position: usize, error: BatchError) -> AppendError {
    match error {
        BatchError::Magic(magic) => AppendError::UnsupportedFormat { magic },
        other => AppendError::corrupt(position, other.to_string()),
    }
}

fn check_header(header: &BatchHeader, origin: AppendOrigin) -> Result<(), AppendError> {
    let invalid = |message: String| Err(AppendError::invalid(message));
    if i64::from(header.last_offset_delta) + 1 != i64::from(header.records_count) || header.records_count <= 0
    {
        return invalid(format!(
            "last offset delta {} and record count {} do not fit",
            header.last_offset_delta, header.records_count
        ));
    }
    if let Err(error) = header.compression() {
        return invalid(error.to_string());
    }
    if header.is_transactional() && !header.has_producer_id() {
        return invalid("a transactional batch names no producer".into());
    }
    if header.has_producer_id() && header.producer_epoch < 0 {
        return invalid(format!("producer epoch {}", header.producer_epoch));
    }
    if origin == AppendOrigin::Client {
        if header.is_control() {
            return invalid("clients do not write control batches".into());
        }
        // Without a transaction coordinator nothing here could ever end the transaction, and readers of
        // committed records would wait behind it for ever.
        if header.is_transactional() {
            return Err(AppendError::TransactionsUnsupported);
        }
        if header.base_offset != 0 {
            return invalid(format!("the base offset is {} instead of 0", header.base_offset));
        }
        if header.has_producer_id() && header.base_sequence < 0 {
            return invalid(format!("sequence {} of an idempotent producer", header.base_sequence));
        }
        if header.has_delete_horizon() {
            return invalid("only a cleaner sets a delete horizon".into());
        }
    }
    Ok(())
}

/// Walks the records and writes the timestamps that the header has to have; gives the header back as it
/// then is.
fn settle_timestamps(
    batch: &mut [u8],
    header: BatchHeader,
    config: &LogConfig,
    append: &LeaderAppend,
) -> Result<BatchHeader, AppendError> {
    // Control batches carry the coordinator's time and no record that a policy applies to.
    if header.is_control() {
        return Ok(header);
    }
    if append.origin == AppendOrigin::Client && header.timestamp_type() == TimestampType::LogAppendTime {
        return Err(AppendError::InvalidTimestamp {
            message: "producers do not set the append time".into(),
            records: vec![RecordError { batch_index: 0, message: "timestamp type is LogAppendTime".into() }],
        });
    }
    let found = if append.relaxed && append.origin == AppendOrigin::Client {
        header.max_timestamp
    } else {
        check_records(&batch[HEADER_BYTES..], &header, config, append.now_ms)?
    };
    let max_timestamp = match config.message_timestamp_type {
        TimestampType::CreateTime => found,
        TimestampType::LogAppendTime => append.now_ms,
    };
    if max_timestamp == header.max_timestamp && config.message_timestamp_type == header.timestamp_type() {
        return Ok(header);
    }
    set_max_timestamp(batch, config.message_timestamp_type, max_timestamp);
    BatchHeader::parse(batch).map_err(|error| refused(0, error))
}

/// Returns the greatest timestamp among the records.
fn check_records(
    body: &[u8],
    header: &BatchHeader,
    config: &LogConfig,
    now_ms: i64,
) -> Result<i64, AppendError> {
    let compression = header.compression().map_err(|error| refused(0, error))?;
    let cap = (config.max_message_bytes as usize).saturating_mul(MAX_EXPANSION).max(EXPANSION_FLOOR_BYTES);
    let create_time = config.message_timestamp_type == TimestampType::CreateTime;
    let earliest = now_ms.saturating_sub(config.message_timestamp_before_max_ms);
    let latest = now_ms.saturating_add(config.message_timestamp_after_max_ms);
    let mut max_timestamp = NO_TIMESTAMP;
    let mut refusals = Refusals::default();
    let walked = walk_records(compression, body, header.records_count, cap, |record| {
        if record.offset_delta != record.index {
            refusals.push(record.index, false, || {
                format!("offset delta {} of record {}", record.offset_delta, record.index)
            });
            return ControlFlow::Break(());
        }
        if config.compact && record.key_bytes.is_none() {
            refusals.push(record.index, false, || {
                "Compacted topic cannot accept message without key.".to_owned()
            });
        }
        let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
        if create_time && timestamp != NO_TIMESTAMP && !(earliest..=latest).contains(&timestamp) {
            refusals.push(record.index, true, || {
                format!("Timestamp {timestamp} is out of range. The timestamp should be within [{earliest}, {latest}]")
            });
        }
        max_timestamp = max_timestamp.max(timestamp);
        ControlFlow::Continue(())
    });
    match walked {
        // A compressed body that cannot be read is as corrupt as one with a wrong CRC.
        Err(error @ WalkError::Decompression(_)) => return Err(AppendError::corrupt(0, error.to_string())),
        Err(error) => return Err(AppendError::invalid(error.to_string())),
        Ok(()) => {}
    }
    refusals.into_result()?;
    Ok(max_timestamp)
}

#[derive(Default)]
struct Refusals {
    records: Vec<RecordError>,
    total: usize,
    other_than_time: bool,
}

impl Refusals {
    fn push(&mut self, batch_index: i32, time: bool, message: impl FnOnce() -> String) {
        self.total += 1;
        self.other_than_time |= !time;
        if self.records.len() < MAX_RECORD_ERRORS {
            self.records.push(RecordError { batch_index, message: message() });
        }
    }

    fn into_result(self) -> Result<(), AppendError> {
        if self.total == 0 {
            return Ok(());
        }
        let records = self.records;
        if !self.other_than_time {
            let message = "One or more records have been rejected due to invalid timestamp".into();
            return Err(AppendError::InvalidTimestamp { message, records });
        }
        let shown: Vec<&str> = records.iter().take(3).map(|record| record.message.as_str()).collect();
        let message = format!(
            "One or more records have been rejected due to {} record errors in total, and only showing the \
             first three errors at most: {}",
            self.total,
            shown.join("; ")
        );
        Err(AppendError::InvalidRecord { message, records })
    }
}
