//! Brokers in one process: real logs in temporary directories, real sockets between them, and a
//! controller that is a few lines.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use common::clock::SystemClock;
use common::ids::*;
use common::metadata::record::*;
use common::metadata::{MetadataBatch, MetadataDelta, MetadataImage, MetadataRecord};
use common::network::{Chunk, ConnectionInfo, Handler, Limits, Reply, serve};
use parking_lot::Mutex;
use protocol::messages::ApiVersionsResponse;
use protocol::messages::api_versions_response::ApiVersion;
use protocol::record_batch::BatchBuilder;
use protocol::{ApiKey, ErrorCode, Request, Response};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::api::context::{ClientConnection, RequestContext};
use crate::client::{ConnectOptions, Connection};
use crate::fetcher::FetcherConfig;
use crate::fetcher::leader_endpoint::BrokerConnector;
use crate::log::{AppendOrigin, LogConfig, LogManager, LogManagerConfig};
use crate::replica::manager::{IsrAnswer, ReplicationRates, TopicSettings};
use crate::replica::throttle::{ThrottledReplicas, UNLIMITED};
use crate::replica::*;

pub const TOPIC: &str = "orders";
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn topic_id() -> TopicId {
    TopicId(Uuid::from_u128(77))
}

pub fn id(partition: i32) -> TopicIdPartition {
    TopicIdPartition::new(topic_id(), partition)
}

pub struct Broker {
    pub id: BrokerId,
    pub directory: DirectoryId,
    pub address: String,
    pub replicas: Arc<ReplicaManager>,
    applied: Mutex<Arc<MetadataImage>>,
    server: CancellationToken,
    _disk: TempDir,
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.server.cancel();
    }
}

pub struct Cluster {
    pub brokers: Vec<Broker>,
    /// What the controller has committed.
    image: Mutex<Arc<MetadataImage>>,
    deltas: Mutex<Vec<(Arc<MetadataImage>, MetadataDelta)>>,
    pub loss_cuts: Mutex<Vec<LossCut>>,
}

/// Hands proposals to the cluster, in a task of their own as the real ones are.
struct Controller {
    cluster: Arc<Mutex<Weak<Cluster>>>,
    broker: BrokerId,
}

impl ReplicaDeps for Controller {
    fn alter_partition(&self, proposals: Vec<IsrProposalItem>) {
        let (cluster, broker) = (self.cluster.lock().upgrade(), self.broker);
        let Some(cluster) = cluster else { return };
        tokio::spawn(async move { cluster.alter_partition(broker, proposals) });
    }

    fn propose_loss_cut(&self, cut: LossCut) {
        if let Some(cluster) = self.cluster.lock().upgrade() {
            cluster.loss_cuts.lock().push(cut);
        }
    }
}

impl Cluster {
    /// Brokers 1 to `count`, registered and unfenced.
    pub async fn start(count: i32, min_insync_replicas: usize) -> Arc<Cluster> {
        Cluster::start_with_directories(count, min_insync_replicas, 1).await
    }

    pub async fn start_with_directories(
        count: i32,
        min_insync_replicas: usize,
        directories: usize,
    ) -> Arc<Cluster> {
        let weak = Arc::new(Mutex::new(Weak::new()));
        let mut brokers = Vec::new();
        for broker in 1..=count {
            let id = BrokerId(broker);
            brokers.push(start_broker(id, min_insync_replicas, directories, weak.clone()).await);
        }
        let cluster = Arc::new(Cluster {
            brokers,
            image: Mutex::default(),
            deltas: Mutex::default(),
            loss_cuts: Mutex::default(),
        });
        *weak.lock() = Arc::downgrade(&cluster);
        for broker in &cluster.brokers {
            cluster.register(broker);
        }
        cluster
    }

    fn register(&self, broker: &Broker) {
        let (host, port) = broker.address.split_once(':').expect("host:port");
        self.commit(vec![MetadataRecord::RegisterBroker {
            broker_id: broker.id,
            incarnation_id: IncarnationId(Uuid::new_v4()),
            endpoints: vec![Endpoint {
                name: "PLAINTEXT".to_owned(),
                host: host.to_owned(),
                port: port.parse().expect("port"),
                security_protocol: 0,
            }],
            rack: Some(format!("rack-{}", broker.id)),
            directories: vec![broker.directory],
            inter_broker_endpoint: 0,
        }]);
        self.commit(vec![MetadataRecord::BrokerChange {
            broker_id: broker.id,
            broker_epoch: BrokerEpoch(self.image().offset.0),
            fenced: Some(false),
            in_controlled_shutdown: None,
        }]);
    }

    pub fn broker(&self, id: i32) -> &Broker {
        self.brokers.iter().find(|broker| broker.id == BrokerId(id)).expect("broker")
    }

    pub fn partition(&self, broker: i32, partition: i32) -> Arc<Partition> {
        self.broker(broker).replicas.partition(id(partition)).expect("partition")
    }

    pub fn image(&self) -> Arc<MetadataImage> {
        self.image.lock().clone()
    }

    /// Commits records; no broker hears of them yet.
    pub fn commit_silently(&self, records: Vec<MetadataRecord>) {
        let mut image = self.image.lock();
        let mut next = (**image).clone();
        let batch = MetadataBatch {
            term: Term(1),
            offset: next.offset.next(),
            predecessor_term: next.term,
            timestamp_ms: 0,
            records,
        };
        let mut delta = MetadataDelta::default();
        next.apply(&batch, &mut delta).expect("records apply");
        *image = Arc::new(next);
        self.deltas.lock().push((image.clone(), delta));
    }

    /// The broker replays what it has not seen yet.
    pub fn catch_up(&self, broker: i32) {
        let broker = self.broker(broker);
        let mut applied = broker.applied.lock();
        let missing: Vec<_> = {
            let deltas = self.deltas.lock();
            deltas.iter().filter(|(image, _)| image.offset > applied.offset).cloned().collect()
        };
        for (image, delta) in missing {
            broker.replicas.apply_metadata(&applied, &delta, &image);
            *applied = image;
        }
    }

    /// The broker comes back after a long absence: it gets all that it has missed as one snapshot.
    pub fn load_snapshot(&self, broker: i32) {
        let broker = self.broker(broker);
        let mut applied = broker.applied.lock();
        let image = self.image();
        broker.replicas.apply_metadata(&applied, &MetadataDelta::everything(), &image);
        *applied = image;
    }

    pub fn commit(&self, records: Vec<MetadataRecord>) {
        self.commit_silently(records);
        for broker in &self.brokers {
            self.catch_up(broker.id.0);
        }
    }

    /// A topic of `partitions` partitions, each on all brokers in order, led by the first.
    pub fn topic_records(&self, partitions: i32) -> Vec<MetadataRecord> {
        let replicas: Vec<BrokerId> = self.brokers.iter().map(|broker| broker.id).collect();
        let topic = MetadataRecord::Topic { topic_id: topic_id(), name: TOPIC.into() };
        let partition = |partition| MetadataRecord::Partition {
            topic_id: topic_id(),
            partition,
            registration: PartitionRegistration {
                directories: vec![DirectoryId::ZERO; replicas.len()],
                isr: replicas.clone(),
                leader: replicas.first().copied(),
                replicas: replicas.clone(),
                elr: Vec::new(),
                last_known_elr: Vec::new(),
                adding_replicas: Vec::new(),
                removing_replicas: Vec::new(),
                leader_epoch: LeaderEpoch(0),
                partition_epoch: PartitionEpoch(0),
                leader_recovery_state: LeaderRecoveryState::Recovered,
            },
        };
        std::iter::once(topic).chain((0..partitions).map(partition)).collect()
    }

    pub fn create_topic(&self, partitions: i32) {
        self.commit(self.topic_records(partitions));
    }

    pub fn change(partition: i32, change: PartitionChange) -> MetadataRecord {
        MetadataRecord::PartitionChange { topic_id: topic_id(), partition, change }
    }

    pub fn elect(leader: i32) -> MetadataRecord {
        let change = PartitionChange { leader: Some(Some(BrokerId(leader))), ..PartitionChange::default() };
        Cluster::change(0, change)
    }

    /// Puts the topic into a mirror, so that it becomes read-only.
    pub fn add_to_mirror(&self) {
        if self.image().mirrors.is_empty() {
            self.commit(vec![MetadataRecord::Mirror { name: "m".into() }]);
        }
        self.set_mirror_name("m");
    }

    pub fn remove_from_mirror(&self) {
        self.set_mirror_name("m.removed");
    }

    fn set_mirror_name(&self, value: &str) {
        self.commit(vec![MetadataRecord::Config {
            resource: ConfigResource { resource_type: ConfigResourceType::Topic, name: TOPIC.into() },
            key: "mirror.name".to_owned(),
            value: Some(value.to_owned()),
        }]);
    }

    pub fn association(&self) -> Option<Association> {
        self.image().topic(TOPIC)?.mirror.as_ref().map(|mirror| mirror.association)
    }

    pub fn cut(
        &self,
        kind: CutKind,
        leader: i32,
        offset: i64,
        leader_epoch: i32,
        keeps: bool,
    ) -> MetadataRecord {
        MetadataRecord::Cut {
            topic_id: topic_id(),
            partition: 0,
            kind,
            association: self.association().filter(|_| kind != CutKind::Loss),
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(leader_epoch),
            broker_id: BrokerId(leader),
            directory: self.broker(leader).directory,
            leader_keeps_tail: keeps,
        }
    }

    pub fn set_config(&self, resource_type: ConfigResourceType, name: &str, key: &str, value: Option<&str>) {
        self.commit(vec![MetadataRecord::Config {
            resource: ConfigResource { resource_type, name: name.into() },
            key: key.to_owned(),
            value: value.map(str::to_owned),
        }]);
    }

    /// Takes a broker out of the ISR of partition 0 for as long as it is fenced.
    pub fn fence(&self, broker: i32, fenced: bool) {
        let image = self.image();
        let broker_epoch = image.brokers[&BrokerId(broker)].broker_epoch;
        let mut records = vec![MetadataRecord::BrokerChange {
            broker_id: BrokerId(broker),
            broker_epoch,
            fenced: Some(fenced),
            in_controlled_shutdown: None,
        }];
        if let (true, Some(partition)) = (fenced, image.partition(id(0))) {
            let mut isr = partition.registration.isr.clone();
            isr.retain(|member| *member != BrokerId(broker));
            records
                .push(Cluster::change(0, PartitionChange { isr: Some(isr), ..PartitionChange::default() }));
        }
        self.commit(records);
    }

    fn alter_partition(&self, broker: BrokerId, proposals: Vec<IsrProposalItem>) {
        let mut answers = Vec::new();
        for item in proposals {
            let image = self.image();
            let Some(partition) = image.partition(item.id) else { continue };
            let registration = &partition.registration;
            let is_current = registration.leader == Some(broker)
                && registration.leader_epoch == item.leader_epoch
                && registration.partition_epoch == item.partition_epoch;
            let error = if is_current { ErrorCode::None } else { ErrorCode::InvalidUpdateVersion };
            if is_current {
                let isr = item.new_isr.iter().map(|(member, _)| *member).collect();
                let change = PartitionChange { isr: Some(isr), ..PartitionChange::default() };
                self.commit_silently(vec![Cluster::change(item.id.partition, change)]);
            }
            let image = self.image();
            let Some(partition) = image.partition(item.id) else { continue };
            answers.push(IsrAnswer {
                id: item.id,
                error,
                isr: partition.registration.isr.clone(),
                leader_epoch: partition.registration.leader_epoch,
                partition_epoch: partition.registration.partition_epoch,
            });
        }
        self.broker(broker.0).replicas.alter_partition_done(Ok(answers));
        for broker in &self.brokers {
            self.catch_up(broker.id.0);
        }
    }

    pub fn produce(&self, broker: i32, count: i32, acks: i16) -> Result<Appended, AppendFailure> {
        let options = AppendOptions { acks, origin: AppendOrigin::Client, expected_leader_epoch: None };
        self.broker(broker).replicas.append(id(0), &mut batch(count), options)
    }

    /// Produces with acks=all and waits for the acknowledgement.
    pub async fn produce_all(&self, broker: i32, count: i32) {
        let appended = self.produce(broker, count, -1).expect("append");
        let results =
            self.broker(broker).replicas.wait_replicated(vec![appended.waiting()], Instant::now() + PATIENCE);
        assert_eq!(results.await, vec![Ok(())]);
    }

    pub async fn client(&self, broker: i32) -> Connection {
        Connection::connect(&self.broker(broker).address, "test", ConnectOptions::default())
            .await
            .expect("connect")
    }
}

/// Waits, without polling, until the partition's status is as wanted.
pub async fn until(
    partition: &Partition,
    what: &str,
    wanted: impl Fn(&PartitionStatus) -> bool,
) -> PartitionStatus {
    let reached = async {
        loop {
            let changed = partition.changed();
            let status = partition.status();
            if wanted(&status) {
                return status;
            }
            changed.await;
        }
    };
    match timeout(PATIENCE, reached).await {
        Ok(status) => status,
        Err(_) => panic!("{partition:?} never got to {what}: {:?}", partition.status()),
    }
}

pub fn batch(count: i32) -> BytesMut {
    builder(count).build_mut()
}

fn builder(count: i32) -> BatchBuilder {
    (0..count).fold(BatchBuilder::new(), |batch, n| {
        batch.record(1_000 + i64::from(n), Some(b"key"), Some(format!("value {n}").as_bytes()))
    })
}

/// A batch as a source sends it.
pub fn mirrored(base_offset: i64, leader_epoch: i32, count: i32) -> Bytes {
    builder(count).base_offset(base_offset).leader_epoch(leader_epoch).build()
}

/// The same, within a transaction that is not decided.
pub fn mirrored_in_transaction(base_offset: i64, leader_epoch: i32, count: i32) -> Bytes {
    builder(count)
        .base_offset(base_offset)
        .leader_epoch(leader_epoch)
        .producer(7, 0, 0)
        .transactional()
        .build()
}

/// All bytes of a replica's log.
pub fn bytes_of(partition: &Partition) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let inner = partition.lock();
    let log = inner.log.read();
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let Some(slice) = log.read(start, usize::MAX >> 1, end, true).expect("read") else { return Vec::new() };
    let mut bytes = vec![0; slice.length];
    slice.file.read_exact_at(&mut bytes, slice.position).expect("bytes");
    bytes
}

async fn start_broker(
    id: BrokerId,
    min_isr: usize,
    directories: usize,
    cluster: Arc<Mutex<Weak<Cluster>>>,
) -> Broker {
    let disk = tempfile::tempdir().expect("directory");
    let directories: Vec<_> = (0..directories)
        .map(|number| {
            let path = disk.path().join(number.to_string());
            std::fs::create_dir(&path).expect("directory");
            (path, DirectoryId(Uuid::new_v4()))
        })
        .collect();
    let directory = directories[0].1;
    let log_config = Arc::new(LogConfig::default());
    let logs = LogManager::open(
        LogManagerConfig {
            directories,
            unusable: Vec::new(),
            default_log_config: log_config.clone(),
            recovery_threads: 1,
            close_threads: 1,
            on_directory_failure: Arc::new(|_, error| panic!("{error}")),
        },
        0,
    )
    .expect("log manager");
    let config = ReplicaManagerConfig {
        broker_id: id,
        replica_lag_time_max_ms: 30_000,
        relaxed_validation: false,
        fetcher: FetcherConfig {
            broker_id: id,
            num_fetchers: 1,
            // Long, so that whatever waits for a long poll to end shows.
            wait_max_ms: 5_000,
            min_bytes: 1,
            partition_max_bytes: 1 << 20,
            response_max_bytes: 10 << 20,
            backoff_ms: 1_000,
        },
        max_fetch_sessions: 100,
        fetch_session_eviction_ms: 120_000,
        checkpoint_interval: Duration::from_secs(3600),
        retention_check_interval: Duration::from_secs(3600),
        topic_settings: Arc::new(move |image, topic| {
            let listed = |key: &str| {
                let value = image.config(ConfigResourceType::Topic, topic).and_then(|map| map.get(key));
                let items: Vec<String> =
                    value.into_iter().flat_map(|v| v.split(',')).map(str::to_owned).collect();
                Arc::new(ThrottledReplicas::parse(&items))
            };
            TopicSettings {
                log: log_config.clone(),
                min_insync_replicas: min_isr,
                leader_throttled: listed("leader.replication.throttled.replicas"),
                follower_throttled: listed("follower.replication.throttled.replicas"),
            }
        }),
        replication_rates: Arc::new(|image| {
            let rate = |key: &str| {
                let value = image.config(ConfigResourceType::Broker, "").and_then(|map| map.get(key));
                value.and_then(|value| value.parse().ok()).unwrap_or(UNLIMITED)
            };
            ReplicationRates {
                leader: rate("leader.replication.throttled.rate"),
                follower: rate("follower.replication.throttled.rate"),
                moves: rate("replica.alter.log.dirs.io.max.bytes.per.second"),
            }
        }),
        rack_aware_reads: true,
    };
    let connector = BrokerConnector { client_id: format!("broker-{id}"), options: ConnectOptions::default() };
    let replicas = ReplicaManager::new(
        config,
        Arc::new(logs),
        Arc::new(Controller { cluster, broker: id }),
        Arc::new(connector),
        Arc::new(SystemClock::new()),
    );
    replicas.start();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listener");
    let address = listener.local_addr().expect("address").to_string();
    let server = CancellationToken::new();
    let handler = Arc::new(Api { replicas: replicas.clone() });
    tokio::spawn(serve(listener, "PLAINTEXT", handler, Limits::default(), server.clone()));
    Broker { id, directory, address, replicas, applied: Mutex::default(), server, _disk: disk }
}

/// As much of a broker's API as replicas need.
struct Api {
    replicas: Arc<ReplicaManager>,
}

impl Handler for Api {
    type Connection = ClientConnection;

    fn connected(&self, info: ConnectionInfo) -> ClientConnection {
        ClientConnection::new(info)
    }

    fn handle(
        &self,
        connection: &Arc<ClientConnection>,
        frame: BytesMut,
    ) -> impl Future<Output = Reply> + Send + 'static {
        answer(self.replicas.clone(), connection.clone(), frame)
    }
}

async fn answer(
    replicas: Arc<ReplicaManager>,
    connection: Arc<ClientConnection>,
    mut frame: BytesMut,
) -> Reply {
    let (header, length) = protocol::frame::peek_request_header(&frame).expect("header");
    let (key, version) = (ApiKey::from_code(header.api_key).expect("key"), header.api_version);
    let context = RequestContext { header, connection };
    frame.advance(length);
    if key == ApiKey::Produce {
        return crate::api::produce::handle(&replicas, &context, frame).await;
    }
    let response: Response = match protocol::decode_request(key, version, frame.freeze()).expect("request") {
        Request::Fetch(request) => return crate::api::fetch::handle(&replicas, &context, request).await,
        Request::ApiVersions(_) => {
            let range = |key: ApiKey| {
                let spec = key.spec();
                ApiVersion::default()
                    .with_api_key(key.code())
                    .with_min_version(spec.min_version)
                    .with_max_version(spec.max_version)
            };
            ApiVersionsResponse::default()
                .with_api_keys([ApiKey::Produce, ApiKey::Fetch, ApiKey::ListOffsets].map(range).to_vec())
                .into()
        }
        Request::ListOffsets(request) => {
            crate::api::list_offsets::handle(&replicas, &request, version).into()
        }
        Request::OffsetForLeaderEpoch(request) => {
            crate::api::offset_for_leader_epoch::handle(&replicas, &request).into()
        }
        Request::DeleteRecords(request) => {
            crate::api::delete_records::handle(&replicas, &request).await.into()
        }
        Request::DescribeLogDirs(request) => {
            crate::api::describe_log_dirs::handle(&replicas, &request).into()
        }
        Request::DescribeProducers(request) => {
            crate::api::describe_producers::handle(&replicas, &request).into()
        }
        other => panic!("no test sends {other:?}"),
    };
    let encoded = protocol::encode_response_frame(&response, version, context.header.correlation_id);
    Reply::Send(vec![Chunk::Bytes(encoded.expect("response"))])
}
