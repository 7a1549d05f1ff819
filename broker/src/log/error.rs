//! Why an operation on a log was refused. `api/error.rs` maps these to Kafka's codes; the code that
//! each reason stands for is named beside it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use super::disk;

/// The disk, or what is on it, failed. KAFKA_STORAGE_ERROR (a damaged batch met by a reader: CORRUPT_MESSAGE); the log's directory goes offline unless
/// something merely ran out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    #[error("{operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },
    #[error("{}: {reason}", path.display())]
    Corrupt { path: PathBuf, reason: String },
    /// An earlier write or sync failed. What is on disk is not known any more, and a later success
    /// would prove nothing, so the log stays refused until the broker is restarted.
    #[error("{}: the log failed earlier and is offline", path.display())]
    Offline { path: PathBuf },
}

impl LogError {
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> LogError {
        LogError::Io { operation, path: path.to_path_buf(), source: Arc::new(source) }
    }

    /// Something ran out: space, a quota, descriptors. What was begun has been taken back, nothing is
    /// damaged, and the log goes on once there is some again. A sync that fails so has lost pages.
    pub fn is_exhausted(&self) -> bool {
        const NO_DESCRIPTORS: [i32; 2] =
            [rustix::io::Errno::MFILE.raw_os_error(), rustix::io::Errno::NFILE.raw_os_error()];
        let LogError::Io { operation, source, .. } = self else { return false };
        *operation != disk::SYNC
            && (matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            ) || source.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code)))
    }

    /// Nothing is known any more of what the directory holds: it goes offline.
    pub fn is_fatal_to_directory(&self) -> bool {
        matches!(self, LogError::Io { .. }) && !self.is_exhausted()
    }

    /// A file or directory is not there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(crate) fn corrupt(path: &Path, reason: impl Into<String>) -> LogError {
        LogError::Corrupt { path: path.to_path_buf(), reason: reason.into() }
    }
}

/// One refused record of a batch, as ProduceResponse's `record_errors` name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    pub batch_index: i32,
    pub message: String,
}

/// Why an append was refused; nothing was written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// CORRUPT_MESSAGE
    #[error("corrupt batch at byte {position}: {reason}")]
    Corrupt { position: usize, reason: String },
    /// UNSUPPORTED_FOR_MESSAGE_FORMAT; a Produce request answers INVALID_RECORD, as Kafka does.
    #[error("message format version {magic} is not supported, only version 2")]
    UnsupportedFormat { magic: i8 },
    /// INVALID_RECORD
    #[error("{message}")]
    InvalidRecord { message: String, records: Vec<RecordError> },
    /// TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as Kafka answers a batch without its transactional id.
    #[error("transactions of clients are not supported yet")]
    TransactionsUnsupported,
    /// INVALID_TIMESTAMP
    #[error("{message}")]
    InvalidTimestamp { message: String, records: Vec<RecordError> },
    /// MESSAGE_TOO_LARGE
    #[error("the batch has {bytes} bytes, more than max.message.bytes {max_bytes}")]
    MessageTooLarge { bytes: usize, max_bytes: usize },
    /// RECORD_LIST_TOO_LARGE
    #[error("the batches have {bytes} bytes, more than segment.bytes {segment_bytes}")]
    RecordListTooLarge { bytes: usize, segment_bytes: usize },
    /// OUT_OF_ORDER_SEQUENCE_NUMBER
    #[error("producer {producer_id}: sequence {sequence} does not follow {last_sequence}")]
    OutOfOrderSequence { producer_id: ProducerId, sequence: i32, last_sequence: i32 },
    /// INVALID_PRODUCER_EPOCH
    #[error("producer {producer_id}: epoch {epoch} is older than {current_epoch}")]
    InvalidProducerEpoch { producer_id: ProducerId, epoch: ProducerEpoch, current_epoch: ProducerEpoch },
    /// INVALID_TXN_STATE
    #[error("producer {producer_id} wrote outside of its open transaction")]
    InvalidTransactionState { producer_id: ProducerId },
    /// TRANSACTION_COORDINATOR_FENCED
    #[error(
        "producer {producer_id}: marker of coordinator epoch {epoch}, the current one is {current_epoch}"
    )]
    TransactionCoordinatorFenced { producer_id: ProducerId, epoch: i32, current_epoch: i32 },
    /// A copied batch does not begin at or above the log end.
    #[error("batch {first_offset}..={last_offset} does not follow log end {log_end_offset}")]
    OutOfOrderOffset { first_offset: Offset, last_offset: Offset, log_end_offset: Offset },
    /// Leader epochs in a log never fall.
    #[error("batch {first_offset} has leader epoch {epoch}, older than {latest_epoch} in this log")]
    LeaderEpochFell { first_offset: Offset, epoch: LeaderEpoch, latest_epoch: LeaderEpoch },
    /// No offset is left above the batch.
    #[error("offsets are exhausted at {log_end_offset}")]
    OffsetOverflow { log_end_offset: Offset },
    /// KAFKA_STORAGE_ERROR
    #[error(transparent)]
    Storage(#[from] LogError),
}

impl AppendError {
    pub(crate) fn invalid(message: impl Into<String>) -> AppendError {
        AppendError::InvalidRecord { message: message.into(), records: Vec::new() }
    }

    pub(crate) fn corrupt(position: usize, reason: impl Into<String>) -> AppendError {
        AppendError::Corrupt { position, reason: reason.into() }
    }
}

/// Why a read was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// OFFSET_OUT_OF_RANGE
    #[error("offset {offset} is outside of {log_start_offset}..={log_end_offset}")]
    OutOfRange { offset: Offset, log_start_offset: Offset, log_end_offset: Offset },
    /// CORRUPT_MESSAGE where a batch is damaged, else KAFKA_STORAGE_ERROR
    #[error(transparent)]
    Storage(#[from] LogError),
}
