//! A compacted log with its cleaner, and what is left in it.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::ids::{DirectoryId, LeaderEpoch, MetadataOffset, Offset, TopicId, TopicIdPartition};
use protocol::record_batch::{Batch, BatchBuilder, BatchHeader, Compression};
use uuid::Uuid;

use super::support::*;
use crate::log::record_walk::walk_records;
use crate::log::{
    AppendOrigin, CleanerSettings, LeaderAppend, LogCleaner, LogConfig, LogManager, LogManagerConfig,
    LogPlacement, SharedLog, decompressor,
};

pub struct Compacted {
    pub directory: Arc<tempfile::TempDir>,
    pub config: Arc<LogConfig>,
    pub manager: Arc<LogManager>,
    pub cleaner: LogCleaner,
    pub log: Arc<SharedLog>,
}

/// Offset, key, value.
pub type Row = (i64, String, Option<String>);

pub fn compacting() -> LogConfig {
    LogConfig {
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.0,
        delete_retention_ms: 1000,
        ..config()
    }
}

fn manager(path: &Path) -> Arc<LogManager> {
    let config = LogManagerConfig {
        directories: vec![(path.to_path_buf(), DirectoryId(Uuid::from_u128(1)))],
        default_log_config: Arc::new(config()),
        unusable: Vec::new(),
        recovery_threads: 1,
        close_threads: 1,
        on_directory_failure: Arc::new(|_, _| {}),
    };
    Arc::new(LogManager::open(config, NOW).unwrap())
}

impl Compacted {
    pub fn new(config: LogConfig) -> Compacted {
        Compacted::with_memory(config, 1 << 20)
    }

    pub fn with_memory(config: LogConfig, dedupe_buffer_bytes: usize) -> Compacted {
        Compacted::open(Arc::new(directory()), Arc::new(config), dedupe_buffer_bytes)
    }

    pub fn open(
        directory: Arc<tempfile::TempDir>,
        config: Arc<LogConfig>,
        dedupe_buffer_bytes: usize,
    ) -> Compacted {
        let manager = manager(directory.path());
        let placement = LogPlacement {
            id: TopicIdPartition::new(TopicId(Uuid::from_u128(7)), 0),
            topic: Arc::from("compacted"),
            topic_record: MetadataOffset(100),
            directory: None,
            config: config.clone(),
        };
        let log = manager.create(placement, NOW).unwrap();
        let settings = CleanerSettings { dedupe_buffer_bytes, ..CleanerSettings::default() };
        let cleaner = LogCleaner::new(manager.clone(), settings);
        Compacted { directory, config, manager, cleaner, log }
    }

    /// As after the death of the process: nothing is closed in order.
    pub fn crash(self) -> Compacted {
        let Compacted { directory, config, .. } = self;
        let crashed = Compacted::open(directory, config, 1 << 20);
        crashed.commit();
        crashed
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("compacted-0")
    }

    /// Everything up to the end is replicated.
    pub fn commit(&self) {
        let end = self.log.read().log_end_offset();
        self.log.set_high_watermark(end);
    }

    pub fn append(&self, batch: Vec<u8>) -> i64 {
        let mut batch = batch;
        let append = LeaderAppend {
            leader_epoch: LeaderEpoch(0),
            origin: AppendOrigin::Coordinator,
            now_ms: NOW,
            relaxed: false,
        };
        let info = self.log.write().append_as_leader(&mut batch, append).unwrap();
        self.commit();
        info.first_offset.0
    }

    pub fn put(&self, rows: &[(&str, Option<&str>)]) -> i64 {
        self.append(keyed(rows))
    }

    /// Closes the active segment.
    pub fn roll(&self) {
        let mut log = self.log.write();
        let end = log.log_end_offset().0;
        log.roll(end, NOW).unwrap();
    }

    /// From now on many of the segments fit one.
    pub fn enlarge_segments(&self) {
        let config = LogConfig { segment_bytes: 1 << 20, ..(*self.config).clone() };
        self.log.write().update_config(config.into());
    }

    /// Cleans until nothing is due; returns how often.
    pub fn clean(&self, now_ms: i64) -> usize {
        let mut cleanings = 0;
        while self.cleaner.clean_one(now_ms) {
            cleanings += 1;
            assert!(cleanings < 100, "cleaning does not come to an end");
        }
        cleanings
    }

    pub fn roll_and_clean(&self, now_ms: i64) -> usize {
        self.roll();
        self.clean(now_ms)
    }

    pub fn headers(&self) -> Vec<BatchHeader> {
        self.read_from(0).iter().map(|batch| BatchHeader::parse(batch).unwrap()).collect()
    }

    /// Batches as a follower reads them from `from` on.
    pub fn read_from(&self, from: i64) -> Vec<Vec<u8>> {
        let log = self.log.read();
        let mut from = Offset(from).max(log.log_start_offset());
        let mut batches = Vec::new();
        while let Some(slice) = log.read(from, 1, log.log_end_offset(), true).unwrap() {
            let bytes = bytes_of(&slice);
            for batch in protocol::record_batch::batches(&bytes) {
                let batch = batch.unwrap();
                protocol::record_batch::check_crc(batch.bytes).unwrap();
                assert!(batch.header.last_offset() >= from.0);
                from = Offset(batch.header.next_offset());
                batches.push(batch.bytes.to_vec());
            }
            from = from.max(slice.end_offset);
        }
        batches
    }

    /// Data records, markers left out.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for bytes in self.read_from(0) {
            let header = BatchHeader::parse(&bytes).unwrap();
            if !header.is_control() {
                rows.extend(rows_of(&Batch { position: 0, header, bytes: &bytes }));
            }
        }
        rows
    }

    pub fn files(&self) -> BTreeSet<String> {
        std::fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    pub fn has_files_with(&self, suffix: &str) -> bool {
        self.files().iter().any(|name| name.ends_with(suffix))
    }
}

pub fn rows_of(batch: &Batch<'_>) -> Vec<Row> {
    let mut body = Vec::new();
    let compression = batch.header.compression().unwrap();
    decompressor(compression, batch.body()).unwrap().read_to_end(&mut body).unwrap();
    let mut rows = Vec::new();
    walk_records(Compression::None, &body, batch.header.records_count, usize::MAX, |record| {
        let key = &body[record.key_start..record.key_start + record.key_bytes.unwrap()];
        let value = record_value(&body[record.key_start + key.len()..]);
        let offset = batch.header.base_offset + i64::from(record.offset_delta);
        rows.push((offset, String::from_utf8(key.to_vec()).unwrap(), value));
        ControlFlow::Continue(())
    })
    .unwrap();
    rows
}

/// Values in these tests are shorter than 64 bytes: a length of one byte, zigzag.
fn record_value(after_key: &[u8]) -> Option<String> {
    match after_key[0] {
        1 => None,
        length => Some(String::from_utf8(after_key[1..=usize::from(length >> 1)].to_vec()).unwrap()),
    }
}

fn rows_into(builder: BatchBuilder, rows: &[(&str, Option<&str>)]) -> Vec<u8> {
    let built = rows.iter().enumerate().fold(builder, |builder, (number, (key, value))| {
        builder.record(NOW + number as i64, Some(key.as_bytes()), value.map(str::as_bytes))
    });
    built.build().to_vec()
}

pub fn keyed(rows: &[(&str, Option<&str>)]) -> Vec<u8> {
    rows_into(BatchBuilder::new(), rows)
}

pub fn keyed_by(producer_id: i64, sequence: i32, rows: &[(&str, Option<&str>)]) -> Vec<u8> {
    rows_into(BatchBuilder::new().producer(producer_id, 0, sequence), rows)
}

pub fn keyed_in_transaction(producer_id: i64, sequence: i32, rows: &[(&str, Option<&str>)]) -> Vec<u8> {
    rows_into(BatchBuilder::new().producer(producer_id, 0, sequence).transactional(), rows)
}

pub fn row(offset: i64, key: &str, value: &str) -> Row {
    (offset, key.to_owned(), Some(value.to_owned()))
}
