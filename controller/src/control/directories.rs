//! Log directories of brokers (KIP-858): which replica lies in which, and what follows when one fails.

use std::collections::HashSet;

use common::ids::*;
use common::metadata::record::{BrokerRegistration, PartitionChange};
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::partition::{Sender, change_partitions, check_broker_epoch};
use super::partition_change::PartitionChangeBuilder;
use super::result::{ControllerResult, refuse};
use super::settings::{ControlSettings, is_active, is_active_replica};

/// A broker tells of directories that failed: replicas in them lead nothing and are in no ISR any more.
/// Nothing where that is known already.
pub fn directories_failed(
    image: &MetadataImage,
    settings: &ControlSettings,
    broker_id: BrokerId,
    broker: &BrokerRegistration,
    failed: &[DirectoryId],
) -> Vec<MetadataRecord> {
    let online: Vec<DirectoryId> =
        broker.directories.iter().copied().filter(|directory| !failed.contains(directory)).collect();
    if online.len() == broker.directories.len() {
        return Vec::new();
    }
    let may_lead = |candidate: BrokerId| candidate != broker_id && is_active(image, candidate);
    let changes = change_partitions(image, settings, &may_lead, |registration, builder| {
        let lost = registration.directory_of(broker_id).is_some_and(|directory| !online.contains(&directory));
        let concerned = registration.isr.contains(&broker_id) || registration.leader == Some(broker_id);
        (lost && concerned).then(|| builder.without(broker_id))
    });
    let mut records =
        vec![MetadataRecord::BrokerDirectories { broker_id, broker_epoch: broker.broker_epoch, online }];
    records.extend(changes);
    records
}

/// A broker tells where its replicas lie: one result for each, in their order.
pub fn assign_replicas(
    image: &MetadataImage,
    settings: &ControlSettings,
    sender: Sender,
    replicas: &[(TopicIdPartition, DirectoryId)],
) -> Result<ControllerResult<Vec<Result<(), ControlError>>>, ControlError> {
    check_broker_epoch(image, sender)?;
    let mut records = Vec::new();
    let mut seen = HashSet::new();
    let results = replicas
        .iter()
        .map(|(id, directory)| {
            if !seen.insert(*id) {
                return refuse(ErrorCode::InvalidRequest, format!("{id} is named twice"));
            }
            records.extend(assign(image, settings, sender.broker_id, *id, *directory)?);
            Ok(())
        })
        .collect();
    Ok(ControllerResult::new(records, results))
}

fn assign(
    image: &MetadataImage,
    settings: &ControlSettings,
    broker: BrokerId,
    id: TopicIdPartition,
    directory: DirectoryId,
) -> Result<Option<MetadataRecord>, ControlError> {
    let (Some(topic), Some(partition)) = (image.topic_by_id(id.topic_id), image.partition(id)) else {
        return refuse(ErrorCode::UnknownTopicOrPartition, format!("there is no partition {id}"));
    };
    let current = &partition.registration;
    let Some(place) = current.replicas.iter().position(|replica| *replica == broker) else {
        return refuse(ErrorCode::NotLeaderOrFollower, format!("broker {broker} has no replica of {id}"));
    };
    if directory.is_zero() {
        return refuse(ErrorCode::InvalidRequest, format!("{id} is assigned to no directory"));
    }
    if current.directories.get(place) == Some(&directory) {
        return Ok(None);
    }
    let mut moved = current.clone();
    if let Some(assigned) = moved.directories.get_mut(place) {
        *assigned = directory;
    }
    // The directory may have failed meanwhile, or the replica may have left one that had.
    let may_lead = |candidate: BrokerId| is_active_replica(image, &moved, candidate);
    let builder =
        PartitionChangeBuilder::new(&moved, settings.min_insync_replicas(image, &topic.name), &may_lead)
            .allow_unclean(settings.unclean_leader_election(image, &topic.name));
    let is_lost = !image.has_replica_directory(&moved, broker);
    let change = if is_lost && (moved.isr.contains(&broker) || moved.leader == Some(broker)) {
        builder.without(broker).build()
    } else if moved.leader.is_none() {
        builder.build()
    } else {
        None
    };
    let change =
        PartitionChange { directories: Some(moved.directories.clone()), ..change.unwrap_or_default() };
    Ok(Some(MetadataRecord::PartitionChange { topic_id: topic.id, partition: id.partition, change }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;

    fn directory(number: u128) -> DirectoryId {
        DirectoryId(uuid::Uuid::from_u128(number))
    }

    /// Brokers 1 and 2 with two directories each.
    fn image() -> MetadataImage {
        let mut image = MetadataImage::default();
        for broker in [1, 2] {
            let MetadataRecord::RegisterBroker {
                broker_id,
                incarnation_id,
                endpoints,
                rack,
                inter_broker_endpoint,
                ..
            } = register(broker, None)
            else {
                unreachable!()
            };
            let directories = [1, 2].map(|number| directory(broker as u128 * 10 + number)).to_vec();
            let record = MetadataRecord::RegisterBroker {
                broker_id,
                incarnation_id,
                endpoints,
                rack,
                directories,
                inter_broker_endpoint,
            };
            let epoch = replay(&mut image, vec![record]);
            replay(&mut image, vec![fence(broker, epoch.0, false)]);
        }
        let partitions = vec![
            registration(&[1, 2], &[1, 2], Some(1)),
            registration(&[1, 2], &[1, 2], Some(1)),
            registration(&[2, 1], &[1, 2], Some(2)),
        ];
        add_topic(&mut image, "orders", topic_id(1), partitions);
        image
    }

    fn sender(image: &MetadataImage, broker: i32) -> Sender {
        let broker_id = BrokerId(broker);
        Sender { broker_id, broker_epoch: image.brokers[&broker_id].broker_epoch }
    }

    fn id(partition: i32) -> TopicIdPartition {
        TopicIdPartition::new(topic_id(1), partition)
    }

    fn assigned(image: &mut MetadataImage, broker: i32, replicas: &[(TopicIdPartition, DirectoryId)]) {
        let result = assign_replicas(image, &settings(), sender(image, broker), replicas).unwrap();
        assert!(result.response.iter().all(Result::is_ok));
        replay(image, result.records);
    }

    fn failed(image: &mut MetadataImage, broker: i32, directories: &[DirectoryId]) {
        let registration = image.brokers[&BrokerId(broker)].clone();
        let records = directories_failed(image, &settings(), BrokerId(broker), &registration, directories);
        replay(image, records);
    }

    fn of(image: &MetadataImage, partition: i32) -> (Option<BrokerId>, Vec<BrokerId>) {
        let registration = &image.partition(id(partition)).unwrap().registration;
        (registration.leader, registration.isr.clone())
    }

    #[test]
    fn replicas_in_a_failed_directory_lead_nothing_and_the_others_stay() {
        let mut image = image();
        assigned(&mut image, 1, &[(id(0), directory(11)), (id(1), directory(12)), (id(2), directory(11))]);
        failed(&mut image, 1, &[directory(11)]);
        assert_eq!(image.brokers[&BrokerId(1)].directories, [directory(12)]);
        assert_eq!(of(&image, 0), (Some(BrokerId(2)), ids(&[2])));
        assert_eq!(of(&image, 1), (Some(BrokerId(1)), ids(&[1, 2])));
        assert_eq!(of(&image, 2), (Some(BrokerId(2)), ids(&[2])));
        // Told again, nothing more follows.
        let registration = image.brokers[&BrokerId(1)].clone();
        assert_eq!(
            directories_failed(&image, &settings(), BrokerId(1), &registration, &[directory(11)]),
            vec![]
        );
        // The lost replica is not elected, not even when it is the only one left.
        let records = crate::control::broker::fence(&image, &settings(), BrokerId(2));
        replay(&mut image, records);
        assert_eq!(of(&image, 0).0, None);
        assert_eq!(of(&image, 1).0, Some(BrokerId(1)));
    }

    #[test]
    fn a_replica_that_turns_out_to_lie_in_a_failed_directory_loses_its_leadership() {
        let mut image = image();
        failed(&mut image, 1, &[directory(11)]);
        assert_eq!(of(&image, 0).0, Some(BrokerId(1)), "nobody knows yet where it lies");
        assigned(&mut image, 1, &[(id(0), directory(11))]);
        assert_eq!(of(&image, 0), (Some(BrokerId(2)), ids(&[2])));
        // It moved to one that is there: it may come back.
        assigned(&mut image, 1, &[(id(0), directory(12))]);
        assert!(is_active_replica(&image, &image.partition(id(0)).unwrap().registration, BrokerId(1)));
    }

    #[test]
    fn assignments_are_checked() {
        let image = image();
        let asked = [(id(9), directory(11)), (id(0), DirectoryId::ZERO), (id(0), directory(11))];
        let result = assign_replicas(&image, &settings(), sender(&image, 1), &asked).unwrap();
        let codes: Vec<_> =
            result.response.into_iter().map(|result| result.map_err(|error| error.code)).collect();
        assert_eq!(
            codes,
            [
                Err(ErrorCode::UnknownTopicOrPartition),
                Err(ErrorCode::InvalidRequest),
                Err(ErrorCode::InvalidRequest)
            ]
        );
        let stale = Sender { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(0) };
        assert!(assign_replicas(&image, &settings(), stale, &[]).is_err());
    }
}
