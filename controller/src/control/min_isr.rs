//! One `min.insync.replicas` for everybody. Who is eligible (KIP-966) is worked out here, how far a high
//! watermark may go by each leader: with different values a replica could be eligible that misses what was
//! acknowledged. So, as in Kafka, the cluster-wide value stands in the metadata log from the start, where it
//! is above all files, and no broker has one of its own.

use std::sync::Arc;

use common::metadata::image::ConfigMap;
use common::metadata::record::{ConfigResource, ConfigResourceType};
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::result::refuse;
use super::settings::{ControlSettings, MIN_INSYNC_REPLICAS_CONFIG};

/// What a new active controller adds: its own value where the log has none for the cluster.
pub fn safety_records(image: &MetadataImage, settings: &ControlSettings) -> Vec<MetadataRecord> {
    let record = |name: Arc<str>, value: Option<String>| MetadataRecord::Config {
        resource: ConfigResource { resource_type: ConfigResourceType::Broker, name },
        key: MIN_INSYNC_REPLICAS_CONFIG.to_owned(),
        value,
    };
    let mut records = Vec::new();
    let cluster = image.config(ConfigResourceType::Broker, "");
    if cluster.is_none_or(|map| !map.contains_key(MIN_INSYNC_REPLICAS_CONFIG)) {
        records.push(record("".into(), Some(settings.min_insync_replicas.to_string())));
    }
    // Set before this rule was.
    for (resource, map) in &image.configs {
        let is_one_broker = resource.resource_type == ConfigResourceType::Broker && !resource.name.is_empty();
        if is_one_broker && map.contains_key(MIN_INSYNC_REPLICAS_CONFIG) {
            records.push(record(resource.name.clone(), None));
        }
    }
    records
}

/// Whether the configs of a broker, or of all (an empty name), may change so.
pub fn check_change(name: &str, current: &ConfigMap, next: &ConfigMap) -> Result<(), ControlError> {
    let value = |map: &ConfigMap| map.get(MIN_INSYNC_REPLICAS_CONFIG).cloned();
    if !name.is_empty() && value(next).is_some() && value(next) != value(current) {
        return refuse(
            ErrorCode::InvalidConfig,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        );
    }
    if name.is_empty() && value(current).is_some() && value(next).is_none() {
        return refuse(
            ErrorCode::InvalidConfig,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::config::{AlterResource, Change, incremental_alter, legacy_alter};
    use crate::control::testing::*;

    const SET: i8 = 0;
    const DELETE: i8 = 1;

    fn alter(image: &MetadataImage, broker: &str, operation: i8, value: Option<&str>) -> Option<ErrorCode> {
        let change =
            Change { key: MIN_INSYNC_REPLICAS_CONFIG.to_owned(), operation, value: value.map(str::to_owned) };
        let resource = AlterResource { resource_type: 4, name: broker.to_owned(), changes: vec![change] };
        let result = incremental_alter(image, &settings(), &[resource], false);
        result.response[0].as_ref().err().map(|error| error.code)
    }

    #[test]
    fn the_log_holds_one_value_for_all_brokers() {
        let mut image = with_brokers(&[1]);
        set_config(&mut image, ConfigResourceType::Broker, "1", MIN_INSYNC_REPLICAS_CONFIG, Some("1"));
        let settings = ControlSettings { min_insync_replicas: 2, ..settings() };
        let records = safety_records(&image, &settings);
        replay(&mut image, records);
        assert_eq!(settings.min_insync_replicas(&image, "t"), 2);
        assert_eq!(image.config(ConfigResourceType::Broker, "1"), None);
        // The next controller's file says something else: the log stands.
        let other = ControlSettings { min_insync_replicas: 3, ..settings };
        assert_eq!(safety_records(&image, &other), vec![]);
        assert_eq!(other.min_insync_replicas(&image, "t"), 2);

        assert_eq!(alter(&image, "1", SET, Some("1")), Some(ErrorCode::InvalidConfig));
        assert_eq!(alter(&image, "", DELETE, None), Some(ErrorCode::InvalidConfig));
        assert_eq!(alter(&image, "", SET, Some("1")), None);
        // AlterConfigs replaces everything but this.
        let resource = AlterResource {
            resource_type: 4,
            name: String::new(),
            changes: vec![("log.retention.ms".to_owned(), Some("5".to_owned()))],
        };
        let result = legacy_alter(&image, &other, &[resource], false);
        assert_eq!(result.response, vec![Ok(())]);
        replay(&mut image, result.records);
        assert_eq!(other.min_insync_replicas(&image, "t"), 2);
    }
}
