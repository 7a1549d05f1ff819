//! OffsetForLeaderEpoch: where an epoch ends, for clients that check their position (KIP-320) and for
//! mirrors of this cluster.

use common::ids::*;
use protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::replica::ReplicaManager;
use crate::replica::error::ReadFailure;
use crate::replica::fetch_session::PartitionKey;

pub fn handle(
    replicas: &ReplicaManager,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let key = PartitionKey {
                topic_id: TopicId::ZERO,
                topic: Some(topic.topic.clone()),
                partition: asked.partition,
            };
            let answer = EpochEndOffset::default().with_partition(asked.partition);
            match end_offset(replicas, &key, asked) {
                Ok(Some((epoch, offset))) => answer.with_leader_epoch(epoch.0).with_end_offset(offset.0),
                Ok(None) => answer.with_leader_epoch(-1).with_end_offset(-1),
                Err(failure) => {
                    answer.with_error_code(failure.code().code()).with_leader_epoch(-1).with_end_offset(-1)
                }
            }
        });
        OffsetForLeaderTopicResult::default()
            .with_topic(topic.topic.clone())
            .with_partitions(partitions.collect())
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

fn end_offset(
    replicas: &ReplicaManager,
    key: &PartitionKey,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(LeaderEpoch, Offset)>, ReadFailure> {
    let current = (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
    replicas.resolve(key)?.end_offset_for_epoch(current, LeaderEpoch(asked.leader_epoch))
}
