//! Logs in temporary directories, and batches to put into them.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use common::ids::{DirectoryId, LeaderEpoch, Offset, TopicId};
use protocol::record_batch::{BatchBuilder, EndTxnMarker, HEADER_BYTES, LOG_OVERHEAD_BYTES, set_crc};

use crate::log::{
    AppendError, AppendInfo, AppendOrigin, LeaderAppend, Log, LogConfig, LogManager, LogManagerConfig,
    LogSlice, OpenState,
};

pub const NOW: i64 = 1_700_000_000_000;

/// Small segments and dense indexes, so that a few batches reach every path.
pub fn config() -> LogConfig {
    LogConfig { segment_bytes: 700, index_interval_bytes: 100, ..LogConfig::default() }
}

/// In memory where there is such a file system: these tests sync a great deal.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub struct TestLog {
    pub directory: tempfile::TempDir,
    pub config: Arc<LogConfig>,
    pub log: Log,
}

pub fn clean() -> OpenState {
    OpenState { clean_shutdown: true, recovery_point: Offset(0), log_start_offset: Offset(0) }
}

pub fn crashed() -> OpenState {
    OpenState { clean_shutdown: false, ..clean() }
}

pub fn open(path: &Path, config: &Arc<LogConfig>, state: OpenState) -> Log {
    Log::open(path, TopicId::ZERO, config.clone(), state, NOW).unwrap()
}

impl TestLog {
    pub fn new(config: LogConfig) -> TestLog {
        let directory = directory();
        let config = Arc::new(config);
        let log = open(directory.path(), &config, clean());
        TestLog { directory, config, log }
    }

    /// Drops the log without closing it, as a crash of the process does.
    pub fn crash(&mut self) {
        let log_start_offset = self.log.log_start_offset();
        self.reopen(OpenState { log_start_offset, ..crashed() });
    }

    pub fn restart(&mut self) {
        self.log.close().unwrap();
        let log_start_offset = self.log.log_start_offset();
        self.reopen(OpenState { log_start_offset, ..clean() });
    }

    pub fn reopen(&mut self, state: OpenState) {
        self.log = open(self.directory.path(), &self.config, state);
    }

    pub fn produce(&mut self, batch: Vec<u8>) -> Result<AppendInfo, AppendError> {
        self.append(batch, AppendOrigin::Client, 0)
    }

    pub fn append(
        &mut self,
        mut batch: Vec<u8>,
        origin: AppendOrigin,
        epoch: i32,
    ) -> Result<AppendInfo, AppendError> {
        let append = LeaderAppend { leader_epoch: LeaderEpoch(epoch), origin, now_ms: NOW, relaxed: false };
        self.log.append_as_leader(&mut batch, append)
    }

    /// Appends `count` batches of three records.
    pub fn fill(&mut self, count: i64) {
        for _ in 0..count {
            let number = self.log.log_end_offset().0;
            self.produce(plain(3, number)).unwrap();
        }
    }

    /// All offsets of batches that can be read, as (base, last), by reads of `max_bytes`.
    pub fn batches(&self, max_bytes: usize) -> Vec<(i64, i64)> {
        let mut found = Vec::new();
        let mut from = self.log.log_start_offset();
        while let Some(slice) = self.log.read(from, max_bytes, self.log.log_end_offset(), true).unwrap() {
            for batch in protocol::record_batch::batches(&bytes_of(&slice)) {
                let header = batch.unwrap().header;
                assert!(header.last_offset() >= from.0, "a batch below the asked offset");
                assert!(header.last_offset() < slice.end_offset.0);
                found.push((header.base_offset, header.last_offset()));
                from = Offset(header.next_offset());
            }
            from = from.max(slice.end_offset);
        }
        found
    }
}

pub fn bytes_of(slice: &LogSlice) -> Vec<u8> {
    let mut bytes = vec![0; slice.length];
    slice.file.read_exact_at(&mut bytes, slice.position).unwrap();
    bytes
}

fn records(builder: BatchBuilder, count: i64, tag: i64) -> BatchBuilder {
    (0..count).fold(builder, |builder, number| {
        let value = format!("value {tag:05}+{number}");
        builder.record(NOW + tag + number, Some(b"key"), Some(value.as_bytes()))
    })
}

pub fn plain(count: i64, tag: i64) -> Vec<u8> {
    records(BatchBuilder::new(), count, tag).build().to_vec()
}

pub fn idempotent(producer_id: i64, epoch: i16, sequence: i32, count: i64) -> Vec<u8> {
    records(BatchBuilder::new().producer(producer_id, epoch, sequence), count, i64::from(sequence))
        .build()
        .to_vec()
}

pub fn transactional(producer_id: i64, sequence: i32, count: i64) -> Vec<u8> {
    let builder = BatchBuilder::new().producer(producer_id, 0, sequence).transactional();
    records(builder, count, i64::from(sequence)).build().to_vec()
}

pub fn marker(producer_id: i64, committed: bool) -> Vec<u8> {
    BatchBuilder::new()
        .producer(producer_id, 0, -1)
        .end_txn_marker(NOW, EndTxnMarker { committed, coordinator_epoch: 1 })
        .build()
        .to_vec()
}

/// A batch as it stands in another log.
pub fn copied(base_offset: i64, epoch: i32, count: i64) -> Vec<u8> {
    let builder = BatchBuilder::new().base_offset(base_offset).leader_epoch(epoch);
    records(builder, count, base_offset).build().to_vec()
}

/// The same batch with its records compressed by `compress`, under the codec's code.
pub fn compressed(batch: &[u8], code: u8, compress: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut out = batch[..HEADER_BYTES].to_vec();
    out.extend(compress(&batch[HEADER_BYTES..]));
    let length = (out.len() - LOG_OVERHEAD_BYTES) as i32;
    out[8..12].copy_from_slice(&length.to_be_bytes());
    out[22] = out[22] & !7 | code;
    set_crc(&mut out);
    out
}

/// A broker's only directory.
pub fn open_one(path: &Path) -> LogManager {
    LogManager::open(
        LogManagerConfig {
            directories: vec![(path.to_path_buf(), DirectoryId(uuid::Uuid::from_u128(9)))],
            unusable: Vec::new(),
            default_log_config: Arc::new(config()),
            recovery_threads: 1,
            close_threads: 1,
            on_directory_failure: Arc::new(|_, _| {}),
        },
        NOW,
    )
    .unwrap()
}
