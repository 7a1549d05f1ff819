//! A metadata change becomes true here: logs are made and deleted, cuts applied, roles taken.
//!
//! The order matters. What left goes first (a topic's id may come back in the same change). Cuts are
//! applied, and durable, before a replica fetches or leads under the epoch they raised (decision 10d).
//! Only then roles change, and fetchers start.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use common::fault;
use common::ids::*;
use common::metadata::local_changes::LocalReplica;
use common::metadata::record::{ConfigResourceType, LeaderRecoveryState};
use common::metadata::{LocalChanges, MetadataDelta, MetadataImage};
use tracing::{error, info, warn};

use super::cut;
use super::manager::{ReplicaManager, TopicSettings};
use super::partition::Partition;
use super::state::{Assignment, ReplicaEffect, ReplicaEvent, ReplicaSettings};
use crate::fetcher::manager::FetchAssignment;
use crate::log::{FoundLog, LogError, LogPlacement, PendingCut};

/// More new logs than this are made by several threads.
const PARALLEL_FROM: usize = 64;
const CREATE_THREADS: usize = 4;
/// Pauses after which followers of what is newly led are woken.
const NUDGES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(100)];

type SettingsByTopic = HashMap<TopicId, TopicSettings>;

impl ReplicaManager {
    /// Called by the metadata publisher, in order, on a thread of the runtime. Blocks on the disk. The first
    /// image has to hold this process's own registration: an older one would not know every log here.
    pub fn apply_metadata(&self, before: &MetadataImage, delta: &MetadataDelta, after: &Arc<MetadataImage>) {
        let mut compared = self.applying.lock();
        if !std::mem::replace(&mut *compared, true) {
            self.quarantine_strays(after);
        }
        self.apply_changes(before, delta, after);
    }

    /// Under the lock of `applying`.
    pub(super) fn apply_changes(
        &self,
        before: &MetadataImage,
        delta: &MetadataDelta,
        after: &Arc<MetadataImage>,
    ) {
        let changes = LocalChanges::new(before, delta, after, self.broker_id());
        self.fetchers.set_image(after.clone());
        let stays = |replica: &LocalReplica| after.topic_by_id(replica.topic.id).is_some();
        *self.leaving.write() = changes.removed.iter().map(|replica| (replica.id, stays(replica))).collect();
        let removed = self.remove(&changes.removed);

        let local: Vec<LocalReplica> = changes.leaders.into_iter().chain(changes.followers).collect();
        let mut settings = SettingsByTopic::new();
        let hosted = self.host(&local, after, &mut settings);
        self.update_mirror_facts(delta, after);
        self.apply_cuts(&hosted);
        self.context.image.store(after.clone());
        self.leaving.write().clear();
        // Fetches that still hold one look again, and find it gone.
        removed.iter().for_each(|partition| partition.visible_change(&mut partition.lock()));
        // Before the roles: whoever left the ISR under a raised `min.insync.replicas` is still eligible,
        // so the high watermark must not pass it under the old one.
        self.update_settings(delta, after, &mut settings);
        self.report_directories(&hosted);
        self.take_roles(hosted);
    }

    /// At start: a directory of a topic that is gone, or whose id came back, is never live (decision 3).
    /// One of a topic newer than the image is left alone: this image cannot know of it yet.
    fn quarantine_strays(&self, image: &MetadataImage) {
        let is_live = |found: &FoundLog| {
            if found.topic_record > image.offset {
                return true;
            }
            let is_topic = image
                .topic_by_id(found.id.topic_id)
                .is_some_and(|topic| topic.created_at == found.topic_record);
            let is_replica = image
                .partition(found.id)
                .is_some_and(|partition| partition.registration.replicas.contains(&self.broker_id()));
            is_topic && is_replica
        };
        for stray in self.log_manager.quarantine_strays(&is_live) {
            warn!(topic = %stray.topic, id = %stray.id, "the directory belongs to no topic here: set aside");
        }
    }

    fn remove(&self, removed: &[LocalReplica]) -> Vec<Arc<Partition>> {
        let mut partitions = Vec::new();
        self.fetchers.remove(removed.iter().map(|replica| replica.id));
        for replica in removed {
            let partition = self.partitions.write().remove(&replica.id);
            if let Some(partition) = partition {
                partition.apply(&mut partition.lock(), ReplicaEvent::Removed);
                partitions.push(partition);
            }
            match self.log_manager.delete(replica.id) {
                Ok(true) => {
                    info!(topic = %replica.topic.name, partition = replica.id.partition, "log deleted")
                }
                Ok(false) => {}
                Err(error) => {
                    error!(topic = %replica.topic.name, partition = replica.id.partition, %error, "cannot delete the log")
                }
            }
        }
        partitions
    }

    /// Finds or makes the partition of each replica; those whose log cannot be opened are left out.
    fn host<'a>(
        &self,
        local: &'a [LocalReplica],
        image: &MetadataImage,
        settings: &mut SettingsByTopic,
    ) -> Vec<(&'a LocalReplica, Arc<Partition>)> {
        let mut missing = Vec::new();
        for replica in local {
            if self.partition(replica.id).is_none() {
                let resolved = self.topic_settings(settings, image, replica.topic.id, &replica.topic.name);
                missing.push((replica, resolved));
            }
        }
        let made = self.make_partitions(&missing);
        let mut partitions = self.partitions.write();
        partitions.extend(made.into_iter().map(|partition| (partition.id(), partition)));
        local.iter().filter_map(|replica| Some((replica, partitions.get(&replica.id)?.clone()))).collect()
    }

    fn make_partitions(&self, missing: &[(&LocalReplica, TopicSettings)]) -> Vec<Arc<Partition>> {
        let make = |chunk: &[(&LocalReplica, TopicSettings)]| -> Vec<Arc<Partition>> {
            let opened = chunk.iter().map(|(replica, settings)| (*replica, self.make(replica, settings)));
            let logged = opened.filter_map(|(replica, made)| match made {
                Ok(partition) => Some(partition),
                Err(error) => {
                    error!(topic = %replica.topic.name, partition = replica.id.partition, %error, "no log for this replica");
                    if error.is_exhausted() {
                        self.host_later(replica.id);
                    }
                    None
                }
            });
            logged.collect()
        };
        if missing.len() < PARALLEL_FROM {
            return make(missing);
        }
        std::thread::scope(|scope| {
            let chunks = missing.chunks(missing.len().div_ceil(CREATE_THREADS));
            let workers: Vec<_> = chunks.map(|chunk| scope.spawn(move || make(chunk))).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
        })
    }

    fn make(&self, replica: &LocalReplica, settings: &TopicSettings) -> Result<Arc<Partition>, LogError> {
        let registration = &replica.partition.registration;
        let place = registration.replicas.iter().position(|broker| *broker == self.broker_id());
        let directory = place.and_then(|place| registration.directories.get(place)).copied();
        let placement = LogPlacement {
            id: replica.id,
            topic: replica.topic.name.clone(),
            topic_record: replica.topic.created_at,
            directory: directory.filter(|directory| !directory.is_zero()),
            config: settings.log.clone(),
        };
        let now_ms = self.context.clock.now_ms();
        let log = match self.log_manager.create(placement.clone(), now_ms) {
            // What others count on is with the leader: a follower that nobody counts on begins anew.
            Err(LogError::Corrupt { .. })
                if registration.leader.is_some_and(|leader| leader != self.broker_id())
                    && !registration.isr.contains(&self.broker_id())
                    && !registration.elr.contains(&self.broker_id())
                    && self.log_manager.set_aside_refused(replica.id)? =>
            {
                self.log_manager.create(placement, now_ms)?
            }
            other => other?,
        };
        let partition = Partition::new(
            replica.id,
            replica.topic.name.clone(),
            log,
            self.replica_settings(settings),
            self.context.clone(),
        );
        self.set_throttled(&partition, settings);
        Ok(Arc::new(partition))
    }

    /// Before any role: whether clients may write, and whether the epoch cache follows the batches.
    fn update_mirror_facts(&self, delta: &MetadataDelta, image: &MetadataImage) {
        let mut touched: BTreeSet<TopicIdPartition> = delta.partitions.clone();
        for topic in delta.topics_mirror.iter().filter_map(|id| image.topic_by_id(*id)) {
            let count = topic.partitions.len() as i32;
            touched.extend((0..count).map(|partition| TopicIdPartition::new(topic.id, partition)));
        }
        if delta.everything {
            touched.extend(self.partitions.read().keys());
        }
        for id in touched {
            let Some(partition) = self.partition(id) else { continue };
            let Some(topic) = image.topic_by_id(id.topic_id) else { continue };
            let writable = topic.is_writable(id.partition);
            partition.set_writable(writable);
            partition.set_mirroring(!writable);
        }
    }

    /// Decision 10d. From the moment a partition is suspended until it has its new role, nothing that was
    /// asked for under the old epoch is appended.
    fn apply_cuts(&self, hosted: &[(&LocalReplica, Arc<Partition>)]) {
        let mut truncate = Vec::new();
        let mut note = Vec::new();
        for (replica, partition) in hosted {
            let cuts = &replica.partition.mirror.cuts;
            if cuts.is_empty() {
                continue;
            }
            let mut inner = partition.lock();
            let applied = self.log_manager.applied_cut(replica.id);
            let directory = inner.log.directory().id();
            let Some(plan) = cut::plan(cuts, applied, self.broker_id(), directory) else { continue };
            partition.apply(&mut inner, ReplicaEvent::Suspended);
            let mut truncate_to = plan.truncate_to;
            if plan.keeps_tail && cut::stopping_cut_stands(&replica.topic, replica.id.partition) {
                // The tail stays as far as every transaction in it is decided.
                let log = inner.log.read();
                match log.decided_cut_point(log.log_end_offset()) {
                    Ok(decided) => truncate_to = Some(truncate_to.map_or(decided, |to| to.min(decided))),
                    Err(error) => {
                        drop(log);
                        partition.fail_storage(&mut inner, &error);
                        continue;
                    }
                }
            }
            match truncate_to {
                Some(offset) => {
                    info!(%partition, %offset, cut = %plan.note,
                        log_end_offset = %inner.state.log_end_offset(), "applies a cut");
                    let cut = PendingCut { log: inner.log.clone(), offset, cut: plan.note };
                    truncate.push((partition, cut));
                }
                None => {
                    info!(%partition, cut = %plan.note, "keeps its tail through a cut");
                    note.push((replica.id, plan.note));
                }
            }
        }
        if !note.is_empty()
            && let Err(error) = self.log_manager.note_cuts(&note)
        {
            error!(%error, "cannot note the cuts that were applied");
            for (id, _) in note {
                let Some(partition) = self.partition(id) else { continue };
                partition.go_offline(&mut partition.lock());
                if error.is_exhausted() {
                    self.host_later(id);
                }
            }
        }
        for (partition, _) in &truncate {
            fault::point_blocking("replica.cut.apply", partition.id());
        }
        let (partitions, cuts): (Vec<_>, Vec<_>) = truncate.into_iter().unzip();
        let results = if cuts.is_empty() { Vec::new() } else { self.log_manager.apply_cuts(&cuts) };
        for (partition, result) in partitions.into_iter().zip(results) {
            let mut inner = partition.lock();
            match result {
                Ok(()) => {
                    let log_end_offset = inner.log.read().log_end_offset();
                    partition.apply(&mut inner, ReplicaEvent::Truncated { log_end_offset });
                }
                Err(error) => {
                    partition.fail_storage(&mut inner, &error);
                    if error.is_exhausted() {
                        // Without its cut it must have no role.
                        partition.go_offline(&mut inner);
                        self.host_later(partition.id());
                    }
                }
            }
        }
    }

    fn take_roles(&self, hosted: Vec<(&LocalReplica, Arc<Partition>)>) {
        let now_ms = self.context.steady_ms();
        let mut to_fetch = Vec::new();
        let mut led = Vec::new();
        let mut followers = BTreeSet::new();
        for (replica, partition) in hosted {
            let registration = &replica.partition.registration;
            let assignment = Assignment {
                replicas: registration.replicas.clone(),
                isr: registration.isr.clone(),
                leader: registration.leader,
                leader_epoch: registration.leader_epoch,
                partition_epoch: registration.partition_epoch,
                recovering: registration.leader_recovery_state == LeaderRecoveryState::Recovering,
            };
            let mut inner = partition.lock();
            if inner.offline {
                continue;
            }
            let effects = partition.apply(&mut inner, ReplicaEvent::Assigned { assignment, now_ms });
            drop(inner);
            for effect in effects {
                match effect {
                    ReplicaEffect::Lead { .. } => {
                        led.push(replica.id);
                        let others = registration.replicas.iter().filter(|id| **id != self.broker_id());
                        followers.extend(others.copied());
                    }
                    ReplicaEffect::Follow { leader, leader_epoch } => {
                        to_fetch.push(FetchAssignment { partition: partition.clone(), leader, leader_epoch })
                    }
                    _ => {}
                }
            }
        }
        self.fetchers.remove(led);
        self.fetchers.assign(to_fetch);
        self.nudge_later(followers);
    }

    /// A follower that hears of the change after this leader did has sent its next fetch without it, and
    /// would wait out its long poll: it is woken again once it must have heard.
    fn nudge_later(&self, followers: BTreeSet<BrokerId>) {
        if followers.is_empty() {
            return;
        }
        let (context, token) = (self.context.clone(), self.tasks.shutdown_token());
        let followers: Vec<BrokerId> = followers.into_iter().collect();
        self.tasks.spawn("replica-nudge", async move {
            for pause in NUDGES {
                if token.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    return;
                }
                context.nudge(&followers);
            }
        });
    }

    /// Configs of topics and brokers that changed; what is new has its configs already.
    fn update_settings(&self, delta: &MetadataDelta, image: &MetadataImage, settings: &mut SettingsByTopic) {
        let brokers_changed = delta.everything
            || delta.configs.iter().any(|resource| resource.resource_type == ConfigResourceType::Broker);
        if brokers_changed {
            let rates = (self.context.config.replication_rates)(image);
            let now_ms = self.context.clock.monotonic_ms();
            self.context.leader_throttle.lock().set_rate(rates.leader, now_ms);
            self.context.follower_throttle.lock().set_rate(rates.follower, now_ms);
            self.context.move_throttle.lock().set_rate(rates.moves, now_ms);
        }
        let topics: Vec<TopicId> = if brokers_changed {
            let hosted: BTreeSet<TopicId> = self.partitions.read().keys().map(|id| id.topic_id).collect();
            hosted.into_iter().collect()
        } else {
            let changed =
                delta.configs.iter().filter(|resource| resource.resource_type == ConfigResourceType::Topic);
            changed.filter_map(|resource| image.topic(&resource.name)).map(|topic| topic.id).collect()
        };
        for topic in topics.iter().filter_map(|id| image.topic_by_id(*id)) {
            let resolved = self.topic_settings(settings, image, topic.id, &topic.name);
            for index in 0..topic.partitions.len() as i32 {
                let Some(partition) = self.partition(TopicIdPartition::new(topic.id, index)) else {
                    continue;
                };
                self.set_throttled(&partition, &resolved);
                let mut inner = partition.lock();
                let changed = **inner.log.read().config() != *resolved.log;
                if changed {
                    inner.log.write().update_config(resolved.log.clone());
                }
                let event = ReplicaEvent::SettingsChanged(self.replica_settings(&resolved));
                partition.apply(&mut inner, event);
            }
        }
    }

    fn set_throttled(&self, partition: &Partition, settings: &TopicSettings) {
        let (number, local) = (partition.id().partition, self.broker_id());
        let mut inner = partition.lock();
        inner.leader_throttled = settings.leader_throttled.contains(number, local);
        inner.follower_throttled = settings.follower_throttled.contains(number, local);
    }

    fn topic_settings(
        &self,
        settings: &mut SettingsByTopic,
        image: &MetadataImage,
        id: TopicId,
        name: &str,
    ) -> TopicSettings {
        let resolve = || (self.context.config.topic_settings)(image, name);
        settings.entry(id).or_insert_with(resolve).clone()
    }

    fn replica_settings(&self, settings: &TopicSettings) -> ReplicaSettings {
        ReplicaSettings {
            min_insync_replicas: settings.min_insync_replicas,
            lag_time_max_ms: self.context.config.replica_lag_time_max_ms,
        }
    }
}
