//! Bytes of metadata batches.
//!
//! A frame is: version (1 byte), length of the body (4 bytes, big endian), CRC-32C of the body (4 bytes),
//! body. A version above the known one stops the reader with an error that names it; nothing is skipped.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::record::MetadataBatch;

/// Version of the frame and of the records in it.
pub const VERSION: u8 = 1;
/// Longest body: above what one request can make.
pub const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
const HEADER_BYTES: usize = 9;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CodecError {
    #[error("metadata of version {0}; this build knows versions up to {VERSION}: upgrade it")]
    UnknownVersion(u8),
    #[error("metadata frame at byte {at} is cut off")]
    CutOff { at: usize },
    #[error("metadata frame at byte {at} claims {length} bytes, above the limit of {MAX_BODY_BYTES}")]
    TooLong { at: usize, length: usize },
    #[error("metadata frame at byte {at} is damaged: its CRC does not match")]
    Damaged { at: usize },
    #[error("metadata frame at byte {at} cannot be read: {reason}")]
    Malformed { at: usize, reason: String },
}

pub(super) fn crc(body: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, body) as u32
}

pub(super) fn put_frame<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    // Writing into memory can fail only on a type that postcard cannot express, which a test would show.
    if let Ok(written) = postcard::to_extend(value, std::mem::take(out)) {
        *out = written;
    }
    let body = start + HEADER_BYTES;
    let length = (out.len() - body) as u32;
    let sum = crc(&out[body..]);
    out[start] = VERSION;
    out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
    out[start + 5..body].copy_from_slice(&sum.to_be_bytes());
}

/// Reads the frame at `at`; gives the value and where the next frame begins.
pub(super) fn take_frame<T: DeserializeOwned>(bytes: &[u8], at: usize) -> Result<(T, usize), CodecError> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(header) = rest.first_chunk::<HEADER_BYTES>() else {
        return match rest.first() {
            Some(&version) if version > VERSION => Err(CodecError::UnknownVersion(version)),
            _ => Err(CodecError::CutOff { at }),
        };
    };
    if header[0] == 0 || header[0] > VERSION {
        return Err(CodecError::UnknownVersion(header[0]));
    }
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    if length > MAX_BODY_BYTES {
        return Err(CodecError::TooLong { at, length });
    }
    let body = rest.get(HEADER_BYTES..HEADER_BYTES + length).ok_or(CodecError::CutOff { at })?;
    if crc(body) != u32::from_be_bytes([header[5], header[6], header[7], header[8]]) {
        return Err(CodecError::Damaged { at });
    }
    let malformed = |reason: String| CodecError::Malformed { at, reason };
    let (value, left) = postcard::take_from_bytes(body).map_err(|error| malformed(error.to_string()))?;
    if !left.is_empty() {
        return Err(malformed(format!("{} bytes are left over", left.len())));
    }
    Ok((value, at + HEADER_BYTES + length))
}

/// The batches one after another, a frame each.
pub fn encode_batches(batches: &[MetadataBatch]) -> Bytes {
    let mut out = Vec::with_capacity(256 * batches.len());
    for batch in batches {
        put_frame(&mut out, batch);
    }
    out.into()
}

/// The inverse of [`encode_batches`].
pub fn decode_batches(bytes: &[u8]) -> Result<Vec<MetadataBatch>, CodecError> {
    let mut batches = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (batch, next) = take_frame(bytes, at)?;
        batches.push(batch);
        at = next;
    }
    Ok(batches)
}
