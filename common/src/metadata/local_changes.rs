//! What a metadata change means for one broker: partitions that left it, that it leads, that it follows.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::*;

use super::delta::MetadataDelta;
use super::image::{MetadataImage, PartitionImage, TopicImage};

/// A partition with a replica on this broker.
#[derive(Clone, Debug)]
pub struct LocalReplica {
    pub id: TopicIdPartition,
    pub topic: Arc<TopicImage>,
    pub partition: Arc<PartitionImage>,
}

/// Derived from (before, delta, after), never from hand-kept maps.
#[derive(Clone, Debug, Default)]
pub struct LocalChanges {
    /// Had a replica here and has none now: topic deleted (also where its id came back), or reassigned.
    pub removed: Vec<LocalReplica>,
    /// Touched, and led by this broker.
    pub leaders: Vec<LocalReplica>,
    /// Touched, with a replica here, and not led by this broker (or by none).
    pub followers: Vec<LocalReplica>,
}

impl LocalChanges {
    pub fn new(
        before: &MetadataImage,
        delta: &MetadataDelta,
        after: &MetadataImage,
        broker_id: BrokerId,
    ) -> LocalChanges {
        let mut changes = LocalChanges::default();
        for topic in deleted_topics(before, delta, after) {
            for (index, partition) in topic.partitions.iter().enumerate() {
                if partition.registration.replicas.contains(&broker_id) {
                    changes.removed.push(replica(&topic, index, partition));
                }
            }
        }
        for id in touched_partitions(delta, after) {
            let Some(topic) = after.topic_by_id(id.topic_id) else { continue };
            let Some(partition) = after.partition(id) else { continue };
            let now = replica(topic, id.partition as usize, partition);
            if partition.registration.replicas.contains(&broker_id) {
                if partition.registration.leader == Some(broker_id) {
                    changes.leaders.push(now);
                } else {
                    changes.followers.push(now);
                }
                continue;
            }
            let Some(topic_before) = before.topic_by_id(id.topic_id) else { continue };
            let Some(partition_before) = before.partition(id) else { continue };
            if topic_before.created_at == topic.created_at
                && partition_before.registration.replicas.contains(&broker_id)
            {
                changes.removed.push(replica(topic_before, id.partition as usize, partition_before));
            }
        }
        changes
    }
}

fn replica(topic: &Arc<TopicImage>, index: usize, partition: &Arc<PartitionImage>) -> LocalReplica {
    LocalReplica {
        id: TopicIdPartition::new(topic.id, index as i32),
        topic: topic.clone(),
        partition: partition.clone(),
    }
}

fn deleted_topics(
    before: &MetadataImage,
    delta: &MetadataDelta,
    after: &MetadataImage,
) -> Vec<Arc<TopicImage>> {
    if !delta.everything {
        return delta.topics_deleted.clone();
    }
    let is_gone = |topic: &Arc<TopicImage>| {
        after.topic_by_id(topic.id).is_none_or(|now| now.created_at != topic.created_at)
    };
    before.topics.by_id.values().filter(|topic| is_gone(topic)).cloned().collect()
}

fn touched_partitions(delta: &MetadataDelta, after: &MetadataImage) -> BTreeSet<TopicIdPartition> {
    if !delta.everything {
        return delta.partitions.clone();
    }
    let all = after.topics.by_id.values().flat_map(|topic| {
        (0..topic.partitions.len()).map(|index| TopicIdPartition::new(topic.id, index as i32))
    });
    all.collect()
}
