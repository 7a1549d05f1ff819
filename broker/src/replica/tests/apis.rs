//! The other APIs that read or trim partitions.

use std::time::Duration;

use common::ids::*;
use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::messages::describe_producers_request::TopicRequest;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::{
    DeleteRecordsRequest, DescribeLogDirsRequest, DescribeProducersRequest, ListOffsetsRequest, TopicName,
};
use protocol::record_batch::BatchBuilder;
use protocol::{ErrorCode, StrBytes};

use super::cluster::*;
use crate::api;
use crate::log::AppendOrigin;
use crate::replica::AppendOptions;

fn topic() -> TopicName {
    TopicName(StrBytes::from_static_str(TOPIC))
}

/// Error, offset and timestamp for a timestamp.
fn list(cluster: &Cluster, broker: i32, timestamp: i64, version: i16) -> (ErrorCode, i64, i64) {
    let partition = ListOffsetsPartition::default().with_current_leader_epoch(-1).with_timestamp(timestamp);
    let request = ListOffsetsRequest::default()
        .with_topics(vec![ListOffsetsTopic::default().with_name(topic()).with_partitions(vec![partition])]);
    let response = api::list_offsets::handle(&cluster.broker(broker).replicas, &request, version);
    let answer = &response.topics[0].partitions[0];
    (ErrorCode::from_code(answer.error_code).expect("code"), answer.offset, answer.timestamp)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_by_time() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(1);
    assert_eq!(list(&cluster, 1, -1, 9), (ErrorCode::None, 0, -1));
    assert_eq!(list(&cluster, 1, -3, 9), (ErrorCode::None, -1, -1));
    cluster.produce_all(1, 10).await;
    assert_eq!(list(&cluster, 1, -1, 9), (ErrorCode::None, 10, -1));
    assert_eq!(list(&cluster, 1, -2, 9), (ErrorCode::None, 0, -1));
    assert_eq!(list(&cluster, 1, -4, 9), (ErrorCode::None, 0, -1));
    assert_eq!(list(&cluster, 1, -3, 9), (ErrorCode::None, 9, 1_009));
    assert_eq!(list(&cluster, 1, 1_004, 9), (ErrorCode::None, 4, 1_004));
    assert_eq!(list(&cluster, 1, 5_000, 9), (ErrorCode::None, -1, -1));
    assert_eq!(list(&cluster, 1, -5, 9), (ErrorCode::None, -1, -1));
    assert_eq!(list(&cluster, 1, -77, 9).0, ErrorCode::UnsupportedVersion);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_leader_does_not_know_its_end_until_followers_confirm() {
    let cluster = Cluster::start(2, 2).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 5).await;
    until(&cluster.partition(2, 0), "high watermark", |status| status.high_watermark == Offset(5)).await;
    // 2 has three records more that 1 has not told it are committed.
    cluster.broker(2).replicas.fetchers.remove([id(0)]);
    cluster.commit_silently(vec![Cluster::elect(1)]);
    cluster.catch_up(1);
    cluster.produce(1, 3, 1).expect("append");
    cluster.commit_silently(vec![Cluster::elect(1)]);
    cluster.catch_up(1);
    assert_eq!(list(&cluster, 1, -1, 9).0, ErrorCode::OffsetNotAvailable);
    assert_eq!(list(&cluster, 1, -1, 4).0, ErrorCode::LeaderNotAvailable);
    cluster.catch_up(2);
    until(&cluster.partition(1, 0), "high watermark", |status| status.high_watermark == Offset(8)).await;
    assert_eq!(list(&cluster, 1, -1, 9), (ErrorCode::None, 8, -1));
    assert_eq!(list(&cluster, 2, -1, 9).0, ErrorCode::NotLeaderOrFollower);
}

async fn delete(cluster: &Cluster, offset: i64) -> (ErrorCode, i64) {
    let partition = DeleteRecordsPartition::default().with_offset(offset);
    let topic = DeleteRecordsTopic::default().with_name(topic()).with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_timeout_ms(20_000).with_topics(vec![topic]);
    let response = api::delete_records::handle(&cluster.broker(1).replicas, &request).await;
    let answer = &response.topics[0].partitions[0];
    (ErrorCode::from_code(answer.error_code).expect("code"), answer.low_watermark)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_records_are_gone_on_every_replica() {
    let cluster = Cluster::start(3, 2).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 10).await;
    for broker in [2, 3] {
        until(&cluster.partition(broker, 0), "end", |status| status.high_watermark == Offset(10)).await;
    }
    assert_eq!(delete(&cluster, 4).await, (ErrorCode::None, 4));
    for broker in [1, 2, 3] {
        assert_eq!(cluster.partition(broker, 0).status().log_start_offset, Offset(4));
    }
    assert_eq!(delete(&cluster, 11).await, (ErrorCode::OffsetOutOfRange, -1));
    assert_eq!(delete(&cluster, -1).await, (ErrorCode::None, 10));
    cluster.add_to_mirror();
    assert_eq!(delete(&cluster, -1).await, (ErrorCode::ReadOnlyTopic, -1));
}

/// As Kafka: whoever is away trims its log when it is back, and a new leader waits for those who are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_records_waits_for_replicas_that_are_alive_and_for_no_others() {
    let cluster = Cluster::start(3, 2).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 10).await;
    for broker in [2, 3] {
        until(&cluster.partition(broker, 0), "end", |status| status.high_watermark == Offset(10)).await;
    }
    cluster.broker(3).replicas.fetchers.remove([id(0)]);
    cluster.fence(3, true);
    assert_eq!(delete(&cluster, 4).await, (ErrorCode::None, 4));
    // Back, under another leader epoch: nothing is known of it until it fetches.
    cluster.fence(3, false);
    cluster.broker(2).replicas.fetchers.remove([id(0)]);
    cluster.commit_silently(vec![Cluster::elect(1)]);
    cluster.catch_up(1);
    let partition = cluster.partition(1, 0);
    assert_eq!(partition.delete_records(Offset(6)), Ok(Offset(6)));
    assert_eq!(partition.low_watermark(), Ok(None));
    cluster.catch_up(2);
    cluster.catch_up(3);
    assert_eq!(delete(&cluster, 7).await, (ErrorCode::None, 7));
    assert_eq!(cluster.partition(3, 0).status().log_start_offset, Offset(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_and_directories_are_described() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(2);
    let mut records = BatchBuilder::new().producer(9, 1, 0).record(1_000, None, Some(b"a")).build_mut();
    let options = AppendOptions { acks: 1, origin: AppendOrigin::Client, expected_leader_epoch: None };
    let replicas = &cluster.broker(1).replicas;
    let first = replicas.append(id(0), &mut records.clone(), options).expect("append");
    let again = replicas.append(id(0), &mut records, options).expect("duplicate");
    assert!(!first.info.duplicate && again.info.duplicate);
    assert_eq!(again.info.first_offset, first.info.first_offset);
    let request = DescribeProducersRequest::default()
        .with_topics(vec![TopicRequest::default().with_name(topic()).with_partition_indexes(vec![0, 7])]);
    let response = api::describe_producers::handle(replicas, &request);
    let partitions = &response.topics[0].partitions;
    assert_eq!(partitions[0].active_producers.len(), 1);
    assert_eq!(partitions[0].active_producers[0].producer_id.0, 9);
    assert_eq!(partitions[1].error_code, ErrorCode::UnknownTopicOrPartition.code());
    let response =
        api::describe_log_dirs::handle(replicas, &DescribeLogDirsRequest::default().with_topics(None));
    assert_eq!(response.results.len(), 1);
    let described = &response.results[0].topics[0].partitions;
    assert_eq!(described.iter().map(|partition| partition.partition_index).collect::<Vec<_>>(), [0, 1]);
    assert!(described[0].partition_size > 0 && response.results[0].total_bytes > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_at_its_deadline_and_leaves_nothing_behind() {
    let cluster = Cluster::start(2, 2).await;
    cluster.create_topic(1);
    cluster.broker(2).replicas.fetchers.remove([id(0)]);
    let appended = cluster.produce(1, 1, -1).expect("append");
    let deadline = tokio::time::Instant::now() + Duration::from_millis(20);
    let waited = cluster.broker(1).replicas.wait_replicated(vec![appended.waiting()], deadline).await;
    assert_eq!(waited, vec![Err(crate::replica::WaitFailure::TimedOut)]);
    assert!(cluster.partition(1, 0).lock().waiters.is_empty());
}
