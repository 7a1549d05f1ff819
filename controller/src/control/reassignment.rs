//! Partitions move to other brokers: AlterPartitionReassignments and ListPartitionReassignments (KIP-455).
//!
//! While a reassignment goes on the partition's replicas are the target's, then those that leave. It is
//! done by the ISR change that brings the last new replica in sync (`partition_change`): the leaving ones go
//! with their directories. Cuts and associations stay with the partition, whoever holds it (decision 10).

use std::collections::HashSet;

use common::ids::{BrokerId, TopicIdPartition};
use common::metadata::image::TopicImage;
use common::metadata::record::{LeaderRecoveryState, PartitionChange, PartitionRegistration};
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::partition_change::PartitionChangeBuilder;
use super::result::{ControllerResult, refuse};
use super::settings::{ControlSettings, is_active_replica};

/// What is asked of one partition; `None` cancels.
pub type Target = Option<Vec<BrokerId>>;

/// The partitions of one topic in a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reassignment {
    pub topic: String,
    pub partitions: Vec<(i32, Target)>,
}

/// For each topic its partitions with what became of them, in the order of the request.
pub type ReassignResults = Vec<Vec<Result<(), ControlError>>>;

/// A partition that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ongoing {
    pub partition: i32,
    pub replicas: Vec<BrokerId>,
    pub adding: Vec<BrokerId>,
    pub removing: Vec<BrokerId>,
}

/// Whether replicas come or go.
pub fn is_reassigning(registration: &PartitionRegistration) -> bool {
    !registration.adding_replicas.is_empty() || !registration.removing_replicas.is_empty()
}

/// How many replicas the partition has, or will have once its reassignment is done.
pub fn target_replication_factor(registration: &PartitionRegistration) -> usize {
    let leaves = |replica: &&BrokerId| registration.removing_replicas.contains(replica);
    registration.replicas.len() - registration.replicas.iter().filter(leaves).count()
}

/// AlterPartitionReassignments: each partition by itself; those that succeed are one atomic batch.
pub fn alter(
    image: &MetadataImage,
    settings: &ControlSettings,
    topics: &[Reassignment],
    allow_replication_factor_change: bool,
) -> ControllerResult<ReassignResults> {
    let mut records = Vec::new();
    let mut seen = HashSet::new();
    let results = topics
        .iter()
        .map(|asked| {
            let reassign = |(partition, target): &(i32, Target)| {
                let Some(topic) = image.topic(&asked.topic) else {
                    return refuse(
                        ErrorCode::UnknownTopicOrPartition,
                        format!("Unable to find a topic named {}.", asked.topic),
                    );
                };
                let index = usize::try_from(*partition).ok();
                let Some(found) = index.and_then(|index| topic.partitions.get(index)) else {
                    return refuse(
                        ErrorCode::UnknownTopicOrPartition,
                        format!("Unable to find partition {}:{partition}.", asked.topic),
                    );
                };
                if !seen.insert((topic.id, *partition)) {
                    return refuse(ErrorCode::InvalidRequest, "The partition is named twice.");
                }
                let registration = &found.registration;
                let change = match target {
                    None => cancel(image, settings, topic, *partition, registration)?,
                    Some(replicas) => {
                        validate(image, replicas)?;
                        if !allow_replication_factor_change {
                            check_replication_factor(registration, replicas.len())?;
                        }
                        begin(image, settings, topic, registration, replicas)
                    }
                };
                records.extend(change.map(|change| MetadataRecord::PartitionChange {
                    topic_id: topic.id,
                    partition: *partition,
                    change,
                }));
                Ok(())
            };
            asked.partitions.iter().map(reassign).collect()
        })
        .collect();
    ControllerResult::new(records, results)
}

fn validate(image: &MetadataImage, replicas: &[BrokerId]) -> Result<(), ControlError> {
    let problem = if replicas.is_empty() {
        "The manual partition assignment includes an empty replica list.".to_owned()
    } else if replicas.iter().collect::<HashSet<_>>().len() != replicas.len() {
        "The manual partition assignment includes a broker more than once.".to_owned()
    } else if let Some(unknown) = replicas.iter().find(|broker| !image.brokers.contains_key(*broker)) {
        format!(
            "The manual partition assignment includes broker {unknown}, but no such broker is registered."
        )
    } else {
        return Ok(());
    };
    refuse(ErrorCode::InvalidReplicaAssignment, problem)
}

/// KIP-860: whoever forbids it does not change the number of replicas by mistake.
fn check_replication_factor(registration: &PartitionRegistration, wanted: usize) -> Result<(), ControlError> {
    let current = target_replication_factor(registration);
    if current == wanted {
        return Ok(());
    }
    refuse(
        ErrorCode::InvalidReplicationFactor,
        format!("The replication factor is changed from {current} to {wanted}"),
    )
}

fn begin(
    image: &MetadataImage,
    settings: &ControlSettings,
    topic: &TopicImage,
    registration: &PartitionRegistration,
    target: &[BrokerId],
) -> Option<PartitionChange> {
    // A target that comes while another is on its way starts from the replicas of both.
    let mut removing: Vec<BrokerId> =
        registration.replicas.iter().copied().filter(|replica| !target.contains(replica)).collect();
    removing.sort_unstable();
    let adding: Vec<BrokerId> = target
        .iter()
        .copied()
        .filter(|replica| {
            // One that is still on its way from before goes on coming.
            !registration.replicas.contains(replica) || registration.adding_replicas.contains(replica)
        })
        .collect();
    let replicas = target.iter().chain(&removing).copied().collect();
    let may_lead = |candidate: BrokerId| is_active_replica(image, registration, candidate);
    PartitionChangeBuilder::new(registration, settings.min_insync_replicas(image, &topic.name), &may_lead)
        .allow_unclean(settings.unclean_leader_election(image, &topic.name))
        .reassign(replicas, adding, removing)
        .build()
}

/// Back to the replicas from before; those that were to come go again.
fn cancel(
    image: &MetadataImage,
    settings: &ControlSettings,
    topic: &TopicImage,
    partition: i32,
    registration: &PartitionRegistration,
) -> Result<Option<PartitionChange>, ControlError> {
    if !is_reassigning(registration) {
        let code = ErrorCode::NoReassignmentInProgress;
        return refuse(code, code.message());
    }
    let stays = |replica: &BrokerId| !registration.adding_replicas.contains(replica);
    let keep = |list: &[BrokerId]| list.iter().copied().filter(stays).collect::<Vec<BrokerId>>();
    let (replicas, isr) = (keep(&registration.replicas), keep(&registration.isr));
    let may_lead = |candidate: BrokerId| is_active_replica(image, registration, candidate);
    let can_lead = |member: &BrokerId| stays(member) && may_lead(*member);
    let allow_unclean = settings.unclean_leader_election(image, &topic.name);
    if replicas.is_empty() {
        return refuse(
            ErrorCode::InvalidReplicaAssignment,
            "Invalid replica assignment: addingReplicas contains all replicas.",
        );
    }
    if isr.is_empty()
        && !registration.isr.is_empty()
        && !registration.elr.iter().any(can_lead)
        && !allow_unclean
    {
        return refuse(
            ErrorCode::InvalidReplicaAssignment,
            format!(
                "Unable to revert partition assignment for {}:{partition} because it would require an unclean \
                 leader election.",
                topic.name
            ),
        );
    }
    let min_isr = settings.min_insync_replicas(image, &topic.name);
    Ok(PartitionChangeBuilder::new(registration, min_isr, &may_lead)
        .allow_unclean(allow_unclean)
        .isr(isr)
        .reassign(replicas, Vec::new(), Vec::new())
        .build())
}

/// A recovering partition is not moved to its end; its LOSS cut may be the last thing that was missing.
pub fn complete_after_loss(
    image: &MetadataImage,
    settings: &ControlSettings,
    id: TopicIdPartition,
) -> Option<MetadataRecord> {
    let (topic, partition) = (image.topic_by_id(id.topic_id)?, image.partition(id)?);
    if !is_reassigning(&partition.registration) {
        return None;
    }
    let recovered = PartitionRegistration {
        leader_recovery_state: LeaderRecoveryState::Recovered,
        ..partition.registration.clone()
    };
    let may_lead = |candidate: BrokerId| is_active_replica(image, &partition.registration, candidate);
    let min_isr = settings.min_insync_replicas(image, &topic.name);
    let change = PartitionChangeBuilder::new(&recovered, min_isr, &may_lead).build()?;
    Some(MetadataRecord::PartitionChange { topic_id: id.topic_id, partition: id.partition, change })
}

/// ListPartitionReassignments: what moves of these partitions, `None` of all. What is not there is left out.
pub fn ongoing(image: &MetadataImage, asked: Option<&[(String, Vec<i32>)]>) -> Vec<(String, Vec<Ongoing>)> {
    let of_partition = |topic: &TopicImage, partition: i32| -> Option<Ongoing> {
        let index = usize::try_from(partition).ok()?;
        let registration = &topic.partitions.get(index)?.registration;
        is_reassigning(registration).then(|| Ongoing {
            partition,
            replicas: registration.replicas.clone(),
            adding: registration.adding_replicas.clone(),
            removing: registration.removing_replicas.clone(),
        })
    };
    let of_topic = |name: &str, partitions: Option<&[i32]>| -> Option<(String, Vec<Ongoing>)> {
        let topic = image.topic(name)?;
        let moving: Vec<Ongoing> = match partitions {
            Some(partitions) => partitions.iter().filter_map(|index| of_partition(topic, *index)).collect(),
            None => {
                (0..topic.partitions.len() as i32).filter_map(|index| of_partition(topic, index)).collect()
            }
        };
        (!moving.is_empty()).then(|| (name.to_owned(), moving))
    };
    match asked {
        None => image.topics.by_name.keys().filter_map(|name| of_topic(name, None)).collect(),
        Some(asked) => {
            asked.iter().filter_map(|(name, partitions)| of_topic(name, Some(partitions))).collect()
        }
    }
}

#[cfg(test)]
#[path = "reassignment_tests.rs"]
mod tests;
