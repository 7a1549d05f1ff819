//! The configuration of a mirror, as the metadata image keeps it, in the form its parts use.

use std::time::Duration;

use common::config::mirror::{MirrorConfig, TopicPropertiesExclude};
use common::metadata::image::ConfigMap;

#[derive(Clone, Debug)]
pub struct SourceSettings {
    values: ConfigMap,
    /// `host:port` each; none if the configuration cannot be read.
    pub bootstrap_servers: Vec<String>,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    pub fetch_wait_max: Duration,
    pub fetch_min_bytes: i32,
    /// Of one partition.
    pub fetch_max_bytes: i32,
    pub fetch_response_max_bytes: i32,
    pub fetch_backoff: Duration,
    exclude: Option<TopicPropertiesExclude>,
}

/// The same configuration gives the same settings.
impl PartialEq for SourceSettings {
    fn eq(&self, other: &SourceSettings) -> bool {
        self.values == other.values
    }
}

impl SourceSettings {
    /// Values were validated when they were set. Should they not be understood all the same (a record of
    /// a later version), the mirror contacts nobody and says so.
    pub fn of(values: &ConfigMap) -> SourceSettings {
        let config = MirrorConfig::from_values(values).ok();
        let config = config.as_ref();
        let millis =
            |value: Option<i64>| Duration::from_millis(u64::try_from(value.unwrap_or(0)).unwrap_or(0));
        SourceSettings {
            values: values.clone(),
            bootstrap_servers: config
                .map(|config| config.bootstrap_servers.iter().map(ToString::to_string).collect())
                .unwrap_or_default(),
            connect_timeout: millis(config.map(|config| config.connection_setup_timeout_ms)),
            request_timeout: millis(config.map(|config| i64::from(config.request_timeout_ms))),
            fetch_wait_max: millis(config.map(|config| i64::from(config.fetch_wait_max_ms))),
            fetch_min_bytes: config.map_or(1, |config| config.fetch_min_bytes),
            fetch_max_bytes: config.map_or(1, |config| config.fetch_max_bytes),
            fetch_response_max_bytes: config.map_or(1, |config| config.fetch_response_max_bytes),
            fetch_backoff: millis(config.map(|config| i64::from(config.fetch_backoff_ms))),
            exclude: config.map(|config| config.topic_properties_exclude.clone()),
        }
    }

    /// Whether a topic config stays as the destination has it.
    pub fn excludes(&self, key: &str) -> bool {
        // Without a readable list nothing is copied.
        self.exclude.as_ref().is_none_or(|exclude| exclude.is_excluded(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> SourceSettings {
        let mut values: ConfigMap =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        values.entry("bootstrap.servers".to_owned()).or_insert_with(|| "a:1,b:2".to_owned());
        SourceSettings::of(&values)
    }

    #[test]
    fn defaults_are_those_of_the_definitions() {
        let settings = settings(&[]);
        assert_eq!(settings.bootstrap_servers, ["a:1", "b:2"]);
        assert_eq!(settings.fetch_max_bytes, 1_048_576);
        assert_eq!(settings.fetch_response_max_bytes, 10_485_760);
        assert_eq!(settings.request_timeout, Duration::from_secs(30));
    }

    #[test]
    fn a_configuration_that_cannot_be_read_contacts_nobody_and_copies_nothing() {
        let unreadable = SourceSettings::of(&ConfigMap::new());
        assert!(unreadable.bootstrap_servers.is_empty());
        assert!(unreadable.excludes("retention.ms"));
    }

    /// The pattern half of case 25 of N.2.
    #[test]
    fn case_25_excludes_match_whole_keys() {
        let default = settings(&[]);
        assert!(default.excludes("min.insync.replicas") && default.excludes("message.timestamp.type"));
        assert!(!default.excludes("retention.ms"));
        let throttled = settings(&[("mirror.topic.properties.exclude", ".*throttled.*")]);
        assert!(throttled.excludes("leader.replication.throttled.replicas"));
        assert!(!throttled.excludes("min.insync.replicas"), "the list replaces the default");
        assert!(throttled.excludes("mirror.name"));
        assert!(settings(&[("mirror.topic.properties.exclude", ".*")]).excludes("retention.ms"));
    }
}
