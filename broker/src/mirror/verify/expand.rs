//! PURE: the records of a batch in a form that can be compared, decompressed under a cap.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Read as _;

use protocol::record_batch::{BatchHeader, Compression, HEADER_BYTES, Records, TimestampType};

use crate::log::decompressor;

/// A batch may unpack to this much; what is larger is told, not compared.
const UNPACKED_BYTES: u64 = 256 * 1024 * 1024;

/// What both sides must agree on for one offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedRecord {
    pub offset: i64,
    timestamp: i64,
    timestamp_type: TimestampType,
    producer: (i64, i16, Option<i32>),
    transactional: bool,
    control: bool,
    /// Key, value and headers, each with its length, so that no two records run into one another.
    content: Vec<u8>,
    kind: Content,
}

/// What a cleaner goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Data {
        /// A hash of the key; `None`: it has none.
        key: Option<u128>,
        tombstone: bool,
    },
    /// `commit`: whether a transaction's marker commits it; `None`: another control record.
    Control { commit: Option<bool> },
}

impl ComparedRecord {
    pub fn kind(&self) -> Content {
        self.kind
    }

    pub fn timestamp(&self) -> i64 {
        self.timestamp
    }

    pub fn producer_id(&self) -> i64 {
        self.producer.0
    }

    /// The producer whose transaction it belongs to.
    pub fn transaction(&self) -> Option<i64> {
        (self.transactional && !self.control).then_some(self.producer.0)
    }
}

/// Two keys of one hash would explain each other's absence: 128 bits make that a matter of design, not of luck.
fn hash(key: &[u8]) -> u128 {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(seed);
        hasher.write(key);
        hasher.finish()
    };
    u128::from(half(1)) << 64 | u128::from(half(2))
}

fn kind_of(control: bool, key: Option<&[u8]>, value: Option<&[u8]>) -> Content {
    if !control {
        return Content::Data { key: key.map(hash), tombstone: value.is_none() };
    }
    // Version and type, two bytes each.
    let commit = match key.and_then(|key| key.get(2..4)) {
        Some([0, 0]) => Some(false),
        Some([0, 1]) => Some(true),
        _ => None,
    };
    Content::Control { commit }
}

pub fn expand(header: &BatchHeader, batch: &[u8]) -> Result<VecDeque<ComparedRecord>, String> {
    let body = batch.get(HEADER_BYTES..).unwrap_or_default();
    let compression = header.compression().map_err(|error| error.to_string())?;
    let unpacked;
    let body = if compression == Compression::None {
        body
    } else {
        let mut bytes = Vec::new();
        let reader = decompressor(compression, body).map_err(|error| error.to_string())?;
        reader.take(UNPACKED_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > UNPACKED_BYTES {
            return Err(format!(
                "the batch at {} unpacks to more than {UNPACKED_BYTES} bytes",
                header.base_offset
            ));
        }
        unpacked = bytes;
        &unpacked
    };
    let timestamp_type = header.timestamp_type();
    Records::new(body, header.records_count)
        .map(|record| {
            let record = record.map_err(|error| error.to_string())?;
            let mut content = Vec::new();
            put(&mut content, record.key);
            put(&mut content, record.value);
            for (name, value) in record.headers() {
                put(&mut content, Some(name));
                put(&mut content, value);
            }
            let sequence = (header.base_sequence >= 0).then(|| {
                protocol::record_batch::increment_sequence(header.base_sequence, record.offset_delta)
            });
            Ok(ComparedRecord {
                offset: header.base_offset.wrapping_add(i64::from(record.offset_delta)),
                timestamp: match timestamp_type {
                    TimestampType::LogAppendTime => header.max_timestamp,
                    TimestampType::CreateTime => header.base_timestamp.wrapping_add(record.timestamp_delta),
                },
                timestamp_type,
                producer: (header.producer_id, header.producer_epoch, sequence),
                transactional: header.is_transactional(),
                control: header.is_control(),
                content,
                kind: kind_of(header.is_control(), record.key, record.value),
            })
        })
        .collect()
}

fn put(content: &mut Vec<u8>, part: Option<&[u8]>) {
    match part {
        None => content.extend((-1i64).to_be_bytes()),
        Some(bytes) => {
            content.extend((bytes.len() as i64).to_be_bytes());
            content.extend(bytes);
        }
    }
}
