//! Produce and Fetch over a socket.

use std::time::Duration;

use common::ids::*;
use common::metadata::MetadataRecord;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{FetchRequest, FetchResponse, ProduceRequest, ProduceResponse, TopicName};
use protocol::{ErrorCode, Request, Response, StrBytes};

use super::cluster::*;
use crate::client::Connection;

fn produce_request(partition: i32, count: i32, acks: i16) -> Request {
    let data =
        PartitionProduceData::default().with_index(partition).with_records(Some(batch(count).freeze()));
    Request::Produce(ProduceRequest::default().with_acks(acks).with_timeout_ms(10_000).with_topic_data(vec![
            TopicProduceData::default()
                .with_name(TopicName(StrBytes::from_static_str(TOPIC)))
                .with_topic_id(topic_id().0)
                .with_partition_data(vec![data]),
        ]))
}

async fn produce(connection: &mut Connection, version: i16, partition: i32, acks: i16) -> (ErrorCode, i64) {
    match connection.call(produce_request(partition, 2, acks), version).await.expect("answer") {
        Response::Produce(ProduceResponse { responses, .. }) => {
            let answer = &responses[0].partition_responses[0];
            (ErrorCode::from_code(answer.error_code).expect("code"), answer.base_offset)
        }
        other => panic!("{other:?}"),
    }
}

/// A consumer's fetch of partitions and offsets.
pub(super) fn fetch_request(
    session: (i32, i32),
    partitions: &[(i32, i64)],
    max_wait_ms: i32,
) -> FetchRequest {
    let wanted = |(partition, offset): &(i32, i64)| {
        FetchPartition::default()
            .with_partition(*partition)
            .with_current_leader_epoch(-1)
            .with_fetch_offset(*offset)
            .with_partition_max_bytes(1 << 20)
    };
    let topic = FetchTopic::default()
        .with_topic(TopicName(StrBytes::from_static_str(TOPIC)))
        .with_topic_id(topic_id().0)
        .with_partitions(partitions.iter().map(wanted).collect());
    FetchRequest::default()
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_session_id(session.0)
        .with_session_epoch(session.1)
        .with_topics(if partitions.is_empty() { Vec::new() } else { vec![topic] })
}

pub(super) async fn fetch(connection: &mut Connection, version: i16, request: FetchRequest) -> FetchResponse {
    match connection.call(Request::Fetch(request), version).await.expect("answer") {
        Response::Fetch(response) => response,
        other => panic!("{other:?}"),
    }
}

/// Partition, error, high watermark, records' length of each partition of an answer.
pub(super) fn summary(response: &FetchResponse) -> Vec<(i32, i16, i64, usize)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|p| {
            let bytes = p.records.as_ref().map_or(0, |records| records.len());
            (p.partition_index, p.error_code, p.high_watermark, bytes)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_produces_and_fetches() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(1);
    let mut connection = cluster.client(1).await;
    let mut end = 0;
    for version in 3..=13 {
        for acks in [1, -1] {
            assert_eq!(produce(&mut connection, version, 0, acks).await, (ErrorCode::None, end), "{version}");
            end += 2;
        }
    }
    let stored = bytes_of(&cluster.partition(1, 0));
    for version in 4..=18 {
        let response = fetch(&mut connection, version, fetch_request((0, -1), &[(0, 0)], 0)).await;
        assert_eq!(summary(&response), [(0, 0, end, stored.len())], "{version}");
        let records = response.responses[0].partitions[0].records.as_ref().expect("records");
        assert_eq!(records[..], stored[..], "{version}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_produce() {
    let cluster = Cluster::start(2, 1).await;
    cluster.create_topic(1);
    let mut leader = cluster.client(1).await;
    assert_eq!(produce(&mut leader, 13, 0, 2).await, (ErrorCode::InvalidRequiredAcks, -1));
    assert_eq!(produce(&mut leader, 13, 5, 1).await, (ErrorCode::UnknownTopicOrPartition, -1));
    let mut follower = cluster.client(2).await;
    match follower.call(produce_request(0, 1, 1), 13).await.expect("answer") {
        Response::Produce(response) => {
            let answer = &response.responses[0].partition_responses[0];
            assert_eq!(answer.error_code, ErrorCode::NotLeaderOrFollower.code());
            assert_eq!(answer.current_leader.leader_id.0, 1);
            assert_eq!(response.node_endpoints.len(), 1);
        }
        other => panic!("{other:?}"),
    }
}

/// KIP-951: the new leader in tagged fields, and from Fetch 16 on its address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leader_names_its_successor() {
    let cluster = Cluster::start(2, 1).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 1).await;
    cluster.commit(vec![Cluster::elect(2)]);
    let mut deposed = cluster.client(1).await;
    // The consumer still has the old epoch.
    let old = || {
        let mut request = fetch_request((0, -1), &[(0, 0)], 0);
        request.topics[0].partitions[0].current_leader_epoch = 0;
        request
    };
    for (version, endpoints) in [(12, 0), (15, 0), (16, 1), (18, 1)] {
        let response = fetch(&mut deposed, version, old()).await;
        let answer = &response.responses[0].partitions[0];
        assert_eq!(answer.error_code, ErrorCode::FencedLeaderEpoch.code());
        assert_eq!((answer.current_leader.leader_id.0, answer.current_leader.leader_epoch), (2, 1));
        assert_eq!(response.node_endpoints.len(), endpoints, "version {version}");
        for endpoint in &response.node_endpoints {
            let address = format!("{}:{}", endpoint.host, endpoint.port);
            assert_eq!((endpoint.node_id.0, address), (2, cluster.broker(2).address.clone()));
        }
    }
    for (version, endpoints) in [(9, 0), (10, 1), (13, 1)] {
        match deposed.call(produce_request(0, 1, -1), version).await.expect("answer") {
            Response::Produce(response) => {
                let answer = &response.responses[0].partition_responses[0];
                assert_eq!(answer.error_code, ErrorCode::NotLeaderOrFollower.code());
                let leader = if endpoints == 0 { -1 } else { 2 };
                assert_eq!(answer.current_leader.leader_id.0, leader, "version {version}");
                assert_eq!(response.node_endpoints.len(), endpoints, "version {version}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_fetch_is_answered_by_the_produce() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(2);
    for (version, session) in [(11, (0, -1)), (18, (0, 0))] {
        let end = cluster.partition(1, 0).status().log_end_offset.0;
        let mut consumer = cluster.client(1).await;
        let waiting = tokio::spawn(async move {
            fetch(&mut consumer, version, fetch_request(session, &[(0, end), (1, 0)], 20_000)).await
        });
        // Long enough for the fetch to be parked; it is answered all the same if it was not.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut producer = cluster.client(1).await;
        produce(&mut producer, 11, 0, 1).await;
        let response = tokio::time::timeout(PATIENCE, waiting).await.expect("in time").expect("fetch");
        let with_records: Vec<_> =
            summary(&response).into_iter().filter(|partition| partition.3 > 0).collect();
        assert_eq!(with_records.len(), 1);
        assert_eq!(with_records[0].0, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_tells_only_what_is_new() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(3);
    let mut connection = cluster.client(1).await;
    let opened = fetch(&mut connection, 18, fetch_request((0, 0), &[(0, 0), (1, 0), (2, 0)], 0)).await;
    assert_eq!(summary(&opened), [(0, 0, 0, 0), (1, 0, 0, 0), (2, 0, 0, 0)]);
    let session = opened.session_id;
    assert_ne!(session, 0);
    let idle = fetch(&mut connection, 18, fetch_request((session, 1), &[], 0)).await;
    assert_eq!((idle.session_id, summary(&idle)), (session, vec![]));
    produce(&mut connection, 13, 1, 1).await;
    let news = fetch(&mut connection, 18, fetch_request((session, 2), &[], 20_000)).await;
    assert_eq!(summary(&news).len(), 1);
    assert_eq!(summary(&news)[0].0, 1);
    // The position did not move: the same records again.
    let again = fetch(&mut connection, 18, fetch_request((session, 3), &[], 20_000)).await;
    assert_eq!(summary(&again), summary(&news));
    let caught_up = fetch(&mut connection, 18, fetch_request((session, 4), &[(1, 2)], 0)).await;
    assert_eq!(summary(&caught_up), []);
    // A wrong epoch, and a session that is not there.
    let wrong = fetch(&mut connection, 18, fetch_request((session, 9), &[], 0)).await;
    assert_eq!(wrong.error_code, ErrorCode::InvalidFetchSessionEpoch.code());
    let unknown = fetch(&mut connection, 18, fetch_request((session ^ 1, 1), &[], 0)).await;
    assert_eq!(unknown.error_code, ErrorCode::FetchSessionIdNotFound.code());
    // Forgotten partitions are heard of no more.
    let forget = fetch_request((session, 5), &[], 0).with_forgotten_topics_data(vec![
        ForgottenTopic::default().with_topic_id(topic_id().0).with_partitions(vec![1]),
    ]);
    fetch(&mut connection, 18, forget).await;
    produce(&mut connection, 13, 1, 1).await;
    let quiet = fetch(&mut connection, 18, fetch_request((session, 6), &[], 0)).await;
    assert_eq!(summary(&quiet), []);
    // Closing.
    fetch(&mut connection, 18, fetch_request((session, -1), &[(0, 0)], 0)).await;
    assert_eq!(cluster.broker(1).replicas.fetch_sessions(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_topic_ends_a_waiting_fetch() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(1);
    let mut connection = cluster.client(1).await;
    let waiting =
        tokio::spawn(
            async move { fetch(&mut connection, 18, fetch_request((0, 0), &[(0, 0)], 20_000)).await },
        );
    let partition = cluster.partition(1, 0);
    let parked = async {
        while partition.lock().watchers.len() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, parked).await.expect("parked");
    cluster.commit(vec![MetadataRecord::RemoveTopic { topic_id: topic_id() }]);
    let response = tokio::time::timeout(PATIENCE, waiting).await.expect("in time").expect("fetch");
    assert_eq!(summary(&response), [(0, ErrorCode::UnknownTopicId.code(), -1, 0)]);
    assert!(cluster.broker(1).replicas.partition(id(0)).is_none());
    // The same id and name again: an empty log.
    let mut records = cluster.topic_records(1);
    if let Some(MetadataRecord::Partition { registration, .. }) = records.last_mut() {
        registration.leader_epoch = LeaderEpoch(1);
        registration.partition_epoch = PartitionEpoch(1);
    }
    cluster.commit(records);
    assert_eq!(cluster.partition(1, 0).status().log_end_offset, Offset(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_limits_still_give_the_first_batch() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(2);
    let mut connection = cluster.client(1).await;
    produce(&mut connection, 13, 0, 1).await;
    produce(&mut connection, 13, 1, 1).await;
    let tiny = fetch_request((0, -1), &[(0, 0), (1, 0)], 0).with_max_bytes(1);
    let response = fetch(&mut connection, 12, tiny).await;
    let lengths: Vec<bool> = summary(&response).iter().map(|partition| partition.3 > 0).collect();
    assert_eq!(lengths, [true, false]);
    let above = fetch(&mut connection, 12, fetch_request((0, -1), &[(0, 99)], 20_000)).await;
    assert_eq!(summary(&above)[0].1, ErrorCode::OffsetOutOfRange.code());
}
