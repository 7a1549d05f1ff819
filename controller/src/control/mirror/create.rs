//! CreateMirror, and the topic in which the mirrors' states are kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use common::metadata::record::{ConfigResource, ConfigResourceType};
use common::metadata::{MetadataImage, MetadataRecord};
use common::mirror_state::MIRROR_STATE_TOPIC;
use protocol::error_code::ErrorCode;

use super::validate_mirror_name;
use crate::control::config;
use crate::control::placement::{PlacementSpec, place};
use crate::control::result::{ControlError, ControllerResult, refuse};
use crate::control::settings::ControlSettings;
use crate::control::topic::{Randomness, topic_records};

pub const BOOTSTRAP_SERVERS_CONFIG: &str = "bootstrap.servers";

/// A mirror to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMirror {
    pub name: Option<String>,
    pub configs: Vec<(String, Option<String>)>,
}

/// CreateMirror. The source is not contacted: a wrong address shows in the mirror's state.
pub fn create_mirror(
    image: &MetadataImage,
    settings: &ControlSettings,
    request: &NewMirror,
    random: &mut dyn Randomness,
) -> Result<ControllerResult<()>, ControlError> {
    let name = validate_mirror_name(request.name.as_deref())?;
    if image.mirrors.contains_key(name) {
        return refuse(ErrorCode::MirrorAlreadyExists, format!("mirror '{name}' exists"));
    }
    let name: Arc<str> = name.into();
    let mut records = vec![MetadataRecord::Mirror { name: name.clone() }];
    let mut seen = BTreeSet::new();
    for (key, value) in &request.configs {
        if !seen.insert(key.as_str()) {
            return refuse(ErrorCode::InvalidRequest, format!("config '{key}' is given twice"));
        }
        let Some(value) = value else {
            return refuse(ErrorCode::InvalidConfig, format!("config '{key}' has no value"));
        };
        config::validate_mirror(key, value)?;
        records.push(MetadataRecord::Config {
            resource: ConfigResource { resource_type: ConfigResourceType::Mirror, name: name.clone() },
            key: key.clone(),
            value: Some(value.clone()),
        });
    }
    if !seen.contains(BOOTSTRAP_SERVERS_CONFIG) {
        return refuse(
            ErrorCode::InvalidRequest,
            format!("'{BOOTSTRAP_SERVERS_CONFIG}' is required: where the source cluster is reached"),
        );
    }
    records.extend(mirror_state_topic(image, settings, random));
    Ok(ControllerResult::new(records, ()))
}

/// Records of `__mirror_state` where it is absent. With fewer brokers than its replication factor it is
/// left for later (a new active controller, a broker that comes back, the next mirror): a smaller
/// factor would be kept for ever.
pub fn mirror_state_topic(
    image: &MetadataImage,
    settings: &ControlSettings,
    random: &mut dyn Randomness,
) -> Vec<MetadataRecord> {
    if image.topics.by_name.contains_key(MIRROR_STATE_TOPIC) {
        return Vec::new();
    }
    let spec = PlacementSpec {
        first_partition: 0,
        partitions: settings.mirror_state_num_partitions,
        replication_factor: settings.mirror_state_replication_factor,
        only_active: true,
    };
    let Ok(replicas) = place(image, spec, random.placement()) else {
        return Vec::new();
    };
    let configs: Vec<(String, String)> = [
        ("cleanup.policy", "compact".to_owned()),
        ("compression.type", "producer".to_owned()),
        ("retention.ms", "-1".to_owned()),
        ("min.insync.replicas", settings.mirror_state_min_isr.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    topic_records(image, random.topic_id(), &MIRROR_STATE_TOPIC.into(), replicas, &configs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;

    fn request(name: &str) -> NewMirror {
        NewMirror {
            name: Some(name.to_owned()),
            configs: vec![(BOOTSTRAP_SERVERS_CONFIG.to_owned(), Some("source:9092".to_owned()))],
        }
    }

    fn small() -> ControlSettings {
        ControlSettings { mirror_state_replication_factor: 1, ..settings() }
    }

    #[test]
    fn case_1_second_creation_is_refused_and_the_state_topic_exists_once() {
        let mut image = with_brokers(&[1]);
        let first = create_mirror(&image, &small(), &request("m1"), &mut Numbers::default()).unwrap();
        replay(&mut image, first.records);
        assert_eq!(image.topic(MIRROR_STATE_TOPIC).unwrap().partitions.len(), 50);
        let again = create_mirror(&image, &small(), &request("m1"), &mut Numbers::default());
        assert_eq!(again.unwrap_err().code, ErrorCode::MirrorAlreadyExists);
        let second = create_mirror(&image, &small(), &request("m2"), &mut Numbers::default()).unwrap();
        assert_eq!(second.records.len(), 2);
    }

    #[test]
    fn case_2_bad_names() {
        let image = with_brokers(&[1]);
        let long = "x".repeat(250);
        for name in
            [Some("a.removed"), Some(""), Some(long.as_str()), Some("a:b"), Some(".."), Some("ä"), None]
        {
            let request = NewMirror { name: name.map(str::to_owned), ..request("x") };
            let error = create_mirror(&image, &small(), &request, &mut Numbers::default()).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidMirrorName, "{name:?}");
        }
    }

    #[test]
    fn case_3_bootstrap_servers_are_required_and_configs_are_checked() {
        let image = with_brokers(&[1]);
        let with = |configs: Vec<(&str, Option<&str>)>| {
            let configs = configs.into_iter().map(|(k, v)| (k.to_owned(), v.map(str::to_owned))).collect();
            let request = NewMirror { name: Some("m".to_owned()), configs };
            create_mirror(&image, &small(), &request, &mut Numbers::default()).unwrap_err().code
        };
        let bootstrap = (BOOTSTRAP_SERVERS_CONFIG, Some("s:1"));
        assert_eq!(with(vec![]), ErrorCode::InvalidRequest);
        assert_eq!(with(vec![bootstrap, bootstrap]), ErrorCode::InvalidRequest);
        assert_eq!(with(vec![bootstrap, ("no.such.key", Some("1"))]), ErrorCode::InvalidConfig);
        assert_eq!(with(vec![bootstrap, ("request.timeout.ms", None)]), ErrorCode::InvalidConfig);
    }

    #[test]
    fn too_few_brokers_create_the_mirror_and_leave_the_topic_for_later() {
        let image = with_brokers(&[1, 2]);
        let result = create_mirror(&image, &settings(), &request("m"), &mut Numbers::default()).unwrap();
        assert_eq!(result.records.len(), 2, "never a smaller replication factor");
    }
}
