//! What the coordinator runtime needs of the partitions of its topic.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::ids::*;
use futures::future::BoxFuture;
use thiserror::Error;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CoordinatorLogError {
    #[error("this broker no longer leads the partition under that epoch")]
    NotLeader,
    #[error("too few replicas are in sync")]
    NotEnoughReplicas,
    #[error("not replicated in time")]
    TimedOut,
    #[error("{0}")]
    Storage(String),
}

/// A partition of a coordinator topic that this broker leads.
pub trait CoordinatorLog: Send + Sync {
    fn log_start_offset(&self) -> Offset;
    fn log_end_offset(&self) -> Offset;
    /// Whole batches from `from` up to the log end; empty at the end.
    fn read(&self, from: Offset, max_bytes: usize) -> Result<Bytes, CoordinatorLogError>;
    /// Appends one batch under the leader epoch that the state was loaded under, and returns the log
    /// end behind it.
    fn append(&self, under: LeaderEpoch, batch: Vec<u8>) -> Result<Offset, CoordinatorLogError>;
    /// Resolves when everything below `end` is on all in-sync replicas, and they are enough.
    fn committed(
        &self,
        under: LeaderEpoch,
        end: Offset,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<(), CoordinatorLogError>>;
}

pub trait CoordinatorLogs: Send + Sync {
    fn open(&self, partition: TopicIdPartition) -> Option<Arc<dyn CoordinatorLog>>;
}
