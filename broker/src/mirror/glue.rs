//! The broker's own parts as what mirroring needs of them.

use std::collections::HashMap;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::clock::Clock as SystemTime;
use common::ids::*;
use common::metadata::MetadataImage;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use protocol::api::ApiKey;
use protocol::proto::controller::{ProposeMirrorRequest, ProposeMirrorResponse, ReportMirrorRequest};
use protocol::{Request, Response};
use tokio::time::Instant;
use uuid::Uuid;

use crate::client::{ConnectOptions, Connection};
use crate::coordinator::{CoordinatorLog, CoordinatorLogError, CoordinatorLogs};
use crate::log::AppendOrigin;
use crate::metadata::{ControllerChannel, MetadataCache};
use crate::replica::manager::{AppendOptions, Waiting};
use crate::replica::read::{Isolation, ReadFrom, ReadRequest, Reader};
use crate::replica::{
    AppendFailure, MirrorAppendError as ReplicaMirrorError, Partition, ReadFailure, ReplicaManager,
    WaitFailure,
};

use super::deps::{
    Appended, Clock, ConnectSettings, ControllerLink, LocalPartition, LocalPartitions, LocalReadError,
    LocalStatus, Metadata, MirrorAppendError, PeerBrokers, SourceCallError, SourceConnection,
    SourceConnector,
};

/// Proposals wait for a majority of the controllers; what takes longer is asked again.
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(10);
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Answers between brokers hold states, never records.
const PEER_ANSWER_BYTES: usize = 16 * 1024 * 1024;

pub struct SystemMoment(pub Arc<dyn SystemTime>);

impl Clock for SystemMoment {
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }

    fn random(&self) -> u32 {
        Uuid::new_v4().as_fields().0
    }
}

pub struct BrokerMetadata {
    pub cache: Arc<MetadataCache>,
    pub channel: Arc<ControllerChannel>,
}

impl Metadata for BrokerMetadata {
    fn image(&self) -> Arc<MetadataImage> {
        self.cache.image()
    }

    fn own_broker_epoch(&self) -> Option<BrokerEpoch> {
        let epoch = self.channel.broker_epoch();
        (epoch.0 >= 0).then_some(epoch)
    }
}

pub struct BrokerPartitions(pub Arc<ReplicaManager>);

impl LocalPartitions for BrokerPartitions {
    fn partition(&self, id: TopicIdPartition) -> Option<Arc<dyn LocalPartition>> {
        self.0.partition(id).map(|partition| partition as Arc<dyn LocalPartition>)
    }
}

impl From<ReplicaMirrorError> for MirrorAppendError {
    fn from(error: ReplicaMirrorError) -> Self {
        match error {
            ReplicaMirrorError::NotLeader
            | ReplicaMirrorError::FencedEpoch { .. }
            | ReplicaMirrorError::NotMirroring => MirrorAppendError::NotLeader,
            ReplicaMirrorError::EpochAboveOwn { batch, own } => {
                MirrorAppendError::EpochAboveOwn { batch, own }
            }
            ReplicaMirrorError::OutOfOrder(error) => MirrorAppendError::OutOfOrder(error.to_string()),
            ReplicaMirrorError::Corrupt(error) => MirrorAppendError::Corrupt(error.to_string()),
            ReplicaMirrorError::Storage(error) => MirrorAppendError::Storage(error.to_string()),
        }
    }
}

impl LocalPartition for Partition {
    fn status(&self) -> LocalStatus {
        let status = Partition::status(self);
        LocalStatus {
            is_leader: status.is_leader() && !status.recovering,
            leader_epoch: status.leader_epoch,
            log_start_offset: status.log_start_offset,
            log_end_offset: status.log_end_offset,
            high_watermark: status.high_watermark,
            latest_batch_epoch: status.latest_batch_epoch.unwrap_or(LeaderEpoch::UNKNOWN),
        }
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(Partition::changed(self))
    }

    fn append_mirrored(&self, under: LeaderEpoch, records: &[u8]) -> Result<Appended, MirrorAppendError> {
        let info = Partition::append_mirrored(self, under, records)?;
        Ok(Appended { log_end_offset: info.last_offset.plus(1), bytes: info.bytes })
    }

    fn restart_log_at(&self, under: LeaderEpoch, offset: Offset) -> Result<(), MirrorAppendError> {
        Ok(Partition::restart_log_at(self, under, offset)?)
    }

    fn fail_waiting_produces_read_only(&self) {
        Partition::fail_waiting_produces_read_only(self);
    }

    fn raise_log_start(&self, under: LeaderEpoch, offset: Offset) {
        // Refused only where leadership is moving; the next leader follows the source itself.
        let _ = Partition::raise_log_start(self, under, offset);
    }

    fn decided_cut_point(&self) -> Result<Offset, LocalReadError> {
        Partition::decided_cut_point(self).map_err(|error| LocalReadError::Storage(error.to_string()))
    }

    fn fetched_under_epoch(&self, epoch: LeaderEpoch) -> bool {
        Partition::fetched_under_epoch(self, epoch)
    }

    fn read(&self, from: Offset, upper: Offset, max_bytes: usize) -> Result<Bytes, LocalReadError> {
        let request = ReadRequest {
            reader: Reader::Consumer(Isolation::ReadUncommitted),
            from: ReadFrom::Leader,
            fetch_offset: from,
            leader_epoch: None,
            max_bytes,
            min_one_batch: true,
        };
        let result = Partition::read(self, &request).map_err(|error| match error {
            ReadFailure::OutOfRange { .. } => LocalReadError::OutOfRange,
            error => LocalReadError::Storage(error.to_string()),
        })?;
        match result.records {
            Some(slice) if slice.first_offset < upper => read_slice(&slice),
            _ => Ok(Bytes::new()),
        }
    }
}

fn read_slice(slice: &crate::log::LogSlice) -> Result<Bytes, LocalReadError> {
    let mut bytes = BytesMut::zeroed(slice.length);
    slice
        .file
        .read_exact_at(&mut bytes, slice.position)
        .map_err(|error| LocalReadError::Storage(error.to_string()))?;
    Ok(bytes.freeze())
}

impl ControllerLink for ControllerChannel {
    fn propose(&self, request: ProposeMirrorRequest) -> BoxFuture<'_, Result<ProposeMirrorResponse, String>> {
        Box::pin(async move {
            self.propose_mirror(request, PROPOSE_TIMEOUT).await.map_err(|error| error.to_string())
        })
    }

    fn report(&self, request: ReportMirrorRequest) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let answer =
                self.report_mirror(request, REPORT_TIMEOUT).await.map_err(|error| error.to_string())?;
            match answer.error_code {
                0 => Ok(()),
                code => Err(format!("error {code}")),
            }
        })
    }
}

/// Plaintext connections to source clusters.
pub struct PlaintextConnector;

impl SourceConnector for PlaintextConnector {
    fn connect<'a>(
        &'a self,
        address: &'a str,
        client_id: &'a str,
        settings: ConnectSettings,
    ) -> BoxFuture<'a, Result<Box<dyn SourceConnection>, SourceCallError>> {
        Box::pin(async move {
            let options = ConnectOptions {
                connect_timeout: settings.connect_timeout,
                request_timeout: settings.request_timeout,
                max_response_bytes: settings.max_response_bytes,
                ..ConnectOptions::default()
            };
            let connection = Connection::connect(address, client_id, options)
                .await
                .map_err(|error| SourceCallError(error.to_string()))?;
            let connection: Box<dyn SourceConnection> = Box::new(connection);
            Ok(connection)
        })
    }
}

impl SourceConnection for Connection {
    fn version_of(&self, key: ApiKey) -> Option<i16> {
        Connection::version_of(self, key)
    }

    fn call<'a>(
        &'a mut self,
        request: Request,
        version: i16,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Response, SourceCallError>> {
        Box::pin(async move {
            self.call_within(request, version, timeout)
                .await
                .map_err(|error| SourceCallError(error.to_string()))
        })
    }
}

/// Other brokers of this cluster, one idle connection each.
pub struct BrokerPeers {
    cache: Arc<MetadataCache>,
    client_id: String,
    idle: Mutex<HashMap<BrokerId, (String, Connection)>>,
}

impl BrokerPeers {
    pub fn new(cache: Arc<MetadataCache>, broker: BrokerId) -> BrokerPeers {
        BrokerPeers {
            cache,
            client_id: format!("broker-{broker}-mirror-coordinator"),
            idle: Mutex::default(),
        }
    }

    async fn call_peer(
        &self,
        broker: BrokerId,
        request: Request,
        timeout: Duration,
    ) -> Result<Response, String> {
        let image = self.cache.image();
        let endpoint = image.brokers.get(&broker).and_then(|registration| registration.inter_broker());
        let endpoint = endpoint.ok_or_else(|| format!("broker {broker} is not registered"))?;
        let address = format!("{}:{}", endpoint.host, endpoint.port);
        loop {
            let idle = self.idle.lock().remove(&broker).filter(|(known, _)| *known == address);
            let was_idle = idle.is_some();
            let mut connection = match idle {
                Some((_, connection)) => connection,
                None => {
                    let options = ConnectOptions {
                        connect_timeout: timeout,
                        max_response_bytes: PEER_ANSWER_BYTES,
                        ..ConnectOptions::default()
                    };
                    Connection::connect(&address, &self.client_id, options)
                        .await
                        .map_err(|e| e.to_string())?
                }
            };
            let key = request.key();
            let version = connection.version_of(key);
            let version = version.ok_or_else(|| format!("broker {broker} does not serve {}", key.name()))?;
            match connection.call_within(request.clone(), version, timeout).await {
                Ok(response) => {
                    self.idle.lock().insert(broker, (address, connection));
                    return Ok(response);
                }
                // It may have been closed while it idled. States are fenced, so twice does no harm.
                Err(_) if was_idle => continue,
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl PeerBrokers for BrokerPeers {
    fn call(
        &self,
        broker: BrokerId,
        request: Request,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Response, String>> {
        Box::pin(self.call_peer(broker, request, timeout))
    }
}

/// Partitions of `__mirror_state` behind the coordinator runtime.
pub struct ReplicaLogs(pub Arc<ReplicaManager>);

impl CoordinatorLogs for ReplicaLogs {
    fn open(&self, partition: TopicIdPartition) -> Option<Arc<dyn CoordinatorLog>> {
        let found = self.0.partition(partition)?;
        Some(Arc::new(ReplicaLog { replicas: self.0.clone(), partition: found, id: partition }))
    }
}

struct ReplicaLog {
    replicas: Arc<ReplicaManager>,
    partition: Arc<Partition>,
    id: TopicIdPartition,
}

impl CoordinatorLog for ReplicaLog {
    fn log_start_offset(&self) -> Offset {
        self.partition.status().log_start_offset
    }

    fn log_end_offset(&self) -> Offset {
        self.partition.status().log_end_offset
    }

    fn read(&self, from: Offset, max_bytes: usize) -> Result<Bytes, CoordinatorLogError> {
        let upper = self.partition.status().log_end_offset;
        LocalPartition::read(&*self.partition, from, upper, max_bytes)
            .map_err(|error| CoordinatorLogError::Storage(error.to_string()))
    }

    fn append(&self, under: LeaderEpoch, mut batch: Vec<u8>) -> Result<Offset, CoordinatorLogError> {
        let options =
            AppendOptions { acks: -1, origin: AppendOrigin::Coordinator, expected_leader_epoch: Some(under) };
        match self.replicas.append(self.id, &mut batch, options) {
            Ok(appended) => Ok(appended.info.last_offset.plus(1)),
            Err(AppendFailure::Partition(_)) => Err(CoordinatorLogError::NotLeader),
            Err(AppendFailure::NotEnoughReplicas { .. }) => Err(CoordinatorLogError::NotEnoughReplicas),
            Err(error) => Err(CoordinatorLogError::Storage(error.to_string())),
        }
    }

    fn committed(
        &self,
        under: LeaderEpoch,
        end: Offset,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<(), CoordinatorLogError>> {
        Box::pin(async move {
            let waiting = Waiting { partition: self.partition.clone(), offset: end, leader_epoch: under };
            let results = self.replicas.wait_replicated(vec![waiting], Instant::now() + timeout).await;
            match results.into_iter().next().unwrap_or(Err(WaitFailure::TimedOut)) {
                Ok(()) => Ok(()),
                Err(WaitFailure::TimedOut) => Err(CoordinatorLogError::TimedOut),
                Err(WaitFailure::NotEnoughReplicasAfterAppend) => Err(CoordinatorLogError::NotEnoughReplicas),
                Err(WaitFailure::NotLeader | WaitFailure::ReadOnlyTopic) => {
                    Err(CoordinatorLogError::NotLeader)
                }
            }
        })
    }
}
