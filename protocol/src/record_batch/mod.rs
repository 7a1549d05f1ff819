//! Record batches as bytes: a view of the 61-byte header, and what may be rewritten in place. Version 2
//! (magic 2) is the only one that Kafka 4 takes.
//!
//! Base offset and leader epoch lie before the CRC's range, so a leader may set them without touching
//! it; all else is covered.

mod builder;
mod control;
mod records;
mod rewrite;

pub use builder::{BatchBuilder, RecordHeader};
pub use control::{ControlRecordType, EndTxnMarker, read_control_record, read_end_txn_marker};
pub use records::{Headers, Record, Records};
pub use rewrite::{CleanedHeader, set_cleaned_header, set_empty_header};

/// Base offset and length: what stands in front of the bytes that the length counts.
pub const LOG_OVERHEAD_BYTES: usize = 12;
/// All of the header.
pub const HEADER_BYTES: usize = 61;
pub const CURRENT_MAGIC: i8 = 2;

const LENGTH: usize = 8;
const LEADER_EPOCH: usize = 12;
const MAGIC: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
const MAX_TIMESTAMP: usize = 35;
const PRODUCER_ID: usize = 43;
const PRODUCER_EPOCH: usize = 51;
const BASE_SEQUENCE: usize = 53;
const RECORDS_COUNT: usize = 57;

const COMPRESSION_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;
pub const NO_SEQUENCE: i32 = -1;
pub const NO_TIMESTAMP: i64 = -1;

/// Why bytes are no record batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does. The last batch of a fetch may be cut off so.
    #[error("a batch of {needed} bytes of which {available} are there")]
    Incomplete { needed: usize, available: usize },
    #[error("batch format {0}: only 2 is supported")]
    Magic(i8),
    #[error("a batch length of {0}")]
    Length(i32),
    #[error("CRC {found:#010x} where the batch says {stored:#010x}")]
    Crc { stored: u32, found: u32 },
    #[error("compression type {0}")]
    Compression(u8),
    #[error("record {index}: {what}")]
    Record { index: i32, what: &'static str },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    pub fn from_code(code: u8) -> Option<Compression> {
        Some(match code {
            0 => Compression::None,
            1 => Compression::Gzip,
            2 => Compression::Snappy,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// The header as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Of what follows the length field.
    pub length: i32,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records_count: i32,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

impl BatchHeader {
    /// Reads a header and checks format and length; the bytes after the header need not be there.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let available = bytes.len();
        if available <= MAGIC {
            return Err(BatchError::Incomplete { needed: HEADER_BYTES, available });
        }
        // First, since the formats before it have other fields behind it.
        let magic = i8::from_be_bytes(field(bytes, MAGIC));
        if magic != CURRENT_MAGIC {
            return Err(BatchError::Magic(magic));
        }
        let length = i32::from_be_bytes(field(bytes, LENGTH));
        if usize::try_from(length).is_ok_and(|length| length >= HEADER_BYTES - LOG_OVERHEAD_BYTES) {
            if available < HEADER_BYTES {
                return Err(BatchError::Incomplete { needed: HEADER_BYTES, available });
            }
        } else {
            return Err(BatchError::Length(length));
        }
        Ok(BatchHeader {
            base_offset: i64::from_be_bytes(field(bytes, 0)),
            length,
            leader_epoch: i32::from_be_bytes(field(bytes, LEADER_EPOCH)),
            magic,
            crc: u32::from_be_bytes(field(bytes, CRC)),
            attributes: i16::from_be_bytes(field(bytes, ATTRIBUTES)),
            last_offset_delta: i32::from_be_bytes(field(bytes, LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(field(bytes, BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(field(bytes, MAX_TIMESTAMP)),
            producer_id: i64::from_be_bytes(field(bytes, PRODUCER_ID)),
            producer_epoch: i16::from_be_bytes(field(bytes, PRODUCER_EPOCH)),
            base_sequence: i32::from_be_bytes(field(bytes, BASE_SEQUENCE)),
            records_count: i32::from_be_bytes(field(bytes, RECORDS_COUNT)),
        })
    }

    /// Of the whole batch, header included. `parse` has checked that the length is not negative.
    pub fn size_bytes(&self) -> usize {
        LOG_OVERHEAD_BYTES + self.length.max(0) as usize
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(i64::from(self.last_offset_delta))
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset().wrapping_add(1)
    }

    pub fn compression(&self) -> Result<Compression, BatchError> {
        let code = (self.attributes & COMPRESSION_MASK) as u8;
        Compression::from_code(code).ok_or(BatchError::Compression(code))
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Holds a marker instead of records.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// The base timestamp is the time from which on the cleaner may drop tombstones and markers.
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON != 0
    }

    pub fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    /// Sequences go from 2^31-1 to 0.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        increment_sequence(self.base_sequence, self.last_offset_delta)
    }
}

/// The sequence `by` records further.
pub fn increment_sequence(sequence: i32, by: i32) -> i32 {
    ((i64::from(sequence) + i64::from(by)) & i64::from(i32::MAX)) as i32
}

/// One batch in a run of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Where it begins in the run.
    pub position: usize,
    pub header: BatchHeader,
    /// All of it, header included.
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// What follows the header: the records, compressed together where the header says so.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// The records of a batch that is not compressed.
    pub fn records(&self) -> Records<'a> {
        Records::new(self.body(), self.header.records_count)
    }
}

/// The batches of a slice. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// Iterates over the batches of a slice. One cut off at the end is an `Incomplete`.
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { bytes, position: 0 }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.position..];
        if rest.is_empty() {
            return None;
        }
        let batch = BatchHeader::parse(rest).and_then(|header| {
            let needed = header.size_bytes();
            let bytes = rest.get(..needed).ok_or(BatchError::Incomplete { needed, available: rest.len() })?;
            Ok(Batch { position: self.position, header, bytes })
        });
        self.position = match &batch {
            Ok(batch) => batch.position + batch.bytes.len(),
            Err(_) => self.bytes.len(),
        };
        Some(batch)
    }
}

/// CRC-32C of a whole batch, from its attributes to its end.
fn crc_of(batch: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&batch[ATTRIBUTES..])
}

/// Compares the CRC of exactly one batch, the whole of it.
pub fn check_crc(batch: &[u8]) -> Result<(), BatchError> {
    if batch.len() < HEADER_BYTES {
        return Err(BatchError::Incomplete { needed: HEADER_BYTES, available: batch.len() });
    }
    let stored = u32::from_be_bytes(field(batch, CRC));
    let found = crc_of(batch);
    if stored == found { Ok(()) } else { Err(BatchError::Crc { stored, found }) }
}

/// Sets the base offset. `batch` begins with a header that was parsed.
pub fn set_base_offset(batch: &mut [u8], base_offset: i64) {
    batch[..LENGTH].copy_from_slice(&base_offset.to_be_bytes());
}

/// Sets the epoch of the leader that writes the batch. `batch` begins with a header that was parsed.
pub fn set_leader_epoch(batch: &mut [u8], leader_epoch: i32) {
    batch[LEADER_EPOCH..MAGIC].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Sets the greatest timestamp and whose it is, and the CRC anew. `batch` is exactly one batch. With
/// log append time the one timestamp holds for all records.
pub fn set_max_timestamp(batch: &mut [u8], timestamp_type: TimestampType, max_timestamp: i64) {
    let mut attributes = i16::from_be_bytes(field(batch, ATTRIBUTES));
    match timestamp_type {
        TimestampType::CreateTime => attributes &= !LOG_APPEND_TIME,
        TimestampType::LogAppendTime => attributes |= LOG_APPEND_TIME,
    }
    batch[ATTRIBUTES..LAST_OFFSET_DELTA].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP..PRODUCER_ID].copy_from_slice(&max_timestamp.to_be_bytes());
    set_crc(batch);
}

/// Sets the CRC of exactly one batch to what its bytes have.
pub fn set_crc(batch: &mut [u8]) {
    let crc = crc_of(batch);
    batch[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
}

#[cfg(test)]
mod tests;
