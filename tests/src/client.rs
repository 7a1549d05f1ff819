//! A client for tests, on the broker's own connection: it finds leaders, retries nothing by itself except
//! where its name says so, and hands out what a test wants to see.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use broker::client::{ConnectOptions, Connection};
use bytes::Bytes;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::describe_producers_request::TopicRequest;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::metadata_response::MetadataResponseTopic;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{
    CreateTopicsRequest, DescribeProducersRequest, FetchRequest, InitProducerIdRequest, ListOffsetsRequest,
    MetadataRequest, MetadataResponse, ProduceRequest, TopicName,
};
use protocol::{ApiKey, ErrorCode, Request, Response, StrBytes};
use uuid::Uuid;

use crate::eventually::eventually;

/// ListOffsets' timestamp of the end.
pub const LATEST: i64 = -1;
/// The last versions that name topics instead of numbering them.
const PRODUCE_BY_NAME: i16 = 12;
const FETCH_BY_NAME: i16 = 12;
const METADATA_MAX: i16 = 12;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const TIMEOUT_MS: i32 = 8_000;
const FETCH_BYTES: i32 = 8 << 20;

pub fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub fn topic_name(value: &str) -> TopicName {
    TopicName(text(value))
}

/// The name of an error code, for messages.
pub fn error_name(code: i16) -> String {
    ErrorCode::from_code(code).map_or_else(|| code.to_string(), |error| error.name().to_owned())
}

/// A produce answer for one partition.
#[derive(Clone, Debug)]
pub struct Produced {
    pub error_code: i16,
    pub message: Option<String>,
    pub base_offset: i64,
}

/// A fetch answer for one partition.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub error_code: i16,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub records: Bytes,
}

/// The identity of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdentity {
    pub id: i64,
    pub epoch: i16,
}

/// A client of one cluster, ours or Kafka's.
pub struct Client {
    bootstrap: Vec<String>,
    connections: HashMap<String, Connection>,
    leaders: HashMap<(String, i32), String>,
}

impl Client {
    /// `bootstrap`: addresses with commas between them.
    pub fn new(bootstrap: &str) -> Client {
        Client {
            bootstrap: bootstrap.split(',').map(str::to_owned).collect(),
            connections: HashMap::new(),
            leaders: HashMap::new(),
        }
    }

    /// The addresses that it was made with.
    pub fn bootstrap(&self) -> String {
        self.bootstrap.join(",")
    }

    /// A connection to one node; a broken one is replaced.
    pub async fn connection(&mut self, address: &str) -> Result<&mut Connection> {
        if self.connections.get(address).is_none_or(|connection| !connection.is_usable()) {
            let options = ConnectOptions {
                connect_timeout: CONNECT_TIMEOUT,
                request_timeout: REQUEST_TIMEOUT,
                ..ConnectOptions::default()
            };
            let connection = Connection::connect(address, "kagami-tests", options).await?;
            self.connections.insert(address.to_owned(), connection);
        }
        self.connections.get_mut(address).context("just connected")
    }

    /// One call to one node, in a version of at most `max_version`.
    pub async fn call_at(&mut self, address: &str, request: Request, max_version: i16) -> Result<Response> {
        let connection = self.connection(address).await?;
        let key = request.key();
        let version = connection.version_of(key).with_context(|| format!("{} at {address}", key.name()))?;
        let answer = connection.call(request, version.min(max_version)).await;
        if answer.is_err() {
            self.connections.remove(address);
        }
        Ok(answer?)
    }

    /// One call to the first bootstrap node that answers.
    pub async fn call_any(&mut self, request: Request, max_version: i16) -> Result<Response> {
        let mut last = anyhow!("no address");
        for address in self.bootstrap.clone() {
            match self.call_at(&address, request.clone(), max_version).await {
                Ok(response) => return Ok(response),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Metadata of a topic, or of all.
    pub async fn metadata(&mut self, topic: Option<&str>) -> Result<MetadataResponse> {
        let topics =
            topic.map(|topic| vec![MetadataRequestTopic::default().with_name(Some(topic_name(topic)))]);
        let request = MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false);
        match self.call_any(Request::Metadata(request), METADATA_MAX).await? {
            Response::Metadata(response) => Ok(response),
            other => bail!("Metadata answered with {other:?}"),
        }
    }

    /// Metadata of a topic that must be there; its leaders are noted.
    pub async fn topic(&mut self, topic: &str) -> Result<MetadataResponseTopic> {
        let response = self.metadata(Some(topic)).await?;
        let brokers: BTreeMap<i32, String> = response
            .brokers
            .iter()
            .map(|broker| (broker.node_id.0, format!("{}:{}", &*broker.host, broker.port)))
            .collect();
        let found = response.topics.into_iter().next().with_context(|| format!("no topic {topic}"))?;
        ensure!(found.error_code == 0, "topic {topic}: {}", error_name(found.error_code));
        for partition in &found.partitions {
            let key = (topic.to_owned(), partition.partition_index);
            match brokers.get(&partition.leader_id.0) {
                Some(address) => self.leaders.insert(key, address.clone()),
                None => self.leaders.remove(&key),
            };
        }
        Ok(found)
    }

    pub async fn topic_id(&mut self, topic: &str) -> Result<Uuid> {
        Ok(self.topic(topic).await?.topic_id)
    }

    /// The address of a partition's leader as last seen, looked up where it is not known.
    pub async fn leader(&mut self, topic: &str, partition: i32) -> Result<String> {
        let key = (topic.to_owned(), partition);
        if !self.leaders.contains_key(&key) {
            self.topic(topic).await?;
        }
        self.leaders.get(&key).cloned().with_context(|| format!("{topic}-{partition} has no leader"))
    }

    /// For questions that metadata would not lead to.
    pub fn assume_leader(&mut self, topic: &str, partition: i32, address: &str) {
        self.leaders.insert((topic.to_owned(), partition), address.to_owned());
    }

    /// After an error that another leader may not give.
    pub fn forget_leaders(&mut self) {
        self.leaders.clear();
    }

    /// The answer's code for one CreateTopics.
    pub async fn try_create_topic(
        &mut self,
        topic: &str,
        partitions: i32,
        replicas: i16,
        configs: &[(&str, &str)],
    ) -> Result<(i16, Option<String>)> {
        let configs = configs.iter().map(|(key, value)| {
            CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value)))
        });
        let creatable = CreatableTopic::default()
            .with_name(topic_name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(replicas)
            .with_configs(configs.collect());
        let request = CreateTopicsRequest::default().with_topics(vec![creatable]).with_timeout_ms(TIMEOUT_MS);
        match self.call_any(Request::CreateTopics(request), 7).await? {
            Response::CreateTopics(response) => {
                let result = response.topics.into_iter().next().context("an empty answer")?;
                Ok((result.error_code, result.error_message.map(|message| message.to_string())))
            }
            other => bail!("CreateTopics answered with {other:?}"),
        }
    }

    /// Until the topic is there and every partition has a leader.
    pub async fn create_topic(
        &mut self,
        topic: &str,
        partitions: i32,
        replicas: i16,
        configs: &[(&str, &str)],
    ) -> Result<Uuid> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let refused = match self.try_create_topic(topic, partitions, replicas, configs).await {
                Ok((code, _)) if code == 0 || code == ErrorCode::TopicAlreadyExists.code() => break,
                Ok((code, message)) => anyhow!("{}: {message:?}", error_name(code)),
                Err(error) => error,
            };
            if tokio::time::Instant::now() > deadline {
                return Err(refused.context(format!("create topic {topic}")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.await_leaders(topic, partitions).await
    }

    /// Until the topic has so many partitions, each with a leader.
    pub async fn await_leaders(&mut self, topic: &str, partitions: i32) -> Result<Uuid> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let last = match self.topic(topic).await {
                Ok(found)
                    if found.partitions.len() == partitions as usize
                        && found.partitions.iter().all(|partition| partition.leader_id.0 >= 0) =>
                {
                    return Ok(found.topic_id);
                }
                Ok(found) => format!("{:?}", found.partitions),
                Err(error) => format!("{error:#}"),
            };
            ensure!(tokio::time::Instant::now() < deadline, "{topic} has no leaders: {last}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Until every partition's ISR has so many members.
    pub async fn await_isr(&mut self, topic: &str, members: usize, within: Duration) -> Result<()> {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            let last = match self.topic(topic).await {
                Ok(found) if found.partitions.iter().all(|p| p.isr_nodes.len() == members) => return Ok(()),
                Ok(found) => {
                    let isr = |p: &protocol::messages::metadata_response::MetadataResponsePartition| {
                        (
                            p.partition_index,
                            p.leader_id.0,
                            p.isr_nodes.iter().map(|n| n.0).collect::<Vec<_>>(),
                        )
                    };
                    format!("{:?}", found.partitions.iter().map(isr).collect::<Vec<_>>())
                }
                Err(error) => format!("{error:#}"),
            };
            ensure!(
                tokio::time::Instant::now() < deadline,
                "{topic}: no ISR of {members} everywhere within {within:?}: (partition, leader, ISR) {last}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A new producer id, retried until the cluster gives one.
    pub async fn init_producer_id(&mut self) -> Result<ProducerIdentity> {
        let bootstrap = self.bootstrap.join(",");
        eventually("InitProducerId", Duration::from_secs(20), || {
            let bootstrap = bootstrap.clone();
            async move {
                let request = InitProducerIdRequest::default()
                    .with_transactional_id(None)
                    .with_transaction_timeout_ms(60_000)
                    .with_producer_id((-1).into())
                    .with_producer_epoch(-1);
                let mut client = Client::new(&bootstrap);
                match client.call_any(Request::InitProducerId(request), 4).await? {
                    Response::InitProducerId(response) if response.error_code == 0 => {
                        Ok(Some(ProducerIdentity {
                            id: response.producer_id.0,
                            epoch: response.producer_epoch,
                        }))
                    }
                    Response::InitProducerId(response) => bail!(error_name(response.error_code)),
                    other => bail!("answered with {other:?}"),
                }
            }
        })
        .await
    }

    /// One batch with acks=all to the partition's leader.
    pub async fn produce(&mut self, topic: &str, partition: i32, batch: Bytes) -> Result<Produced> {
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
        let topic_data =
            TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(TIMEOUT_MS)
            .with_topic_data(vec![topic_data]);
        let leader = self.leader(topic, partition).await?;
        match self.call_at(&leader, Request::Produce(request), PRODUCE_BY_NAME).await? {
            Response::Produce(response) => {
                let result =
                    response.responses.into_iter().flat_map(|topic| topic.partition_responses).next();
                let result = result.context("an empty answer")?;
                Ok(Produced {
                    error_code: result.error_code,
                    message: result.error_message.map(|message| message.to_string()),
                    base_offset: result.base_offset,
                })
            }
            other => bail!("Produce answered with {other:?}"),
        }
    }

    /// Records of a partition from an offset on; waits for none.
    pub async fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        committed: bool,
    ) -> Result<Fetched> {
        let asked = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(offset)
            .with_current_leader_epoch(-1)
            .with_last_fetched_epoch(-1)
            .with_log_start_offset(-1)
            .with_partition_max_bytes(FETCH_BYTES);
        let topics = vec![FetchTopic::default().with_topic(topic_name(topic)).with_partitions(vec![asked])];
        let request = FetchRequest::default()
            .with_replica_id((-1).into())
            .with_max_wait_ms(0)
            .with_min_bytes(0)
            .with_max_bytes(FETCH_BYTES)
            .with_isolation_level(i8::from(committed))
            .with_session_id(0)
            .with_session_epoch(-1)
            .with_topics(topics);
        let leader = self.leader(topic, partition).await?;
        match self.call_at(&leader, Request::Fetch(request), FETCH_BY_NAME).await? {
            Response::Fetch(response) => {
                ensure!(response.error_code == 0, "Fetch: {}", error_name(response.error_code));
                let result = response.responses.into_iter().flat_map(|topic| topic.partitions).next();
                let result = result.context("an empty answer")?;
                Ok(Fetched {
                    error_code: result.error_code,
                    high_watermark: result.high_watermark,
                    last_stable_offset: result.last_stable_offset,
                    records: result.records.unwrap_or_default(),
                })
            }
            other => bail!("Fetch answered with {other:?}"),
        }
    }

    /// A partition's end: its high watermark, or its last stable offset.
    pub async fn end_offset(&mut self, topic: &str, partition: i32, committed: bool) -> Result<i64> {
        let asked = ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(LATEST);
        let topics =
            vec![ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(vec![asked])];
        let request = ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_isolation_level(i8::from(committed))
            .with_topics(topics);
        let leader = self.leader(topic, partition).await?;
        match self.call_at(&leader, Request::ListOffsets(request), 6).await? {
            Response::ListOffsets(response) => {
                let result = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
                let result = result.context("an empty answer")?;
                if result.error_code != 0 {
                    self.forget_leaders();
                    bail!("ListOffsets of {topic}-{partition}: {}", error_name(result.error_code));
                }
                Ok(result.offset)
            }
            other => bail!("ListOffsets answered with {other:?}"),
        }
    }

    /// The ends of the first partitions of a topic.
    pub async fn end_offsets(&mut self, topic: &str, partitions: i32, committed: bool) -> Result<Vec<i64>> {
        let mut ends = Vec::new();
        for partition in 0..partitions {
            ends.push(self.end_offset(topic, partition, committed).await?);
        }
        Ok(ends)
    }

    /// How many producers have a transaction open in a partition.
    async fn open_transactions(&mut self, topic: &str, partition: i32) -> Result<usize> {
        let asked =
            TopicRequest::default().with_name(topic_name(topic)).with_partition_indexes(vec![partition]);
        let request = DescribeProducersRequest::default().with_topics(vec![asked]);
        let leader = self.leader(topic, partition).await?;
        match self.call_at(&leader, Request::DescribeProducers(request), 0).await? {
            Response::DescribeProducers(response) => {
                let result = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
                let result = result.context("an empty answer")?;
                ensure!(result.error_code == 0, "DescribeProducers: {}", error_name(result.error_code));
                Ok(result.active_producers.iter().filter(|p| p.current_txn_start_offset >= 0).count())
            }
            other => bail!("DescribeProducers answered with {other:?}"),
        }
    }

    /// Until each partition has so many open transactions. Kafka answers a commit before the markers are in
    /// the logs, so the last stable offset moves on by itself until then.
    pub async fn await_open_transactions(&mut self, topic: &str, open: &[usize]) -> Result<()> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        for (partition, wanted) in open.iter().enumerate() {
            loop {
                let found = self.open_transactions(topic, partition as i32).await;
                if matches!(&found, Ok(count) if count == wanted) {
                    break;
                }
                ensure!(
                    tokio::time::Instant::now() < deadline,
                    "{topic}-{partition}: wanted {wanted} open transactions, last was {found:?}"
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Until so many brokers are in the metadata.
    pub async fn await_brokers(&mut self, brokers: usize, within: Duration) -> Result<()> {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            let last = match self.metadata(None).await {
                Ok(response) if response.brokers.len() == brokers => return Ok(()),
                Ok(response) => format!("{} are there", response.brokers.len()),
                Err(error) => format!("{error:#}"),
            };
            ensure!(tokio::time::Instant::now() < deadline, "no {brokers} brokers within {within:?}: {last}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// ApiVersions on a new connection, as a health check; how long it took.
    pub async fn probe(address: &str) -> Result<Duration> {
        let begin = std::time::Instant::now();
        let options = ConnectOptions { connect_timeout: CONNECT_TIMEOUT, ..ConnectOptions::default() };
        let connection = Connection::connect(address, "probe", options).await?;
        ensure!(connection.version_of(ApiKey::ApiVersions).is_some(), "{address} serves no ApiVersions");
        Ok(begin.elapsed())
    }
}
