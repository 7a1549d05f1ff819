//! A metadata change becomes true on a broker, in the order of the product's `replica::apply`: what left
//! goes, logs are made, mirror facts, cuts, roles.

use std::collections::BTreeSet;
use std::sync::Arc;

use broker::replica::cut;
use broker::replica::state::{Assignment, ReplicaEffect, ReplicaEvent, ReplicaSettings, ReplicaState};
use common::ids::*;
use common::metadata::local_changes::LocalReplica;
use common::metadata::record::LeaderRecoveryState;
use common::metadata::{LocalChanges, MetadataDelta, MetadataImage};

use super::event::Node;
use super::log::ModelLog;
use super::mutation::Mutation;
use super::node::Disk;
use super::quorum::directory_of;
use super::replica::Replica;
use super::world::{World, topic_id};

const LAG_TIME_MAX_MS: i64 = 2_000;

impl World {
    /// The stream has brought everything up to `offset`.
    pub fn metadata_arrived(&mut self, node: Node, offset: i64) {
        let everything = self.random.chance(60);
        let broker = self.broker(node);
        let first = broker.applied.is_none();
        let own = broker.epoch.map(|epoch| epoch.0);
        let learned = broker.learned.max(offset);
        if learned == broker.learned && !first {
            return;
        }
        let from = broker.learned;
        self.broker_mut(node).learned = learned;
        // The first image that is applied holds the process's own registration: an older one would not know
        // every log here.
        if own.is_none_or(|own| learned < own) {
            return;
        }
        let history = &self.clusters[node.cluster].history;
        let before = self.broker(node).applied.clone().unwrap_or_default();
        let after = history[learned as usize].image.clone();
        let mut delta = MetadataDelta::everything();
        if !first && !everything {
            delta = MetadataDelta::default();
            for offset in from + 1..=learned {
                delta.merge((*history[offset as usize].delta).clone());
            }
        }
        self.apply_metadata(node, first, &before, &delta, &after);
    }

    fn apply_metadata(
        &mut self,
        node: Node,
        first: bool,
        before: &MetadataImage,
        delta: &MetadataDelta,
        after: &Arc<MetadataImage>,
    ) {
        if first {
            self.quarantine_strays(node, after);
        }
        let changes = LocalChanges::new(before, delta, after, node.id());
        for removed in &changes.removed {
            let partition = removed.id.partition as usize;
            self.replica_event(node, partition, ReplicaEvent::Removed);
            self.fail_parked(node, partition);
            let broker = self.broker_mut(node);
            broker.replicas[partition] = None;
            broker.disks[partition] = None;
        }
        let local: Vec<LocalReplica> = changes.leaders.into_iter().chain(changes.followers).collect();
        local.iter().for_each(|replica| self.host(node, replica));
        self.update_mirror_facts(node, delta, after);
        local.iter().for_each(|replica| self.apply_cuts(node, replica));
        self.broker_mut(node).applied = Some(after.clone());
        for replica in &local {
            self.take_role(node, replica);
        }
        self.note_mirror_metadata(node, before, delta, after);
        for replica in &local {
            self.touched(node, replica.id.partition as usize);
        }
    }

    fn quarantine_strays(&mut self, node: Node, image: &MetadataImage) {
        let keeps_strays = self.is(Mutation::StrayDirectoryIsLive);
        for partition in 0..self.profile.partitions {
            let live = |disk: &Disk| {
                disk.topic_record > image.offset
                    || image.topic_by_id(topic_id()).is_some_and(|topic| {
                        topic.created_at == disk.topic_record
                            && topic
                                .partitions
                                .get(partition)
                                .is_some_and(|partition| partition.registration.replicas.contains(&node.id()))
                    })
            };
            let slot = &mut self.broker_mut(node).disks[partition];
            if slot.as_ref().is_some_and(|disk| !live(disk)) && !keeps_strays {
                *slot = None;
            }
        }
    }

    fn host(&mut self, node: Node, local: &LocalReplica) {
        let partition = local.id.partition as usize;
        let settings = ReplicaSettings {
            min_insync_replicas: self.profile.min_insync_replicas,
            lag_time_max_ms: LAG_TIME_MAX_MS,
        };
        let keeps_strays = self.is(Mutation::StrayDirectoryIsLive);
        let broker = self.broker_mut(node);
        if broker.replicas[partition].is_some() {
            return;
        }
        let created_at = local.topic.created_at;
        let slot = &mut broker.disks[partition];
        if slot.as_ref().is_some_and(|disk| disk.topic_record != created_at) && !keeps_strays {
            *slot = None;
        }
        let disk = slot.get_or_insert_with(|| Disk {
            log: ModelLog::default(),
            topic_record: created_at,
            applied_cut: None,
            high_watermark: 0,
        });
        let (start, end) = (Offset(disk.log.start), Offset(disk.log.end()));
        let state = ReplicaState::new(node.id(), settings, start, end, Offset(disk.high_watermark));
        broker.replicas[partition] = Some(Replica::new(state));
    }

    fn update_mirror_facts(&mut self, node: Node, delta: &MetadataDelta, image: &MetadataImage) {
        let mut touched: BTreeSet<TopicIdPartition> = delta.partitions.clone();
        for topic in delta.topics_mirror.iter().filter_map(|id| image.topic_by_id(*id)) {
            let count = topic.partitions.len() as i32;
            touched.extend((0..count).map(|partition| TopicIdPartition::new(topic.id, partition)));
        }
        if delta.everything {
            let count = self.profile.partitions as i32;
            touched.extend((0..count).map(|partition| TopicIdPartition::new(topic_id(), partition)));
        }
        for id in touched {
            let Some(topic) = image.topic_by_id(id.topic_id) else { continue };
            let writable = topic.is_writable(id.partition);
            self.set_mirror_facts(node, id.partition as usize, writable);
        }
    }

    /// Decision 10d: before it fetches or leads under the epoch that a cut raised.
    fn apply_cuts(&mut self, node: Node, local: &LocalReplica) {
        let partition = local.id.partition as usize;
        if self.is(Mutation::CutIsNotApplied) && self.random.chance(300) {
            return;
        }
        let directory = directory_of(node);
        let cuts = &local.partition.mirror.cuts;
        let Some(disk) = &self.broker(node).disks[partition] else { return };
        let noted = if self.is(Mutation::CutIsAppliedTwice) { None } else { disk.applied_cut };
        let Some(mut plan) = cut::plan(cuts, noted, node.id(), directory) else { return };
        if self.is(Mutation::NewestMissedCutCounts) {
            plan.truncate_to = plan.truncate_to.and_then(|_| cuts.last().map(|cut| cut.offset));
        }
        if plan.keeps_tail
            && cut::stopping_cut_stands(&local.topic, local.id.partition)
            && !self.is(Mutation::LossKeepsUndecidedTail)
        {
            let decided = Offset(disk.log.decided_cut_point(disk.log.end()));
            plan.truncate_to = Some(plan.truncate_to.map_or(decided, |to| to.min(decided)));
        }
        self.replica_event(node, partition, ReplicaEvent::Suspended);
        self.trace(|| format!("{node}/{partition} applies cuts: {plan:?}"));
        let synced = !self.is(Mutation::CutNotedBeforeDurable);
        let Some(disk) = &mut self.broker_mut(node).disks[partition] else { return };
        if let Some(offset) = plan.truncate_to {
            disk.log.truncate_to(offset.0);
            if synced {
                disk.log.sync();
            }
            disk.high_watermark = disk.high_watermark.min(disk.log.end());
        }
        disk.applied_cut = disk.applied_cut.max(Some(plan.note));
        let log_end_offset = Offset(disk.log.end());
        if plan.truncate_to.is_some() {
            self.replica_event(node, partition, ReplicaEvent::Truncated { log_end_offset });
        }
    }

    fn take_role(&mut self, node: Node, local: &LocalReplica) {
        let partition = local.id.partition as usize;
        let registration = &local.partition.registration;
        let assignment = Assignment {
            replicas: registration.replicas.clone(),
            isr: registration.isr.clone(),
            leader: registration.leader,
            leader_epoch: registration.leader_epoch,
            partition_epoch: registration.partition_epoch,
            recovering: registration.leader_recovery_state == LeaderRecoveryState::Recovering
                && !self.is(Mutation::RecoveringLeaderServes),
        };
        let now_ms = self.clock_ms(node);
        let offline = |replica: &Replica| replica.offline;
        if self.broker(node).replicas[partition].as_ref().is_none_or(offline) {
            return;
        }
        let effects = self.replica_event(node, partition, ReplicaEvent::Assigned { assignment, now_ms });
        for effect in effects {
            match effect {
                ReplicaEffect::Lead { .. } => self.stop_following(node, partition),
                ReplicaEffect::Follow { leader, leader_epoch } => {
                    self.follow(node, partition, leader, leader_epoch);
                }
                _ => {}
            }
        }
    }
}
