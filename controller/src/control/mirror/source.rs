//! What the source says: its cluster id, topics to create, to grow, to configure, or that are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::ids::*;
use common::metadata::image::TopicImage;
use common::metadata::record::ConfigResourceType;
use common::metadata::{MetadataImage, MetadataRecord};
use common::mirror_state::MIRROR_NAME_CONFIG;
use protocol::error_code::ErrorCode;

use super::topics::removed;
use crate::control::partition_count::grow;
use crate::control::placement::{PlacementSpec, place};
use crate::control::result::{ControlError, refuse};
use crate::control::settings::ControlSettings;
use crate::control::topic::{
    MAX_PARTITIONS_PER_REQUEST, Randomness, topic_config, topic_records, validate_topic_name,
};
use crate::control::{config, producer_id};

/// Records, and a remark for the broker's log where something was left out.
pub type Outcome = Result<(Vec<MetadataRecord>, Option<String>), ControlError>;

fn done(records: Vec<MetadataRecord>) -> Outcome {
    Ok((records, None))
}

/// First contact: the source's cluster id is stored, and never changes (decision 19).
pub fn source_cluster(
    image: &MetadataImage,
    settings: &ControlSettings,
    mirror: &str,
    source_cluster_id: &str,
) -> Outcome {
    let Some(known) = image.mirrors.get(mirror) else {
        return refuse(ErrorCode::UnknownMirror, format!("there is no mirror '{mirror}'"));
    };
    match known.source_cluster_id.as_deref() {
        Some(stored) if stored == source_cluster_id => return done(Vec::new()),
        Some(stored) => {
            return refuse(
                ErrorCode::InconsistentClusterId,
                format!("the source of mirror '{mirror}' is cluster {stored}, not {source_cluster_id}"),
            );
        }
        None => {}
    }
    if source_cluster_id.is_empty() {
        return refuse(ErrorCode::InvalidRequest, "the source has no cluster id");
    }
    if source_cluster_id == settings.cluster_id {
        return refuse(ErrorCode::InconsistentClusterId, "the source is this cluster itself");
    }
    if producer_id::prefix(source_cluster_id) == producer_id::prefix(&settings.cluster_id) {
        // The code tells the broker which of the refusals it was.
        return refuse(
            ErrorCode::PolicyViolation,
            format!("cluster {source_cluster_id} hands out producer ids from the same range as this one"),
        );
    }
    done(vec![MetadataRecord::MirrorSource {
        name: known.name.clone(),
        source_cluster_id: source_cluster_id.to_owned(),
    }])
}

/// A confirmed deletion at the source appends the suffix, unless the report is of an earlier association
/// (decision 13).
pub fn source_deleted(image: &MetadataImage, topic_id: TopicId, association: Association) -> Outcome {
    let Some(topic) = image.topic_by_id(topic_id) else {
        return refuse(ErrorCode::UnknownTopicId, format!("no topic has the id {topic_id}"));
    };
    match &topic.mirror {
        Some(mirror) if mirror.association == association => {
            done(if mirror.removed { Vec::new() } else { vec![removed(topic, &mirror.mirror)] })
        }
        _ => refuse(
            ErrorCode::InvalidRequest,
            format!("{association} is not the newest association of topic '{}'", topic.name),
        ),
    }
}

/// A pending topic, as the source has it.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceTopic {
    pub mirror: String,
    pub name: String,
    pub topic_id: TopicId,
    pub partitions: i32,
    pub configs: BTreeMap<String, String>,
}

/// Creates a pending topic with the source's id and partition count.
pub fn create(
    image: &MetadataImage,
    settings: &ControlSettings,
    request: &SourceTopic,
    random: &mut dyn Randomness,
) -> Outcome {
    validate_topic_name(&request.name)?;
    let mirror: Arc<str> = request.mirror.as_str().into();
    if let Some(topic) = image.topic(&request.name) {
        let ours = topic.mirror.as_ref().is_some_and(|current| current.mirror == mirror && !current.removed);
        if topic.id == request.topic_id && ours {
            return done(Vec::new());
        }
        return refuse(
            ErrorCode::TopicAlreadyExists,
            format!("topic '{}' exists here with the id {}", topic.name, topic.id),
        );
    }
    if image.pending_mirror_topics.get(request.name.as_str()) != Some(&mirror) {
        return refuse(
            ErrorCode::InvalidRequest,
            format!("topic '{}' does not wait to be created by mirror '{mirror}'", request.name),
        );
    }
    if request.topic_id.is_zero() {
        return refuse(ErrorCode::InvalidRequest, "the source does not tell the topic's id");
    }
    if let Some(other) = image.topic_by_id(request.topic_id) {
        return refuse(
            ErrorCode::TopicAlreadyExists,
            format!("id {} belongs to topic '{}' here", request.topic_id, other.name),
        );
    }
    if request.partitions < 1 || request.partitions as usize > MAX_PARTITIONS_PER_REQUEST {
        return refuse(ErrorCode::InvalidPartitions, format!("{} partitions", request.partitions));
    }
    let spec = PlacementSpec {
        first_partition: 0,
        partitions: request.partitions,
        replication_factor: settings.default_replication_factor,
        only_active: true,
    };
    let replicas = place(image, spec, random.placement())?;
    let (configs, remark) = usable_configs(&request.configs);
    let name: Arc<str> = request.name.as_str().into();
    let mut records = topic_records(image, request.topic_id, &name, replicas, &configs);
    records.push(topic_config(&name, MIRROR_NAME_CONFIG, Some(&mirror)));
    records.push(MetadataRecord::PendingMirrorTopic { topic: name, mirror: None });
    Ok((records, remark))
}

/// One bad key never blocks the rest.
fn usable_configs(configs: &BTreeMap<String, String>) -> (Vec<(String, String)>, Option<String>) {
    let mut usable = Vec::new();
    let mut left_out = Vec::new();
    for (key, value) in configs {
        match config::validate_topic(key, value) {
            Ok(()) => usable.push((key.clone(), value.clone())),
            Err(error) => left_out.push(error.message),
        }
    }
    let remark = (!left_out.is_empty()).then(|| format!("left out: {}", left_out.join("; ")));
    (usable, remark)
}

fn mirrored<'a>(
    image: &'a MetadataImage,
    mirror: &str,
    topic_id: TopicId,
) -> Result<&'a Arc<TopicImage>, ControlError> {
    let Some(topic) = image.topic_by_id(topic_id) else {
        return refuse(ErrorCode::UnknownTopicId, format!("no topic has the id {topic_id}"));
    };
    match &topic.mirror {
        Some(current) if &*current.mirror == mirror && !current.removed => Ok(topic),
        _ => refuse(
            ErrorCode::InvalidRequest,
            format!("topic '{}' is not being mirrored by '{mirror}'", topic.name),
        ),
    }
}

/// The source has more partitions.
pub fn grow_topic(
    image: &MetadataImage,
    mirror: &str,
    topic_id: TopicId,
    partitions: i32,
    random: &mut dyn Randomness,
) -> Outcome {
    let topic = mirrored(image, mirror, topic_id)?;
    let current = topic.partitions.len() as i32;
    if partitions <= current {
        return done(Vec::new());
    }
    if (partitions - current) as usize > MAX_PARTITIONS_PER_REQUEST {
        return refuse(ErrorCode::InvalidPartitions, format!("{partitions} partitions"));
    }
    done(grow(image, topic, partitions, None, true, random)?)
}

/// The source's configs changed. What follows from them here is the same as if an operator had set them.
pub fn sync_configs(
    image: &MetadataImage,
    settings: &ControlSettings,
    mirror: &str,
    topic_id: TopicId,
    set: &BTreeMap<String, String>,
    unset: &[String],
) -> Outcome {
    let topic = mirrored(image, mirror, topic_id)?;
    let current = image.config(ConfigResourceType::Topic, &topic.name);
    let value_of = |key: &str| current.and_then(|map| map.get(key));
    let (usable, remark) = usable_configs(set);
    let mut records: Vec<MetadataRecord> = usable
        .iter()
        .filter(|(key, value)| value_of(key) != Some(value))
        .map(|(key, value)| topic_config(&topic.name, key, Some(value)))
        .collect();
    for key in unset {
        if key != MIRROR_NAME_CONFIG && value_of(key).is_some() && !set.contains_key(key) {
            records.push(topic_config(&topic.name, key, None));
        }
    }
    let follow = config::consequences(image, settings, &records);
    records.extend(follow);
    Ok((records, remark))
}
