//! Topics: create, delete, grow.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use common::ids::*;
use common::metadata::record::*;
use common::metadata::{MetadataImage, MetadataRecord};
use common::mirror_state::{MIRROR_NAME_CONFIG, MIRROR_STATE_TOPIC};
pub use common::topic_name::{MAX_TOPIC_NAME_LENGTH, has_legal_characters};
use protocol::error_code::ErrorCode;

use super::placement::{PlacementSeed, PlacementSpec, place};
use super::result::{ControllerResult, refuse};
use super::settings::{ControlSettings, is_active};
use super::{ControlError, config};

/// As Kafka: one request makes at most so many partitions.
pub const MAX_PARTITIONS_PER_REQUEST: usize = 10_000;
const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";

/// One topic of CreateTopics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewTopic {
    pub name: String,
    /// -1: the active controller's default.
    pub partitions: i32,
    pub replication_factor: i16,
    /// Manual assignment: partition to replicas. Empty: none.
    pub assignments: Vec<(i32, Vec<BrokerId>)>,
    pub configs: Vec<(String, Option<String>)>,
    /// MirrorInfo: the source's topic id.
    pub mirror_topic_id: Option<TopicId>,
}

/// What was created.
#[derive(Clone, Debug, PartialEq)]
pub struct CreatedTopic {
    pub topic_id: TopicId,
    pub partitions: i32,
    pub replication_factor: i16,
}

/// Handed in for each topic: an id for it, and where its placement starts.
pub trait Randomness {
    fn topic_id(&mut self) -> TopicId;
    fn placement(&mut self) -> PlacementSeed;
}

/// What the topics of one request must not collide with: the image and their own predecessors.
struct Draft<'a> {
    image: &'a MetadataImage,
    /// Names with `.` read as `_`, of all topics; built on the first need of one.
    folded: Option<HashSet<String>>,
    ids: HashSet<TopicId>,
}

/// CreateTopics. Each topic succeeds or fails by itself; those that succeed are one atomic batch.
pub fn create_topics(
    image: &MetadataImage,
    settings: &ControlSettings,
    topics: &[NewTopic],
    validate_only: bool,
    random: &mut dyn Randomness,
) -> ControllerResult<Vec<Result<CreatedTopic, ControlError>>> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in topics {
        *seen.entry(topic.name.as_str()).or_default() += 1;
    }
    let mut draft = Draft { image, folded: None, ids: HashSet::new() };
    let mut records = Vec::new();
    let mut partitions = 0;
    let results = topics
        .iter()
        .map(|topic| {
            if seen.get(topic.name.as_str()).is_some_and(|times| *times > 1) {
                return refuse(ErrorCode::InvalidRequest, "Duplicate topic name.");
            }
            let (created, new) = create_topic(&mut draft, settings, topic, random)?;
            partitions += created.partitions as usize;
            if partitions > MAX_PARTITIONS_PER_REQUEST {
                return refuse(
                    ErrorCode::PolicyViolation,
                    "Excessively large number of partitions per request.",
                );
            }
            draft.ids.insert(created.topic_id);
            if let Some(folded) = &mut draft.folded {
                folded.insert(fold(&topic.name));
            }
            records.extend(new);
            Ok(created)
        })
        .collect();
    ControllerResult::new(if validate_only { Vec::new() } else { records }, results)
}

fn create_topic(
    draft: &mut Draft<'_>,
    settings: &ControlSettings,
    topic: &NewTopic,
    random: &mut dyn Randomness,
) -> Result<(CreatedTopic, Vec<MetadataRecord>), ControlError> {
    let image = draft.image;
    validate_topic_name(&topic.name)?;
    if topic.name == CLUSTER_METADATA_TOPIC || topic.name == MIRROR_STATE_TOPIC {
        return refuse(
            ErrorCode::InvalidRequest,
            format!("Creation of internal topic {} is prohibited.", topic.name),
        );
    }
    if image.topics.by_name.contains_key(topic.name.as_str()) {
        return refuse(ErrorCode::TopicAlreadyExists, format!("Topic '{}' already exists.", topic.name));
    }
    if topic.name.contains(['.', '_']) {
        let folded =
            draft.folded.get_or_insert_with(|| image.topics.by_name.keys().map(|name| fold(name)).collect());
        if folded.contains(&fold(&topic.name)) {
            return refuse(
                ErrorCode::InvalidTopicException,
                format!(
                    "Topic '{}' collides with an existing topic: '.' and '_' count as the same.",
                    topic.name
                ),
            );
        }
    }

    let source_id = topic.mirror_topic_id.filter(|id| !id.is_zero());
    let pending = image.pending_mirror_topics.get(topic.name.as_str()).cloned();
    if let (Some(mirror), None) = (&pending, source_id) {
        return refuse(
            ErrorCode::InvalidRequest,
            format!(
                "Topic '{}' waits to be created by mirror '{mirror}' with its source's id; remove it from the \
                 mirror to use the name.",
                topic.name
            ),
        );
    }
    if let Some(id) = source_id
        && (image.topic_by_id(id).is_some() || draft.ids.contains(&id))
    {
        return refuse(ErrorCode::TopicAlreadyExists, format!("Topic id {id} is used by another topic."));
    }
    let configs = config::validate_new_topic_configs(image, settings, &topic.configs)?;
    let only_active = source_id.is_some();
    let replicas = replicas_of(image, settings, topic, only_active, random)?;
    let topic_id = match source_id {
        Some(id) => id,
        None => random.topic_id(),
    };
    let created = CreatedTopic {
        topic_id,
        partitions: replicas.len() as i32,
        replication_factor: replicas.first().map_or(0, Vec::len) as i16,
    };
    let name: Arc<str> = topic.name.as_str().into();
    let mut records = topic_records(image, topic_id, &name, replicas, &configs);
    if let Some(mirror) = pending {
        // Its source's id came with the request: what waited for it is fulfilled in the same step.
        records.push(topic_config(&name, MIRROR_NAME_CONFIG, Some(&mirror)));
        records.push(MetadataRecord::PendingMirrorTopic { topic: name, mirror: None });
    }
    Ok((created, records))
}

fn replicas_of(
    image: &MetadataImage,
    settings: &ControlSettings,
    topic: &NewTopic,
    only_active: bool,
    random: &mut dyn Randomness,
) -> Result<Vec<Vec<BrokerId>>, ControlError> {
    if !topic.assignments.is_empty() {
        if topic.replication_factor != -1 {
            return refuse(
                ErrorCode::InvalidRequest,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            );
        }
        if topic.partitions != -1 {
            return refuse(
                ErrorCode::InvalidRequest,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            );
        }
        let mut sorted: Vec<&(i32, Vec<BrokerId>)> = topic.assignments.iter().collect();
        sorted.sort_by_key(|(partition, _)| *partition);
        let consecutive = sorted.iter().enumerate().all(|(index, (partition, _))| index as i32 == *partition);
        if !consecutive {
            return refuse(
                ErrorCode::InvalidReplicaAssignment,
                "partitions should be a consecutive 0-based integer sequence",
            );
        }
        let replicas: Vec<Vec<BrokerId>> = sorted.into_iter().map(|(_, replicas)| replicas.clone()).collect();
        validate_assignment(image, &replicas, None, 0, only_active)?;
        return Ok(replicas);
    }
    if topic.replication_factor < -1 || topic.replication_factor == 0 {
        return refuse(
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        );
    }
    if topic.partitions < -1 || topic.partitions == 0 {
        return refuse(
            ErrorCode::InvalidPartitions,
            "Number of partitions was set to an invalid non-positive value.",
        );
    }
    let partitions = if topic.partitions == -1 { settings.num_partitions } else { topic.partitions };
    if partitions as usize > MAX_PARTITIONS_PER_REQUEST {
        return refuse(ErrorCode::PolicyViolation, "Excessively large number of partitions per request.");
    }
    let replication_factor = match topic.replication_factor {
        -1 => settings.default_replication_factor,
        given => given,
    };
    let spec = PlacementSpec { first_partition: 0, partitions, replication_factor, only_active };
    place(image, spec, random.placement())
}

/// Manual assignments: each names distinct registered brokers, one at least active, all equally many.
pub(super) fn validate_assignment(
    image: &MetadataImage,
    partitions: &[Vec<BrokerId>],
    replication_factor: Option<usize>,
    first_partition: i32,
    only_active: bool,
) -> Result<(), ControlError> {
    let mut expected = replication_factor;
    for (index, replicas) in partitions.iter().enumerate() {
        let partition = first_partition + index as i32;
        if replicas.is_empty() {
            return refuse(
                ErrorCode::InvalidReplicaAssignment,
                "The manual partition assignment includes an empty replica list.",
            );
        }
        let distinct: HashSet<&BrokerId> = replicas.iter().collect();
        if distinct.len() != replicas.len() {
            return refuse(
                ErrorCode::InvalidReplicaAssignment,
                format!("The manual partition assignment of partition {partition} names a broker twice."),
            );
        }
        if let Some(unknown) = replicas.iter().find(|broker| !image.brokers.contains_key(*broker)) {
            return refuse(
                ErrorCode::InvalidReplicaAssignment,
                format!(
                    "The manual partition assignment includes broker {unknown}, but no such broker is registered."
                ),
            );
        }
        let count = *expected.get_or_insert(replicas.len());
        if replicas.len() != count {
            return refuse(
                ErrorCode::InvalidReplicaAssignment,
                format!(
                    "The manual partition assignment includes a partition with {} replica(s), but this is not \
                     consistent with previous partitions, which have {count} replica(s).",
                    replicas.len()
                ),
            );
        }
        let active = replicas.iter().filter(|broker| is_active(image, **broker)).count();
        if active == 0 {
            return refuse(
                ErrorCode::InvalidReplicaAssignment,
                format!(
                    "All brokers specified in the manual partition assignment for partition {partition} are \
                     fenced or in controlled shutdown."
                ),
            );
        }
        if only_active && active < count {
            // KAFKA-16234: an offline directory of a deleted topic with this id must not come back to life.
            return refuse(
                ErrorCode::InvalidReplicationFactor,
                format!("A mirror topic needs active replicas; partition {partition} names others."),
            );
        }
    }
    Ok(())
}

/// Topic, Partition and Config records of a new topic. An id that comes back starts above the epochs of
/// the deleted topic (decision 19).
pub fn topic_records(
    image: &MetadataImage,
    topic_id: TopicId,
    name: &Arc<str>,
    partitions: Vec<Vec<BrokerId>>,
    configs: &[(String, String)],
) -> Vec<MetadataRecord> {
    let mut records = Vec::with_capacity(1 + partitions.len() + configs.len());
    records.push(MetadataRecord::Topic { topic_id, name: name.clone() });
    for (index, replicas) in partitions.into_iter().enumerate() {
        records.push(partition_record(image, topic_id, index as i32, replicas));
    }
    records.extend(configs.iter().map(|(key, value)| topic_config(name, key, Some(value))));
    records
}

pub fn topic_config(topic: &Arc<str>, key: &str, value: Option<&str>) -> MetadataRecord {
    MetadataRecord::Config {
        resource: ConfigResource { resource_type: ConfigResourceType::Topic, name: topic.clone() },
        key: key.to_owned(),
        value: value.map(str::to_owned),
    }
}

pub(super) fn partition_record(
    image: &MetadataImage,
    topic_id: TopicId,
    partition: i32,
    replicas: Vec<BrokerId>,
) -> MetadataRecord {
    let (leader_epoch, partition_epoch) = match image.topics.deleted_epochs.get(&topic_id) {
        Some((leader_epoch, partition_epoch)) => (leader_epoch.next(), partition_epoch.next()),
        None => (LeaderEpoch(0), PartitionEpoch(0)),
    };
    let isr: Vec<BrokerId> = replicas.iter().copied().filter(|broker| is_active(image, *broker)).collect();
    let registration = PartitionRegistration {
        directories: vec![DirectoryId::ZERO; replicas.len()],
        leader: isr.first().copied(),
        isr,
        replicas,
        elr: Vec::new(),
        last_known_elr: Vec::new(),
        adding_replicas: Vec::new(),
        removing_replicas: Vec::new(),
        leader_epoch,
        partition_epoch,
        leader_recovery_state: LeaderRecoveryState::Recovered,
    };
    MetadataRecord::Partition { topic_id, partition, registration }
}

/// Kafka's rules for names.
pub fn validate_topic_name(name: &str) -> Result<(), ControlError> {
    let reason = if name.is_empty() {
        "Topic name is invalid: the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        "Topic name is invalid: '.' or '..' is not allowed".to_owned()
    } else if name.len() > MAX_TOPIC_NAME_LENGTH {
        format!(
            "Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
        )
    } else if !has_legal_characters(name) {
        format!(
            "Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, \
             '.', '_' and '-'"
        )
    } else {
        return Ok(());
    };
    refuse(ErrorCode::InvalidTopicException, reason)
}

/// Metric names cannot tell `.` from `_`, so Kafka refuses topics that differ only there.
fn fold(name: &str) -> String {
    name.replace('.', "_")
}

/// How DeleteTopics names a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicRef {
    Name(String),
    Id(TopicId),
}

/// What was deleted.
pub type Deleted = (Arc<str>, TopicId);

/// DeleteTopics.
pub fn delete_topics(
    image: &MetadataImage,
    topics: &[TopicRef],
) -> ControllerResult<Vec<Result<Deleted, ControlError>>> {
    let mut records = Vec::new();
    let mut seen = HashSet::new();
    let results = topics
        .iter()
        .map(|wanted| {
            let topic = match wanted {
                TopicRef::Name(name) => image.topic(name).ok_or_else(|| {
                    ControlError::new(ErrorCode::UnknownTopicOrPartition, format!("no topic is named {name}"))
                }),
                TopicRef::Id(id) => image.topic_by_id(*id).ok_or_else(|| {
                    ControlError::new(ErrorCode::UnknownTopicId, format!("no topic has the id {id}"))
                }),
            }?;
            if !seen.insert(topic.id) {
                return refuse(ErrorCode::InvalidRequest, format!("Topic {} is named twice.", topic.name));
            }
            records.push(MetadataRecord::RemoveTopic { topic_id: topic.id });
            Ok((topic.name.clone(), topic.id))
        })
        .collect();
    ControllerResult::new(records, results)
}

#[cfg(test)]
#[path = "topic_tests.rs"]
mod tests;
