//! Readers of bytes that others wrote which nothing outside of this folder calls, for the fuzzer in `tests`.

use std::path::Path;
use std::sync::Arc;

use common::ids::{Offset, TopicPartition};
use protocol::record_batch::Compression;

use super::append::LeaderAppend;
use super::checkpoint;
use super::cleaner;
use super::compression;
use super::config::LogConfig;
use super::cut_checkpoint::CutCheckpoint;
use super::epoch_cache::EpochCache;
use super::error::{AppendError, LogError};
use super::log::Log;
use super::partition_metadata::PartitionMetadata;
use super::producer_snapshot;
use super::producer_state::ProducerState;
use super::segment::Segment;
use super::validator;

pub use super::cleaner::proof::clean;

/// What a leader checks of a client's batches; gives their number.
pub fn validate(records: &mut [u8], config: &LogConfig, append: &LeaderAppend) -> Result<usize, AppendError> {
    validator::validate(records, config, append).map(|batches| batches.len())
}

/// What a follower or a mirror checks before it writes; gives the bytes of the whole batches.
pub fn check_copied(log: &Log, records: &[u8]) -> Result<usize, AppendError> {
    log.check_copied(records).map(|(_, bytes)| bytes)
}

/// As the cleaner compresses.
pub fn compress(compression: Compression, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    compression::compress(compression, bytes, &mut out)?;
    Ok(out)
}

pub fn decode_producer_snapshot(bytes: &[u8], end_offset: Offset) -> Option<ProducerState> {
    producer_snapshot::decode(bytes, end_offset)
}

pub fn encode_producer_snapshot(state: &ProducerState) -> Vec<u8> {
    producer_snapshot::encode(state)
}

/// Recovery points, high watermarks, log starts, ends of cleanings.
pub fn read_offsets(path: &Path) -> Result<Vec<(TopicPartition, Offset)>, LogError> {
    checkpoint::read_offsets(path)
}

pub fn read_cuts(log_dir: &Path) -> Result<(), LogError> {
    CutCheckpoint::load(log_dir).map(|_| ())
}

pub fn read_epochs(log_directory: &Path) -> Result<Option<EpochCache>, LogError> {
    EpochCache::load(log_directory)
}

/// Whether the directory names its topic.
pub fn read_partition_metadata(log_directory: &Path) -> Result<bool, LogError> {
    PartitionMetadata::read(log_directory).map(|metadata| metadata.is_some())
}

pub fn read_compacted_end(log_directory: &Path) -> Result<i64, LogError> {
    cleaner::read_compacted_end(log_directory)
}

/// A closed segment whose indexes are taken as they are, as after a clean stop.
pub struct IndexedSegment {
    segment: Segment,
    pub needs_rebuild: bool,
}

impl IndexedSegment {
    pub fn open(log_directory: &Path, base_offset: i64) -> Result<IndexedSegment, LogError> {
        let (segment, needs_rebuild) = Segment::open(Arc::from(log_directory), base_offset, 0)?;
        Ok(IndexedSegment { segment, needs_rebuild })
    }

    /// First and last offset of the batch that holds `offset`.
    pub fn holding(&self, offset: i64) -> Result<Option<(i64, i64)>, LogError> {
        Ok(self.segment.holding(offset)?.map(|place| (place.first_offset, place.last_offset)))
    }

    /// The end of the batches of which a read from `offset` with `max_bytes` consists.
    pub fn end_of_read(&self, offset: i64, max_bytes: u64) -> Result<Option<u64>, LogError> {
        let Some(first) = self.segment.holding(offset)? else { return Ok(None) };
        let limit = first.position.saturating_add(max_bytes);
        if limit >= self.segment.size_bytes() {
            return Ok(Some(self.segment.size_bytes()));
        }
        let last = self.segment.beginning_by(limit, first)?;
        Ok(Some(last.position + last.bytes))
    }

    pub fn position_by_time(&self, timestamp_ms: i64) -> Result<u64, LogError> {
        self.segment.position_by_time(timestamp_ms)
    }

    pub fn aborted(&self) -> Result<usize, LogError> {
        self.segment.aborted().map(|aborted| aborted.len())
    }

    /// The next offset, and the greatest timestamp.
    pub fn resume(&mut self) -> Result<(i64, Option<i64>), LogError> {
        let next_offset = self.segment.resume()?;
        Ok((next_offset, self.segment.max_timestamp()?.map(|max| max.timestamp_ms)))
    }
}
