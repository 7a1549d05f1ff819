//! A partition's directory, opened as a broker does after a clean stop or a crash, then read, cut and written to.

use std::sync::Arc;

use broker::log::{AppendOrigin, LeaderAppend, Log, LogConfig, LogError, OpenState};
use common::ids::{LeaderEpoch, Offset, TopicId};
use protocol::record_batch::{batches, check_crc};

use super::batch_samples::{NOW_MS, produced, words};
use super::log_files::{CLEAN_SHUTDOWN, COMPACT, parse, samples, sealed};
use crate::fuzz::scratch::Scratch;
use crate::fuzz::{Target, Trail, bound};
use crate::simulation::random::Random;

/// Reads ahead 64 KiB at a time, on opening and on looking for a time.
const BOUND_FLOOR_BYTES: usize = 512 << 10;
const BOUND_FACTOR: usize = 64;

pub struct Logs {
    scratch: Scratch,
    plain: Arc<LogConfig>,
    compacted: Arc<LogConfig>,
    batch: Vec<u8>,
}

impl Logs {
    pub fn new() -> Logs {
        let config = |compact| LogConfig {
            compact,
            segment_bytes: 1500,
            index_interval_bytes: 100,
            ..LogConfig::default()
        };
        Logs {
            scratch: Scratch::new(),
            plain: Arc::new(config(false)),
            compacted: Arc::new(config(true)),
            batch: produced().into_iter().next().unwrap_or_default(),
        }
    }

    fn open(&self, input: &[u8]) -> Option<(Result<Log, LogError>, bool)> {
        let (head, files) = parse(input)?;
        for (name, content) in files {
            self.scratch.write(name, content);
        }
        let state = OpenState {
            clean_shutdown: head.flags & CLEAN_SHUTDOWN != 0,
            recovery_point: Offset(head.recovery_point.into()),
            log_start_offset: Offset(head.log_start.into()),
        };
        let config = if head.flags & COMPACT == 0 { &self.plain } else { &self.compacted };
        // Everything was looked at, with its checksum.
        let checked = !state.clean_shutdown && head.recovery_point == 0;
        Some((Log::open(self.scratch.path(), TopicId::ZERO, config.clone(), state, NOW_MS), checked))
    }

    fn append(&self, log: &mut Log, trail: &mut Trail) {
        let append = LeaderAppend {
            leader_epoch: LeaderEpoch(1000),
            origin: AppendOrigin::Client,
            now_ms: NOW_MS,
            relaxed: false,
        };
        let (end, mut batch) = (log.log_end_offset(), self.batch.clone());
        if let Some(info) = trail.result(log.append_as_leader(&mut batch, append)) {
            assert_eq!(info.first_offset, end);
        }
    }
}

/// `checked`: recovery has left nothing that is not sound.
fn read(log: &Log, checked: bool, trail: &mut Trail) {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    assert!(start <= end, "a log from {start} to {end}");
    let mut from = start;
    let mut slices = 0;
    while let Some(Some(slice)) = trail.result(log.read(from, 200, end, true)) {
        assert!(slice.end_offset > from, "a slice that ends at {} for {from}", slice.end_offset);
        if checked {
            let bytes = bytes_of(&slice);
            for batch in batches(&bytes) {
                let batch = batch.unwrap_or_else(|error| panic!("a batch after recovery: {error}"));
                check_crc(batch.bytes).unwrap_or_else(|error| panic!("a batch after recovery: {error}"));
            }
        }
        from = slice.end_offset;
        slices += 1;
    }
    trail.size(slices);
    for timestamp_ms in [i64::MIN, NOW_MS, NOW_MS + 3, i64::MAX] {
        trail.result(log.offset_for_timestamp(timestamp_ms));
    }
    trail.result(log.offset_of_max_timestamp());
    trail.result(log.aborted_transactions(start, end));
    log.last_stable_offset(end);
    for epoch in [-1, 0, 3, i32::MAX] {
        log.end_offset_for_epoch(LeaderEpoch(epoch));
        log.mirrored_end_offset_for_epoch(LeaderEpoch(epoch));
    }
}

fn bytes_of(slice: &broker::log::LogSlice) -> Vec<u8> {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; slice.length];
    let read = slice.file.read_exact_at(&mut bytes, slice.position);
    read.unwrap_or_else(|error| panic!("a slice past its file: {error}"));
    bytes
}

impl Target for Logs {
    fn seeds(&self) -> Vec<Vec<u8>> {
        samples()
    }

    fn words(&self) -> Vec<Vec<u8>> {
        words()
    }

    fn repair(&self, input: &mut Vec<u8>, random: &mut Random) {
        if !random.chance(150)
            && let Some(sealed) = sealed(input)
        {
            *input = sealed;
        }
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        bound(BOUND_FLOOR_BYTES, BOUND_FACTOR, input)
    }

    fn longest_input_bytes(&self) -> usize {
        3000
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        self.scratch.clear();
        let Some((opened, checked)) = self.open(input) else { return trail };
        let Some(mut log) = trail.result(opened) else { return trail };
        trail.accept();
        trail.size(log.segment_count());
        read(&log, checked, &mut trail);
        self.append(&mut log, &mut trail);
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        let middle = Offset(start.0 + (end.0 - start.0) / 2);
        if trail.result(log.truncate_to(middle)).is_some() {
            read(&log, checked, &mut trail);
            self.append(&mut log, &mut trail);
        }
        trail.result(log.close());
        trail
    }
}
