//! What mirroring needs of the rest of the broker, as small traits: the broker implements them in
//! `glue`, tests with scripts.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::ids::*;
use common::metadata::MetadataImage;
use futures::future::BoxFuture;
use protocol::api::ApiKey;
use protocol::proto::controller::{ProposeMirrorRequest, ProposeMirrorResponse, ReportMirrorRequest};
use protocol::{Request, Response};
use thiserror::Error;

use super::coordinator::record::{StateEpoch, StateKey, StateRecord};
use super::state::StoreError;

pub trait Clock: Send + Sync {
    fn now_ms(&self) -> i64;
    /// Uniform over its range: for jitter only.
    fn random(&self) -> u32;
}

/// What this broker has replayed of the metadata log.
pub trait Metadata: Send + Sync {
    fn image(&self) -> Arc<MetadataImage>;
    /// Of the registration of this process; `None` before it.
    fn own_broker_epoch(&self) -> Option<BrokerEpoch>;
}

pub trait LocalPartitions: Send + Sync {
    fn partition(&self, id: TopicIdPartition) -> Option<Arc<dyn LocalPartition>>;
}

/// What a led partition's log looks like at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalStatus {
    pub is_leader: bool,
    pub leader_epoch: LeaderEpoch,
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
    pub high_watermark: Offset,
    /// Of the last batch; `UNKNOWN` for an empty log.
    pub latest_batch_epoch: LeaderEpoch,
}

/// A replica on this broker, with its log behind it.
pub trait LocalPartition: Send + Sync {
    fn status(&self) -> LocalStatus;
    /// Wakes after a change of status that happened after this call.
    fn changed(&self) -> BoxFuture<'_, ()>;
    fn append_mirrored(&self, under: LeaderEpoch, records: &[u8]) -> Result<Appended, MirrorAppendError>;
    fn restart_log_at(&self, under: LeaderEpoch, offset: Offset) -> Result<(), MirrorAppendError>;
    fn fail_waiting_produces_read_only(&self);
    /// The source's log start moved up within our log: ours follows.
    fn raise_log_start(&self, under: LeaderEpoch, offset: Offset);
    fn decided_cut_point(&self) -> Result<Offset, LocalReadError>;
    fn fetched_under_epoch(&self, epoch: LeaderEpoch) -> bool;
    /// Whole batches from the one that holds `from`, up to `upper`, at most `max_bytes` but at least
    /// one batch. Empty at the end.
    fn read(&self, from: Offset, upper: Offset, max_bytes: usize) -> Result<Bytes, LocalReadError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub log_end_offset: Offset,
    pub bytes: usize,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MirrorAppendError {
    /// Not the leader, not under this epoch, or no mirror any more: the image will tell.
    #[error("leadership is moving")]
    NotLeader,
    #[error("a batch of epoch {batch} is above the leader epoch {own}")]
    EpochAboveOwn { batch: LeaderEpoch, own: LeaderEpoch },
    #[error("{0}")]
    OutOfOrder(String),
    #[error("{0}")]
    Corrupt(String),
    #[error("{0}")]
    Storage(String),
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LocalReadError {
    #[error("offset is out of range")]
    OutOfRange,
    #[error("{0}")]
    Storage(String),
}

/// The active controller.
pub trait ControllerLink: Send + Sync {
    fn propose(&self, request: ProposeMirrorRequest) -> BoxFuture<'_, Result<ProposeMirrorResponse, String>>;
    /// Soft state; a lost report is repeated with the next change.
    fn report(&self, request: ReportMirrorRequest) -> BoxFuture<'_, Result<(), String>>;
}

/// The mirror coordinator of each key, wherever it runs.
pub trait StateStore: Send + Sync {
    /// One result per key, in order. `Ok(None)`: the coordinator answered that nothing is recorded.
    fn read(&self, keys: Vec<StateKey>) -> BoxFuture<'_, Vec<Result<Option<StateRecord>, StoreError>>>;
    /// Durable when answered with the record's state epoch.
    fn write(&self, writes: Vec<StateWrite>) -> BoxFuture<'_, Vec<Result<StateEpoch, StoreError>>>;
}

#[derive(Clone, Debug, PartialEq)]
pub struct StateWrite {
    pub key: StateKey,
    pub record: StateRecord,
    pub expected: StateEpoch,
}

/// Calls to another broker of this cluster, on its inter-broker listener.
pub trait PeerBrokers: Send + Sync {
    fn call(
        &self,
        broker: BrokerId,
        request: Request,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Response, String>>;
}

/// Opens connections to a source cluster.
pub trait SourceConnector: Send + Sync {
    fn connect<'a>(
        &'a self,
        address: &'a str,
        client_id: &'a str,
        options: ConnectSettings,
    ) -> BoxFuture<'a, Result<Box<dyn SourceConnection>, SourceCallError>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectSettings {
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    /// A longer answer closes the connection before it is read.
    pub max_response_bytes: usize,
}

/// One connection; requests are answered one by one.
pub trait SourceConnection: Send + Sync {
    /// The highest version both sides know; `None`: the source lacks the API.
    fn version_of(&self, key: ApiKey) -> Option<i16>;
    fn call<'a>(
        &'a mut self,
        request: Request,
        version: i16,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Response, SourceCallError>>;
}

/// The connection is of no use any more after any of these.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct SourceCallError(pub String);
