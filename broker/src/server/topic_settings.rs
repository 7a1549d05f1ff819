//! A topic's configuration as its replicas need it, resolved over all levels.

use std::sync::Arc;

use common::config::topic::TimestampType as ConfiguredTimestampType;
use common::config::{BrokerConfig, TopicConfig, TopicConfigSources};
use common::ids::BrokerId;
use common::metadata::MetadataImage;
use common::metadata::record::ConfigResourceType;

use crate::log::{LogConfig, TimestampType};
use crate::replica::manager::{
    ReplicationRates, ResolveReplicationRates, ResolveTopicSettings, TopicSettings,
};
use crate::replica::throttle::ThrottledReplicas;

/// The levels of one topic's values in an image.
pub fn sources<'a>(
    image: &'a MetadataImage,
    broker_id: BrokerId,
    file: &'a BrokerConfig,
    topic: &str,
) -> TopicConfigSources<'a> {
    let level = |resource_type, name: &str| image.config(resource_type, name).map(|configs| &**configs);
    TopicConfigSources {
        topic: level(ConfigResourceType::Topic, topic),
        broker: level(ConfigResourceType::Broker, &broker_id.to_string()),
        cluster: level(ConfigResourceType::Broker, ""),
        file: &file.properties,
    }
}

pub fn log_config(topic: &TopicConfig, producer_id_expiration_ms: i32) -> LogConfig {
    // Ranges are the definitions': none of these is negative.
    let size = |bytes: i32| u32::try_from(bytes).unwrap_or(0);
    LogConfig {
        segment_bytes: size(topic.segment_bytes),
        segment_ms: topic.segment_ms,
        segment_jitter_ms: topic.segment_jitter_ms,
        segment_index_bytes: size(topic.segment_index_bytes),
        index_interval_bytes: size(topic.index_interval_bytes),
        retention_ms: topic.retention_ms,
        retention_bytes: topic.retention_bytes,
        delete: topic.delete,
        compact: topic.compact,
        max_message_bytes: size(topic.max_message_bytes),
        message_timestamp_type: match topic.message_timestamp_type {
            ConfiguredTimestampType::CreateTime => TimestampType::CreateTime,
            ConfiguredTimestampType::LogAppendTime => TimestampType::LogAppendTime,
        },
        message_timestamp_before_max_ms: topic.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms: topic.message_timestamp_after_max_ms,
        flush_messages: topic.flush_messages,
        flush_ms: topic.flush_ms,
        producer_id_expiration_ms: i64::from(producer_id_expiration_ms),
        delete_retention_ms: topic.delete_retention_ms,
        min_compaction_lag_ms: topic.min_compaction_lag_ms,
        max_compaction_lag_ms: topic.max_compaction_lag_ms,
        min_cleanable_dirty_ratio: topic.min_cleanable_dirty_ratio,
        file_delete_delay_ms: topic.file_delete_delay_ms,
    }
}

pub fn resolver(config: Arc<BrokerConfig>) -> ResolveTopicSettings {
    Arc::new(move |image, topic| {
        let resolved = TopicConfig::resolve(&sources(image, config.node_id, &config, topic));
        TopicSettings {
            log: Arc::new(log_config(&resolved, config.producer_id_expiration_ms)),
            min_insync_replicas: usize::try_from(resolved.min_insync_replicas).unwrap_or(1),
            leader_throttled: Arc::new(ThrottledReplicas::parse(&resolved.leader_throttled_replicas)),
            follower_throttled: Arc::new(ThrottledReplicas::parse(&resolved.follower_throttled_replicas)),
        }
    })
}

/// This broker's replication throttles.
pub fn replication_rates(config: Arc<BrokerConfig>) -> ResolveReplicationRates {
    Arc::new(move |image| {
        let level = |name: &str| image.config(ConfigResourceType::Broker, name).map(|configs| &**configs);
        // What does not fit together with the file is reported where dynamic configuration is applied.
        let own = config.node_id.to_string();
        config.with_dynamic(level(&own), level("")).map_or_else(
            |_| ReplicationRates::default(),
            |config| ReplicationRates {
                leader: config.leader_replication_throttled_rate,
                follower: config.follower_replication_throttled_rate,
                moves: config.replica_alter_log_dirs_io_max_bytes_per_second,
            },
        )
    })
}
