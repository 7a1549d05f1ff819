//! The configuration of a mirror, as the metadata image keeps it, in the form its parts use.

use std::time::Duration;

use common::metadata::image::ConfigMap;
use regex::Regex;

/// Topic configs that stay as the destination has them (KIP-1279).
pub const DEFAULT_EXCLUDES: &str = "follower.replication.throttled.replicas,\
    leader.replication.throttled.replicas,message.timestamp.difference.max.ms,\
    log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms,message.timestamp.type,\
    unclean.leader.election.enable,min.insync.replicas,mirror.name";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSettings {
    /// `host:port` each.
    pub bootstrap_servers: Vec<String>,
    pub request_timeout: Duration,
    pub fetch_wait_max: Duration,
    pub fetch_min_bytes: i32,
    /// Of one partition.
    pub fetch_max_bytes: i32,
    pub fetch_response_max_bytes: i32,
    pub fetch_backoff: Duration,
    /// Patterns over whole keys.
    pub topic_properties_exclude: String,
}

impl SourceSettings {
    /// Values were validated when they were set; one that is not understood all the same falls back to
    /// its default, since a mirror must not stop for it.
    pub fn of(config: &ConfigMap) -> SourceSettings {
        let text = |key: &str| config.get(key).map(|value| value.trim());
        let number = |key: &str, default: i64, least: i64| {
            text(key).and_then(|value| value.parse::<i64>().ok()).unwrap_or(default).max(least)
        };
        let bytes = |key: &str, default: i64| i32::try_from(number(key, default, 1)).unwrap_or(i32::MAX);
        let millis = |key: &str, default: i64, least: i64| {
            Duration::from_millis(number(key, default, least).unsigned_abs())
        };
        SourceSettings {
            bootstrap_servers: text("bootstrap.servers")
                .unwrap_or("")
                .split(',')
                .map(str::trim)
                .filter(|server| !server.is_empty())
                .map(str::to_owned)
                .collect(),
            request_timeout: millis("request.timeout.ms", 30_000, 100),
            fetch_wait_max: millis("mirror.fetch.wait.max.ms", 1_000, 0),
            fetch_min_bytes: bytes("mirror.fetch.min.bytes", 1),
            fetch_max_bytes: bytes("mirror.fetch.max.bytes", 1_048_576),
            fetch_response_max_bytes: bytes("mirror.fetch.response.max.bytes", 10_485_760),
            fetch_backoff: millis("mirror.fetch.backoff.ms", 1_000, 10),
            topic_properties_exclude: text("mirror.topic.properties.exclude")
                .unwrap_or(DEFAULT_EXCLUDES)
                .to_owned(),
        }
    }

    /// Which topic configs are not copied: a comma list of patterns, each matching a whole key.
    /// `mirror.name` is never copied, listed or not. Setting the list replaces the default one.
    pub fn excludes(&self) -> ExcludedKeys {
        let patterns =
            self.topic_properties_exclude.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let patterns = patterns.filter_map(|entry| Regex::new(&format!("^(?:{entry})$")).ok()).collect();
        ExcludedKeys { patterns }
    }
}

pub struct ExcludedKeys {
    patterns: Vec<Regex>,
}

impl ExcludedKeys {
    pub fn excludes(&self, key: &str) -> bool {
        key == common::mirror_state::MIRROR_NAME_CONFIG
            || self.patterns.iter().any(|pattern| pattern.is_match(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> SourceSettings {
        SourceSettings::of(
            &pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let settings = settings(&[("bootstrap.servers", " a:1 , b:2,")]);
        assert_eq!(settings.bootstrap_servers, ["a:1", "b:2"]);
        assert_eq!(settings.fetch_max_bytes, 1_048_576);
        assert_eq!(settings.fetch_response_max_bytes, 10_485_760);
        assert_eq!(settings.request_timeout, Duration::from_secs(30));
    }

    /// The pattern half of case 25 of N.2.
    #[test]
    fn case_25_excludes_match_whole_keys() {
        let default = settings(&[]).excludes();
        assert!(default.excludes("min.insync.replicas") && default.excludes("message.timestamp.type"));
        assert!(!default.excludes("retention.ms"));
        let throttled = settings(&[("mirror.topic.properties.exclude", ".*throttled.*")]).excludes();
        assert!(throttled.excludes("leader.replication.throttled.replicas"));
        assert!(!throttled.excludes("min.insync.replicas"), "the list replaces the default");
        assert!(throttled.excludes("mirror.name"));
        let narrow = settings(&[("mirror.topic.properties.exclude", "throttled")]).excludes();
        assert!(!narrow.excludes("leader.replication.throttled.replicas"));
        assert!(settings(&[("mirror.topic.properties.exclude", ".*")]).excludes().excludes("retention.ms"));
    }
}
