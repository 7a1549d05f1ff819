//! Which of a key's values holds, and where it comes from.

use std::collections::BTreeMap;

use super::definition::{ConfigDef, trimmed};
use super::properties::Properties;

/// Kafka's `ConfigSource` of DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    Topic,
    DynamicBroker,
    DynamicDefaultBroker,
    StaticBroker,
    Default,
    /// Ours: set on a mirror.
    Mirror,
}

impl ConfigSource {
    /// Set at run time, not in the file.
    pub fn is_dynamic(self) -> bool {
        !matches!(self, ConfigSource::StaticBroker | ConfigSource::Default)
    }

    pub fn code(self) -> i8 {
        match self {
            ConfigSource::Topic => 1,
            ConfigSource::DynamicBroker => 2,
            ConfigSource::DynamicDefaultBroker => 3,
            ConfigSource::StaticBroker => 4,
            ConfigSource::Default => 5,
            // Stock clients read an unknown number as UNKNOWN.
            ConfigSource::Mirror => 64,
        }
    }
}

/// A place where a key has a value. The first one of a list is the one that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synonym {
    pub name: String,
    pub value: String,
    pub source: ConfigSource,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub value: Option<String>,
    pub source: ConfigSource,
    pub synonyms: Vec<Synonym>,
}

/// Dynamic configurations of one resource, as the metadata image holds them.
pub(super) type Values = BTreeMap<String, String>;

/// The levels of a broker.
#[derive(Clone, Copy)]
pub(super) struct BrokerLevels<'a> {
    pub broker: Option<&'a Values>,
    pub cluster: Option<&'a Values>,
    pub file: &'a Properties,
}

impl BrokerLevels<'_> {
    /// All values of one key. Values that do not fit their definition are left out: the metadata log
    /// may come from a version that knew others.
    pub(super) fn synonyms(&self, def: &ConfigDef) -> Vec<Synonym> {
        let levels = [
            (
                self.broker.and_then(|values| values.get(def.name)).map(String::as_str),
                ConfigSource::DynamicBroker,
            ),
            (
                self.cluster.and_then(|values| values.get(def.name)).map(String::as_str),
                ConfigSource::DynamicDefaultBroker,
            ),
            (self.file.get(def.name), ConfigSource::StaticBroker),
            (def.default, ConfigSource::Default),
        ];
        levels
            .into_iter()
            .filter_map(|(value, source)| value.map(|value| (value, source)))
            .filter(|(value, source)| *source == ConfigSource::Default || def.validate(value).is_ok())
            .map(|(value, source)| Synonym {
                name: def.name.to_owned(),
                value: trimmed(def.value_type, value).to_owned(),
                source,
            })
            .collect()
    }
}
