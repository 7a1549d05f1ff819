//! More partitions for a topic: CreatePartitions, and mirrors that follow their source.

use std::collections::HashSet;

use common::ids::BrokerId;
use common::metadata::image::TopicImage;
use common::metadata::{MetadataImage, MetadataRecord};
use common::mirror_state::MIRROR_STATE_TOPIC;
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::mirror::every_partition_writable;
use super::placement::{PlacementSpec, place};
use super::reassignment::target_replication_factor;
use super::result::{ControllerResult, refuse};
use super::topic::{MAX_PARTITIONS_PER_REQUEST, Randomness, partition_record, validate_assignment};

/// One topic of CreatePartitions.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPartitions {
    pub topic: String,
    /// The count afterwards.
    pub count: i32,
    /// For each new partition; `None`: placed here.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// CreatePartitions.
pub fn create_partitions(
    image: &MetadataImage,
    topics: &[NewPartitions],
    validate_only: bool,
    random: &mut dyn Randomness,
) -> ControllerResult<Vec<Result<(), ControlError>>> {
    let mut records = Vec::new();
    let mut seen = HashSet::new();
    let results = topics
        .iter()
        .map(|wanted| {
            if !seen.insert(wanted.topic.as_str()) {
                return refuse(ErrorCode::InvalidRequest, "Duplicate topic name.");
            }
            let Some(topic) = image.topic(&wanted.topic) else {
                return refuse(
                    ErrorCode::UnknownTopicOrPartition,
                    format!("no topic is named {}", wanted.topic),
                );
            };
            if &*topic.name == MIRROR_STATE_TOPIC {
                // Another count would move the keys to other partitions, and hide what is recorded.
                return refuse(
                    ErrorCode::InvalidRequest,
                    format!("Internal topic {} keeps its partition count.", topic.name),
                );
            }
            if !every_partition_writable(topic) {
                return refuse(
                    ErrorCode::InvalidRequest,
                    format!(
                        "Topic {} is mirrored; its source decides how many partitions it has.",
                        topic.name
                    ),
                );
            }
            let current = topic.partitions.len() as i32;
            if wanted.count <= current {
                let what = if wanted.count == current { "already has" } else { "currently has" };
                return refuse(
                    ErrorCode::InvalidPartitions,
                    format!("Topic {what} {current} partition(s); {} were asked for.", wanted.count),
                );
            }
            if records.len() + (wanted.count - current) as usize > MAX_PARTITIONS_PER_REQUEST {
                return refuse(
                    ErrorCode::PolicyViolation,
                    "Excessively large number of partitions per request.",
                );
            }
            records.extend(grow(image, topic, wanted.count, wanted.assignments.as_deref(), false, random)?);
            Ok(())
        })
        .collect();
    ControllerResult::new(if validate_only { Vec::new() } else { records }, results)
}

/// Records of the partitions that bring a topic to `count`.
pub fn grow(
    image: &MetadataImage,
    topic: &TopicImage,
    count: i32,
    assignments: Option<&[Vec<BrokerId>]>,
    only_active: bool,
    random: &mut dyn Randomness,
) -> Result<Vec<MetadataRecord>, ControlError> {
    let current = topic.partitions.len() as i32;
    let added = count - current;
    let replication_factor =
        topic.partitions.iter().next().map_or(1, |first| target_replication_factor(&first.registration));
    let replicas = match assignments {
        Some(given) => {
            if given.len() as i32 != added {
                return refuse(
                    ErrorCode::InvalidReplicaAssignment,
                    format!(
                        "Attempted to add {added} additional partition(s), but only {} assignment(s) were specified.",
                        given.len()
                    ),
                );
            }
            validate_assignment(image, given, Some(replication_factor), current, only_active)?;
            given.to_vec()
        }
        None => {
            let spec = PlacementSpec {
                first_partition: current,
                partitions: added,
                replication_factor: replication_factor as i16,
                only_active,
            };
            place(image, spec, random.placement())?
        }
    };
    Ok(replicas
        .into_iter()
        .enumerate()
        .map(|(index, replicas)| partition_record(image, topic.id, current + index as i32, replicas))
        .collect())
}
