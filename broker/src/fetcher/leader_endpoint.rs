//! The leader as a fetcher sees it.

use std::time::Duration;

use bytes::Bytes;
use common::ids::*;
use futures::future::BoxFuture;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic, ReplicaState};
use protocol::messages::{BrokerId as WireBrokerId, FetchRequest, FetchResponse};
use protocol::{ApiKey, ErrorCode, Request, Response};

use super::fetch_state::{DivergingEpoch, LeaderAnswer};
use super::session::SessionRequest;
use crate::client::{ClientError, ConnectOptions, Connection};

/// What a follower says of itself and its limits in each fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerIdentity {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub partition_max_bytes: i32,
}

#[derive(Debug)]
pub struct LeaderResponse {
    /// Of the session; partitions have their own.
    pub error: ErrorCode,
    pub session_id: i32,
    pub partitions: Vec<PartitionAnswer>,
}

#[derive(Debug)]
pub struct PartitionAnswer {
    pub id: TopicIdPartition,
    pub answer: LeaderAnswer,
    pub records: Bytes,
}

#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the leader serves no version of Fetch with topic ids")]
    TooOld,
    #[error("the leader answered Fetch with something else")]
    UnexpectedResponse,
    #[error("the leader has no address in the metadata")]
    NoAddress,
}

pub trait LeaderEndpoint: Send {
    fn fetch<'a>(
        &'a mut self,
        identity: FollowerIdentity,
        request: &'a SessionRequest,
    ) -> BoxFuture<'a, Result<LeaderResponse, EndpointError>>;
}

pub trait LeaderConnector: Send + Sync + 'static {
    /// Connects to the broker at `address`, its `host:port` on the inter-broker listener.
    fn connect(
        &self,
        leader: BrokerId,
        address: String,
    ) -> BoxFuture<'static, Result<Box<dyn LeaderEndpoint>, EndpointError>>;
}

/// First version of Fetch that names topics by id and carries a broker epoch.
const FIRST_VERSION: i16 = 15;

/// A leader behind a Kafka connection.
pub struct BrokerConnector {
    pub client_id: String,
    pub options: ConnectOptions,
}

impl LeaderConnector for BrokerConnector {
    fn connect(
        &self,
        _leader: BrokerId,
        address: String,
    ) -> BoxFuture<'static, Result<Box<dyn LeaderEndpoint>, EndpointError>> {
        let (client_id, options) = (self.client_id.clone(), self.options.clone());
        Box::pin(async move {
            let timeout = options.request_timeout;
            let connection = Connection::connect(&address, &client_id, options).await?;
            let version = connection.version_of(ApiKey::Fetch).filter(|version| *version >= FIRST_VERSION);
            let version = version.ok_or(EndpointError::TooOld)?;
            let endpoint: Box<dyn LeaderEndpoint> = Box::new(BrokerEndpoint { connection, version, timeout });
            Ok(endpoint)
        })
    }
}

struct BrokerEndpoint {
    connection: Connection,
    version: i16,
    timeout: Duration,
}

impl LeaderEndpoint for BrokerEndpoint {
    fn fetch<'a>(
        &'a mut self,
        identity: FollowerIdentity,
        request: &'a SessionRequest,
    ) -> BoxFuture<'a, Result<LeaderResponse, EndpointError>> {
        Box::pin(async move {
            let wait = Duration::from_millis(u64::try_from(identity.max_wait_ms).unwrap_or(0));
            let request = Request::Fetch(encode_request(identity, request));
            let response = self.connection.call_within(request, self.version, self.timeout + wait).await?;
            match response {
                Response::Fetch(response) => Ok(decode_response(response)),
                _ => Err(EndpointError::UnexpectedResponse),
            }
        })
    }
}

/// Partitions are handed over in the order of their topics, so each topic is one entry.
pub fn encode_request(identity: FollowerIdentity, session: &SessionRequest) -> FetchRequest {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for (id, wanted) in &session.partitions {
        let partition = FetchPartition::default()
            .with_partition(id.partition)
            .with_current_leader_epoch(wanted.leader_epoch.0)
            .with_fetch_offset(wanted.fetch_offset.0)
            .with_last_fetched_epoch(wanted.last_fetched_epoch.unwrap_or(LeaderEpoch::UNKNOWN).0)
            .with_log_start_offset(wanted.log_start_offset.0)
            .with_partition_max_bytes(identity.partition_max_bytes);
        match topics.last_mut().filter(|topic| topic.topic_id == id.topic_id.0) {
            Some(topic) => topic.partitions.push(partition),
            None => topics
                .push(FetchTopic::default().with_topic_id(id.topic_id.0).with_partitions(vec![partition])),
        }
    }
    let mut forgotten: Vec<ForgottenTopic> = Vec::new();
    for id in &session.forgotten {
        match forgotten.last_mut().filter(|topic| topic.topic_id == id.topic_id.0) {
            Some(topic) => topic.partitions.push(id.partition),
            None => forgotten.push(
                ForgottenTopic::default().with_topic_id(id.topic_id.0).with_partitions(vec![id.partition]),
            ),
        }
    }
    FetchRequest::default()
        .with_replica_state(
            ReplicaState::default()
                .with_replica_id(WireBrokerId(identity.broker_id.0))
                .with_replica_epoch(identity.broker_epoch.0),
        )
        .with_max_wait_ms(identity.max_wait_ms)
        .with_min_bytes(identity.min_bytes)
        .with_max_bytes(identity.max_bytes)
        .with_session_id(session.session_id)
        .with_session_epoch(session.session_epoch)
        .with_topics(topics)
        .with_forgotten_topics_data(forgotten)
}

pub fn decode_response(response: FetchResponse) -> LeaderResponse {
    let mut partitions = Vec::new();
    for topic in response.responses {
        for partition in topic.partitions {
            let diverging = &partition.diverging_epoch;
            // The field's default is an end offset of -1 with an epoch of -1.
            let diverges = diverging.end_offset >= 0 || diverging.epoch >= 0;
            let records = partition.records.unwrap_or_default();
            partitions.push(PartitionAnswer {
                id: TopicIdPartition::new(TopicId(topic.topic_id), partition.partition_index),
                answer: LeaderAnswer {
                    error: error_code(partition.error_code),
                    high_watermark: Offset(partition.high_watermark),
                    log_start_offset: Offset(partition.log_start_offset),
                    diverging: diverges.then_some(DivergingEpoch {
                        epoch: LeaderEpoch(diverging.epoch),
                        end_offset: Offset(diverging.end_offset),
                    }),
                    has_records: !records.is_empty(),
                },
                records,
            });
        }
    }
    LeaderResponse { error: error_code(response.error_code), session_id: response.session_id, partitions }
}

fn error_code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetcher::session::PartitionRequest;

    #[test]
    fn partitions_of_a_topic_travel_together() {
        let topic = |n: u128| TopicId(uuid::Uuid::from_u128(n));
        let wanted = PartitionRequest {
            fetch_offset: Offset(7),
            log_start_offset: Offset(1),
            leader_epoch: LeaderEpoch(3),
            last_fetched_epoch: None,
        };
        let session = SessionRequest {
            session_id: 5,
            session_epoch: 2,
            partitions: [(1, 0), (1, 1), (2, 0)]
                .map(|(n, partition)| (TopicIdPartition::new(topic(n), partition), wanted))
                .to_vec(),
            forgotten: vec![TopicIdPartition::new(topic(3), 4)],
        };
        let identity = FollowerIdentity {
            broker_id: BrokerId(2),
            broker_epoch: BrokerEpoch(40),
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 1000,
            partition_max_bytes: 100,
        };
        let request = encode_request(identity, &session);
        assert_eq!(request.topics.iter().map(|topic| topic.partitions.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(request.topics[0].partitions[1].last_fetched_epoch, -1);
        assert_eq!(request.topics[0].partitions[1].fetch_offset, 7);
        assert_eq!(request.forgotten_topics_data[0].partitions, [4]);
        assert_eq!((request.session_id, request.session_epoch), (5, 2));
        assert_eq!(request.replica_state.replica_epoch, 40);
    }
}
