//! What DescribeConfigs answers: every key with its value, where that comes from, and what it means.

use std::collections::BTreeMap;

use super::broker_keys::BROKER_CONFIGS;
use super::definition::{ConfigDef, Dynamic, ValueType, trimmed};
use super::mirror::MIRROR_CONFIGS;
use super::properties::Properties;
use super::resolve::{BrokerLevels, ConfigSource, Synonym};
use super::topic::{MIRROR_NAME, TOPIC_CONFIGS, TopicConfigSources};

/// One key of an answer. The values of sensitive keys are absent, also in the synonyms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    pub name: String,
    pub value: Option<String>,
    pub read_only: bool,
    pub source: ConfigSource,
    pub sensitive: bool,
    pub synonyms: Vec<SynonymEntry>,
    /// Kafka's `ConfigType`.
    pub config_type: i8,
    pub documentation: &'static str,
}

impl ConfigEntry {
    /// As the first versions of DescribeConfigs put it.
    pub fn is_default(&self) -> bool {
        self.source == ConfigSource::Default
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynonymEntry {
    pub name: String,
    pub value: Option<String>,
    pub source: ConfigSource,
}

/// The keys asked for; `None` asks for all.
pub type Requested<'a> = Option<&'a [String]>;

fn is_requested(requested: Requested<'_>, key: &str) -> bool {
    requested.is_none_or(|keys| keys.iter().any(|asked| asked == key))
}

/// A topic. `mirror.name` shows only when it is asked for by name (decision 24).
pub fn describe_topic(sources: &TopicConfigSources<'_>, requested: Requested<'_>) -> Vec<ConfigEntry> {
    let mut entries: Vec<ConfigEntry> = TOPIC_CONFIGS
        .iter()
        .filter(|def| is_requested(requested, def.name))
        // Kafka's internal keys show where they are set.
        .filter(|def| !def.name.starts_with("internal.") || is_set(sources.topic, def.name))
        .map(|def| {
            let resolved = sources.resolve(def);
            entry(def, resolved.value, resolved.source, resolved.synonyms, false)
        })
        .collect();
    let mirror = sources.topic.and_then(|values| values.get(MIRROR_NAME));
    if let (Some(mirror), Some(_)) = (mirror, requested.filter(|_| is_requested(requested, MIRROR_NAME))) {
        entries.push(ConfigEntry {
            name: MIRROR_NAME.to_owned(),
            value: Some(mirror.clone()),
            read_only: true,
            source: ConfigSource::Topic,
            sensitive: false,
            synonyms: Vec::new(),
            config_type: ValueType::String.code(),
            documentation: "The mirror that this topic belongs or belonged to; set by adding and removing it.",
        });
    }
    entries
}

/// A broker: its dynamic values, the cluster's, its file, the defaults.
pub fn describe_broker(
    broker: Option<&BTreeMap<String, String>>,
    cluster: Option<&BTreeMap<String, String>>,
    file: &Properties,
    requested: Requested<'_>,
) -> Vec<ConfigEntry> {
    let levels = BrokerLevels { broker, cluster, file };
    BROKER_CONFIGS
        .iter()
        .filter(|def| is_requested(requested, def.name))
        .map(|def| {
            let synonyms = levels.synonyms(def);
            let first = synonyms.first();
            let source = first.map_or(ConfigSource::Default, |first| first.source);
            let value = first.map(|first| first.value.clone());
            entry(def, value, source, synonyms, def.dynamic == Dynamic::ReadOnly)
        })
        .collect()
}

/// The cluster default: only what is set in it.
pub fn describe_cluster_default(
    cluster: Option<&BTreeMap<String, String>>,
    requested: Requested<'_>,
) -> Vec<ConfigEntry> {
    set_values(BROKER_CONFIGS, cluster, ConfigSource::DynamicDefaultBroker, requested)
}

/// A mirror: what is set, and the defaults.
pub fn describe_mirror(
    values: Option<&BTreeMap<String, String>>,
    requested: Requested<'_>,
) -> Vec<ConfigEntry> {
    let mut entries = set_values(MIRROR_CONFIGS, values, ConfigSource::Mirror, requested);
    for def in MIRROR_CONFIGS {
        let is_new = !is_set(values, def.name) && is_requested(requested, def.name);
        if let (true, Some(default)) = (is_new, def.default) {
            entries.push(entry(def, Some(default.to_owned()), ConfigSource::Default, Vec::new(), false));
        }
    }
    entries.sort_by(|left, right| left.name.cmp(&right.name));
    entries
}

fn is_set(values: Option<&BTreeMap<String, String>>, key: &str) -> bool {
    values.is_some_and(|values| values.contains_key(key))
}

fn set_values(
    defs: &'static [ConfigDef],
    values: Option<&BTreeMap<String, String>>,
    source: ConfigSource,
    requested: Requested<'_>,
) -> Vec<ConfigEntry> {
    defs.iter()
        .filter(|def| is_requested(requested, def.name))
        .filter_map(|def| {
            let value = trimmed(def.value_type, values?.get(def.name)?).to_owned();
            let synonym = Synonym { name: def.name.to_owned(), value: value.clone(), source };
            Some(entry(def, Some(value), source, vec![synonym], false))
        })
        .collect()
}

fn entry(
    def: &ConfigDef,
    value: Option<String>,
    source: ConfigSource,
    synonyms: Vec<Synonym>,
    read_only: bool,
) -> ConfigEntry {
    let shown = |value: String| Some(value).filter(|_| !def.sensitive);
    ConfigEntry {
        name: def.name.to_owned(),
        value: value.and_then(shown),
        read_only,
        source,
        sensitive: def.sensitive,
        synonyms: synonyms
            .into_iter()
            .map(|synonym| SynonymEntry {
                name: synonym.name,
                value: shown(synonym.value),
                source: synonym.source,
            })
            .collect(),
        config_type: def.value_type.code(),
        documentation: def.documentation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn names(entries: &[ConfigEntry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn a_topic_shows_all_keys_but_its_mirror_only_when_asked() {
        let file = Properties::new();
        let topic = values(&[("retention.ms", "5"), ("mirror.name", "m")]);
        let sources = TopicConfigSources { topic: Some(&topic), broker: None, cluster: None, file: &file };
        let all = describe_topic(&sources, None);
        assert_eq!(all.len(), 37);
        assert!(!names(&all).contains(&"mirror.name"));
        let asked = ["mirror.name".to_owned(), "retention.ms".to_owned(), "nonsense".to_owned()];
        let some = describe_topic(&sources, Some(&asked));
        assert_eq!(names(&some), ["retention.ms", "mirror.name"]);
        let [retention, mirror] = some.as_slice() else { panic!("two entries") };
        assert_eq!((retention.value.as_deref(), retention.config_type), (Some("5"), 5));
        assert_eq!(retention.source, ConfigSource::Topic);
        let synonyms: Vec<(&str, Option<&str>)> =
            retention.synonyms.iter().map(|s| (s.name.as_str(), s.value.as_deref())).collect();
        assert_eq!(synonyms, [("retention.ms", Some("5")), ("log.retention.hours", Some("168"))]);
        assert!(mirror.read_only && mirror.value.as_deref() == Some("m"));
    }

    #[test]
    fn a_broker_shows_sources_and_what_may_change() {
        let file: Properties = [("node.id", "1"), ("num.partitions", "4")].into_iter().collect();
        let cluster = values(&[("log.retention.ms", "9")]);
        let entries = describe_broker(None, Some(&cluster), &file, None);
        assert_eq!(entries.len(), BROKER_CONFIGS.len());
        let find = |key: &str| entries.iter().find(|entry| entry.name == key).unwrap();
        assert_eq!(find("num.partitions").source, ConfigSource::StaticBroker);
        assert!(find("num.partitions").read_only);
        assert_eq!(find("log.retention.ms").source, ConfigSource::DynamicDefaultBroker);
        assert!(!find("log.retention.ms").read_only);
        assert!(find("broker.heartbeat.interval.ms").is_default());
        assert_eq!(names(&describe_cluster_default(Some(&cluster), None)), ["log.retention.ms"]);
    }

    #[test]
    fn a_mirror_never_shows_its_secrets() {
        let mirror = values(&[("bootstrap.servers", "a:1"), ("ssl.key.password", "hunter2")]);
        let entries = describe_mirror(Some(&mirror), None);
        let secret = entries.iter().find(|entry| entry.name == "ssl.key.password").unwrap();
        assert!(secret.sensitive && secret.value.is_none());
        assert!(!format!("{entries:?}").contains("hunter2"));
        assert!(names(&entries).contains(&"request.timeout.ms"));
        assert!(names(&entries).is_sorted());
    }
}
