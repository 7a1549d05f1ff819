//! The segment files of a partition as they lie on disk, ours or Kafka's: read, checked, compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use protocol::record_batch::{BatchHeader, batches, check_crc};

/// A partition's directory below a log directory.
pub fn partition_directory(data: &Path, topic: &str, partition: i32) -> PathBuf {
    data.join(format!("{topic}-{partition}"))
}

/// Files of a partition with this ending, in the order of their offsets.
pub fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    Ok(files)
}

/// The batches of all segments, one after the other.
pub fn read(directory: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for path in files(directory, "log")? {
        bytes.extend(fs::read(&path).with_context(|| path.display().to_string())?);
    }
    Ok(bytes)
}

/// What a log holds.
#[derive(Debug, Default)]
pub struct Summary {
    pub batches: usize,
    pub records: i64,
    pub control_batches: usize,
    pub transactional_batches: usize,
    pub compressions: BTreeSet<u8>,
    pub producer_ids: BTreeSet<i64>,
    pub leader_epochs: BTreeSet<i32>,
    pub end_offset: i64,
}

/// Checks every CRC and that offsets and leader epochs rise.
pub fn summarize(bytes: &[u8]) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut epoch = i32::MIN;
    for batch in batches(bytes) {
        let batch = batch.with_context(|| format!("after offset {}", summary.end_offset))?;
        let header = batch.header;
        check_crc(batch.bytes).with_context(|| format!("batch at offset {}", header.base_offset))?;
        ensure!(
            header.base_offset >= summary.end_offset && header.leader_epoch >= epoch,
            "a batch at offset {} of epoch {} after offset {} of epoch {epoch}",
            header.base_offset,
            header.leader_epoch,
            summary.end_offset
        );
        epoch = header.leader_epoch;
        summary.batches += 1;
        summary.records += i64::from(header.records_count);
        summary.control_batches += usize::from(header.is_control());
        summary.transactional_batches += usize::from(header.is_transactional());
        summary.compressions.insert((header.attributes & 7) as u8);
        summary.producer_ids.insert(header.producer_id);
        summary.leader_epochs.insert(epoch);
        summary.end_offset = header.next_offset();
    }
    Ok(summary)
}

/// The batches below an offset, which must lie between two.
pub fn below(bytes: &[u8], offset: i64) -> Result<&[u8]> {
    for batch in batches(bytes) {
        let batch = batch?;
        if batch.header.base_offset >= offset {
            return Ok(&bytes[..batch.position]);
        }
        ensure!(batch.header.next_offset() <= offset, "offset {offset} lies within a batch");
    }
    Ok(bytes)
}

/// The highest offset at which no transaction of these batches is open: what a stopped mirror keeps. A cut
/// there may undecide transactions whose markers it drops, so it is lowered until it stays.
pub fn decided_end(bytes: &[u8]) -> Result<i64> {
    let mut end = summarize(bytes)?.end_offset;
    loop {
        let mut open: BTreeMap<i64, i64> = BTreeMap::new();
        for batch in batches(bytes) {
            let header = batch?.header;
            if header.base_offset >= end {
                break;
            }
            if header.is_control() {
                open.remove(&header.producer_id);
            } else if header.is_transactional() {
                open.entry(header.producer_id).or_insert(header.base_offset);
            }
        }
        match open.values().min() {
            Some(first) => end = *first,
            None => return Ok(end),
        }
    }
}

/// Equal bytes, or an error that names the first batch that differs.
pub fn ensure_equal(what: &str, expected: &[u8], found: &[u8]) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let same = expected.iter().zip(found).take_while(|(left, right)| left == right).count();
    let (left, right) = (header_at(expected, same), header_at(found, same));
    bail!(
        "{what}: differs at byte {same} of {} and {}: expected {left:?}, found {right:?}",
        expected.len(),
        found.len()
    )
}

/// The batch that holds a byte.
fn header_at(bytes: &[u8], position: usize) -> Option<BatchHeader> {
    batches(bytes)
        .map_while(Result::ok)
        .find(|batch| position < batch.position + batch.bytes.len())
        .map(|batch| batch.header)
}

#[cfg(test)]
mod tests {
    use protocol::record_batch::{BatchBuilder, EndTxnMarker};

    use super::*;

    fn log(values: &[&str]) -> Vec<u8> {
        let batch = |(offset, value): (usize, &&str)| {
            let builder = BatchBuilder::new().base_offset(offset as i64).leader_epoch(3);
            builder.record(7, None, Some(value.as_bytes())).build().to_vec()
        };
        values.iter().enumerate().flat_map(batch).collect()
    }

    #[test]
    fn a_difference_is_named_by_its_batch() {
        let (expected, found) = (log(&["a", "b", "c"]), log(&["a", "x", "c"]));
        ensure_equal("t-0", &expected, &expected.clone()).unwrap();
        let error = ensure_equal("t-0", &expected, &found).unwrap_err().to_string();
        assert!(error.contains("base_offset: 1"), "{error}");
        assert_eq!(below(&expected, 2).unwrap(), log(&["a", "b"]));
        assert_eq!(below(&expected, 9).unwrap(), expected);
    }

    #[test]
    fn a_cut_that_undecides_another_transaction_is_lowered() {
        let data = |offset, id| {
            let batch = BatchBuilder::new().base_offset(offset).leader_epoch(0).producer(id, 0, 0);
            batch.transactional().record(7, None, Some(b"v")).build().to_vec()
        };
        let commit = |offset, id| {
            let marker = EndTxnMarker { committed: true, coordinator_epoch: 0 };
            let batch = BatchBuilder::new().base_offset(offset).leader_epoch(0).producer(id, 0, -1);
            batch.end_txn_marker(7, marker).build().to_vec()
        };
        // The second is open at the end; the first's marker lies above its beginning.
        let log = [data(0, 1), data(1, 2), commit(2, 1)].concat();
        assert_eq!(decided_end(&log).unwrap(), 0);
        let log = [log, commit(3, 2)].concat();
        assert_eq!(decided_end(&log).unwrap(), 4);
    }

    #[test]
    fn a_log_is_summarized_and_a_bad_crc_is_found() {
        let mut bytes = log(&["a", "b"]);
        let summary = summarize(&bytes).unwrap();
        assert_eq!((summary.batches, summary.records, summary.end_offset), (2, 2, 2));
        assert_eq!(summary.leader_epochs, BTreeSet::from([3]));
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(summarize(&bytes).is_err());
    }
}
