//! DescribeQuorum: the voters and how far each has come, and the observers, which are controllers that are
//! no voters and all brokers, from the active controller. Version 2 adds directory ids, error messages
//! and the controllers' listeners.
//!
//! A broker counts batches and the quorum entries, of which it has some of its own: a broker's log end
//! offset is the high watermark less the batches that it lacks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::error_code::ErrorCode;
use protocol::messages::describe_quorum_response::{Listener, Node, PartitionData, ReplicaState, TopicData};
use protocol::messages::{BrokerId, DescribeQuorumRequest, DescribeQuorumResponse, TopicName};
use raft_log::{QuorumReplica, QuorumStatus, VoterId};
use uuid::Uuid;

use super::text;
use crate::api::ApiContext;

/// The writer answers at once unless it is overwhelmed; the voters are shown all the same.
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);
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
    let brokers = match status.is_leader {
        true => brokers(context, &status).await,
        false => Vec::new(),
    };
    let partition = if status.is_leader {
        let replicas = |replicas: &[QuorumReplica]| {
            replicas.iter().map(|known| replica(known, version)).collect::<Vec<_>>()
        };
        partition
            .with_leader_id(node_id(status.leader.map(|leader| leader.node_id)))
            .with_leader_epoch(i32::try_from(status.term).unwrap_or(i32::MAX))
            .with_high_watermark(offset(status.committed_end_index))
            .with_current_voters(replicas(&status.voters))
            .with_observers(replicas(&[status.observers.as_slice(), &brokers].concat()))
    } else {
        partition
            .with_error_code(ErrorCode::NotLeaderOrFollower.code())
            .with_error_message(Some(text("this controller is not active")))
            .with_leader_id(node_id(status.leader.map(|leader| leader.node_id)))
            .with_leader_epoch(i32::try_from(status.term).unwrap_or(i32::MAX))
    };
    if status.is_leader && version >= 2 {
        let mut controllers = context.peers.endpoints(&context.members()).await;
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

/// The brokers that this active controller has heard of.
async fn brokers(context: &ApiContext, status: &QuorumStatus) -> Vec<QuorumReplica> {
    let look = context.controller.read("DescribeQuorum", |op| {
        let replayed = op.heartbeats.all_replayed();
        let directory = |id| op.image.brokers.get(&id)?.directories.first().map(|directory| directory.0);
        let known = replayed.into_iter().filter_map(|(id, replayed)| Some((id, directory(id)?, replayed)));
        (known.collect::<Vec<_>>(), op.now_ms)
    });
    let Ok(Some((replayed, now_ms))) = tokio::time::timeout(LOOK_TIMEOUT, look).await else {
        return Vec::new();
    };
    let committed = context.image().offset.0;
    let wall_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let at = |monotonic_ms: u64| wall_ms - i64::try_from(now_ms.saturating_sub(monotonic_ms)).unwrap_or(0);
    replayed
        .into_iter()
        .map(|(id, directory_id, replayed)| {
            let missing = replayed.offset.map_or(0, |offset| (committed - offset.0).max(0));
            QuorumReplica {
                voter: VoterId { node_id: u64::try_from(id.0).unwrap_or_default(), directory_id },
                address: String::new(),
                log_end_index: Some(status.committed_end_index.saturating_sub(missing.unsigned_abs())),
                last_fetch_ms: Some(at(replayed.last_contact_ms)),
                last_caught_up_ms: replayed.last_caught_up_ms.map(at),
            }
        })
        .collect()
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
