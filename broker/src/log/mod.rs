//! Partition logs on disk, in Kafka's formats, so that Kafka's own tools read them.
//!
//! A [`Log`] is one partition's replica: segments, indexes, leader epochs and producer state. It is
//! synchronous and knows nothing of leaders, in-sync replicas or metadata; whoever holds its lock
//! decides. The [`LogManager`] owns the log directories, opens every log at start, and does what has
//! to happen now and then (flush, checkpoints, retention) for all of them from one place; the [`cleaner`]
//! compacts those that were written.
//!
//! Batches stay bytes: they are checked where they enter ([`validator`] for clients' batches, header
//! and CRC for copied ones), written with one `pwrite`, and read as ranges of files.

mod append;
mod checkpoint;
mod cleaner;
mod compression;
mod config;
mod cut_checkpoint;
mod cut_point;
mod directory;
mod disk;
mod epoch_cache;
mod error;
mod future;
mod index_file;
mod lazy_file;
// The folder is about logs on disk; this file is one log.
#[allow(clippy::module_inception)]
mod log;
mod maintenance;
mod manager;
mod offset_index;
mod open;
mod partition_metadata;
mod producer_snapshot;
mod producer_state;
#[cfg(any(test, feature = "proof"))]
pub mod proof;
mod read;
mod recent_batches;
mod record_walk;
mod recovery;
mod replaced_files;
mod retention;
mod scanner;
mod segment;
mod shared_log;
mod startup;
mod take_back;
mod take_over;
mod time_index;
mod timestamps;
mod transaction_index;
mod truncate;
mod upkeep;
mod validator;

#[cfg(test)]
mod tests;

pub(crate) use compression::decompressor;

pub use append::{AppendInfo, AppendOrigin, LeaderAppend};
pub use cleaner::{CleanerMetrics, CleanerSettings, LogCleaner};
pub use config::{LogConfig, TimestampType};
pub use cut_point::decided_cut;
pub use directory::{LogDirectory, LogDirectoryFailure};
pub use epoch_cache::EpochCache;
pub use error::{AppendError, LogError, ReadError, RecordError};
pub use future::{CopyStep, MoveError, is_movable};
pub use log::{Log, OpenState};
pub use manager::{FoundLog, LogManager, LogManagerConfig, LogPlacement, PendingCut};
pub use producer_state::{
    ActiveProducer, BatchContent, ProducerBatch, ProducerEntry, ProducerState, RememberedBatch,
};
pub use read::LogSlice;
pub use recovery::{CorruptSegment, RecoveryReport};
pub use shared_log::SharedLog;
pub use timestamps::TimestampedOffset;
pub use transaction_index::AbortedTransaction;
