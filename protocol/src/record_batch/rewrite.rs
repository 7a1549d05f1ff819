//! A batch from which a cleaner took records: which header fields change, and which never do.

use super::{
    ATTRIBUTES, BASE_TIMESTAMP, COMPRESSION_MASK, DELETE_HORIZON, HEADER_BYTES, LAST_OFFSET_DELTA, LENGTH,
    LOG_OVERHEAD_BYTES, MAX_TIMESTAMP, NO_TIMESTAMP, PRODUCER_ID, RECORDS_COUNT, field, set_crc,
};

/// What a cleaner changes of a batch's header. Offsets, epoch, sequence and producer stay, so that a
/// batch goes on standing for all offsets it ever held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanedHeader {
    pub records_count: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    /// The base timestamp is a delete horizon (KIP-534).
    pub delete_horizon: bool,
}

/// Completes `batch`, which begins with the header of the batch that was cleaned and goes on with the
/// new body, compressed as before.
pub fn set_cleaned_header(batch: &mut [u8], cleaned: CleanedHeader) {
    let mut attributes = i16::from_be_bytes(field(batch, ATTRIBUTES));
    if cleaned.delete_horizon {
        attributes |= DELETE_HORIZON;
    } else {
        attributes &= !DELETE_HORIZON;
    }
    finish(batch, attributes, cleaned);
}

/// Makes `header`, the header of a batch, into a batch without records, as Kafka writes it: not
/// compressed, no horizon, the greatest timestamp kept.
pub fn set_empty_header(header: &mut [u8; HEADER_BYTES]) {
    let attributes = i16::from_be_bytes(field(header, ATTRIBUTES)) & !(COMPRESSION_MASK | DELETE_HORIZON);
    let max_timestamp = i64::from_be_bytes(field(header, MAX_TIMESTAMP));
    let empty = CleanedHeader {
        records_count: 0,
        base_timestamp: NO_TIMESTAMP,
        max_timestamp,
        delete_horizon: false,
    };
    finish(header, attributes, empty);
}

fn finish(batch: &mut [u8], attributes: i16, cleaned: CleanedHeader) {
    let length = (batch.len() - LOG_OVERHEAD_BYTES) as i32;
    batch[LENGTH..LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    batch[ATTRIBUTES..LAST_OFFSET_DELTA].copy_from_slice(&attributes.to_be_bytes());
    batch[BASE_TIMESTAMP..MAX_TIMESTAMP].copy_from_slice(&cleaned.base_timestamp.to_be_bytes());
    batch[MAX_TIMESTAMP..PRODUCER_ID].copy_from_slice(&cleaned.max_timestamp.to_be_bytes());
    batch[RECORDS_COUNT..HEADER_BYTES].copy_from_slice(&cleaned.records_count.to_be_bytes());
    set_crc(batch);
}
