//! What the active controller's own configuration decides, and configs resolved over the image.

use std::sync::Arc;

use common::config::{ControllerConfig, Properties};
use common::ids::BrokerId;
use common::metadata::MetadataImage;
use common::metadata::record::{ConfigResourceType, PartitionRegistration};

pub const MIN_INSYNC_REPLICAS_CONFIG: &str = "min.insync.replicas";
pub const UNCLEAN_LEADER_ELECTION_CONFIG: &str = "unclean.leader.election.enable";

/// The controller's static settings, as far as operations need them.
#[derive(Clone, Debug)]
pub struct ControlSettings {
    pub cluster_id: String,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub min_insync_replicas: usize,
    pub unclean_leader_election_enable: bool,
    pub session_timeout_ms: u64,
    pub mirror_state_num_partitions: i32,
    pub mirror_state_replication_factor: i16,
    pub mirror_state_min_isr: i32,
    /// The properties file: what the topic configs fall back to.
    pub properties: Arc<Properties>,
}

impl ControlSettings {
    pub fn new(cluster_id: String, config: &ControllerConfig) -> ControlSettings {
        ControlSettings {
            cluster_id,
            num_partitions: config.num_partitions,
            default_replication_factor: config.default_replication_factor,
            min_insync_replicas: usize::try_from(config.min_insync_replicas).unwrap_or(1).max(1),
            unclean_leader_election_enable: config.unclean_leader_election_enable,
            session_timeout_ms: u64::try_from(config.broker_session_timeout_ms).unwrap_or(9000),
            mirror_state_num_partitions: config.mirror_state_topic_num_partitions,
            mirror_state_replication_factor: config.mirror_state_topic_replication_factor,
            mirror_state_min_isr: config.mirror_state_topic_min_isr,
            properties: Arc::new(config.properties.clone()),
        }
    }
}

impl Default for ControlSettings {
    fn default() -> ControlSettings {
        ControlSettings {
            cluster_id: String::new(),
            num_partitions: 1,
            default_replication_factor: 1,
            min_insync_replicas: 1,
            unclean_leader_election_enable: false,
            session_timeout_ms: 9000,
            mirror_state_num_partitions: 50,
            mirror_state_replication_factor: 3,
            mirror_state_min_isr: 2,
            properties: Arc::new(Properties::default()),
        }
    }
}

impl ControlSettings {
    /// `min.insync.replicas` of a topic: its own value, else the cluster-wide dynamic one, else ours.
    pub fn min_insync_replicas(&self, image: &MetadataImage, topic: &str) -> usize {
        lookup(image, topic, MIN_INSYNC_REPLICAS_CONFIG)
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(self.min_insync_replicas)
            .max(1)
    }

    pub fn unclean_leader_election(&self, image: &MetadataImage, topic: &str) -> bool {
        lookup(image, topic, UNCLEAN_LEADER_ELECTION_CONFIG)
            .map_or(self.unclean_leader_election_enable, |value| value.trim().eq_ignore_ascii_case("true"))
    }
}

/// The topic's own value of a key, else the cluster-wide dynamic default.
fn lookup<'a>(image: &'a MetadataImage, topic: &str, key: &str) -> Option<&'a str> {
    let own = image.config(ConfigResourceType::Topic, topic).and_then(|map| map.get(key));
    let value = own.or_else(|| image.config(ConfigResourceType::Broker, "").and_then(|map| map.get(key)));
    value.map(String::as_str)
}

/// Active, with the replica's directory still there.
pub fn is_active_replica(
    image: &MetadataImage,
    registration: &PartitionRegistration,
    broker_id: BrokerId,
) -> bool {
    is_active(image, broker_id) && image.has_replica_directory(registration, broker_id)
}

/// Whether a broker may lead, join an ISR and take new replicas.
pub fn is_active(image: &MetadataImage, broker_id: BrokerId) -> bool {
    image.brokers.get(&broker_id).is_some_and(|broker| broker.is_active())
}
