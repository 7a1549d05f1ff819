use bytes::Bytes;
use common::ids::{BrokerId, TopicIdPartition};
use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use protocol::messages::{BrokerId as WireBrokerId, CreateTopicsRequest, TopicName};
use protocol::proto::controller as wire;
use uuid::Uuid;

use crate::ask;
use crate::harness::{Broker, CLUSTER_ID, Harness, start};

fn code(code: ErrorCode) -> i32 {
    i32::from(code.code())
}

async fn create(harness: &Harness, name: &'static str, replicas: &[i32]) -> TopicIdPartition {
    let mut topic = CreatableTopic::default();
    topic.name = TopicName(StrBytes::from_static_str(name));
    topic.num_partitions = -1;
    topic.replication_factor = -1;
    let mut assignment = CreatableReplicaAssignment::default();
    assignment.partition_index = 0;
    assignment.broker_ids = replicas.iter().copied().map(WireBrokerId).collect();
    topic.assignments = vec![assignment];
    let request = CreateTopicsRequest::default().with_topics(vec![topic]);
    let response = ask!(harness.kafka().await, CreateTopics, request, 7);
    assert_eq!(response.topics[0].error_code, 0, "{response:?}");
    TopicIdPartition::new(response.topics[0].topic_id.into(), 0)
}

#[tokio::test]
async fn a_second_live_process_is_refused_and_a_killed_one_is_replaced_at_once() {
    let harness = start(&[]).await;
    let first = harness.active_broker(5).await;
    let mut second = Broker {
        client: wire::controller_client::ControllerClient::new(harness.channel().await),
        id: 5,
        epoch: -1,
        incarnation: Uuid::new_v4(),
    };
    assert_eq!(second.register(-1).await, Err(code(ErrorCode::DuplicateBrokerRegistration)));
    drop(first);
    // Its connection ends with it; that arrives within a moment, far below the session's 9 s.
    let started = std::time::Instant::now();
    let epoch = loop {
        match second.register(-1).await {
            Ok(epoch) => break epoch,
            Err(error) => assert_eq!(error, code(ErrorCode::DuplicateBrokerRegistration)),
        }
        assert!(started.elapsed().as_secs() < 5);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert!(epoch > 0);
    harness.server.shutdown().await;
}

#[tokio::test]
async fn a_silent_broker_is_fenced_and_its_leaderships_move() {
    let harness = start(&[("broker.session.timeout.ms", "600")]).await;
    let mut one = harness.active_broker(5).await;
    let mut two = harness.active_broker(6).await;
    let id = create(&harness, "t", &[5, 6]).await;
    let leader = |harness: &Harness| harness.server.image().partition(id).unwrap().registration.leader;
    assert_eq!(leader(&harness), Some(BrokerId(5)));
    while leader(&harness) != Some(BrokerId(6)) {
        assert!(!two.beat(false).await.fenced);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(harness.server.image().brokers[&BrokerId(5)].fenced);
    assert!(!one.beat(false).await.fenced, "it comes back with its next heartbeat");
    harness.server.shutdown().await;
}

#[tokio::test]
async fn controlled_shutdown_alter_partition_and_producer_ids() {
    let harness = start(&[]).await;
    let mut one = harness.active_broker(5).await;
    let mut two = harness.active_broker(6).await;
    let id = create(&harness, "t", &[5, 6]).await;
    let first = one.beat(true).await;
    assert!(!first.should_shut_down);
    assert!(one.beat(true).await.should_shut_down);
    let registration = harness.server.image().partition(id).unwrap().registration.clone();
    assert_eq!((registration.leader, registration.isr.clone()), (Some(BrokerId(6)), vec![BrokerId(6)]));

    // A clean restart, and back into the ISR.
    let previous = one.epoch;
    let mut one = harness.broker(5, previous).await;
    assert!(!one.beat(false).await.fenced);
    let request = |epoch: i32, broker_epoch: i64| wire::AlterPartitionRequest {
        cluster_id: CLUSTER_ID.to_owned(),
        broker_id: 6,
        broker_epoch: two.epoch,
        partitions: vec![wire::alter_partition_request::Partition {
            topic_id: Bytes::copy_from_slice(id.topic_id.0.as_bytes()),
            partition: 0,
            leader_epoch: epoch,
            partition_epoch: registration.partition_epoch.0,
            new_isr: vec![
                wire::IsrMember { broker_id: 6, broker_epoch: two.epoch },
                wire::IsrMember { broker_id: 5, broker_epoch },
            ],
        }],
    };
    let epoch = registration.leader_epoch.0;
    let (stale, fenced, good) =
        (request(epoch, previous), request(epoch - 1, one.epoch), request(epoch, one.epoch));
    for (request, expected) in [
        (stale, ErrorCode::IneligibleReplica),
        (fenced, ErrorCode::FencedLeaderEpoch),
        (good, ErrorCode::None),
    ] {
        let answer = two.client.alter_partition(request).await.unwrap().into_inner();
        assert_eq!(answer.partitions[0].error_code, code(expected));
    }
    assert_eq!(harness.server.image().partition(id).unwrap().registration.isr.len(), 2);

    let request = wire::AllocateProducerIdsRequest {
        cluster_id: CLUSTER_ID.to_owned(),
        broker_id: 6,
        broker_epoch: two.epoch,
    };
    let first = two.client.allocate_producer_ids(request.clone()).await.unwrap().into_inner();
    let second = two.client.allocate_producer_ids(request).await.unwrap().into_inner();
    assert_eq!(second.first, first.first + i64::from(first.count));
    harness.server.shutdown().await;
}

#[tokio::test]
async fn another_cluster_is_refused() {
    let harness = start(&[]).await;
    let mut broker = harness.active_broker(5).await;
    let request = wire::HeartbeatRequest { cluster_id: "other".to_owned(), ..Default::default() };
    let status = broker.client.heartbeat(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    harness.server.shutdown().await;
}
