//! Elections that nobody's death asks for: on request (ElectLeaders), and back to preferred replicas.

use std::collections::HashSet;

use common::ids::BrokerId;
use common::metadata::image::TopicImage;
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::partition::change_partitions;
use super::partition_change::PartitionChangeBuilder;
use super::result::{ControllerResult, refuse};
use super::settings::{ControlSettings, is_active, is_active_replica};

/// As Kafka: one round of balancing moves at most so many, the next round the others.
const MAX_MOVES_PER_ROUND: usize = 1_000;

/// What ElectLeaders asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionType {
    /// The first replica, if it is in sync.
    Preferred,
    /// Anybody alive, where nobody leads.
    Unclean,
}

impl ElectionType {
    /// As on the wire.
    pub fn from_code(code: i8) -> Option<ElectionType> {
        match code {
            0 => Some(ElectionType::Preferred),
            1 => Some(ElectionType::Unclean),
            _ => None,
        }
    }
}

/// The outcomes for one topic's partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct ElectedTopic {
    pub topic: String,
    pub partitions: Vec<(i32, Result<(), ControlError>)>,
}

/// ElectLeaders. `None` stands for all partitions; those that need no election are then left out.
pub fn elect_leaders(
    image: &MetadataImage,
    settings: &ControlSettings,
    election: ElectionType,
    asked: Option<&[(String, Vec<i32>)]>,
) -> ControllerResult<Vec<ElectedTopic>> {
    let mut records = Vec::new();
    let Some(asked) = asked else {
        let mut results = Vec::new();
        for (name, topic_id) in &image.topics.by_name {
            let Some(topic) = image.topic_by_id(*topic_id) else { continue };
            let mut partitions = Vec::new();
            for partition in 0..topic.partitions.len() as i32 {
                match elect(image, settings, topic, partition, election) {
                    Err(error) if error.code == ErrorCode::ElectionNotNeeded => {}
                    outcome => partitions.push((partition, outcome.map(|record| records.push(record)))),
                }
            }
            if !partitions.is_empty() {
                results.push(ElectedTopic { topic: name.to_string(), partitions });
            }
        }
        return ControllerResult::new(records, results);
    };
    // The same partition named twice would be decided twice on one image.
    let mut seen = HashSet::new();
    let results = asked
        .iter()
        .map(|(name, partitions)| {
            let topic = image.topic(name);
            let partitions = partitions
                .iter()
                .map(|partition| {
                    let outcome = match topic {
                        None => {
                            refuse(ErrorCode::UnknownTopicOrPartition, format!("No such topic as {name}"))
                        }
                        Some(_) if !seen.insert((name.as_str(), *partition)) => {
                            refuse(ErrorCode::InvalidRequest, "The partition is named twice.")
                        }
                        Some(topic) => elect(image, settings, topic, *partition, election),
                    };
                    (*partition, outcome.map(|record| records.push(record)))
                })
                .collect();
            ElectedTopic { topic: name.clone(), partitions }
        })
        .collect();
    ControllerResult::new(records, results)
}

fn elect(
    image: &MetadataImage,
    settings: &ControlSettings,
    topic: &TopicImage,
    partition: i32,
    election: ElectionType,
) -> Result<MetadataRecord, ControlError> {
    let found = usize::try_from(partition).ok().and_then(|index| topic.partitions.get(index));
    let Some(found) = found else {
        return refuse(
            ErrorCode::UnknownTopicOrPartition,
            format!("No such partition as {}-{partition}", topic.name),
        );
    };
    let registration = &found.registration;
    let is_done = match election {
        ElectionType::Preferred => {
            registration.leader.is_some_and(|leader| registration.replicas.first() == Some(&leader))
        }
        ElectionType::Unclean => registration.leader.is_some(),
    };
    if is_done {
        return refuse(ErrorCode::ElectionNotNeeded, ErrorCode::ElectionNotNeeded.message());
    }
    let may_lead = |candidate: BrokerId| is_active_replica(image, registration, candidate);
    let min_isr = settings.min_insync_replicas(image, &topic.name);
    let builder = PartitionChangeBuilder::new(registration, min_isr, &may_lead);
    let change = match election {
        ElectionType::Preferred => builder.prefer_first(),
        ElectionType::Unclean => builder.allow_unclean(true),
    }
    .build();
    // Another change than one of the leader (a reassignment that is done by now) is no election.
    match change {
        Some(change) if matches!(change.leader, Some(Some(_))) => {
            Ok(MetadataRecord::PartitionChange { topic_id: topic.id, partition, change })
        }
        _ => {
            let code = match election {
                ElectionType::Preferred => ErrorCode::PreferredLeaderNotAvailable,
                ElectionType::Unclean => ErrorCode::EligibleLeadersNotAvailable,
            };
            refuse(code, code.message())
        }
    }
}

/// Leadership back to the first replicas, wherever these are in sync. As Kafka's controller, and unlike
/// its predecessor with ZooKeeper, it tolerates no share of imbalance.
pub fn elect_preferred(image: &MetadataImage, settings: &ControlSettings) -> Vec<MetadataRecord> {
    let may_lead = |candidate: BrokerId| is_active(image, candidate);
    let mut records = change_partitions(image, settings, &may_lead, |registration, builder| {
        let first = registration.replicas.first()?;
        let moves = registration.leader.is_some() && registration.leader != Some(*first);
        (moves && registration.isr.contains(first) && may_lead(*first)).then(|| builder.prefer_first())
    });
    records.truncate(MAX_MOVES_PER_ROUND);
    records
}

#[cfg(test)]
#[path = "election_tests.rs"]
mod tests;
