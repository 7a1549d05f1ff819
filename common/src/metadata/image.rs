//! The state that replaying the metadata log gives. A clone shares structure, so taking one per batch
//! is cheap.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::*;

use super::record::*;

/// Everything the metadata log says up to `offset`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataImage {
    /// The last batch replayed.
    pub offset: MetadataOffset,
    /// Its term.
    pub term: Term,
    pub features: imbl::OrdMap<String, i16>,
    pub brokers: imbl::OrdMap<BrokerId, Arc<BrokerRegistration>>,
    pub topics: TopicsImage,
    pub configs: imbl::OrdMap<ConfigResource, Arc<ConfigMap>>,
    pub mirrors: imbl::OrdMap<Arc<str>, Arc<MirrorImage>>,
    /// Topics added to a mirror that do not exist here yet: topic name to mirror name.
    pub pending_mirror_topics: imbl::OrdMap<Arc<str>, Arc<str>>,
    /// `None` until the first block was handed out.
    pub next_producer_id: Option<ProducerId>,
}

/// Configs of one resource, in the order of their keys.
pub type ConfigMap = std::collections::BTreeMap<String, String>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicsImage {
    pub by_id: imbl::HashMap<TopicId, Arc<TopicImage>>,
    pub by_name: imbl::OrdMap<Arc<str>, TopicId>,
    /// Highest epochs of deleted topics, should the id come back (decision 19).
    pub deleted_epochs: imbl::HashMap<TopicId, (LeaderEpoch, PartitionEpoch)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TopicImage {
    pub id: TopicId,
    pub name: Arc<str>,
    /// The metadata offset of its Topic record: tells a topic from an earlier one with the same id.
    pub created_at: MetadataOffset,
    /// Index is the partition's number.
    pub partitions: imbl::Vector<Arc<PartitionImage>>,
    pub mirror: Option<Arc<TopicMirror>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PartitionImage {
    pub registration: PartitionRegistration,
    pub mirror: PartitionMirror,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MirrorImage {
    pub name: Arc<str>,
    /// The metadata offset of its Mirror record.
    pub created_at: MetadataOffset,
    /// Known after first contact.
    pub source_cluster_id: Option<String>,
}

impl MetadataImage {
    /// Configs set on a resource; `None` where nothing is set.
    pub fn config(&self, resource_type: ConfigResourceType, name: &str) -> Option<&Arc<ConfigMap>> {
        self.configs.get(&ConfigResource { resource_type, name: name.into() })
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.by_id.get(self.topics.by_name.get(name)?)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.by_id.get(&id)
    }

    pub fn partition(&self, id: TopicIdPartition) -> Option<&Arc<PartitionImage>> {
        let index = usize::try_from(id.partition).ok()?;
        self.topic_by_id(id.topic_id)?.partitions.get(index)
    }
}

impl MetadataImage {
    /// Whether the broker's replica lies in a directory that it has not lost (KIP-858).
    pub fn has_replica_directory(&self, registration: &PartitionRegistration, broker: BrokerId) -> bool {
        let directory = registration.directory_of(broker);
        directory.is_none_or(|directory| {
            self.brokers.get(&broker).is_none_or(|broker| broker.has_online(directory))
        })
    }
}

impl TopicImage {
    /// Whether clients may write to this partition (decision 14): an ordinary topic, or a release of
    /// the newest association is in the image.
    pub fn is_writable(&self, partition: i32) -> bool {
        let Some(mirror) = &self.mirror else { return true };
        usize::try_from(partition).ok().and_then(|index| self.partitions.get(index)).is_some_and(|p| {
            p.mirror.release.as_ref().is_some_and(|release| release.association == mirror.association)
        })
    }
}
