use std::time::Duration;

use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::*;
use protocol::mirror::{CreateMirrorRequest, LastMirroredOffsetsRequest, ListMirrorsRequest};
use tonic::Code;

use crate::ask;
use crate::harness::{Broker, Harness, start_three};

/// Index of the active controller, once there is exactly one.
async fn active(harnesses: &[Harness]) -> usize {
    let found = async {
        loop {
            let active: Vec<usize> = (0..harnesses.len())
                .filter(|index| harnesses[*index].server.status().borrow().active)
                .collect();
            if let [one] = active.as_slice() {
                return *one;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), found).await.expect("a controller becomes active")
}

async fn caught_up(harnesses: &[Harness]) {
    let equal = async {
        loop {
            let digests: Vec<u64> = harnesses.iter().map(|harness| harness.server.image().digest()).collect();
            if digests.windows(2).all(|pair| pair[0] == pair[1]) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), equal).await.expect("every controller has the same image");
}

fn create(name: &str) -> CreateTopicsRequest {
    let mut topic = CreatableTopic::default();
    topic.name = TopicName(StrBytes::from_string(name.to_owned()));
    topic.num_partitions = 1;
    topic.replication_factor = 1;
    CreateTopicsRequest::default().with_topics(vec![topic])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_controllers_survive_the_loss_of_the_active_one() {
    let mut harnesses = start_three().await;
    let first = active(&harnesses).await;
    let mut broker = harnesses[first].active_broker(5).await;
    let created = ask!(harnesses[first].kafka().await, CreateTopics, create("before"), 7);
    assert_eq!(created.topics[0].error_code, 0);
    caught_up(&harnesses).await;

    // The inactive ones say so, each in its way, and name the active one.
    let other = (first + 1) % 3;
    let mut kafka = harnesses[other].kafka().await;
    let not_controller = ErrorCode::NotController.code();
    assert_eq!(ask!(kafka, CreateTopics, create("x"), 7).topics[0].error_code, not_controller);
    assert_eq!(ask!(kafka, CreateMirror, CreateMirrorRequest::default(), 0).error_code, not_controller);
    assert_eq!(ask!(kafka, ListMirrors, ListMirrorsRequest::default(), 0).error_code, not_controller);
    let asked = LastMirroredOffsetsRequest::default();
    assert_eq!(ask!(kafka, LastMirroredOffsets, asked, 0).error_code, not_controller);
    let cluster = ask!(kafka, DescribeCluster, DescribeClusterRequest::default().with_endpoint_type(2), 1);
    assert_eq!((cluster.controller_id.0, cluster.brokers.len()), (first as i32 + 1, 3));
    let mut topic = describe_quorum_request::TopicData::default();
    topic.topic_name = TopicName(StrBytes::from_static_str("__cluster_metadata"));
    topic.partitions = vec![describe_quorum_request::PartitionData::default()];
    let quorum = ask!(kafka, DescribeQuorum, DescribeQuorumRequest::default().with_topics(vec![topic]), 2);
    assert_eq!(quorum.topics[0].partitions[0].error_code, ErrorCode::NotLeaderOrFollower.code());
    let mut elsewhere = Broker {
        client: protocol::proto::controller::controller_client::ControllerClient::new(
            harnesses[other].channel().await,
        ),
        id: 5,
        epoch: broker.epoch,
        incarnation: broker.incarnation,
    };
    let request = protocol::proto::controller::HeartbeatRequest {
        cluster_id: crate::harness::CLUSTER_ID.to_owned(),
        broker_id: 5,
        broker_epoch: broker.epoch,
        ..Default::default()
    };
    let status = elsewhere.client.heartbeat(request).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let leader = status.metadata().get("kagami-leader").and_then(|value| value.to_str().ok());
    assert_eq!(leader, Some((first + 1).to_string().as_str()));

    let lost = harnesses.remove(first);
    lost.server.shutdown().await;
    let next = active(&harnesses).await;
    broker.client = protocol::proto::controller::controller_client::ControllerClient::new(
        harnesses[next].channel().await,
    );
    let beat = broker.beat(false).await;
    assert_eq!((beat.error_code, beat.fenced), (0, false), "a fresh session with the new one");
    let created = ask!(harnesses[next].kafka().await, CreateTopics, create("after"), 7);
    assert_eq!(created.topics[0].error_code, 0);
    let image = harnesses[next].server.image();
    assert!(image.topic("before").is_some() && image.topic("after").is_some());
    caught_up(&harnesses).await;
    for harness in harnesses {
        harness.server.shutdown().await;
    }
}
