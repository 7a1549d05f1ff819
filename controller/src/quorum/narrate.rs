//! One line for each change that a person would want to know of, with its reason.

use common::ids::BrokerId;
use common::metadata::record::CutKind;
use common::metadata::{MetadataImage, MetadataRecord};
use common::mirror_state::{MIRROR_NAME_CONFIG, REMOVED_SUFFIX};

/// A mass election must not flood the log.
const MAX_LINES: usize = 50;

/// Lines about records, as `after` shows them.
pub fn lines(reason: &str, records: &[MetadataRecord], after: &MetadataImage) -> Vec<String> {
    let mut lines: Vec<String> = records
        .iter()
        .filter_map(|record| line(record, after))
        .take(MAX_LINES + 1)
        .map(|line| format!("{line} ({reason})"))
        .collect();
    if lines.len() > MAX_LINES {
        lines.truncate(MAX_LINES);
        lines.push(format!(
            "further changes of the same step are not listed ({} records, {reason})",
            records.len()
        ));
    }
    lines
}

fn line(record: &MetadataRecord, after: &MetadataImage) -> Option<String> {
    use MetadataRecord as R;
    let name = |id| after.topic_by_id(id).map_or_else(|| format!("{id}"), |topic| topic.name.to_string());
    Some(match record {
        R::RegisterBroker { broker_id, incarnation_id, .. } => {
            format!("broker {broker_id} registered with epoch {}, incarnation {incarnation_id}", after.offset)
        }
        R::BrokerChange { broker_id, fenced, in_controlled_shutdown, .. } => {
            match (fenced, in_controlled_shutdown) {
                (Some(true), _) => format!("broker {broker_id} fenced"),
                (Some(false), _) => format!("broker {broker_id} unfenced"),
                (None, Some(true)) => format!("broker {broker_id} begins its controlled shutdown"),
                (None, _) => return None,
            }
        }
        R::BrokerDirectories { broker_id, online, .. } => {
            format!("broker {broker_id} has lost a log directory, {} are left", online.len())
        }
        R::UnregisterBroker { broker_id, .. } => format!("broker {broker_id} unregistered"),
        R::Topic { topic_id, name } => format!("topic {name} created with the id {topic_id}"),
        R::RemoveTopic { topic_id } => format!("topic {topic_id} deleted"),
        R::PartitionChange { topic_id, partition, change } => {
            let registration =
                &after.partition(common::ids::TopicIdPartition::new(*topic_id, *partition))?.registration;
            let isr: Vec<i32> = registration.isr.iter().map(|id| id.0).collect();
            let what = match change.leader {
                Some(Some(leader)) => format!("led by broker {leader}"),
                Some(None) => "without a leader".to_owned(),
                None => "changed".to_owned(),
            };
            let ids = |list: &[BrokerId]| list.iter().map(|id| id.0).collect::<Vec<i32>>();
            let moves = match (&change.adding_replicas, &change.removing_replicas) {
                (None, None) => String::new(),
                _ => format!(
                    ", replicas {:?}, adding {:?}, removing {:?}",
                    ids(&registration.replicas),
                    ids(&registration.adding_replicas),
                    ids(&registration.removing_replicas)
                ),
            };
            format!(
                "partition {}-{partition} {what}: leader epoch {}, isr {isr:?}, {:?}{moves}",
                name(*topic_id),
                registration.leader_epoch,
                registration.leader_recovery_state
            )
        }
        R::Config { resource, key, value: Some(value) } if key == MIRROR_NAME_CONFIG => {
            match value.strip_suffix(REMOVED_SUFFIX) {
                Some(mirror) => format!("topic {} removed from mirror {mirror}", resource.name),
                None => {
                    format!("topic {} added to mirror {value} as association {}", resource.name, after.offset)
                }
            }
        }
        R::Mirror { name } => format!("mirror {name} created"),
        R::MirrorSource { name, source_cluster_id } => {
            format!("the source of mirror {name} is cluster {source_cluster_id}")
        }
        R::PendingMirrorTopic { topic, mirror: Some(mirror) } => {
            format!("topic {topic} waits to be created by mirror {mirror}")
        }
        R::PendingMirrorTopic { topic, mirror: None } => {
            format!("topic {topic} no longer waits to be created")
        }
        R::Cut { topic_id, partition, kind, offset, leader_epoch, .. } => {
            let kind = match kind {
                CutKind::Preparing => "PREPARING",
                CutKind::Stopping => "STOPPING",
                CutKind::Loss => "LOSS",
                CutKind::Source => "SOURCE",
            };
            format!(
                "partition {}-{partition} cut to {offset} ({kind}), leader epoch {leader_epoch}, cut {}",
                name(*topic_id),
                after.offset
            )
        }
        R::Release { topic_id, partition, association, offset, .. } => {
            format!(
                "partition {}-{partition} released at {offset}, association {association}",
                name(*topic_id)
            )
        }
        R::MirrorRecopy { topic_id, association } => {
            format!("topic {} may be copied anew, association {association}", name(*topic_id))
        }
        _ => return None,
    })
}
