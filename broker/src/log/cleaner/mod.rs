//! Log compaction (`cleanup.policy=compact`): of records with the same key the newest stays. Offsets
//! are kept, tombstones and transaction markers go after `delete.retention.ms`, and nothing is touched
//! at or above the last stable offset or in the segment that is written.
//!
//! [`plan`], [`offset_map`], [`transactions`] and [`filter`] decide, in pure code; [`pass`] cleans one
//! log; [`source`] is where it meets the log, [`replace`] how files change places so that a crash does
//! no harm. [`manager`] chooses the dirtiest among the logs that were written.

mod cleaned_segment;
mod filter;
mod manager;
mod metrics;
mod offset_map;
mod pass;
mod plan;
#[cfg(any(test, feature = "proof"))]
pub(super) mod proof;
mod reader;
pub(super) mod replace;
pub(super) mod source;
mod throttle;
mod transactions;

use std::time::Duration;

pub use manager::LogCleaner;
pub use metrics::CleanerMetrics;
pub(super) use replace::{CLEANED, SWAP, complete_interrupted};
pub(super) use source::{DROPPING, forget_compacted_end, read_compacted_end};

/// The broker's `log.cleaner.*`.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanerSettings {
    pub threads: usize,
    /// Pause when there was nothing to do.
    pub backoff: Duration,
    /// For the offset maps of all threads together.
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`
    pub dedupe_load_factor: f64,
    /// For the buffers of all threads together.
    pub io_buffer_bytes: usize,
    pub max_bytes_per_second: f64,
}

impl CleanerSettings {
    fn map_bytes(&self) -> usize {
        self.dedupe_buffer_bytes / self.threads.max(1)
    }

    fn chunk_bytes(&self) -> usize {
        (self.io_buffer_bytes / self.threads.max(1)).max(4096)
    }
}

impl Default for CleanerSettings {
    /// Kafka's defaults.
    fn default() -> CleanerSettings {
        CleanerSettings {
            threads: 1,
            backoff: Duration::from_secs(15),
            dedupe_buffer_bytes: 128 << 20,
            dedupe_load_factor: 0.9,
            io_buffer_bytes: 512 << 10,
            max_bytes_per_second: f64::MAX,
        }
    }
}
