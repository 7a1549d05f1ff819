//! Record batches: what a leader validates of a producer's, what followers and mirrors check of copied ones, what
//! `kagami verify` and the cleaner unpack.
//!
//! An input is one byte that chooses settings, then batches.

use std::sync::Arc;

use broker::log::{AppendOrigin, LeaderAppend, Log, LogConfig, OpenState, ReadError, TimestampType, proof};
use broker::mirror::fetcher::answer;
use broker::mirror::verify::expand::expand;
use bytes::Bytes;
use common::ids::{LeaderEpoch, Offset, TopicId};
use protocol::messages::fetch_response::PartitionData;
use protocol::record_batch::{
    BatchHeader, Compression, HEADER_BYTES, batches, check_crc, read_control_record, read_end_txn_marker,
    set_base_offset,
};

use super::batch_samples::{self, CODECS, NOW_MS, recompressed, seal};
use crate::fuzz::scratch::Scratch;
use crate::fuzz::{Target, Trail, bound};
use crate::simulation::random::Random;

/// Bits of the first byte.
const COPIED: u8 = 1;
const RELAXED: u8 = 2;
const COORDINATOR: u8 = 4;
const COMPACT: u8 = 8;
const APPEND_TIME: u8 = 16;
/// Written, not only checked: touches files, so only with two bits set.
const WRITTEN: u8 = 32 | 64;

/// Codecs keep tables: lz4 two blocks of 4 MiB and more. A producer's records are seen through a window; `verify` and
/// the cleaner hold what a batch unpacks to, in a buffer that grows by doubling.
const BOUND_FLOOR_BYTES: usize = 16 << 20;
/// zstd repeats a byte 128 Ki times for four bytes of input.
const UNPACKED_FACTOR: usize = 100_000;

pub struct RecordBatches {
    _scratch: Scratch,
    log: Log,
    configs: [Arc<LogConfig>; 4],
}

impl RecordBatches {
    pub fn new() -> RecordBatches {
        let scratch = Scratch::new();
        let configs = [0, COMPACT, APPEND_TIME, COMPACT | APPEND_TIME].map(|bits| {
            let message_timestamp_type = if bits & APPEND_TIME == 0 {
                TimestampType::CreateTime
            } else {
                TimestampType::LogAppendTime
            };
            Arc::new(LogConfig {
                compact: bits & COMPACT != 0,
                message_timestamp_type,
                segment_bytes: 1500,
                index_interval_bytes: 100,
                ..LogConfig::default()
            })
        });
        let state =
            OpenState { clean_shutdown: true, recovery_point: Offset(0), log_start_offset: Offset(0) };
        let log = Log::open(scratch.path(), TopicId::ZERO, configs[0].clone(), state, NOW_MS);
        let log = log.unwrap_or_else(|error| panic!("a new log: {error}"));
        RecordBatches { _scratch: scratch, log, configs }
    }

    /// Reads what was written; then the log is empty again.
    fn read_back(&mut self, trail: &mut Trail) {
        let read = read_all(&self.log, trail);
        trail.result(read);
        let emptied = self.log.truncate_fully_and_start_at(Offset(0));
        emptied.unwrap_or_else(|error| panic!("the log cannot be emptied: {error}"));
    }
}

fn read_all(log: &Log, trail: &mut Trail) -> Result<(), ReadError> {
    let end = log.log_end_offset();
    let mut from = log.log_start_offset();
    while let Some(slice) = log.read(from, 300, end, true)? {
        assert!(slice.end_offset > from, "a slice that ends at {} for {from}", slice.end_offset);
        from = slice.end_offset;
    }
    trail.result(log.offset_for_timestamp(NOW_MS));
    trail.result(log.offset_of_max_timestamp());
    trail.result(log.aborted_transactions(Offset(0), end));
    trail.note(i32::from(log.end_offset_for_epoch(LeaderEpoch(1)).is_some()));
    Ok(())
}

/// All that can be read of batches without a log.
fn parse(bytes: &[u8], trail: &mut Trail) {
    for batch in batches(bytes) {
        let Some(batch) = trail.result(batch) else { return };
        trail.result(check_crc(batch.bytes));
        let header = &batch.header;
        trail.note(i32::from(header.last_offset() < header.base_offset || header.last_sequence() < 0));
        if header.compression() == Ok(Compression::None) {
            for record in batch.records() {
                let Some(record) = trail.result(record) else { break };
                let count = record.headers().len();
                assert_eq!(record.headers().count(), count, "headers of a record that was read");
            }
        }
        if header.is_control() {
            trail.result(read_control_record(&batch));
            trail.result(read_end_txn_marker(&batch));
        }
    }
}

/// What a mirror does with the records of a source, and what is done later with what it appended.
fn copied(log: &Log, bytes: &[u8], trail: &mut Trail) -> bool {
    let partition = PartitionData::default().with_records(Some(Bytes::copy_from_slice(bytes)));
    let whole = match answer::interpret(&partition, Offset(0)) {
        answer::Outcome::Data { records, .. } => records.len(),
        _ => 0,
    };
    let Some(checked) = trail.result(proof::check_copied(log, bytes)) else { return false };
    trail.accept();
    trail.note(i32::from(whole == checked));
    for batch in batches(&bytes[..checked]) {
        let Some(batch) = trail.result(batch) else { break };
        if let Some(records) = trail.result(expand(&batch.header, batch.bytes)) {
            trail.size(records.len());
        }
    }
    if let Some(cleaned) = trail.result(proof::clean(&bytes[..checked], NOW_MS)) {
        trail.size(cleaned.len());
        for batch in batches(&cleaned) {
            let batch = batch.unwrap_or_else(|error| panic!("a cleaned batch: {error}"));
            check_crc(batch.bytes).unwrap_or_else(|error| panic!("a cleaned batch: {error}"));
        }
    }
    checked > 0
}

impl Target for RecordBatches {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        for settings in
            [0, RELAXED, COORDINATOR, COMPACT, APPEND_TIME, WRITTEN, WRITTEN | COMPACT | APPEND_TIME]
        {
            seeds.extend(batch_samples::produced().iter().map(|batch| [&[settings], &batch[..]].concat()));
        }
        for settings in [COPIED, COPIED | WRITTEN] {
            seeds.extend(batch_samples::copied().iter().map(|batches| [&[settings], &batches[..]].concat()));
        }
        seeds
    }

    fn words(&self) -> Vec<Vec<u8>> {
        batch_samples::words()
    }

    /// Mostly every batch has its length, its codec and its checksum.
    fn repair(&self, input: &mut Vec<u8>, random: &mut Random) {
        let Some((&settings, rest)) = input.split_first() else { return };
        if random.chance(60) {
            return;
        }
        let mut repaired = vec![settings];
        let mut rest = rest;
        while rest.len() >= HEADER_BYTES {
            let length = BatchHeader::parse(rest).map_or(rest.len(), |header| header.size_bytes());
            // One of a producer is all that there is.
            let length = if settings & COPIED == 0 { rest.len() } else { length.min(rest.len()) };
            let (batch, after) = rest.split_at(length);
            let mut batch = batch.to_vec();
            if random.chance(30) {
                batch = recompressed(&batch, CODECS[random.below(CODECS.len())]);
            }
            if settings & COPIED == 0 && !random.chance(50) {
                set_base_offset(&mut batch, 0);
                // Offsets and count that fit each other.
                let last = i32::from_be_bytes([batch[23], batch[24], batch[25], batch[26]]);
                let count = last.wrapping_add(1).to_be_bytes();
                batch[57..61].copy_from_slice(&count);
            }
            batch[16] = 2;
            seal(&mut batch);
            repaired.extend_from_slice(&batch);
            rest = after;
        }
        repaired.extend_from_slice(rest);
        *input = repaired;
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        let unpacks = input.first().is_some_and(|settings| settings & COPIED != 0);
        bound(BOUND_FLOOR_BYTES, if unpacks { UNPACKED_FACTOR } else { 64 }, input)
    }

    fn longest_input_bytes(&self) -> usize {
        1500
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        let Some((&settings, bytes)) = input.split_first() else { return trail };
        trail.note(settings & !WRITTEN);
        parse(bytes, &mut trail);
        if settings & COPIED != 0 {
            if copied(&self.log, bytes, &mut trail) && settings & WRITTEN == WRITTEN {
                trail.result(self.log.append_as_follower(bytes, NOW_MS));
                self.read_back(&mut trail);
            }
            return trail;
        }
        let config = &self.configs[usize::from(settings >> 3 & 3)];
        let origin =
            if settings & COORDINATOR == 0 { AppendOrigin::Client } else { AppendOrigin::Coordinator };
        let append = LeaderAppend {
            leader_epoch: LeaderEpoch(1),
            origin,
            now_ms: NOW_MS,
            relaxed: settings & RELAXED != 0,
        };
        let mut records = bytes.to_vec();
        let validated = proof::validate(&mut records, config, &append);
        if trail.result(validated).is_none() {
            return trail;
        }
        trail.accept();
        trail.size(bytes.len());
        for batch in batches(&records) {
            let batch = batch.unwrap_or_else(|error| panic!("a batch that was validated: {error}"));
            check_crc(batch.bytes).unwrap_or_else(|error| panic!("a batch that was validated: {error}"));
        }
        if settings & WRITTEN == WRITTEN {
            self.log.update_config(config.clone());
            let mut records = bytes.to_vec();
            trail.result(self.log.append_as_leader(&mut records, append));
            self.read_back(&mut trail);
        }
        trail
    }
}
