//! A source and a local partition in memory, for tests: they do what they are told, lies included.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::ids::*;
use common::metadata::image::ConfigMap;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use protocol::api::ApiKey;
use protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use protocol::messages::{
    BrokerId as WireBroker, FetchRequest, FetchResponse, MetadataRequest, MetadataResponse, TopicName,
};
use protocol::record_batch::{BatchBuilder, batches, check_crc};
use protocol::{Request, Response, StrBytes};
use tokio::sync::Notify;
use uuid::Uuid;

use super::deps::*;
use super::source::{SourceClient, SourceIdentity, SourceSettings};

pub const TOPIC: &str = "t";
pub const SOURCE_CLUSTER: &str = "source-cluster";

pub fn topic_id() -> TopicId {
    TopicId(Uuid::from_bytes([1; 16]))
}

pub fn partition_id() -> TopicIdPartition {
    TopicIdPartition::new(topic_id(), 0)
}

/// A batch of `count` records from `base` on.
pub fn batch(base: i64, count: i64, epoch: i32) -> Bytes {
    let mut builder = BatchBuilder::new().base_offset(base).leader_epoch(epoch);
    for index in 0..count {
        let value = format!("value {}", base + index);
        builder.push(1_000 + base + index, None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

pub struct FixedClock;

impl Clock for FixedClock {
    fn now_ms(&self) -> i64 {
        0
    }

    fn random(&self) -> u32 {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        NEXT.fetch_add(0x9e37_79b9, Ordering::Relaxed)
    }
}

/// What the next Fetch is answered with instead of the log.
pub type FetchScript =
    Box<dyn FnOnce(&FetchRequest, &mut SourceState) -> Result<Response, SourceCallError> + Send>;

#[derive(Default)]
pub struct SourceState {
    pub cluster_id: String,
    pub epoch: i32,
    pub batches: Vec<Bytes>,
    pub log_start: i64,
    pub high_watermark: i64,
    pub topic_id: AnyTopicId,
    pub scripts: VecDeque<FetchScript>,
    pub fetches: Vec<FetchRequest>,
    pub clients: Vec<String>,
    pub refuse_connections: bool,
    sessions: HashMap<i32, HashMap<i32, i64>>,
}

/// A topic id with a default, for `SourceState::default`.
#[derive(Clone, Copy)]
pub struct AnyTopicId(pub TopicId);

impl Default for AnyTopicId {
    fn default() -> Self {
        AnyTopicId(topic_id())
    }
}

#[derive(Clone)]
pub struct FakeSource {
    pub state: Arc<Mutex<SourceState>>,
    pub changed: Arc<Notify>,
    pub fetch_version: i16,
}

impl FakeSource {
    pub fn new(batches: Vec<Bytes>) -> FakeSource {
        let state = SourceState {
            cluster_id: SOURCE_CLUSTER.to_owned(),
            epoch: 3,
            high_watermark: batches.last().map_or(0, next_offset),
            batches,
            ..SourceState::default()
        };
        FakeSource { state: Arc::new(Mutex::new(state)), changed: Arc::default(), fetch_version: 16 }
    }

    pub fn script(
        &self,
        script: impl FnOnce(&FetchRequest, &mut SourceState) -> Result<Response, SourceCallError> + Send + 'static,
    ) {
        self.state.lock().scripts.push_back(Box::new(script));
    }

    /// A client of this source for mirror "m", which expects the cluster of `SOURCE_CLUSTER`.
    pub fn client(&self) -> Arc<SourceClient> {
        let values: ConfigMap = [
            ("bootstrap.servers", "source:9092"),
            ("mirror.fetch.wait.max.ms", "20"),
            ("mirror.fetch.backoff.ms", "20"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        let identity = SourceIdentity {
            own_cluster_id: "own-cluster".to_owned(),
            source_cluster_id: Some(SOURCE_CLUSTER.to_owned()),
        };
        let settings = SourceSettings::of(&values);
        Arc::new(SourceClient::new("m".into(), BrokerId(7), Arc::new(self.clone()), settings, identity))
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let state = self.state.lock();
        let mut broker = MetadataResponseBroker::default();
        broker.node_id = WireBroker(1);
        broker.host = StrBytes::from_static_str("source");
        broker.port = 9092;
        let mut response = MetadataResponse::default();
        response.brokers = vec![broker];
        response.cluster_id = Some(StrBytes::from_string(state.cluster_id.clone()));
        if request.topics.as_ref().is_none_or(|topics| !topics.is_empty()) {
            let mut partition = MetadataResponsePartition::default();
            partition.leader_id = WireBroker(1);
            partition.leader_epoch = state.epoch;
            let mut topic = MetadataResponseTopic::default();
            topic.name = Some(TopicName(StrBytes::from_static_str(TOPIC)));
            topic.topic_id = state.topic_id.0.0;
            topic.partitions = vec![partition];
            response.topics = vec![topic];
        }
        response
    }

    async fn fetch(&self, request: FetchRequest) -> Result<Response, SourceCallError> {
        let changed = self.changed.notified();
        let (answer, empty) = {
            let mut state = self.state.lock();
            state.fetches.push(request.clone());
            state.note(&request);
            if let Some(script) = state.scripts.pop_front() {
                return script(&request, &mut state);
            }
            let answer = state.fetch(&request);
            let empty = answer.responses.is_empty();
            (answer, empty)
        };
        if empty {
            let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
            let _ = tokio::time::timeout(wait, changed).await;
        }
        Ok(Response::Fetch(answer))
    }
}

pub fn next_offset(batch: &Bytes) -> i64 {
    batches(batch).last().and_then(Result::ok).map_or(0, |batch| batch.header.next_offset())
}

impl SourceState {
    pub fn partition_answer(&self, records: Bytes) -> PartitionData {
        let mut partition = PartitionData::default();
        partition.high_watermark = self.high_watermark;
        partition.last_stable_offset = self.high_watermark;
        partition.log_start_offset = self.log_start;
        partition.records = Some(records);
        partition
    }

    pub fn response(&self, session_id: i32, partition: PartitionData) -> FetchResponse {
        let mut topic = FetchableTopicResponse::default();
        topic.topic_id = self.topic_id.0.0;
        topic.topic = TopicName(StrBytes::from_static_str(TOPIC));
        topic.partitions = vec![partition];
        let mut response = FetchResponse::default();
        response.session_id = session_id;
        response.responses = vec![topic];
        response
    }

    /// What the request says of the session, kept whatever it is answered with.
    fn note(&mut self, request: &FetchRequest) -> i32 {
        let session_id = if request.session_id == 0 { 42 } else { request.session_id };
        let session = self.sessions.entry(session_id).or_default();
        for asked in request.topics.iter().flat_map(|topic| &topic.partitions) {
            session.insert(asked.partition, asked.fetch_offset);
        }
        session_id
    }

    /// An honest answer: one batch at a time, with a session.
    pub fn fetch(&mut self, request: &FetchRequest) -> FetchResponse {
        let session_id = self.note(request);
        let Some(offset) = self.sessions.get(&session_id).and_then(|session| session.get(&0)).copied() else {
            let mut empty = FetchResponse::default();
            empty.session_id = session_id;
            return empty;
        };
        let found = self.batches.iter().find(|batch| next_offset(batch) > offset).cloned();
        match found {
            Some(records) => self.response(session_id, self.partition_answer(records)),
            None => {
                let mut empty = FetchResponse::default();
                empty.session_id = session_id;
                empty
            }
        }
    }
}

impl SourceConnector for FakeSource {
    fn connect<'a>(
        &'a self,
        _: &'a str,
        client_id: &'a str,
        _: ConnectSettings,
    ) -> BoxFuture<'a, Result<Box<dyn SourceConnection>, SourceCallError>> {
        Box::pin(async move {
            let mut state = self.state.lock();
            if state.refuse_connections {
                return Err(SourceCallError("connection refused".to_owned()));
            }
            state.clients.push(client_id.to_owned());
            let connection: Box<dyn SourceConnection> = Box::new(self.clone());
            Ok(connection)
        })
    }
}

impl SourceConnection for FakeSource {
    fn version_of(&self, key: ApiKey) -> Option<i16> {
        match key {
            ApiKey::Fetch => Some(self.fetch_version),
            ApiKey::Metadata => Some(12),
            ApiKey::ListOffsets | ApiKey::OffsetForLeaderEpoch => Some(4),
            _ => None,
        }
    }

    fn call<'a>(
        &'a mut self,
        request: Request,
        _: i16,
        _: Duration,
    ) -> BoxFuture<'a, Result<Response, SourceCallError>> {
        Box::pin(async move {
            match request {
                Request::Metadata(request) => Ok(Response::Metadata(self.metadata(&request))),
                Request::Fetch(request) => self.fetch(request).await,
                other => Err(SourceCallError(format!("{} is not scripted", other.key().name()))),
            }
        })
    }
}

#[derive(Default)]
pub struct LocalState {
    pub log: Vec<u8>,
    pub log_start: i64,
    pub log_end: i64,
    pub leader_epoch: i32,
    pub appends: usize,
    /// `None`: at the log's end.
    pub high_watermark: Option<i64>,
}

/// Takes batches as the replica manager does: CRC checked, in order, under the right epoch.
#[derive(Default)]
pub struct FakePartition {
    pub state: Mutex<LocalState>,
    pub changed: Notify,
}

impl FakePartition {
    pub fn new(leader_epoch: i32) -> Arc<FakePartition> {
        let partition = FakePartition::default();
        partition.state.lock().leader_epoch = leader_epoch;
        Arc::new(partition)
    }

    pub async fn wait_for_end(&self, end: i64) {
        loop {
            let changed = self.changed.notified();
            if self.state.lock().log_end >= end {
                return;
            }
            changed.await;
        }
    }
}

impl LocalPartition for FakePartition {
    fn status(&self) -> LocalStatus {
        let state = self.state.lock();
        LocalStatus {
            is_leader: true,
            leader_epoch: LeaderEpoch(state.leader_epoch),
            log_start_offset: Offset(state.log_start),
            log_end_offset: Offset(state.log_end),
            high_watermark: Offset(state.high_watermark.unwrap_or(state.log_end)),
            latest_batch_epoch: LeaderEpoch::UNKNOWN,
        }
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.changed.notified())
    }

    fn append_mirrored(&self, under: LeaderEpoch, records: &[u8]) -> Result<Appended, MirrorAppendError> {
        let mut state = self.state.lock();
        if under.0 != state.leader_epoch {
            return Err(MirrorAppendError::NotLeader);
        }
        let mut end = state.log_end;
        for batch in batches(records) {
            let batch = batch.map_err(|error| MirrorAppendError::Corrupt(error.to_string()))?;
            check_crc(batch.bytes).map_err(|error| MirrorAppendError::Corrupt(error.to_string()))?;
            if batch.header.leader_epoch > under.0 {
                let batch = LeaderEpoch(batch.header.leader_epoch);
                return Err(MirrorAppendError::EpochAboveOwn { batch, own: under });
            }
            let empty = state.log_start == state.log_end;
            if batch.header.base_offset < end && !(empty && end == state.log_end) {
                return Err(MirrorAppendError::OutOfOrder(format!(
                    "{} below {end}",
                    batch.header.base_offset
                )));
            }
            end = batch.header.next_offset();
        }
        state.log.extend_from_slice(records);
        state.log_end = end;
        state.appends += 1;
        drop(state);
        self.changed.notify_waiters();
        Ok(Appended { log_end_offset: Offset(end), bytes: records.len() })
    }

    fn restart_log_at(&self, _: LeaderEpoch, offset: Offset) -> Result<(), MirrorAppendError> {
        let mut state = self.state.lock();
        state.log.clear();
        (state.log_start, state.log_end) = (offset.0, offset.0);
        Ok(())
    }

    fn fail_waiting_produces_read_only(&self) {}

    fn raise_log_start(&self, _: LeaderEpoch, offset: Offset) {
        let mut state = self.state.lock();
        let committed = state.high_watermark.unwrap_or(state.log_end);
        state.log_start = state.log_start.max(offset.0.min(committed));
    }

    fn decided_cut_point(&self) -> Result<Offset, LocalReadError> {
        Ok(Offset(self.state.lock().log_end))
    }

    fn fetched_under_epoch(&self, _: LeaderEpoch) -> bool {
        true
    }

    fn read(&self, from: Offset, _: Offset, _: usize) -> Result<Bytes, LocalReadError> {
        let log = Bytes::copy_from_slice(&self.state.lock().log);
        let found = batches(&log).flatten().find(|batch| batch.header.next_offset() > from.0);
        Ok(found.map_or(Bytes::new(), |batch| Bytes::copy_from_slice(batch.bytes)))
    }
}
