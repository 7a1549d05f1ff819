//! The configuration of a topic.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::broker_keys::BROKER_CONFIGS;
use super::definition::{ConfigDef, parse_boolean, split_list, trimmed};
use super::error::{ConfigError, nearest_key};
use super::properties::Properties;
use super::reader::find;
use super::resolve::{BrokerLevels, ConfigSource, Resolved, Synonym};

pub use super::topic_keys::TOPIC_CONFIGS;

/// The key that binds a topic to its mirror. Clients cannot set it (decision 24).
pub const MIRROR_NAME: &str = "mirror.name";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// Everything a topic's configuration says, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    pub compact: bool,
    pub delete: bool,
    pub delete_retention_ms: i64,
    pub file_delete_delay_ms: i64,
    pub flush_messages: i64,
    pub flush_ms: i64,
    pub follower_throttled_replicas: Vec<String>,
    pub index_interval_bytes: i32,
    pub leader_throttled_replicas: Vec<String>,
    pub max_compaction_lag_ms: i64,
    pub max_decompressed_message_bytes: i32,
    pub max_message_bytes: i32,
    pub message_timestamp_after_max_ms: i64,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_type: TimestampType,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub min_insync_replicas: i32,
    pub preallocate: bool,
    pub retention_bytes: i64,
    pub retention_ms: i64,
    /// `internal.segment.bytes` wins over `segment.bytes`.
    pub segment_bytes: i32,
    pub segment_index_bytes: i32,
    pub segment_jitter_ms: i64,
    pub segment_ms: i64,
    pub unclean_leader_election_enable: bool,
}

/// The levels that a topic's values come from, the strongest first.
#[derive(Clone, Copy, Debug)]
pub struct TopicConfigSources<'a> {
    pub topic: Option<&'a BTreeMap<String, String>>,
    /// Dynamic configuration of this broker.
    pub broker: Option<&'a BTreeMap<String, String>>,
    /// Dynamic cluster default.
    pub cluster: Option<&'a BTreeMap<String, String>>,
    pub file: &'a Properties,
}

/// How a broker key counts: `log.retention.hours` is the default of `retention.ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Same,
    Minutes,
    Hours,
}

/// The broker keys that give a topic key its default, the strongest first.
fn broker_synonyms(topic_key: &str) -> &'static [(&'static str, Unit)] {
    match topic_key {
        "cleanup.policy" => &[("log.cleanup.policy", Unit::Same)],
        "compression.gzip.level" => &[("compression.gzip.level", Unit::Same)],
        "compression.lz4.level" => &[("compression.lz4.level", Unit::Same)],
        "compression.type" => &[("compression.type", Unit::Same)],
        "compression.zstd.level" => &[("compression.zstd.level", Unit::Same)],
        "delete.retention.ms" => &[("log.cleaner.delete.retention.ms", Unit::Same)],
        "file.delete.delay.ms" => &[("log.segment.delete.delay.ms", Unit::Same)],
        "flush.messages" => &[("log.flush.interval.messages", Unit::Same)],
        "flush.ms" => {
            &[("log.flush.interval.ms", Unit::Same), ("log.flush.scheduler.interval.ms", Unit::Same)]
        }
        "index.interval.bytes" => &[("log.index.interval.bytes", Unit::Same)],
        "local.retention.bytes" => &[("log.local.retention.bytes", Unit::Same)],
        "local.retention.ms" => &[("log.local.retention.ms", Unit::Same)],
        "max.compaction.lag.ms" => &[("log.cleaner.max.compaction.lag.ms", Unit::Same)],
        "max.decompressed.message.bytes" => &[("max.decompressed.message.bytes", Unit::Same)],
        "max.message.bytes" => &[("message.max.bytes", Unit::Same)],
        "message.timestamp.after.max.ms" => &[("log.message.timestamp.after.max.ms", Unit::Same)],
        "message.timestamp.before.max.ms" => &[("log.message.timestamp.before.max.ms", Unit::Same)],
        "message.timestamp.type" => &[("log.message.timestamp.type", Unit::Same)],
        "min.cleanable.dirty.ratio" => &[("log.cleaner.min.cleanable.ratio", Unit::Same)],
        "min.compaction.lag.ms" => &[("log.cleaner.min.compaction.lag.ms", Unit::Same)],
        "min.insync.replicas" => &[("min.insync.replicas", Unit::Same)],
        "preallocate" => &[("log.preallocate", Unit::Same)],
        "remote.copy.lag.bytes" => &[("log.remote.copy.lag.bytes", Unit::Same)],
        "remote.copy.lag.ms" => &[("log.remote.copy.lag.ms", Unit::Same)],
        "retention.bytes" => &[("log.retention.bytes", Unit::Same)],
        "retention.ms" => &[
            ("log.retention.ms", Unit::Same),
            ("log.retention.minutes", Unit::Minutes),
            ("log.retention.hours", Unit::Hours),
        ],
        "segment.bytes" => &[("log.segment.bytes", Unit::Same)],
        "segment.index.bytes" => &[("log.index.size.max.bytes", Unit::Same)],
        "segment.jitter.ms" => &[("log.roll.jitter.ms", Unit::Same), ("log.roll.jitter.hours", Unit::Hours)],
        "segment.ms" => &[("log.roll.ms", Unit::Same), ("log.roll.hours", Unit::Hours)],
        "unclean.leader.election.enable" => &[("unclean.leader.election.enable", Unit::Same)],
        _ => &[],
    }
}

impl Unit {
    fn convert(self, value: &str) -> String {
        let factor = match self {
            Unit::Same => return value.to_owned(),
            Unit::Minutes => 60 * 1000,
            Unit::Hours => 60 * 60 * 1000,
        };
        match value.parse::<i64>() {
            // As in Kafka, any negative time means no bound.
            Ok(count) if count < 0 => "-1".to_owned(),
            Ok(count) => count.saturating_mul(factor).to_string(),
            Err(_) => value.to_owned(),
        }
    }
}

impl TopicConfigSources<'_> {
    /// The value of a topic key and all places that give it one.
    pub fn resolve(&self, def: &ConfigDef) -> Resolved {
        let mut value = None;
        let mut synonyms = Vec::new();
        let own =
            self.topic.and_then(|values| values.get(def.name)).filter(|value| def.validate(value).is_ok());
        if let Some(own) = own {
            let own = trimmed(def.value_type, own).to_owned();
            value = Some(own.clone());
            synonyms.push(Synonym { name: def.name.to_owned(), value: own, source: ConfigSource::Topic });
        }
        let levels = BrokerLevels { broker: self.broker, cluster: self.cluster, file: self.file };
        let broker_keys = broker_synonyms(def.name);
        for (name, unit) in broker_keys {
            let Some(broker_def) = find(BROKER_CONFIGS, name) else { continue };
            let found = levels.synonyms(broker_def);
            if let (None, Some(first)) = (&value, found.first()) {
                value = Some(unit.convert(&first.value));
            }
            synonyms.extend(found);
        }
        let source = synonyms.first().map_or(ConfigSource::Default, |synonym| synonym.source);
        if broker_keys.is_empty() && value.is_none() {
            value = def.default.map(str::to_owned);
        }
        Resolved { value, source, synonyms }
    }

    fn value(&self, key: &str) -> String {
        find(TOPIC_CONFIGS, key).and_then(|def| self.resolve(def).value).unwrap_or_default()
    }

    /// A value that passed its definition parses; the fallback is for a table that says otherwise, which
    /// the tests exclude.
    fn number<N: FromStr>(&self, key: &str, fallback: N) -> N {
        self.value(key).parse().unwrap_or(fallback)
    }

    fn boolean(&self, key: &str) -> bool {
        parse_boolean(&self.value(key)).unwrap_or(false)
    }

    fn list(&self, key: &str) -> Vec<String> {
        split_list(&self.value(key)).map(str::to_owned).collect()
    }
}

impl TopicConfig {
    /// Never fails: a stored value that does not fit its definition counts as not set.
    pub fn resolve(sources: &TopicConfigSources<'_>) -> TopicConfig {
        let policy = sources.list("cleanup.policy");
        let segment_bytes = sources.number("segment.bytes", 1 << 30);
        let timestamp_type = sources.value("message.timestamp.type");
        let retention_ms: i64 = sources.number("retention.ms", 604_800_000);
        TopicConfig {
            compact: policy.iter().any(|item| item == "compact"),
            delete: policy.iter().any(|item| item == "delete"),
            delete_retention_ms: sources.number("delete.retention.ms", 86_400_000),
            file_delete_delay_ms: sources.number("file.delete.delay.ms", 60_000),
            flush_messages: sources.number("flush.messages", i64::MAX),
            flush_ms: sources.number("flush.ms", i64::MAX),
            follower_throttled_replicas: sources.list("follower.replication.throttled.replicas"),
            index_interval_bytes: sources.number("index.interval.bytes", 4096),
            leader_throttled_replicas: sources.list("leader.replication.throttled.replicas"),
            max_compaction_lag_ms: sources.number("max.compaction.lag.ms", i64::MAX),
            max_decompressed_message_bytes: sources.number("max.decompressed.message.bytes", 2_147_483_639),
            max_message_bytes: sources.number("max.message.bytes", 1_048_588),
            message_timestamp_after_max_ms: sources.number("message.timestamp.after.max.ms", 3_600_000),
            message_timestamp_before_max_ms: sources.number("message.timestamp.before.max.ms", i64::MAX),
            message_timestamp_type: match timestamp_type.as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio: sources.number("min.cleanable.dirty.ratio", 0.5),
            min_compaction_lag_ms: sources.number("min.compaction.lag.ms", 0),
            min_insync_replicas: sources.number("min.insync.replicas", 1),
            preallocate: sources.boolean("preallocate"),
            retention_bytes: sources.number("retention.bytes", -1),
            retention_ms: retention_ms.max(-1),
            segment_bytes: sources.number("internal.segment.bytes", segment_bytes),
            segment_index_bytes: sources.number("segment.index.bytes", 10_485_760),
            segment_jitter_ms: sources.number("segment.jitter.ms", 0),
            segment_ms: sources.number("segment.ms", 604_800_000),
            unclean_leader_election_enable: sources.boolean("unclean.leader.election.enable"),
        }
    }

    /// The defaults of a properties file, without a topic.
    pub fn defaults(file: &Properties) -> TopicConfig {
        TopicConfig::resolve(&TopicConfigSources { topic: None, broker: None, cluster: None, file })
    }
}

pub fn topic_config_def(key: &str) -> Option<&'static ConfigDef> {
    find(TOPIC_CONFIGS, key)
}

/// Whether a client may give a topic this value.
pub fn validate_topic_config(key: &str, value: &str) -> Result<(), ConfigError> {
    if key == MIRROR_NAME {
        return Err(ConfigError::NotChangeable {
            key: key.to_owned(),
            reason: "it is set by adding the topic to a mirror".to_owned(),
        });
    }
    let def = find(TOPIC_CONFIGS, key).ok_or_else(|| ConfigError::Unknown {
        key: key.to_owned(),
        nearest: nearest_key(key, TOPIC_CONFIGS.iter().map(|def| def.name)),
    })?;
    def.validate(value)
}

/// Checks the keys that a topic sets, each alone and those that depend on one another, against the
/// values that will hold with `sources` (whose `topic` are the keys in question).
pub fn validate_topic_configs(sources: &TopicConfigSources<'_>) -> Result<(), ConfigError> {
    let Some(own) = sources.topic else { return Ok(()) };
    for (key, value) in own {
        // Set by the controller itself, and carried along when other keys are altered.
        if key != MIRROR_NAME {
            validate_topic_config(key, value)?;
        }
    }
    let resolved = TopicConfig::resolve(sources);
    if resolved.min_compaction_lag_ms > resolved.max_compaction_lag_ms {
        return Err(ConfigError::inconsistent(
            "min.compaction.lag.ms",
            resolved.min_compaction_lag_ms,
            format!("it is above max.compaction.lag.ms ({})", resolved.max_compaction_lag_ms),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
