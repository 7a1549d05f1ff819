//! Configs of topics, brokers and mirrors: validation, IncrementalAlterConfigs, AlterConfigs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::config::definition::split_list;
use common::config::error::ConfigError;
use common::config::topic::TopicConfigSources;
use common::config::{ConfigDef, ValueType};
use common::metadata::image::ConfigMap;
use common::metadata::record::{ConfigResource, ConfigResourceType};
use common::metadata::{MetadataImage, MetadataRecord};
use common::mirror_state::MIRROR_NAME_CONFIG;
use protocol::error_code::ErrorCode;

use super::mirror::create::BOOTSTRAP_SERVERS_CONFIG;
use super::partition::{Scope, after_config_change};
use super::result::{ControllerResult, refuse};
use super::settings::{ControlSettings, MIN_INSYNC_REPLICAS_CONFIG, UNCLEAN_LEADER_ELECTION_CONFIG};
use super::{ControlError, min_isr, topic};

fn refusal(error: ConfigError) -> ControlError {
    let code = match &error {
        ConfigError::NotChangeable { .. } => ErrorCode::InvalidRequest,
        _ => ErrorCode::InvalidConfig,
    };
    ControlError::new(code, error.to_string())
}

/// A topic config by itself; `mirror.name` is the controller's own (decision 24).
pub fn validate_topic(key: &str, value: &str) -> Result<(), ControlError> {
    common::config::topic::validate_topic_config(key, value).map_err(refusal)
}

/// A mirror config, of the allow-list (decision 22).
pub fn validate_mirror(key: &str, value: &str) -> Result<(), ControlError> {
    common::config::mirror::validate_mirror_config(key, value).map_err(refusal)
}

/// The configs of CreateTopics.
pub fn validate_new_topic_configs(
    image: &MetadataImage,
    settings: &ControlSettings,
    configs: &[(String, Option<String>)],
) -> Result<Vec<(String, String)>, ControlError> {
    let mut map = ConfigMap::new();
    for (key, value) in configs {
        if key == MIRROR_NAME_CONFIG {
            return refuse(ErrorCode::InvalidRequest, "mirror.name is set by adding the topic to a mirror");
        }
        let Some(value) = value else {
            return refuse(
                ErrorCode::InvalidConfig,
                format!("Null value not supported for topic config: {key}"),
            );
        };
        if map.insert(key.clone(), value.clone()).is_some() {
            return refuse(ErrorCode::InvalidRequest, format!("config {key} is given twice"));
        }
    }
    if !map.is_empty() {
        validate_topic_map(image, settings, &map)?;
    }
    Ok(map.into_iter().collect())
}

fn validate_topic_map(
    image: &MetadataImage,
    settings: &ControlSettings,
    map: &ConfigMap,
) -> Result<(), ControlError> {
    let cluster = image.config(ConfigResourceType::Broker, "");
    let sources = TopicConfigSources {
        topic: Some(map),
        broker: None,
        cluster: cluster.map(Arc::as_ref),
        file: &settings.properties,
    };
    common::config::topic::validate_topic_configs(&sources).map_err(refusal)
}

/// One change of IncrementalAlterConfigs; `operation` as on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub key: String,
    pub operation: i8,
    pub value: Option<String>,
}

/// A resource to be altered; the type as on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct AlterResource<C> {
    pub resource_type: i8,
    pub name: String,
    pub changes: Vec<C>,
}

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// One result for each resource, in the order of the request.
pub type AlterResults = Vec<Result<(), ControlError>>;

/// IncrementalAlterConfigs.
pub fn incremental_alter(
    image: &MetadataImage,
    settings: &ControlSettings,
    resources: &[AlterResource<Change>],
    validate_only: bool,
) -> ControllerResult<AlterResults> {
    alter(image, settings, resources, validate_only, |resource, current, changes| {
        let mut next = current.clone();
        let mut seen = BTreeSet::new();
        for change in changes {
            if !seen.insert(change.key.as_str()) {
                return refuse(ErrorCode::InvalidRequest, "Error due to duplicate config keys");
            }
            apply_change(resource, &mut next, change)?;
        }
        Ok(next)
    })
}

/// AlterConfigs: the given configs replace all others of the resource.
pub fn legacy_alter(
    image: &MetadataImage,
    settings: &ControlSettings,
    resources: &[AlterResource<(String, Option<String>)>],
    validate_only: bool,
) -> ControllerResult<AlterResults> {
    alter(image, settings, resources, validate_only, |resource, current, changes| {
        let mut next = ConfigMap::new();
        for (key, value) in changes {
            if is_mirror_name(resource, key) {
                return refuse_mirror_name();
            }
            let Some(value) = value else {
                return refuse(ErrorCode::InvalidRequest, format!("Null value not supported for {key}"));
            };
            if next.insert(key.clone(), value.clone()).is_some() {
                return refuse(ErrorCode::InvalidRequest, "Error due to duplicate config keys");
            }
        }
        let mut keep = |key: &str| {
            if let Some(value) = current.get(key).filter(|_| !next.contains_key(key)) {
                next.insert(key.to_owned(), value.clone());
            }
        };
        match resource.resource_type {
            // Not the client's to remove either.
            ConfigResourceType::Topic => keep(MIRROR_NAME_CONFIG),
            ConfigResourceType::Broker if resource.name.is_empty() => keep(MIN_INSYNC_REPLICAS_CONFIG),
            _ => {}
        }
        Ok(next)
    })
}

fn alter<C>(
    image: &MetadataImage,
    settings: &ControlSettings,
    resources: &[AlterResource<C>],
    validate_only: bool,
    next_map: impl Fn(&ConfigResource, &ConfigMap, &[C]) -> Result<ConfigMap, ControlError>,
) -> ControllerResult<AlterResults> {
    let mut times: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for resource in resources {
        *times.entry((resource.resource_type, resource.name.as_str())).or_default() += 1;
    }
    let mut records = Vec::new();
    let results = resources
        .iter()
        .map(|asked| {
            if times.get(&(asked.resource_type, asked.name.as_str())).is_some_and(|times| *times > 1) {
                return refuse(ErrorCode::InvalidRequest, "Each resource must appear at most once.");
            }
            let resource = resource_of(image, asked.resource_type, &asked.name)?;
            let current = image.configs.get(&resource).map(|map| (**map).clone()).unwrap_or_default();
            let next = next_map(&resource, &current, &asked.changes)?;
            validate_map(image, settings, &resource, &current, &next)?;
            records.extend(difference(&resource, &current, &next));
            Ok(())
        })
        .collect();
    if validate_only {
        records.clear();
    }
    let follow_up = consequences(image, settings, &records);
    records.extend(follow_up);
    ControllerResult::new(records, results)
}

/// Whether the resource exists.
pub fn resource_of(
    image: &MetadataImage,
    resource_type: i8,
    name: &str,
) -> Result<ConfigResource, ControlError> {
    let Some(resource_type) = ConfigResourceType::from_code(resource_type) else {
        return refuse(
            ErrorCode::InvalidRequest,
            format!("configs of resource type {resource_type} are not supported"),
        );
    };
    match resource_type {
        ConfigResourceType::Topic => {
            topic::validate_topic_name(name)?;
            if !image.topics.by_name.contains_key(name) {
                return refuse(
                    ErrorCode::UnknownTopicOrPartition,
                    format!("The topic '{name}' does not exist."),
                );
            }
        }
        ConfigResourceType::Broker => {
            let known = name.is_empty() || name.parse::<i32>().is_ok_and(|id| id >= 0);
            if !known {
                return refuse(
                    ErrorCode::InvalidRequest,
                    format!("a broker is named by its id, or by nothing for all of them, not by '{name}'"),
                );
            }
        }
        ConfigResourceType::Mirror => {
            if !image.mirrors.contains_key(name) {
                return refuse(ErrorCode::UnknownMirror, format!("there is no mirror '{name}'"));
            }
        }
    }
    Ok(ConfigResource { resource_type, name: name.into() })
}

fn is_mirror_name(resource: &ConfigResource, key: &str) -> bool {
    resource.resource_type == ConfigResourceType::Topic && key == MIRROR_NAME_CONFIG
}

fn refuse_mirror_name<T>() -> Result<T, ControlError> {
    refuse(ErrorCode::InvalidRequest, "mirror.name changes by adding the topic to a mirror and removing it")
}

fn definition(resource: &ConfigResource, key: &str) -> Option<&'static ConfigDef> {
    match resource.resource_type {
        ConfigResourceType::Topic => common::config::topic::topic_config_def(key),
        ConfigResourceType::Broker => common::config::broker::broker_config_def(key),
        ConfigResourceType::Mirror => common::config::mirror::mirror_config_def(key),
    }
}

fn apply_change(resource: &ConfigResource, map: &mut ConfigMap, change: &Change) -> Result<(), ControlError> {
    let key = &change.key;
    if is_mirror_name(resource, key) {
        return refuse_mirror_name();
    }
    if change.operation == DELETE {
        map.remove(key);
        return Ok(());
    }
    let Some(value) = &change.value else {
        return refuse(ErrorCode::InvalidRequest, format!("Null value not supported for {key}"));
    };
    match change.operation {
        SET => {
            map.insert(key.clone(), value.clone());
        }
        APPEND | SUBTRACT => {
            let Some(def) = definition(resource, key) else {
                return refuse(ErrorCode::InvalidConfig, format!("Unknown config name: {key}"));
            };
            let is_list = matches!(
                def.value_type,
                ValueType::List | ValueType::ListOf(_) | ValueType::ThrottledReplicas
            );
            if !is_list {
                let what = if change.operation == APPEND { "APPEND to" } else { "SUBTRACT from" };
                return refuse(
                    ErrorCode::InvalidConfig,
                    format!("Can't {what} key {key} because its type is not LIST."),
                );
            }
            let current = map.get(key).map(String::as_str).or(def.default).unwrap_or("").to_owned();
            let mut items: Vec<&str> = split_list(&current).collect();
            for item in split_list(value) {
                if change.operation == SUBTRACT {
                    items.retain(|known| *known != item);
                } else if !items.contains(&item) {
                    items.push(item);
                }
            }
            map.insert(key.clone(), items.join(","));
        }
        other => {
            return refuse(ErrorCode::InvalidRequest, format!("Unknown operation {other} for config {key}"));
        }
    }
    Ok(())
}

fn validate_map(
    image: &MetadataImage,
    settings: &ControlSettings,
    resource: &ConfigResource,
    current: &ConfigMap,
    next: &ConfigMap,
) -> Result<(), ControlError> {
    let changed = next.iter().filter(|(key, value)| current.get(*key) != Some(*value));
    match resource.resource_type {
        ConfigResourceType::Topic => validate_topic_map(image, settings, next),
        ConfigResourceType::Broker => {
            let per_broker = !resource.name.is_empty();
            for (key, value) in changed {
                common::config::broker::validate_broker_config(key, Some(value), per_broker)
                    .map_err(refusal)?;
            }
            min_isr::check_change(&resource.name, current, next)
        }
        ConfigResourceType::Mirror => {
            for (key, value) in changed {
                validate_mirror(key, value)?;
            }
            if !next.contains_key(BOOTSTRAP_SERVERS_CONFIG) {
                return refuse(
                    ErrorCode::InvalidRequest,
                    format!("a mirror cannot be without '{BOOTSTRAP_SERVERS_CONFIG}'"),
                );
            }
            Ok(())
        }
    }
}

fn difference(resource: &ConfigResource, current: &ConfigMap, next: &ConfigMap) -> Vec<MetadataRecord> {
    let record = |key: &str, value: Option<&str>| MetadataRecord::Config {
        resource: resource.clone(),
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    let set = next.iter().filter(|(key, value)| current.get(*key) != Some(*value));
    let removed = current.keys().filter(|key| !next.contains_key(*key));
    set.map(|(key, value)| record(key, Some(value))).chain(removed.map(|key| record(key, None))).collect()
}

/// Elections and eligibility that the changed configs entail, in the same atomic step.
pub(super) fn consequences(
    image: &MetadataImage,
    settings: &ControlSettings,
    records: &[MetadataRecord],
) -> Vec<MetadataRecord> {
    let (mut min_isr, mut unclean) = (Scope::default(), Scope::default());
    let mut after: Option<MetadataImage> = None;
    for record in records {
        let MetadataRecord::Config { resource, key, value } = record else { continue };
        let scope = match key.as_str() {
            MIN_INSYNC_REPLICAS_CONFIG => &mut min_isr,
            UNCLEAN_LEADER_ELECTION_CONFIG => &mut unclean,
            _ => continue,
        };
        match resource.resource_type {
            ConfigResourceType::Topic => {
                scope.topics.insert(resource.name.to_string());
            }
            ConfigResourceType::Broker if resource.name.is_empty() => scope.all = true,
            _ => continue,
        }
        // Only the configs of the image change here; a clone shares all the rest.
        let after = after.get_or_insert_with(|| image.clone());
        let mut map = after.configs.get(resource).map(|map| (**map).clone()).unwrap_or_default();
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
        after.configs.insert(resource.clone(), Arc::new(map));
    }
    after.map(|after| after_config_change(&after, settings, &min_isr, &unclean)).unwrap_or_default()
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
