//! DescribeQuorum: the voters and how far each has come, from the active controller. Version 2 adds
//! directory ids, error messages and the controllers' listeners.

use protocol::error_code::ErrorCode;
use protocol::messages::describe_quorum_response::{Listener, Node, PartitionData, ReplicaState, TopicData};
use protocol::messages::{BrokerId, DescribeQuorumRequest, DescribeQuorumResponse, TopicName};
use raft_log::QuorumReplica;
use uuid::Uuid;

use super::text;
use crate::api::ApiContext;

const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";

pub async fn handle(
    context: &ApiContext,
    request: &DescribeQuorumRequest,
    version: i16,
) -> DescribeQuorumResponse {
    let mut response = DescribeQuorumResponse::default();
    let asks_for_metadata = match request.topics.as_slice() {
        [topic] => {
            &*topic.topic_name.0 == CLUSTER_METADATA_TOPIC
                && matches!(topic.partitions.as_slice(), [partition] if partition.partition_index == 0)
        }
        _ => false,
    };
    if !asks_for_metadata {
        // As Kafka: each partition that is not the metadata log is unknown.
        response.topics = request
            .topics
            .iter()
            .map(|topic| {
                let partitions = topic.partitions.iter().map(|partition| {
                    PartitionData::default()
                        .with_partition_index(partition.partition_index)
                        .with_error_code(ErrorCode::UnknownTopicOrPartition.code())
                        .with_error_message(Some(text(ErrorCode::UnknownTopicOrPartition.message())))
                });
                TopicData::default()
                    .with_topic_name(topic.topic_name.clone())
                    .with_partitions(partitions.collect())
            })
            .collect();
        return response;
    }
    let status = context.raft.status();
    let partition = PartitionData::default().with_partition_index(0);
    let partition = if status.is_leader {
        let replicas = |replicas: &[QuorumReplica]| {
            replicas.iter().map(|known| replica(known, version)).collect::<Vec<_>>()
        };
        partition
            .with_leader_id(node_id(status.leader.map(|leader| leader.node_id)))
            .with_leader_epoch(i32::try_from(status.term).unwrap_or(i32::MAX))
            .with_high_watermark(offset(status.committed_end_index))
            .with_current_voters(replicas(&status.voters))
            .with_observers(replicas(&status.observers))
    } else {
        partition
            .with_error_code(ErrorCode::NotLeaderOrFollower.code())
            .with_error_message(Some(text("this controller is not active")))
            .with_leader_id(node_id(status.leader.map(|leader| leader.node_id)))
            .with_leader_epoch(i32::try_from(status.term).unwrap_or(i32::MAX))
    };
    if status.is_leader && version >= 2 {
        let mut controllers = context.peers.endpoints().await;
        controllers.insert(context.node_id.0, context.endpoints.clone());
        response.nodes = controllers
            .into_iter()
            .map(|(id, endpoints)| {
                let listeners = endpoints.into_iter().map(|endpoint| {
                    Listener::default()
                        .with_name(text(endpoint.name))
                        .with_host(text(endpoint.host))
                        .with_port(endpoint.port)
                });
                Node::default().with_node_id(BrokerId(id)).with_listeners(listeners.collect())
            })
            .collect();
    }
    let topic = TopicData::default()
        .with_topic_name(TopicName(text(CLUSTER_METADATA_TOPIC)))
        .with_partitions(vec![partition]);
    response.topics = vec![topic];
    response
}

fn node_id(id: Option<u64>) -> BrokerId {
    BrokerId(id.and_then(|id| i32::try_from(id).ok()).unwrap_or(-1))
}

fn offset(index: u64) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

fn replica(replica: &QuorumReplica, version: i16) -> ReplicaState {
    ReplicaState::default()
        .with_replica_id(node_id(Some(replica.voter.node_id)))
        .with_replica_directory_id(if version >= 2 { replica.voter.directory_id } else { Uuid::nil() })
        .with_log_end_offset(replica.log_end_index.map_or(-1, offset))
        .with_last_fetch_timestamp(replica.last_fetch_ms.unwrap_or(-1))
        .with_last_caught_up_timestamp(replica.last_caught_up_ms.unwrap_or(-1))
}
