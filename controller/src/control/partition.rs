//! Elections and ISR changes of many partitions.

use std::collections::{BTreeSet, HashSet};

use common::ids::*;
use common::metadata::image::{PartitionImage, TopicImage};
use common::metadata::record::{LeaderRecoveryState, PartitionRegistration};
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::partition_change::PartitionChangeBuilder;
use super::result::{ControllerResult, refuse};
use super::settings::{ControlSettings, is_active, is_active_replica};

/// What happened to a broker, as its partitions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerEvent {
    /// It no longer answers, or stops in order: others lead, it leaves the ISRs.
    Gone,
    /// A new incarnation registered without having stopped cleanly: it leaves the ELRs too.
    CameBackUncleanly,
    /// It may lead again.
    Unfenced,
}

/// The changes of all partitions that an event of one broker asks for.
pub fn broker_changes(
    image: &MetadataImage,
    settings: &ControlSettings,
    broker: BrokerId,
    event: BrokerEvent,
) -> Vec<MetadataRecord> {
    let may_lead = |candidate: BrokerId| {
        if candidate == broker { event == BrokerEvent::Unfenced } else { is_active(image, candidate) }
    };
    change_partitions(image, settings, &may_lead, |registration, builder| match event {
        BrokerEvent::Gone if registration.isr.contains(&broker) || registration.leader == Some(broker) => {
            Some(builder.without(broker))
        }
        BrokerEvent::CameBackUncleanly
            if registration.isr.contains(&broker)
                || registration.elr.contains(&broker)
                || registration.leader == Some(broker) =>
        {
            Some(builder.unclean_shutdown(broker))
        }
        BrokerEvent::Unfenced if registration.leader.is_none() && registration.replicas.contains(&broker) => {
            Some(builder)
        }
        _ => None,
    })
}

/// Leaders for partitions that have none but could (a config now allows an unclean election).
pub fn elect_leaderless(image: &MetadataImage, settings: &ControlSettings) -> Vec<MetadataRecord> {
    let may_lead = |candidate: BrokerId| is_active(image, candidate);
    change_partitions(image, settings, &may_lead, |registration, builder| {
        registration.leader.is_none().then_some(builder)
    })
}

/// Topics that a change of configs concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub all: bool,
    pub topics: BTreeSet<String>,
}

impl Scope {
    pub fn contains(&self, topic: &str) -> bool {
        self.all || self.topics.contains(topic)
    }

    pub fn is_empty(&self) -> bool {
        !self.all && self.topics.is_empty()
    }
}

/// What follows from changed configs (`image` is the one with the new values): who was eligible under
/// another `min.insync.replicas` no longer is, and a leaderless partition may now elect uncleanly.
pub fn after_config_change(
    image: &MetadataImage,
    settings: &ControlSettings,
    min_isr: &Scope,
    unclean: &Scope,
) -> Vec<MetadataRecord> {
    if min_isr.is_empty() && unclean.is_empty() {
        return Vec::new();
    }
    let may_lead = |candidate: BrokerId| is_active(image, candidate);
    let mut records = Vec::new();
    for (name, topic_id) in &image.topics.by_name {
        let Some(topic) = image.topic_by_id(*topic_id) else { continue };
        let (forget, elect) = (min_isr.contains(name), unclean.contains(name));
        if !forget && !elect {
            continue;
        }
        change_topic(image, settings, topic, &may_lead, &mut records, |registration, builder| {
            if forget && !registration.elr.is_empty() {
                Some(builder.forget_eligible())
            } else {
                (elect && registration.leader.is_none()).then_some(builder)
            }
        });
    }
    records
}

pub(super) fn change_partitions<'a>(
    image: &'a MetadataImage,
    settings: &ControlSettings,
    may_lead: &'a dyn Fn(BrokerId) -> bool,
    shape: impl Fn(&PartitionRegistration, PartitionChangeBuilder<'a>) -> Option<PartitionChangeBuilder<'a>>,
) -> Vec<MetadataRecord> {
    let mut records = Vec::new();
    for topic_id in image.topics.by_name.values() {
        if let Some(topic) = image.topic_by_id(*topic_id) {
            change_topic(image, settings, topic, may_lead, &mut records, &shape);
        }
    }
    records
}

fn change_topic<'a>(
    image: &'a MetadataImage,
    settings: &ControlSettings,
    topic: &'a TopicImage,
    may_lead: &'a dyn Fn(BrokerId) -> bool,
    records: &mut Vec<MetadataRecord>,
    shape: impl Fn(&PartitionRegistration, PartitionChangeBuilder<'a>) -> Option<PartitionChangeBuilder<'a>>,
) {
    // Looked up only for a topic that has something to change.
    let mut of_topic: Option<(usize, bool)> = None;
    for (index, partition) in topic.partitions.iter().enumerate() {
        let registration = &partition.registration;
        let Some(builder) = shape(
            registration,
            PartitionChangeBuilder::new(registration, 1, may_lead).with_directories_of(image),
        ) else {
            continue;
        };
        let (min_isr, unclean) = *of_topic.get_or_insert_with(|| {
            (
                settings.min_insync_replicas(image, &topic.name),
                settings.unclean_leader_election(image, &topic.name),
            )
        });
        if let Some(change) = builder.min_insync_replicas(min_isr).allow_unclean(unclean).build() {
            records.push(MetadataRecord::PartitionChange {
                topic_id: topic.id,
                partition: index as i32,
                change,
            });
        }
    }
}

/// Whether a broker leads anything.
pub fn leads_any(image: &MetadataImage, broker: BrokerId) -> bool {
    image
        .topics
        .by_id
        .values()
        .any(|topic| topic.partitions.iter().any(|partition| partition.registration.leader == Some(broker)))
}

/// A leader's proposal for one partition's ISR.
#[derive(Clone, Debug, PartialEq)]
pub struct IsrProposal {
    pub topic_id: TopicId,
    pub partition: i32,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// With the broker epoch under which the member was seen to be in sync; `None`: not known.
    pub new_isr: Vec<(BrokerId, Option<BrokerEpoch>)>,
}

/// The sender of a request that only a registered broker may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
}

/// Refuses a request of an incarnation that is not the registered one. One that registered with a later
/// controller than this one is not told that it is stale: a broker stops when it is.
pub fn check_broker_epoch(image: &MetadataImage, sender: Sender) -> Result<(), ControlError> {
    let Sender { broker_id, broker_epoch } = sender;
    let registered = image.brokers.get(&broker_id).map(|broker| broker.broker_epoch);
    if registered == Some(broker_epoch) {
        return Ok(());
    }
    if broker_epoch.0 > image.offset.0 {
        return refuse(ErrorCode::NotController, format!("broker epoch {broker_epoch} is not known here"));
    }
    match registered {
        None => refuse(ErrorCode::BrokerIdNotRegistered, format!("broker {broker_id} is not registered")),
        Some(epoch) => refuse(
            ErrorCode::StaleBrokerEpoch,
            format!("broker {broker_id} has epoch {epoch}, not {broker_epoch}"),
        ),
    }
}

/// The partition, if the sender leads it under exactly this epoch (AlterPartition, cuts, releases).
pub fn led_partition(
    image: &MetadataImage,
    id: TopicIdPartition,
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
) -> Result<(&TopicImage, &PartitionImage), ControlError> {
    let Some(topic) = image.topic_by_id(id.topic_id) else {
        return refuse(ErrorCode::UnknownTopicId, format!("no topic has the id {}", id.topic_id));
    };
    let Some(partition) = image.partition(id) else {
        return refuse(
            ErrorCode::UnknownTopicOrPartition,
            format!("topic {} has no partition {}", topic.name, id.partition),
        );
    };
    let current = partition.registration.leader_epoch;
    if leader_epoch > current {
        // The sender has seen a later election: this controller is not the newest.
        return refuse(ErrorCode::NotController, format!("leader epoch {leader_epoch} is not known here"));
    }
    if leader_epoch < current {
        return refuse(
            ErrorCode::FencedLeaderEpoch,
            format!("leader epoch is {current}, not {leader_epoch}"),
        );
    }
    if partition.registration.leader != Some(leader) {
        return refuse(
            ErrorCode::NotLeaderOrFollower,
            format!("broker {leader} does not lead partition {} of {}", id.partition, topic.name),
        );
    }
    Ok((topic, partition))
}

/// AlterPartition: one result for each proposal, in their order.
pub fn alter_partitions(
    image: &MetadataImage,
    settings: &ControlSettings,
    sender: Sender,
    proposals: &[IsrProposal],
) -> Result<ControllerResult<Vec<Result<PartitionRegistration, ControlError>>>, ControlError> {
    check_broker_epoch(image, sender)?;
    let mut records = Vec::new();
    let mut results = Vec::with_capacity(proposals.len());
    let mut seen = HashSet::new();
    for proposal in proposals {
        let id = TopicIdPartition::new(proposal.topic_id, proposal.partition);
        let outcome = if seen.insert(id) {
            alter_partition(image, settings, sender.broker_id, proposal)
        } else {
            refuse(ErrorCode::InvalidRequest, format!("{id} is named twice"))
        };
        results.push(outcome.map(|(next, record)| {
            records.extend(record);
            next
        }));
    }
    Ok(ControllerResult::new(records, results))
}

fn alter_partition(
    image: &MetadataImage,
    settings: &ControlSettings,
    leader: BrokerId,
    proposal: &IsrProposal,
) -> Result<(PartitionRegistration, Option<MetadataRecord>), ControlError> {
    let id = TopicIdPartition::new(proposal.topic_id, proposal.partition);
    let (topic, partition) = led_partition(image, id, leader, proposal.leader_epoch)?;
    let current = &partition.registration;
    if proposal.partition_epoch > current.partition_epoch {
        return refuse(
            ErrorCode::NotController,
            format!("partition epoch {} is not known here", proposal.partition_epoch),
        );
    }
    if proposal.partition_epoch < current.partition_epoch {
        return refuse(
            ErrorCode::InvalidUpdateVersion,
            format!("partition epoch is {}, not {}", current.partition_epoch, proposal.partition_epoch),
        );
    }
    let isr: Vec<BrokerId> = proposal.new_isr.iter().map(|(member, _)| *member).collect();
    let distinct: HashSet<BrokerId> = isr.iter().copied().collect();
    if distinct.len() != isr.len()
        || !isr.contains(&leader)
        || !isr.iter().all(|member| current.replicas.contains(member))
    {
        return refuse(
            ErrorCode::InvalidRequest,
            format!("{isr:?} is no ISR of replicas {:?}", current.replicas),
        );
    }
    if current.leader_recovery_state == LeaderRecoveryState::Recovering && isr.len() > 1 {
        return refuse(
            ErrorCode::InvalidRequest,
            "the ISR grows only after the recovering leader's cut is committed",
        );
    }
    for (member, epoch) in &proposal.new_isr {
        let ineligible = match image.brokers.get(member) {
            None => Some("is not registered"),
            Some(broker) if broker.fenced => Some("is fenced"),
            Some(broker) if broker.in_controlled_shutdown => Some("is shutting down"),
            Some(_) if !image.has_replica_directory(current, *member) => Some("has lost its log directory"),
            // KIP-903: it was in sync as an earlier incarnation, which may have held more.
            Some(broker) if epoch.is_some_and(|epoch| epoch != broker.broker_epoch) => {
                Some("has registered anew")
            }
            Some(_) => None,
        };
        if let Some(why) = ineligible {
            return refuse(ErrorCode::IneligibleReplica, format!("broker {member} {why}"));
        }
    }
    let may_lead = |candidate: BrokerId| candidate == leader || is_active_replica(image, current, candidate);
    let change =
        PartitionChangeBuilder::new(current, settings.min_insync_replicas(image, &topic.name), &may_lead)
            .isr(isr)
            .build();
    let mut next = current.clone();
    let record = change.map(|change| {
        next.apply(&change);
        MetadataRecord::PartitionChange { topic_id: topic.id, partition: id.partition, change }
    });
    Ok((next, record))
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "partition_properties.rs"]
mod properties;
