//! PURE. One batch under the cleaner's rules: kept as it is, rewritten, emptied, or dropped. The rules
//! are Kafka's (LogCleaner and MemoryRecords.filterTo), delete horizons those of KIP-534.

use std::collections::HashMap;
use std::io::Read as _;
use std::ops::ControlFlow;

use common::ids::ProducerId;
use protocol::record_batch::{
    Batch, BatchHeader, CleanedHeader, Compression, HEADER_BYTES, NO_TIMESTAMP, TimestampType, check_crc,
    set_cleaned_header, set_empty_header,
};

use super::offset_map::OffsetMap;
use super::transactions::CleanedTransactions;
use crate::log::compression::{compress, decompressor};
use crate::log::producer_state::{BatchContent, LastRecord};
use crate::log::record_walk::{RecordPlace, walk_records};
use crate::log::scanner::control_content;
use crate::log::transaction_index::AbortedTransaction;

/// Batches in a log were checked when they came; this only stops a damaged one from growing for ever.
const MAX_UNCOMPRESSED_BYTES: u64 = 1 << 30;

/// Why a batch cannot be cleaned: what stands in the log is damaged.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadBatch(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Byte by byte as it was.
    Kept,
    /// With fewer records, or with a delete horizon.
    Rewritten,
    /// Without records, because a producer's last sequence or the end of the cleaned part depends on it.
    Emptied,
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filtered {
    pub outcome: Outcome,
    pub records_dropped: u32,
    /// Goes into the transaction index of the cleaned segment.
    pub aborted: Option<AbortedTransaction>,
}

/// How a whole pass cleans.
#[derive(Debug)]
pub(crate) struct CleaningRules {
    /// The last batch of each producer that is remembered: its sequence must stay in the log.
    pub last_records: HashMap<ProducerId, LastRecord>,
    /// Offsets from here on are not cleaned; the batch that ends here stays, so that followers of the
    /// cleaned log reach its end.
    pub upper_bound: i64,
    pub delete_retention_ms: i64,
    pub now_ms: i64,
}

/// Buffers that are used again from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    body: Vec<u8>,
    retained: Vec<RecordPlace>,
    rewritten: Vec<u8>,
}

impl Scratch {
    /// The records of a batch, uncompressed.
    pub fn records<'a>(&'a mut self, batch: &Batch<'a>) -> Result<&'a [u8], BadBatch> {
        uncompressed(batch, &mut self.body)
    }
}

fn uncompressed<'a>(batch: &Batch<'a>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], BadBatch> {
    let compression = batch.header.compression().map_err(|error| BadBatch(error.to_string()))?;
    if compression == Compression::None {
        return Ok(batch.body());
    }
    buffer.clear();
    decompressor(compression, batch.body())
        .and_then(|reader| reader.take(MAX_UNCOMPRESSED_BYTES).read_to_end(buffer))
        .map_err(|error| BadBatch(error.to_string()))?;
    Ok(buffer)
}

/// Calls `visit` for each record of a body that is not compressed. One that a source has numbered beyond its batch
/// would decide about records that it has nothing to do with.
pub(crate) fn each_record(
    header: &BatchHeader,
    body: &[u8],
    mut visit: impl FnMut(&RecordPlace) -> ControlFlow<()>,
) -> Result<(), BadBatch> {
    let mut outside = None;
    let within_batch = |record: &RecordPlace| {
        if !(0..=header.last_offset_delta).contains(&record.offset_delta) {
            outside = Some(record.index);
            return ControlFlow::Break(());
        }
        visit(record)
    };
    walk_records(Compression::None, body, header.records_count, usize::MAX, within_batch)
        .map_err(|error| BadBatch(error.to_string()))?;
    match outside {
        None => Ok(()),
        Some(index) => Err(BadBatch(format!("record {index} lies outside of its batch"))),
    }
}

pub(crate) fn key_of<'a>(body: &'a [u8], record: &RecordPlace) -> Option<&'a [u8]> {
    body.get(record.key_start..record.key_start + record.key_bytes?)
}

/// Puts what is left of `batch` at the end of `out`.
pub(crate) fn filter_batch(
    batch: &Batch<'_>,
    map: &OffsetMap,
    transactions: &mut CleanedTransactions,
    rules: &CleaningRules,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Result<Filtered, BadBatch> {
    let header = &batch.header;
    // A rewritten batch gets a new CRC; damage must not get one too.
    check_crc(batch.bytes).map_err(|error| BadBatch(error.to_string()))?;
    let content = control_content(batch).map_err(|error| BadBatch(error.to_string()))?;
    let horizon = header.has_delete_horizon().then_some(header.base_timestamp);
    let horizon_passed = horizon.is_some_and(|horizon| horizon <= rules.now_ms);

    let (may_discard, aborted) = if header.is_control() {
        let verdict = transactions.on_control(header, content);
        (verdict.decides_nothing, verdict.index)
    } else {
        (transactions.on_data(header), None)
    };
    let discard_records = may_discard && (!header.is_control() || horizon_passed);
    let keep_empty = is_last_of_producer(header, rules) || header.next_offset() == rules.upper_bound;
    let filtered = |outcome, records_dropped| Ok(Filtered { outcome, records_dropped, aborted });
    if discard_records && !keep_empty {
        return filtered(Outcome::Dropped, header.records_count.max(0) as u32);
    }

    let Scratch { body, retained, rewritten } = scratch;
    retained.clear();
    let body = if discard_records { &[] } else { uncompressed(batch, body)? };
    let mut holds_tombstone = false;
    if !discard_records {
        each_record(header, body, |record| {
            let keep = header.is_control() || is_retained(header, body, record, map, !horizon_passed);
            if keep {
                retained.push(*record);
                // Markers have a value always; what a horizon is for are records without one.
                holds_tombstone |= record.value_is_null && !header.is_control();
            }
            ControlFlow::Continue(())
        })?;
    }
    let dropped = (header.records_count.max(0) as u32).saturating_sub(retained.len() as u32);
    if retained.is_empty() {
        if !keep_empty {
            return filtered(Outcome::Dropped, dropped);
        }
        if header.records_count == 0 {
            out.extend_from_slice(batch.bytes);
            return filtered(Outcome::Kept, 0);
        }
        out.extend_from_slice(&emptied(batch));
        return filtered(Outcome::Emptied, dropped);
    }
    let new_horizon = (horizon.is_none() && (holds_tombstone || (may_discard && header.is_control())))
        .then(|| rules.now_ms.saturating_add(rules.delete_retention_ms));
    if dropped == 0 && new_horizon.is_none() {
        out.extend_from_slice(batch.bytes);
        return filtered(Outcome::Kept, 0);
    }
    rewrite(batch, body, retained, new_horizon.or(horizon), rewritten, out)?;
    filtered(Outcome::Rewritten, dropped)
}

/// Whether a producer's state would be lost with the batch: its last data batch, or, where it has none
/// any more, the marker of its epoch.
fn is_last_of_producer(header: &BatchHeader, rules: &CleaningRules) -> bool {
    if !header.has_producer_id() {
        return false;
    }
    match rules.last_records.get(&ProducerId(header.producer_id)) {
        None => false,
        Some(last) => match last.data_offset {
            Some(offset) => header.last_offset() == offset.0,
            None => header.is_control() && header.producer_epoch == last.producer_epoch.0,
        },
    }
}

fn is_retained(
    header: &BatchHeader,
    body: &[u8],
    record: &RecordPlace,
    map: &OffsetMap,
    tombstones_stay: bool,
) -> bool {
    let offset = header.base_offset + i64::from(record.offset_delta);
    if offset > map.latest_offset() {
        return true;
    }
    // Written before the topic was compacted: nothing would ever replace it.
    let Some(key) = key_of(body, record) else { return false };
    let is_newest = map.get(key).is_none_or(|newest| offset >= newest);
    is_newest && (!record.value_is_null || tombstones_stay)
}

fn emptied(batch: &Batch<'_>) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header.copy_from_slice(&batch.bytes[..HEADER_BYTES]);
    set_empty_header(&mut header);
    header
}

/// The batch with the retained records only, in its own codec.
fn rewrite(
    batch: &Batch<'_>,
    body: &[u8],
    retained: &[RecordPlace],
    horizon: Option<i64>,
    records: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), BadBatch> {
    let header = &batch.header;
    let append_time = header.timestamp_type() == TimestampType::LogAppendTime;
    let timestamp = |record: &RecordPlace| {
        if append_time {
            header.max_timestamp
        } else {
            header.base_timestamp.wrapping_add(record.timestamp_delta)
        }
    };
    // As Kafka: the base is the horizon, or the first record's timestamp.
    let base_timestamp = horizon.or(retained.first().map(timestamp)).unwrap_or(NO_TIMESTAMP);
    let max_timestamp = retained.iter().map(timestamp).max().unwrap_or(NO_TIMESTAMP).max(NO_TIMESTAMP);
    records.clear();
    for record in retained {
        let bytes =
            body.get(record.start..record.end).ok_or_else(|| BadBatch("record out of range".into()))?;
        let delta = timestamp(record).wrapping_sub(base_timestamp);
        if delta == record.timestamp_delta {
            records.extend_from_slice(bytes);
        } else {
            put_with_delta(bytes, delta, records)?;
        }
    }
    let compression = header.compression().map_err(|error| BadBatch(error.to_string()))?;
    let start = out.len();
    out.extend_from_slice(&batch.bytes[..HEADER_BYTES]);
    compress(compression, records, out).map_err(|error| BadBatch(error.to_string()))?;
    let cleaned = CleanedHeader {
        records_count: retained.len() as i32,
        base_timestamp,
        max_timestamp,
        delete_horizon: horizon.is_some(),
    };
    set_cleaned_header(&mut out[start..], cleaned);
    Ok(())
}

/// A record with another timestamp delta; all else as it is.
fn put_with_delta(record: &[u8], delta: i64, out: &mut Vec<u8>) -> Result<(), BadBatch> {
    let malformed = || BadBatch("malformed record".into());
    let length_end = varint_end(record, 0).ok_or_else(malformed)?;
    let attributes = *record.get(length_end).ok_or_else(malformed)?;
    let delta_end = varint_end(record, length_end + 1).ok_or_else(malformed)?;
    let rest = &record[delta_end..];
    let mut encoded = [0; 10];
    let encoded = put_varlong(delta, &mut encoded);
    let mut length = [0; 10];
    out.extend_from_slice(put_varlong((1 + encoded.len() + rest.len()) as i64, &mut length));
    out.push(attributes);
    out.extend_from_slice(encoded);
    out.extend_from_slice(rest);
    Ok(())
}

fn varint_end(bytes: &[u8], start: usize) -> Option<usize> {
    let last = bytes.get(start..)?.iter().position(|byte| byte & 0x80 == 0)?;
    Some(start + last + 1)
}

/// Zigzag; of a varint and a varlong the bytes are the same.
fn put_varlong(value: i64, out: &mut [u8; 10]) -> &[u8] {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut length = 0;
    while rest >= 0x80 {
        out[length] = rest as u8 | 0x80;
        rest >>= 7;
        length += 1;
    }
    out[length] = rest as u8;
    &out[..=length]
}

/// Takes one batch of the dirty part into the map. False: the map is full.
pub(crate) fn map_batch(
    batch: &Batch<'_>,
    from: i64,
    map: &mut OffsetMap,
    transactions: &mut CleanedTransactions,
    scratch: &mut Scratch,
) -> Result<bool, BadBatch> {
    let header = &batch.header;
    let content = control_content(batch).map_err(|error| BadBatch(error.to_string()))?;
    let is_data = match content {
        BatchContent::Data => !transactions.on_data(header),
        _ => {
            transactions.on_control(header, content);
            false
        }
    };
    if header.last_offset() < from {
        return Ok(true);
    }
    let mut fits = true;
    if is_data && header.records_count > 0 {
        let body = scratch.records(batch)?;
        each_record(header, body, |record| {
            let offset = header.base_offset + i64::from(record.offset_delta);
            if offset >= from
                && let Some(key) = key_of(body, record)
            {
                fits = map.put(key, offset);
            }
            if fits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
    }
    if fits {
        map.note_latest(header.last_offset());
    }
    Ok(fits)
}
