//! The demo's client: one connection to one broker.

use std::time::Duration;

use broker::client::{ConnectOptions, Connection};
use bytes::Bytes;
use common::mirror_state::MirrorState;
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{
    CreateTopicsRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest, TopicName,
};
use protocol::mirror::add_topics_to_mirror::{AddTopicsToMirrorRequest, TopicState};
use protocol::mirror::create_mirror::{CreateMirrorRequest, MirrorConfig};
use protocol::mirror::describe_mirrors::DescribeMirrorsRequest;
use protocol::mirror::remove_topics_from_mirror::{self, RemoveTopicsFromMirrorRequest};
use protocol::{ErrorCode, Request, Response, StrBytes};
use tokio::time::sleep;
use uuid::Uuid;

use crate::failure::Failure;
use crate::topic::unexpected;

const TIMEOUT_MS: i32 = 30_000;
const LATEST: i64 = -1;
const PAUSE: Duration = Duration::from_millis(1);
/// Tries for requests that a cluster which has just started refuses for a moment.
const TRIES: usize = 500;
const TRY_PAUSE: Duration = Duration::from_millis(10);

pub struct DemoClient {
    connection: Connection,
    topic_ids: std::collections::HashMap<String, Uuid>,
}

/// What DescribeMirrors says, added up.
pub struct Lag {
    pub source: i64,
    pub destination: i64,
    pub mirroring: usize,
    states: Vec<String>,
}

impl Lag {
    pub fn is_mirroring(&self, partitions: usize) -> bool {
        self.mirroring == partitions
    }

    pub fn line(&self, expected: i64) -> String {
        let lag = (expected - self.destination).max(0);
        format!("{:>9} of {expected} records, lag {lag:>9}  {}", self.destination, self.states.join(" "))
    }

    pub fn live_line(expected: i64, destination: i64) -> String {
        format!("{destination:>9} of {expected} records, lag {:>9}", (expected - destination).max(0))
    }
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn name(topic: &str) -> TopicName {
    TopicName(text(topic))
}

impl DemoClient {
    pub async fn connect(address: &str) -> Result<DemoClient, Failure> {
        let connection = Connection::connect(address, "kagami-demo", ConnectOptions::default())
            .await
            .map_err(|error| Failure::refused(error.to_string()))?;
        Ok(DemoClient { connection, topic_ids: Default::default() })
    }

    async fn call(&mut self, request: Request) -> Result<Response, Failure> {
        self.connection.call_latest(request).await.map_err(|error| Failure::refused(error.to_string()))
    }

    pub async fn create_topic(&mut self, topic: &str, partitions: i32) -> Result<(), Failure> {
        let creatable = CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![creatable]).with_timeout_ms(TIMEOUT_MS);
        let mut last = 0;
        for _ in 0..TRIES {
            let Response::CreateTopics(response) = self.call(Request::CreateTopics(request.clone())).await?
            else {
                return Err(unexpected());
            };
            let result = response.topics.first().ok_or_else(unexpected)?;
            last = result.error_code;
            if last == 0 {
                return self.await_leaders(topic, partitions).await;
            }
            sleep(TRY_PAUSE).await;
        }
        Err(Failure::code(&format!("topic {topic}"), last, None))
    }

    async fn await_leaders(&mut self, topic: &str, partitions: i32) -> Result<(), Failure> {
        for _ in 0..TRIES {
            let wanted = protocol::messages::metadata_request::MetadataRequestTopic::default()
                .with_name(Some(name(topic)));
            let request = MetadataRequest::default()
                .with_topics(Some(vec![wanted]))
                .with_allow_auto_topic_creation(false);
            let Response::Metadata(response) = self.call(Request::Metadata(request)).await? else {
                return Err(unexpected());
            };
            let found = response.topics.first().filter(|found| found.error_code == 0);
            if let Some(found) = found.filter(|found| found.partitions.len() == partitions as usize)
                && found.partitions.iter().all(|partition| partition.error_code == 0)
            {
                self.topic_ids.insert(topic.to_owned(), found.topic_id);
                return Ok(());
            }
            sleep(TRY_PAUSE).await;
        }
        Err(Failure::refused(format!("topic {topic} has no leaders")))
    }

    /// One batch with acks=all; gives the offset of its first record. Errors that Kafka calls retriable
    /// are retried, as every client does.
    pub async fn produce(&mut self, topic: &str, partition: i32, batch: Bytes) -> Result<i64, Failure> {
        let mut tries = TRIES;
        loop {
            let (code, message, offset) = self.try_produce(topic, partition, batch.clone()).await?;
            let retriable = ErrorCode::from_code(code).is_some_and(|code| code.retriable());
            if code == ErrorCode::None.code() {
                return Ok(offset);
            }
            tries -= 1;
            if !retriable || tries == 0 {
                return Err(Failure::code(&format!("{topic}-{partition}"), code, message.as_deref()));
            }
            sleep(PAUSE).await;
        }
    }

    async fn try_produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: Bytes,
    ) -> Result<(i16, Option<StrBytes>, i64), Failure> {
        if !self.topic_ids.contains_key(topic) {
            let partitions = 1 + partition.max(3);
            self.await_leaders(topic, partitions).await?;
        }
        let topic_id = self.topic_ids.get(topic).copied().unwrap_or_default();
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
        let mut topic_data = TopicProduceData::default().with_partition_data(vec![data]);
        // Version 13 names topics by id.
        let version = self.connection.version_of(protocol::ApiKey::Produce).unwrap_or(9);
        topic_data = if version >= 13 {
            topic_data.with_topic_id(topic_id)
        } else {
            topic_data.with_name(name(topic))
        };
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(TIMEOUT_MS)
            .with_topic_data(vec![topic_data]);
        let Response::Produce(response) = self.call(Request::Produce(request)).await? else {
            return Err(unexpected());
        };
        let result = response.responses.first().and_then(|topic| topic.partition_responses.first());
        let result = result.ok_or_else(unexpected)?;
        Ok((result.error_code, result.error_message.clone(), result.base_offset))
    }

    pub async fn create_mirror(&mut self, mirror: &str, source: &str) -> Result<(), Failure> {
        let config = vec![MirrorConfig { name: text("bootstrap.servers"), value: Some(text(source)) }];
        let request = CreateMirrorRequest { mirror_name: Some(text(mirror)), config };
        match self.call(Request::CreateMirror(request)).await? {
            Response::CreateMirror(response) => {
                check("mirror", response.error_code, response.error_message.as_deref())
            }
            _ => Err(unexpected()),
        }
    }

    pub async fn add_topic(&mut self, mirror: &str, topic: &str) -> Result<(), Failure> {
        let state =
            TopicState { topic_id: Uuid::nil(), topic_name: name(topic), mirror_name: Some(text(mirror)) };
        let request = AddTopicsToMirrorRequest { topics: vec![state], recopy: false };
        match self.call(Request::AddTopicsToMirror(request)).await? {
            Response::AddTopicsToMirror(response) => {
                check("mirror", response.error_code, response.error_message.as_deref())
            }
            _ => Err(unexpected()),
        }
    }

    pub async fn remove_topic(&mut self, mirror: &str, topic: &str) -> Result<(), Failure> {
        let state = remove_topics_from_mirror::TopicState { topic_id: Uuid::nil(), topic_name: name(topic) };
        let request = RemoveTopicsFromMirrorRequest { mirror_name: text(mirror), topics: vec![state] };
        match self.call(Request::RemoveTopicsFromMirror(request)).await? {
            Response::RemoveTopicsFromMirror(response) => {
                check("mirror", response.error_code, response.error_message.as_deref())
            }
            _ => Err(unexpected()),
        }
    }

    pub async fn lag(&mut self, mirror: &str) -> Result<Lag, Failure> {
        let request = DescribeMirrorsRequest { mirror_names: Some(vec![text(mirror)]), ..Default::default() };
        let Response::DescribeMirrors(response) = self.call(Request::DescribeMirrors(request)).await? else {
            return Err(unexpected());
        };
        let mut lag = Lag { source: 0, destination: 0, mirroring: 0, states: Vec::new() };
        for mirror in response.mirrors {
            check("mirror", mirror.error_code, mirror.error_message.as_deref())?;
            for partition in mirror.topics.into_iter().flat_map(|topic| topic.partitions) {
                lag.source += partition.source_offset.max(0);
                lag.destination += partition.destination_offset.max(0);
                let state = partition.state.to_string();
                lag.mirroring += usize::from(state == MirrorState::Mirroring.name());
                if !lag.states.contains(&state) {
                    lag.states.push(state);
                }
            }
        }
        Ok(lag)
    }

    /// Waits until the partitions' end offsets add up to `expected`.
    pub async fn await_offset(&mut self, topic: &str, expected: i64) -> Result<i64, Failure> {
        loop {
            let sum = self.end_offsets(topic).await?;
            if sum >= expected {
                return Ok(sum);
            }
            sleep(PAUSE).await;
        }
    }

    async fn end_offsets(&mut self, topic: &str) -> Result<i64, Failure> {
        let partitions = (0..super::PARTITIONS as i32)
            .map(|index| ListOffsetsPartition::default().with_partition_index(index).with_timestamp(LATEST));
        let topics =
            vec![ListOffsetsTopic::default().with_name(name(topic)).with_partitions(partitions.collect())];
        let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(topics);
        let Response::ListOffsets(response) = self.call(Request::ListOffsets(request)).await? else {
            return Err(unexpected());
        };
        let mut sum = 0;
        for partition in response.topics.iter().flat_map(|topic| &topic.partitions) {
            check(topic, partition.error_code, None)?;
            sum += partition.offset;
        }
        Ok(sum)
    }
}

fn check(what: &str, code: i16, message: Option<&str>) -> Result<(), Failure> {
    if code == ErrorCode::None.code() { Ok(()) } else { Err(Failure::code(what, code, message)) }
}
