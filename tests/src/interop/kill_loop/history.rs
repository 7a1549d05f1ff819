//! What the load's clients saw, checked against the logs: the history checks lost-write, duplicate,
//! nonmonotonic-send and inconsistent-offsets.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use protocol::record_batch::{BatchBuilder, batches};

use crate::client::ProducerIdentity;
use crate::segments;

pub const RECORDS_PER_BATCH: i32 = 5;

/// A batch that a writer got an answer for.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    /// Its first record's number.
    pub first: i32,
    /// `None`: acknowledged as a duplicate.
    pub base_offset: Option<i64>,
}

/// A batch that a reader got.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub partition: i32,
    pub base_offset: i64,
    pub next_offset: i64,
    pub crc: u32,
}

/// Records `first` and the next ones of a partition's one writer. Record numbers are sequence numbers.
pub fn batch(partition: i32, first: i32, identity: ProducerIdentity) -> Bytes {
    let mut builder = BatchBuilder::new().producer(identity.id, identity.epoch, first);
    for number in first..first + RECORDS_PER_BATCH {
        builder.push(1_700_000_000_000, None, Some(value(partition, number).as_bytes()), &[]);
    }
    builder.build()
}

fn value(partition: i32, number: i32) -> String {
    format!("writer-{partition}-record-{number}")
}

/// The batches of an answer.
pub fn seen(partition: i32, records: &[u8]) -> Vec<Seen> {
    let seen = |header: protocol::record_batch::BatchHeader| Seen {
        partition,
        base_offset: header.base_offset,
        next_offset: header.next_offset(),
        crc: header.crc,
    };
    batches(records).map_while(Result::ok).map(|batch| seen(batch.header)).collect()
}

/// Every acknowledged record is in the log once, in the order in which it was sent, where the
/// acknowledgement said; how many there are.
pub fn check(partition: i32, acknowledged: &[Acknowledged], log: &[u8]) -> Result<usize> {
    segments::summarize(log)?;
    let mut values: Vec<(i64, String)> = Vec::new();
    for batch in batches(log) {
        let batch = batch?;
        for record in batch.records() {
            let record = record?;
            let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
            values.push((batch.header.base_offset + i64::from(record.offset_delta), value));
        }
    }
    // One writer, so the log is the sequence of its records; the last batch may be there without an answer.
    for (number, (offset, found)) in values.iter().enumerate() {
        let expected = value(partition, number as i32);
        ensure!(
            *found == expected,
            "offset {offset} holds {found}, expected is {expected}: lost, twice or out of order"
        );
    }
    let last = acknowledged.last().map_or(0, |last| last.first + RECORDS_PER_BATCH) as usize;
    ensure!(values.len() >= last, "{last} records were acknowledged, {} are there", values.len());
    ensure!(
        values.len() <= last + RECORDS_PER_BATCH as usize,
        "{last} records were sent, {} are there",
        values.len()
    );
    for acknowledged in acknowledged {
        let Some(base_offset) = acknowledged.base_offset else { continue };
        let (offset, value) = &values[acknowledged.first as usize];
        ensure!(
            *offset == base_offset,
            "{value} was acknowledged at offset {base_offset}, it is at {offset}"
        );
    }
    Ok(last)
}

/// What a reader once got at an offset is there still.
pub fn check_seen(seen: &[Seen], logs: &[Vec<u8>]) -> Result<()> {
    for (partition, log) in logs.iter().enumerate() {
        let mut there: BTreeMap<i64, u32> = BTreeMap::new();
        for batch in batches(log) {
            let header = batch?.header;
            there.insert(header.base_offset, header.crc);
        }
        for seen in seen.iter().filter(|seen| seen.partition == partition as i32) {
            let crc =
                there.get(&seen.base_offset).with_context(|| format!("read, and now gone: {seen:?}"))?;
            if *crc != seen.crc {
                bail!("read, and now another batch: {seen:?}");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(batches: &[(i64, i32)]) -> Vec<u8> {
        let write = |(offset, first): &(i64, i32)| {
            let mut bytes = batch(0, *first, ProducerIdentity { id: 1, epoch: 0 }).to_vec();
            protocol::record_batch::set_base_offset(&mut bytes, *offset);
            bytes
        };
        batches.iter().flat_map(write).collect()
    }

    fn acknowledged(batches: &[(i64, i32)]) -> Vec<Acknowledged> {
        batches
            .iter()
            .map(|(offset, first)| Acknowledged { first: *first, base_offset: Some(*offset) })
            .collect()
    }

    #[test]
    fn losses_duplicates_and_other_orders_are_found() {
        let sent = [(0, 0), (5, 5), (10, 10)];
        assert_eq!(check(0, &acknowledged(&sent), &log(&sent)).unwrap(), 15);
        // The last was not acknowledged.
        assert_eq!(check(0, &acknowledged(&sent[..2]), &log(&sent)).unwrap(), 10);
        assert!(check(0, &acknowledged(&sent), &log(&sent[..2])).is_err());
        assert!(check(0, &acknowledged(&sent), &log(&[(0, 0), (5, 10)])).is_err());
        assert!(check(0, &acknowledged(&sent[..2]), &log(&[(0, 0), (5, 5), (10, 5)])).is_err());
        assert!(check(0, &acknowledged(&[(1, 0)]), &log(&sent[..1])).is_err());
    }

    #[test]
    fn a_record_that_changes_after_it_was_read_is_found() {
        let logs = [log(&[(0, 0), (5, 5)])];
        let read = seen(0, &logs[0]);
        check_seen(&read, &logs).unwrap();
        assert!(check_seen(&read, &[log(&[(0, 0), (5, 10)])]).is_err());
        assert!(check_seen(&read, &[log(&[(0, 0)])]).is_err());
    }
}
