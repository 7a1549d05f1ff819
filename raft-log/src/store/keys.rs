//! Key layout, and how values are sealed with a CRC.
//!
//! Everything lives in one tree, so that a batch of it is atomic: `m` + name for marks, `l` + index +
//! part for entries. An entry is split into parts because sled keeps values above a page in files of
//! their own, which it never syncs.

use std::io;

use crc_fast::{CrcAlgorithm, Digest};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::damaged;
use crate::type_config::Entry;

/// Prefix of all marks.
pub const MARKS: &[u8] = b"m";
pub const IDENTITY: &[u8] = b"midentity";
pub const FOUNDING: &[u8] = b"mfounding";
pub const VOTE: &[u8] = b"mvote";
pub const COMMITTED: &[u8] = b"mcommitted";
pub const PURGED: &[u8] = b"mpurged";
pub const SNAPSHOT: &[u8] = b"msnapshot";
pub const RECOVERED: &[u8] = b"mrecovered";
pub const GIVEN_UP: &[u8] = b"mgiven-up";

const ENTRY: u8 = b'l';
const PART_BYTES: usize = 64 << 10;
/// In front of an entry's first part: CRC-32C of index and data, length of the data.
const ENTRY_HEADER_BYTES: usize = 8;

pub type EntryKey = [u8; 11];

pub fn entry_key(index: u64, part: u16) -> EntryKey {
    let mut key = [ENTRY; 11];
    key[1..9].copy_from_slice(&index.to_be_bytes());
    key[9..].copy_from_slice(&part.to_be_bytes());
    key
}

/// Above every mark.
pub fn marks_end() -> [u8; 1] {
    [MARKS[0] + 1]
}

/// Above every entry's key.
pub fn entries_end() -> [u8; 1] {
    [ENTRY + 1]
}

pub fn parse_entry_key(key: &[u8]) -> io::Result<(u64, u16)> {
    match key {
        [ENTRY, a, b, c, d, e, f, g, h, high, low] => {
            Ok((u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), u16::from_be_bytes([*high, *low])))
        }
        _ => Err(damaged(format!("unknown key {key:?}"))),
    }
}

/// An entry's keys and values, in order.
pub fn encode_entry(index: u64, entry: &Entry) -> io::Result<Vec<(EntryKey, Vec<u8>)>> {
    let data = postcard::to_allocvec(entry).map_err(io::Error::other)?;
    let length = u32::try_from(data.len()).map_err(io::Error::other)?;
    let mut first = Vec::with_capacity(ENTRY_HEADER_BYTES + data.len().min(PART_BYTES));
    first.extend_from_slice(&entry_crc(index, &data).to_be_bytes());
    first.extend_from_slice(&length.to_be_bytes());
    let mut parts = data.chunks(PART_BYTES);
    first.extend_from_slice(parts.next().unwrap_or_default());
    let mut writes = vec![(entry_key(index, 0), first)];
    for (part, data) in (1u16..).zip(parts) {
        writes.push((entry_key(index, part), data.to_vec()));
    }
    let stored: usize = writes.iter().map(|(_, value)| value.len()).sum();
    if stored != data.len() + ENTRY_HEADER_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "entry too large to be stored"));
    }
    Ok(writes)
}

/// Puts entries together again from their parts, in key order, and checks each.
pub struct EntryDecoder {
    pending: Option<Pending>,
}

struct Pending {
    index: u64,
    crc: u32,
    length: usize,
    next_part: u16,
    data: Vec<u8>,
}

impl EntryDecoder {
    pub fn new() -> EntryDecoder {
        EntryDecoder { pending: None }
    }

    /// The next part; the entry once it is whole.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<Option<(u64, Entry)>> {
        let (index, part) = parse_entry_key(key)?;
        let mut pending = match self.pending.take() {
            None => {
                let (Some((crc, rest)), 0) = (value.split_first_chunk::<4>(), part) else {
                    return Err(damaged(format!("entry {index} has no beginning")));
                };
                let Some((length, data)) = rest.split_first_chunk::<4>() else {
                    return Err(damaged(format!("entry {index} is cut off")));
                };
                let length = u32::from_be_bytes(*length) as usize;
                Pending { index, crc: u32::from_be_bytes(*crc), length, next_part: 1, data: data.to_vec() }
            }
            Some(mut pending) => {
                if pending.index != index || pending.next_part != part {
                    return Err(damaged(format!("entry {} lacks a part", pending.index)));
                }
                pending.data.extend_from_slice(value);
                // A part behind the last one that a key can name lacks its place.
                pending.next_part = pending.next_part.saturating_add(1);
                pending
            }
        };
        if pending.data.len() < pending.length {
            self.pending = Some(pending);
            return Ok(None);
        }
        let data = std::mem::take(&mut pending.data);
        if data.len() != pending.length || entry_crc(index, &data) != pending.crc {
            return Err(damaged(format!("entry {index} does not match its checksum")));
        }
        let entry =
            postcard::from_bytes(&data).map_err(|error| damaged(format!("entry {index}: {error}")))?;
        Ok(Some((index, entry)))
    }

    /// To be called after the last part.
    pub fn finish(self) -> io::Result<()> {
        match self.pending {
            None => Ok(()),
            Some(pending) => Err(damaged(format!("entry {} lacks a part", pending.index))),
        }
    }
}

fn entry_crc(index: u64, data: &[u8]) -> u32 {
    crc(&[&index.to_be_bytes(), data])
}

/// CRC-32C over several slices.
pub fn crc(slices: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for slice in slices {
        digest.update(slice);
    }
    // A 32-bit algorithm leaves the upper half zero.
    digest.finalize() as u32
}

/// A mark with its CRC in front, which covers the name too.
pub fn seal(name: &[u8], value: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = postcard::to_allocvec(value).map_err(io::Error::other)?;
    let mut sealed = crc(&[name, &body]).to_be_bytes().to_vec();
    sealed.extend_from_slice(&body);
    Ok(sealed)
}

pub fn unseal<T: DeserializeOwned>(name: &[u8], sealed: &[u8]) -> io::Result<T> {
    let readable = String::from_utf8_lossy(name.get(1..).unwrap_or_default()).into_owned();
    let Some((expected, body)) = sealed.split_first_chunk::<4>() else {
        return Err(damaged(format!("the mark \"{readable}\" is cut off")));
    };
    if crc(&[name, body]) != u32::from_be_bytes(*expected) {
        return Err(damaged(format!("the mark \"{readable}\" does not match its checksum")));
    }
    postcard::from_bytes(body).map_err(|error| damaged(format!("the mark \"{readable}\": {error}")))
}
