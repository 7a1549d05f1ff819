//! CreateTopics: 8 is ours (KIP-1279). It lets a mirror's coordinator create a topic under the id that
//! its source has.

use kafka_protocol::messages::{BrokerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::wire::{setters, structure};

structure! {
    pub struct CreateTopicsRequest {
        topics: Vec<CreatableTopic>,
        timeout_ms: i32 = 60_000,
        validate_only: bool,
    }

    pub struct CreatableTopic {
        name: TopicName,
        /// -1: by assignment, or the controller's default.
        num_partitions: i32,
        replication_factor: i16,
        assignments: Vec<CreatableReplicaAssignment>,
        configs: Vec<CreatableTopicConfig>,
        mirror_info: Option<MirrorInfo> [since 8],
    }

    pub struct CreatableReplicaAssignment {
        partition_index: i32,
        broker_ids: Vec<BrokerId>,
    }

    pub struct CreatableTopicConfig {
        name: StrBytes,
        value: Option<StrBytes>,
    }

    pub struct MirrorInfo {
        /// The id of the source topic.
        topic_id: Uuid,
    }
}

setters! {
    CreateTopicsRequest {
        with_topics, topics: Vec<CreatableTopic>;
        with_timeout_ms, timeout_ms: i32;
        with_validate_only, validate_only: bool;
    }
    CreatableTopic {
        with_name, name: TopicName;
        with_num_partitions, num_partitions: i32;
        with_replication_factor, replication_factor: i16;
        with_assignments, assignments: Vec<CreatableReplicaAssignment>;
        with_configs, configs: Vec<CreatableTopicConfig>;
        with_mirror_info, mirror_info: Option<MirrorInfo>;
    }
    CreatableReplicaAssignment {
        with_partition_index, partition_index: i32;
        with_broker_ids, broker_ids: Vec<BrokerId>;
    }
    CreatableTopicConfig {
        with_name, name: StrBytes;
        with_value, value: Option<StrBytes>;
    }
}
