//! `.snapshot`: producer state at an offset, so that reopening a log need not read it. Kafka's format,
//! version 1: version, CRC-32C of the rest, a count, 46 bytes a producer. Only the last batch of each
//! producer is kept, so after a restart only that one is recognised as a duplicate, as in Kafka.

use std::path::{Path, PathBuf};

use common::ids::{Offset, ProducerEpoch, ProducerId};
use protocol::record_batch::NO_SEQUENCE;

use super::checkpoint::{Durability, replace_file};
use super::disk;
use super::error::LogError;
use super::producer_state::{ProducerEntry, ProducerState, RememberedBatch};

const VERSION: i16 = 1;
const HEADER_BYTES: usize = 2 + 4;
const ENTRY_BYTES: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;

pub(crate) fn path(log_directory: &Path, offset: Offset) -> PathBuf {
    log_directory.join(format!("{:020}.snapshot", offset.0))
}

pub(crate) fn write(
    log_directory: &Path,
    state: &ProducerState,
    durability: Durability,
) -> Result<(), LogError> {
    replace_file(&path(log_directory, state.end_offset), &encode(state), durability)
}

/// The state of the newest readable snapshot at or below `at_most`. A damaged one is deleted: what it
/// held comes back from the batches.
pub(crate) fn load_newest(
    log_directory: &Path,
    snapshots: &[Offset],
    at_most: Offset,
) -> Result<Option<ProducerState>, LogError> {
    for offset in snapshots.iter().rev().filter(|offset| **offset <= at_most) {
        let path = path(log_directory, *offset);
        let Some(bytes) = disk::read_file(&path)? else { continue };
        match decode(&bytes, *offset) {
            Some(state) => return Ok(Some(state)),
            None => {
                tracing::warn!(path = %path.display(), "deleting a damaged producer snapshot");
                disk::remove(&path)?;
            }
        }
    }
    Ok(None)
}

pub(crate) fn remove(log_directory: &Path, offset: Offset) -> Result<(), LogError> {
    disk::remove(&path(log_directory, offset))
}

pub(super) fn encode(state: &ProducerState) -> Vec<u8> {
    let entries = state.entries();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 4 + entries.len() * ENTRY_BYTES);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(entries.len() as i32).to_be_bytes());
    for (producer_id, entry) in entries {
        let last = entry.last_batch();
        bytes.extend_from_slice(&producer_id.0.to_be_bytes());
        bytes.extend_from_slice(&entry.producer_epoch.0.to_be_bytes());
        bytes.extend_from_slice(&entry.last_sequence().to_be_bytes());
        bytes.extend_from_slice(&last.map_or(-1, |batch| batch.last_offset.0).to_be_bytes());
        bytes.extend_from_slice(&last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
        bytes.extend_from_slice(&entry.last_timestamp_ms.to_be_bytes());
        bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        bytes.extend_from_slice(&entry.transaction_first_offset.map_or(-1, |offset| offset.0).to_be_bytes());
    }
    let crc = crc_fast::crc32_iscsi(&bytes[HEADER_BYTES..]);
    bytes[2..HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
    bytes
}

pub(super) fn decode(bytes: &[u8], end_offset: Offset) -> Option<ProducerState> {
    let mut fields = Fields { rest: bytes };
    if fields.take::<2>().map(i16::from_be_bytes)? != VERSION {
        return None;
    }
    let crc = fields.take::<4>().map(u32::from_be_bytes)?;
    if crc_fast::crc32_iscsi(fields.rest) != crc {
        return None;
    }
    let count = fields.take::<4>().map(i32::from_be_bytes)?;
    if usize::try_from(count).ok()?.checked_mul(ENTRY_BYTES)? != fields.rest.len() {
        return None;
    }
    let mut state = ProducerState::at(end_offset);
    for _ in 0..count {
        let producer_id = ProducerId(fields.take().map(i64::from_be_bytes)?);
        let mut entry = ProducerEntry::new(ProducerEpoch(fields.take().map(i16::from_be_bytes)?));
        let last_sequence = fields.take().map(i32::from_be_bytes)?;
        let last_offset = Offset(fields.take().map(i64::from_be_bytes)?);
        let offset_delta = fields.take().map(i32::from_be_bytes)?;
        entry.last_timestamp_ms = fields.take().map(i64::from_be_bytes)?;
        entry.coordinator_epoch = fields.take().map(i32::from_be_bytes)?;
        let transaction = fields.take().map(i64::from_be_bytes)?;
        entry.transaction_first_offset = (transaction >= 0).then_some(Offset(transaction));
        if last_offset.0 >= 0 {
            // A batch begins at an offset, too.
            if !(0..=last_offset.0).contains(&i64::from(offset_delta)) || last_sequence < NO_SEQUENCE {
                return None;
            }
            entry.remember(RememberedBatch {
                last_sequence,
                last_offset,
                offset_delta,
                timestamp_ms: entry.last_timestamp_ms,
            });
        }
        // Whoever stood here twice, or began a transaction where another did, would leave one open for ever.
        if !state.insert(producer_id, entry) {
            return None;
        }
    }
    Some(state)
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (field, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*field)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::producer_state::{BatchContent, ProducerBatch};
    use super::*;

    fn state() -> ProducerState {
        let mut state = ProducerState::at(Offset(0));
        for (producer_id, first_offset, transactional) in [(5, 0, false), (6, 4, true)] {
            state.apply(&ProducerBatch {
                producer_id: ProducerId(producer_id),
                producer_epoch: ProducerEpoch(1),
                base_sequence: 9,
                first_offset: Offset(first_offset),
                last_offset: Offset(first_offset + 3),
                timestamp_ms: 77,
                transactional,
                content: BatchContent::Data,
            });
        }
        state
    }

    #[test]
    fn state_survives_a_round_trip() {
        let directory = tempfile::tempdir().unwrap();
        let written = state();
        write(directory.path(), &written, Durability::Process).unwrap();
        let path = path(directory.path(), Offset(8));
        assert_eq!(path.file_name().unwrap(), "00000000000000000008.snapshot");
        assert_eq!(fs::metadata(&path).unwrap().len(), 10 + 2 * 46);
        let read = load_newest(directory.path(), &[Offset(8)], Offset(9)).unwrap().unwrap();
        assert_eq!(read, written);
        assert!(load_newest(directory.path(), &[Offset(8)], Offset(7)).unwrap().is_none());
    }

    #[test]
    fn no_bit_can_change_unseen() {
        let bytes = encode(&state());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged, Offset(8)).is_none(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], Offset(8)).is_none());
        }
    }

    /// Found by the fuzzer: the transaction of the entry that went lost held the last stable offset for ever.
    #[test]
    fn a_producer_or_a_transaction_that_stands_there_twice_is_damage() {
        let sealed = |entries: &[(i64, i64)]| {
            let mut bytes = encode(&ProducerState::at(Offset(8)));
            bytes[6..10].copy_from_slice(&(entries.len() as i32).to_be_bytes());
            for (producer_id, transaction) in entries {
                bytes.extend(producer_id.to_be_bytes());
                bytes.extend([0; 2 + 4 + 8 + 4 + 8 + 4]);
                bytes.extend(transaction.to_be_bytes());
            }
            let crc = crc_fast::crc32_iscsi(&bytes[HEADER_BYTES..]);
            bytes[2..HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
            decode(&bytes, Offset(8))
        };
        assert!(sealed(&[(5, 3), (6, 4), (7, -1), (8, -1)]).is_some());
        assert!(sealed(&[(5, 3), (5, -1)]).is_none());
        assert!(sealed(&[(5, 3), (6, 3)]).is_none());
    }

    /// Found by the fuzzer: where such a batch begins is no offset, and no sequence either.
    #[test]
    fn a_batch_that_begins_nowhere_is_damage() {
        for (last_sequence, last_offset, offset_delta, sound) in [
            (12, 3, 3, true),
            (2, 3, 3, true),
            (NO_SEQUENCE, 3, 3, true),
            (12, 3, 4, false),
            (12, 3, -1, false),
            (12, i64::MAX, i32::MIN, false),
            (-2, 3, 3, false),
        ] {
            let mut state = ProducerState::at(Offset(8));
            let mut entry = ProducerEntry::new(ProducerEpoch(1));
            let last_offset = Offset(last_offset);
            entry.remember(RememberedBatch { last_sequence, last_offset, offset_delta, timestamp_ms: 7 });
            assert!(state.insert(ProducerId(5), entry));
            assert_eq!(decode(&encode(&state), Offset(8)).is_some(), sound, "{last_sequence} {offset_delta}");
        }
    }

    #[test]
    fn a_damaged_snapshot_gives_way_to_an_older_one() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &state(), Durability::Process).unwrap();
        fs::write(path(directory.path(), Offset(20)), b"damaged").unwrap();
        let read = load_newest(directory.path(), &[Offset(8), Offset(20)], Offset(30)).unwrap().unwrap();
        assert_eq!(read.end_offset, Offset(8));
        assert!(!path(directory.path(), Offset(20)).exists());
    }
}
