//! Why a partition refused something, each reason with Kafka's code.

use common::ids::*;
use protocol::ErrorCode;

use crate::log::{AppendError, LogError, ReadError};

/// Checks that every access by epoch and role makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    #[error("this broker has no such topic or partition")]
    UnknownTopicOrPartition,
    #[error("this broker knows no topic with that id")]
    UnknownTopicId,
    #[error("the topic's id is another one")]
    InconsistentTopicId,
    #[error("this broker is not the leader")]
    NotLeader,
    #[error("the leader epoch {asked} is older than {current}")]
    FencedLeaderEpoch { asked: LeaderEpoch, current: LeaderEpoch },
    #[error("the leader epoch {asked} is newer than {current}, which this broker knows")]
    UnknownLeaderEpoch { asked: LeaderEpoch, current: LeaderEpoch },
    #[error("the partition's directory has failed")]
    Offline,
}

impl PartitionError {
    pub fn code(&self) -> ErrorCode {
        match self {
            PartitionError::UnknownTopicOrPartition => ErrorCode::UnknownTopicOrPartition,
            PartitionError::UnknownTopicId => ErrorCode::UnknownTopicId,
            PartitionError::InconsistentTopicId => ErrorCode::InconsistentTopicId,
            PartitionError::NotLeader => ErrorCode::NotLeaderOrFollower,
            PartitionError::FencedLeaderEpoch { .. } => ErrorCode::FencedLeaderEpoch,
            PartitionError::UnknownLeaderEpoch { .. } => ErrorCode::UnknownLeaderEpoch,
            PartitionError::Offline => ErrorCode::KafkaStorageError,
        }
    }
}

/// Why an append by a client or a coordinator was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendFailure {
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// A mirror topic that has not been released (decision 14).
    #[error("the topic is a read-only mirror; remove it from its mirror first")]
    ReadOnlyTopic,
    #[error("{in_sync} replicas are in sync, {needed} are needed")]
    NotEnoughReplicas { in_sync: usize, needed: usize },
    #[error(transparent)]
    Log(#[from] AppendError),
}

impl AppendFailure {
    pub fn code(&self) -> ErrorCode {
        match self {
            AppendFailure::Partition(error) => error.code(),
            AppendFailure::ReadOnlyTopic => ErrorCode::ReadOnlyTopic,
            AppendFailure::NotEnoughReplicas { .. } => ErrorCode::NotEnoughReplicas,
            AppendFailure::Log(error) => append_code(error),
        }
    }
}

pub fn append_code(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Corrupt { .. } => ErrorCode::CorruptMessage,
        // Kafka's answer to a produce in an old format.
        AppendError::UnsupportedFormat { .. } => ErrorCode::InvalidRecord,
        AppendError::InvalidRecord { .. } => ErrorCode::InvalidRecord,
        AppendError::TransactionsUnsupported => ErrorCode::TransactionalIdAuthorizationFailed,
        AppendError::InvalidTimestamp { .. } => ErrorCode::InvalidTimestamp,
        AppendError::MessageTooLarge { .. } => ErrorCode::MessageTooLarge,
        AppendError::RecordListTooLarge { .. } => ErrorCode::RecordListTooLarge,
        AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        AppendError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        AppendError::InvalidTransactionState { .. } => ErrorCode::InvalidTxnState,
        AppendError::TransactionCoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        AppendError::OutOfOrderOffset { .. }
        | AppendError::LeaderEpochFell { .. }
        | AppendError::OffsetOverflow { .. } => ErrorCode::UnknownServerError,
        AppendError::Storage(_) => ErrorCode::KafkaStorageError,
    }
}

/// Why one who waited for replication was not told "done".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitFailure {
    #[error("not replicated in time")]
    TimedOut,
    #[error("this broker is no longer the leader")]
    NotLeader,
    #[error("the topic became a read-only mirror")]
    ReadOnlyTopic,
    #[error("written, but to fewer in-sync replicas than min.insync.replicas")]
    NotEnoughReplicasAfterAppend,
}

impl WaitFailure {
    pub fn code(self) -> ErrorCode {
        match self {
            WaitFailure::TimedOut => ErrorCode::RequestTimedOut,
            WaitFailure::NotLeader => ErrorCode::NotLeaderOrFollower,
            WaitFailure::ReadOnlyTopic => ErrorCode::ReadOnlyTopic,
            WaitFailure::NotEnoughReplicasAfterAppend => ErrorCode::NotEnoughReplicasAfterAppend,
        }
    }
}

/// Why a read was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadFailure {
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error("offset {offset} is outside of {log_start_offset}..={log_end_offset}")]
    OutOfRange { offset: Offset, log_start_offset: Offset, log_end_offset: Offset },
    /// A leader that does not know yet how far the followers are (KIP-320's OFFSET_NOT_AVAILABLE).
    #[error("the high watermark is not known yet")]
    OffsetNotAvailable,
    #[error(transparent)]
    Storage(LogError),
}

impl ReadFailure {
    pub fn code(&self) -> ErrorCode {
        match self {
            ReadFailure::Partition(error) => error.code(),
            ReadFailure::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadFailure::OffsetNotAvailable => ErrorCode::OffsetNotAvailable,
            // A batch that is damaged on the disk: the others are well (Kafka's CorruptRecordException).
            ReadFailure::Storage(LogError::Corrupt { .. }) => ErrorCode::CorruptMessage,
            ReadFailure::Storage(_) => ErrorCode::KafkaStorageError,
        }
    }
}

impl From<ReadError> for ReadFailure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::OutOfRange { offset, log_start_offset, log_end_offset } => {
                ReadFailure::OutOfRange { offset, log_start_offset, log_end_offset }
            }
            ReadError::Storage(error) => ReadFailure::Storage(error),
        }
    }
}

impl From<LogError> for ReadFailure {
    fn from(error: LogError) -> Self {
        ReadFailure::Storage(error)
    }
}

/// Why a batch of the source was not appended (decisions 8 and 10).
#[derive(Clone, Debug, thiserror::Error)]
pub enum MirrorAppendError {
    #[error("this broker is not the leader")]
    NotLeader,
    #[error("leads under epoch {current}, not {asked}")]
    FencedEpoch { asked: LeaderEpoch, current: LeaderEpoch },
    /// The controller has to raise the partition's epoch first.
    #[error("the batch has leader epoch {batch}, above the partition's {own}")]
    EpochAboveOwn { batch: LeaderEpoch, own: LeaderEpoch },
    #[error("the topic is writable here")]
    NotMirroring,
    #[error("{0}")]
    OutOfOrder(AppendError),
    #[error("{0}")]
    Corrupt(AppendError),
    #[error("{0}")]
    Storage(LogError),
}
