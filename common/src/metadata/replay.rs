//! Replaying records: the only way the image changes, on the active controller's draft, on every
//! controller and on every broker.

use std::sync::Arc;

use thiserror::Error;

use crate::ids::*;
use crate::mirror_state::{MIRROR_NAME_CONFIG, REMOVED_SUFFIX};

use super::delta::MetadataDelta;
use super::image::*;
use super::record::*;

/// Why a batch was not applied. The image is unchanged.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ApplyError {
    /// Computed on another predecessor than the last batch applied: a draft that never became true.
    #[error(
        "batch {offset} (after term {predecessor_term}) does not follow batch {applied} of term {applied_term}"
    )]
    NotSuccessor {
        offset: MetadataOffset,
        predecessor_term: Term,
        applied: MetadataOffset,
        applied_term: Term,
    },
    /// A record speaks of something the image does not have, or has already.
    #[error("record {record} of batch {offset} contradicts the image: {reason}")]
    Contradiction { offset: MetadataOffset, record: usize, reason: String },
}

impl MetadataImage {
    /// Replays one batch. On an error nothing has changed.
    pub fn apply(&mut self, batch: &MetadataBatch, delta: &mut MetadataDelta) -> Result<(), ApplyError> {
        if batch.offset != self.offset.next() || batch.predecessor_term != self.term {
            return Err(ApplyError::NotSuccessor {
                offset: batch.offset,
                predecessor_term: batch.predecessor_term,
                applied: self.offset,
                applied_term: self.term,
            });
        }
        let mut next = self.clone();
        let mut touched = MetadataDelta::default();
        for (index, record) in batch.records.iter().enumerate() {
            next.replay(batch.offset, record, &mut touched).map_err(|reason| ApplyError::Contradiction {
                offset: batch.offset,
                record: index,
                reason,
            })?;
        }
        next.offset = batch.offset;
        next.term = batch.term;
        *self = next;
        delta.merge(touched);
        Ok(())
    }

    pub(super) fn replay(
        &mut self,
        offset: MetadataOffset,
        record: &MetadataRecord,
        delta: &mut MetadataDelta,
    ) -> Result<(), String> {
        use MetadataRecord as R;
        match record {
            R::FeatureLevel { name, level } => {
                self.features.insert(name.clone(), *level);
                delta.features = true;
            }
            R::RegisterBroker {
                broker_id,
                incarnation_id,
                endpoints,
                rack,
                directories,
                inter_broker_endpoint,
            } => {
                let registration = BrokerRegistration {
                    broker_epoch: BrokerEpoch(offset.0),
                    incarnation_id: *incarnation_id,
                    endpoints: endpoints.clone(),
                    inter_broker_endpoint: *inter_broker_endpoint,
                    rack: rack.clone(),
                    directories: directories.clone(),
                    fenced: true,
                    in_controlled_shutdown: false,
                };
                self.brokers.insert(*broker_id, Arc::new(registration));
                delta.brokers.insert(*broker_id);
            }
            R::BrokerChange { broker_id, broker_epoch, fenced, in_controlled_shutdown } => {
                let broker = self.registered_broker(*broker_id, *broker_epoch)?;
                let mut changed = (**broker).clone();
                changed.fenced = fenced.unwrap_or(changed.fenced);
                changed.in_controlled_shutdown =
                    in_controlled_shutdown.unwrap_or(changed.in_controlled_shutdown);
                self.brokers.insert(*broker_id, Arc::new(changed));
                delta.brokers.insert(*broker_id);
            }
            R::BrokerDirectories { broker_id, broker_epoch, online } => {
                let broker = self.registered_broker(*broker_id, *broker_epoch)?;
                let changed = BrokerRegistration { directories: online.clone(), ..(**broker).clone() };
                self.brokers.insert(*broker_id, Arc::new(changed));
                delta.brokers.insert(*broker_id);
            }
            R::UnregisterBroker { broker_id, broker_epoch } => {
                self.registered_broker(*broker_id, *broker_epoch)?;
                self.brokers.remove(broker_id);
                delta.brokers.insert(*broker_id);
            }
            R::BrokerSnapshot { broker_id, registration } => {
                self.brokers.insert(*broker_id, Arc::new(registration.clone()));
                delta.brokers.insert(*broker_id);
            }
            R::Topic { topic_id, name } => self.replay_topic(offset, *topic_id, name, delta)?,
            R::RemoveTopic { topic_id } => self.replay_remove_topic(*topic_id, delta)?,
            R::Partition { topic_id, partition, registration } => {
                self.replay_partition(offset, *topic_id, *partition, registration, delta)?;
            }
            R::PartitionChange { topic_id, partition, change } => {
                let id = TopicIdPartition::new(*topic_id, *partition);
                self.change_partition(id, delta, |image| {
                    image.registration.apply(change);
                    Ok(())
                })?;
            }
            R::Config { resource, key, value } => {
                self.replay_config(offset, resource, key, value.as_deref(), delta)?;
            }
            R::Mirror { name } => {
                if self.mirrors.contains_key(name) {
                    return Err(format!("mirror {name} exists"));
                }
                let mirror = MirrorImage { name: name.clone(), created_at: offset, source_cluster_id: None };
                self.mirrors.insert(name.clone(), Arc::new(mirror));
                delta.mirrors.insert(name.clone());
            }
            R::MirrorSource { name, source_cluster_id } => {
                let mirror = self.mirrors.get(name).ok_or_else(|| format!("no mirror {name}"))?;
                let mut changed = (**mirror).clone();
                changed.source_cluster_id = Some(source_cluster_id.clone());
                self.mirrors.insert(name.clone(), Arc::new(changed));
                delta.mirrors.insert(name.clone());
            }
            R::MirrorSnapshot { mirror } => {
                self.mirrors.insert(mirror.name.clone(), Arc::new(mirror.clone()));
                delta.mirrors.insert(mirror.name.clone());
            }
            R::PendingMirrorTopic { topic, mirror } => {
                match mirror {
                    Some(mirror) => self.pending_mirror_topics.insert(topic.clone(), mirror.clone()),
                    None => self.pending_mirror_topics.remove(topic),
                };
                delta.pending_mirror_topics = true;
            }
            R::Cut { topic_id, partition, .. } => {
                let id = TopicIdPartition::new(*topic_id, *partition);
                self.change_partition(id, delta, |image| image.apply_cut(offset, record))?;
            }
            R::SourceCutChecked { topic_id, partition, association, cut_id } => {
                self.replay_source_cut_checked(*topic_id, *partition, *association, *cut_id, delta)?;
            }
            R::Release {
                topic_id,
                partition,
                association,
                offset: end,
                source_cluster_id,
                checked_cut_id,
            } => {
                let id = TopicIdPartition::new(*topic_id, *partition);
                self.change_partition(id, delta, |image| {
                    let preparing_cut = image.mirror.preparing_cut.as_ref().map(|cut| cut.id);
                    image.mirror.release = Some(Release {
                        association: *association,
                        offset: preparing_cut.map(|_| *end),
                        source_cluster_id: source_cluster_id.clone(),
                        checked_cut_id: *checked_cut_id,
                        released_at: offset,
                        preparing_cut,
                    });
                    Ok(())
                })?;
            }
            R::MirrorRecopy { topic_id, association } => {
                self.change_topic(*topic_id, |topic| match &topic.mirror {
                    Some(mirror) if mirror.association == *association => {
                        topic.mirror = Some(Arc::new(TopicMirror { recopy: true, ..(**mirror).clone() }));
                        Ok(())
                    }
                    _ => Err(format!("{association} is not the association of topic {topic_id}")),
                })?;
                delta.topics_mirror.insert(*topic_id);
            }
            R::ProducerIds { next_producer_id, .. } => self.next_producer_id = Some(*next_producer_id),
            R::DeletedTopicEpochs { topic_id, leader_epoch, partition_epoch } => {
                self.topics.deleted_epochs.insert(*topic_id, (*leader_epoch, *partition_epoch));
            }
            R::TopicMirror { topic_id, created_at, mirror } => {
                self.change_topic(*topic_id, |topic| {
                    topic.created_at = *created_at;
                    topic.mirror = mirror.clone().map(Arc::new);
                    Ok(())
                })?;
                delta.topics_mirror.insert(*topic_id);
            }
            R::PartitionMirror { topic_id, partition, mirror } => {
                let id = TopicIdPartition::new(*topic_id, *partition);
                self.change_partition(id, delta, |image| {
                    image.mirror = mirror.clone();
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn registered_broker(
        &self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<&Arc<BrokerRegistration>, String> {
        let broker = self.brokers.get(&broker_id).ok_or_else(|| format!("no broker {broker_id}"))?;
        if broker.broker_epoch != broker_epoch {
            return Err(format!("broker {broker_id} has epoch {}, not {broker_epoch}", broker.broker_epoch));
        }
        Ok(broker)
    }

    fn replay_topic(
        &mut self,
        offset: MetadataOffset,
        topic_id: TopicId,
        name: &Arc<str>,
        delta: &mut MetadataDelta,
    ) -> Result<(), String> {
        if self.topics.by_id.contains_key(&topic_id) || self.topics.by_name.contains_key(name) {
            return Err(format!("topic {name} or its id {topic_id} exists"));
        }
        let topic = TopicImage {
            id: topic_id,
            name: name.clone(),
            created_at: offset,
            partitions: imbl::Vector::new(),
            mirror: None,
        };
        self.topics.by_id.insert(topic_id, Arc::new(topic));
        self.topics.by_name.insert(name.clone(), topic_id);
        delta.topics_created.insert(topic_id);
        Ok(())
    }

    fn replay_remove_topic(&mut self, topic_id: TopicId, delta: &mut MetadataDelta) -> Result<(), String> {
        let topic = self.topics.by_id.remove(&topic_id).ok_or_else(|| format!("no topic {topic_id}"))?;
        self.topics.by_name.remove(&topic.name);
        let resource = ConfigResource { resource_type: ConfigResourceType::Topic, name: topic.name.clone() };
        if self.configs.remove(&resource).is_some() {
            delta.configs.insert(resource);
        }
        // A mirror brings topic ids back: its epochs must then start above these (decision 19).
        let before = self.topics.deleted_epochs.get(&topic_id).copied();
        let (mut leader, mut partition) = before.unwrap_or((LeaderEpoch(-1), PartitionEpoch(-1)));
        for image in &topic.partitions {
            leader = leader.max(image.registration.leader_epoch);
            partition = partition.max(image.registration.partition_epoch);
        }
        self.topics.deleted_epochs.insert(topic_id, (leader, partition));
        delta.topics_deleted.push(topic);
        Ok(())
    }

    fn replay_partition(
        &mut self,
        offset: MetadataOffset,
        topic_id: TopicId,
        partition: i32,
        registration: &PartitionRegistration,
        delta: &mut MetadataDelta,
    ) -> Result<(), String> {
        if let Some((leader, epoch)) = self.topics.deleted_epochs.get(&topic_id)
            && (registration.leader_epoch <= *leader || registration.partition_epoch <= *epoch)
        {
            return Err(format!(
                "partition {partition} of the returned topic id {topic_id} must start above leader epoch \
                 {leader} and partition epoch {epoch}"
            ));
        }
        if registration.replicas.len() != registration.directories.len() {
            return Err(format!(
                "partition {partition} of {topic_id} has a directory list of another length"
            ));
        }
        self.change_topic(topic_id, |topic| {
            if usize::try_from(partition) != Ok(topic.partitions.len()) {
                return Err(format!("partition {partition} of {topic_id} is out of order"));
            }
            let mut mirror = PartitionMirror::default();
            // Decision 14: a partition added to a released topic has no source, and is writable.
            if let Some(association) = topic.released_association()
                && topic.created_at < offset
            {
                mirror.release = Some(Release {
                    association,
                    offset: None,
                    source_cluster_id: String::new(),
                    checked_cut_id: -1,
                    released_at: offset,
                    preparing_cut: None,
                });
            }
            let image = PartitionImage { registration: registration.clone(), mirror };
            topic.partitions.push_back(Arc::new(image));
            Ok(())
        })?;
        delta.partitions.insert(TopicIdPartition::new(topic_id, partition));
        Ok(())
    }

    fn replay_config(
        &mut self,
        offset: MetadataOffset,
        resource: &ConfigResource,
        key: &str,
        value: Option<&str>,
        delta: &mut MetadataDelta,
    ) -> Result<(), String> {
        if resource.resource_type == ConfigResourceType::Topic && key == MIRROR_NAME_CONFIG {
            let topic_id = *self
                .topics
                .by_name
                .get(&resource.name)
                .ok_or_else(|| format!("no topic {}", resource.name))?;
            self.change_topic(topic_id, |topic| topic.set_mirror_name(offset, value))?;
            delta.topics_mirror.insert(topic_id);
            if let Some(topic) = self.topics.by_id.get(&topic_id) {
                let ids = 0..topic.partitions.len() as i32;
                delta.partitions.extend(ids.map(|index| TopicIdPartition::new(topic_id, index)));
            }
        }
        let mut map = self.configs.get(resource).map(|map| (**map).clone()).unwrap_or_default();
        match value {
            Some(value) => map.insert(key.to_owned(), value.to_owned()),
            None => map.remove(key),
        };
        if map.is_empty() {
            self.configs.remove(resource);
        } else {
            self.configs.insert(resource.clone(), Arc::new(map));
        }
        delta.configs.insert(resource.clone());
        Ok(())
    }

    fn replay_source_cut_checked(
        &mut self,
        topic_id: TopicId,
        partition: i32,
        association: Association,
        cut_id: CutId,
        delta: &mut MetadataDelta,
    ) -> Result<(), String> {
        let newest = self.topics.by_id.get(&topic_id).and_then(|topic| topic.mirror.as_ref());
        if newest.map(|mirror| mirror.association) != Some(association) {
            return Err(format!("{association} is not the association of topic {topic_id}"));
        }
        self.change_partition(TopicIdPartition::new(topic_id, partition), delta, |image| {
            image.mirror.checked_source_cut = image.mirror.checked_source_cut.max(Some(cut_id));
            Ok(())
        })
    }

    fn change_topic(
        &mut self,
        topic_id: TopicId,
        change: impl FnOnce(&mut TopicImage) -> Result<(), String>,
    ) -> Result<(), String> {
        let topic = self.topics.by_id.get_mut(&topic_id).ok_or_else(|| format!("no topic {topic_id}"))?;
        change(Arc::make_mut(topic))
    }

    fn change_partition(
        &mut self,
        id: TopicIdPartition,
        delta: &mut MetadataDelta,
        change: impl FnOnce(&mut PartitionImage) -> Result<(), String>,
    ) -> Result<(), String> {
        self.change_topic(id.topic_id, |topic| {
            let index = usize::try_from(id.partition).unwrap_or(usize::MAX);
            let partition = topic.partitions.get_mut(index).ok_or_else(|| format!("no partition {id}"))?;
            change(Arc::make_mut(partition))
        })?;
        delta.partitions.insert(id);
        Ok(())
    }
}

impl TopicImage {
    /// The newest association, if every partition there is has been released under it.
    fn released_association(&self) -> Option<Association> {
        let association = self.mirror.as_ref()?.association;
        let released = |p: &Arc<PartitionImage>| {
            p.mirror.release.as_ref().is_some_and(|release| release.association == association)
        };
        self.partitions.iter().all(released).then_some(association)
    }

    fn set_mirror_name(&mut self, offset: MetadataOffset, value: Option<&str>) -> Result<(), String> {
        let Some(value) = value else {
            self.mirror = None;
            return Ok(());
        };
        if let Some(name) = value.strip_suffix(REMOVED_SUFFIX) {
            return match &self.mirror {
                Some(mirror) if *mirror.mirror == *name => {
                    self.mirror = Some(Arc::new(TopicMirror { removed: true, ..(**mirror).clone() }));
                    Ok(())
                }
                _ => Err(format!("topic {} is not in mirror {name}", self.name)),
            };
        }
        self.mirror = Some(Arc::new(TopicMirror {
            mirror: value.into(),
            removed: false,
            association: Association(offset.0),
            recopy: false,
        }));
        // One atomic step with the new association: what was released becomes history, and its cuts no
        // longer stand for the new one. `cuts` stays: a replica may still have to apply them.
        for partition in self.partitions.iter_mut() {
            let mirror = &partition.mirror;
            if mirror.release.is_none()
                && mirror.preparing_cut.is_none()
                && mirror.stopping_cut.is_none()
                && mirror.checked_source_cut.is_none()
            {
                continue;
            }
            let mirror = &mut Arc::make_mut(partition).mirror;
            mirror.history.extend(mirror.release.take());
            mirror.preparing_cut = None;
            mirror.stopping_cut = None;
            mirror.checked_source_cut = None;
        }
        Ok(())
    }
}

impl PartitionImage {
    fn apply_cut(&mut self, id: MetadataOffset, record: &MetadataRecord) -> Result<(), String> {
        let MetadataRecord::Cut {
            kind,
            association,
            offset,
            leader_epoch,
            broker_id,
            directory,
            leader_keeps_tail,
            ..
        } = record
        else {
            return Err("not a cut".to_owned());
        };
        let registration = &mut self.registration;
        registration.leader_epoch = registration.leader_epoch.next().max(*leader_epoch);
        registration.partition_epoch = registration.partition_epoch.next();
        let cut = Cut {
            id: CutId(id.0),
            kind: *kind,
            association: *association,
            offset: *offset,
            leader_epoch: registration.leader_epoch,
            broker_id: *broker_id,
            directory: *directory,
            leader_keeps_tail: *leader_keeps_tail,
        };
        // Whoever copies from here is not told of a SOURCE cut, so it hides none of those they are told of.
        self.mirror.cuts.retain(|earlier| {
            earlier.offset < cut.offset || (*kind == CutKind::Source && earlier.kind != CutKind::Source)
        });
        self.mirror.cuts.push(cut.clone());
        match kind {
            CutKind::Preparing => self.mirror.preparing_cut = Some(cut),
            CutKind::Stopping => self.mirror.stopping_cut = Some(cut),
            CutKind::Loss => registration.leader_recovery_state = LeaderRecoveryState::Recovered,
            CutKind::Source => {}
        }
        Ok(())
    }
}

impl PartitionRegistration {
    /// Applies a change; epochs only rise.
    pub fn apply(&mut self, change: &PartitionChange) {
        fn set<T: Clone>(field: &mut T, value: &Option<T>) {
            if let Some(value) = value {
                *field = value.clone();
            }
        }
        set(&mut self.isr, &change.isr);
        set(&mut self.elr, &change.elr);
        set(&mut self.last_known_elr, &change.last_known_elr);
        set(&mut self.replicas, &change.replicas);
        set(&mut self.directories, &change.directories);
        set(&mut self.adding_replicas, &change.adding_replicas);
        set(&mut self.removing_replicas, &change.removing_replicas);
        set(&mut self.leader_recovery_state, &change.leader_recovery_state);
        if let Some(leader) = change.leader {
            self.leader = leader;
        }
        match change.leader_epoch {
            Some(epoch) => self.leader_epoch = self.leader_epoch.next().max(epoch),
            None if change.leader.is_some() => self.leader_epoch = self.leader_epoch.next(),
            None => {}
        }
        self.partition_epoch = self.partition_epoch.next();
    }
}
