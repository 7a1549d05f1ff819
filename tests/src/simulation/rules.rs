//! What the controllers may commit: checked record by record against what is true of the partitions.

use common::ids::*;
use common::metadata::record::{CutKind, LeaderRecoveryState};
use common::metadata::{MetadataBatch, MetadataImage, MetadataRecord};
use common::mirror_state::{MIRROR_NAME_CONFIG, REMOVED_SUFFIX};

use super::event::Node;
use super::log::ModelLog;
use super::oracle::Truth;
use super::world::{World, cluster_name, partition_id, topic_id};

impl World {
    /// After each committed batch of the metadata log.
    pub fn check_commit(&mut self, cluster: usize, before: &MetadataImage, batch: &MetadataBatch) {
        self.note_sources(cluster, before);
        for record in &batch.records {
            self.check_record(cluster, before, batch.offset, record);
        }
        self.note_registrations(cluster, batch);
        let image = self.clusters[cluster].image().clone();
        let touched = self.clusters[cluster].history.last().map(|last| last.delta.partitions.clone());
        for id in touched.unwrap_or_default() {
            self.check_registration(cluster, &image, id.partition as usize, false);
        }
        self.note_sources(cluster, &image);
    }

    /// What those who copy from here may have been told until now.
    fn note_sources(&mut self, cluster: usize, image: &MetadataImage) {
        let now_ms = self.now_ms;
        let Some(topic) = image.topic_by_id(topic_id()) else { return };
        for (partition, truth) in self.clusters[cluster].truths.iter_mut().enumerate() {
            if topic.is_writable(partition as i32) {
                truth.last_writable_ms = now_ms;
            }
            if !truth.batches.is_empty() {
                truth.last_filled_ms = now_ms;
            }
        }
    }

    fn note_registrations(&mut self, cluster: usize, batch: &MetadataBatch) {
        for record in &batch.records {
            if let MetadataRecord::RegisterBroker { broker_id, .. } = record {
                let broker = &mut self.clusters[cluster].brokers[(broker_id.0 - 1) as usize];
                if broker.up {
                    // Whatever it lost, the controllers know now that it stopped uncleanly.
                    broker.lost_power = false;
                }
            }
        }
    }

    fn check_record(
        &mut self,
        cluster: usize,
        before: &MetadataImage,
        offset: MetadataOffset,
        record: &MetadataRecord,
    ) {
        match record {
            MetadataRecord::Topic { topic_id: id, .. } if *id == topic_id() => {
                for truth in &mut self.clusters[cluster].truths {
                    *truth = Truth { created_at: offset, ..truth.emptied() };
                }
            }
            MetadataRecord::RemoveTopic { topic_id: id } if *id == topic_id() => {
                for truth in &mut self.clusters[cluster].truths {
                    *truth = truth.emptied();
                }
            }
            MetadataRecord::Cut { partition, kind, offset, .. } => {
                self.check_cut(cluster, before, *partition as usize, *kind, offset.0);
            }
            MetadataRecord::Config { key, value: Some(value), .. }
                if key == MIRROR_NAME_CONFIG && !value.ends_with(REMOVED_SUFFIX) =>
            {
                let topic = before.topic_by_id(topic_id());
                let waits = topic.is_some_and(|topic| {
                    (0..topic.partitions.len()).any(|partition| !topic.is_writable(partition as i32))
                });
                if waits {
                    self.violate("decision 18: an add waits until every partition is released", || {
                        cluster_name(cluster)
                    });
                }
            }
            MetadataRecord::Release { partition, offset, .. } => {
                self.check_release(cluster, before, *partition as usize, offset.0);
            }
            _ => {}
        }
    }

    fn check_cut(
        &mut self,
        cluster: usize,
        before: &MetadataImage,
        partition: usize,
        kind: CutKind,
        offset: i64,
    ) {
        let name = cluster_name(cluster);
        let Some(topic) = before.topic_by_id(topic_id()) else { return };
        let Some(of_partition) = topic.partitions.get(partition) else { return };
        let recovering = of_partition.registration.leader_recovery_state == LeaderRecoveryState::Recovering;
        let writable = topic.is_writable(partition as i32);
        let removed = topic.mirror.as_ref().is_some_and(|mirror| mirror.removed);
        let facts = &of_partition.mirror;
        let wrong = match kind {
            CutKind::Loss => (!recovering).then_some("LOSS only after an unclean election"),
            _ if writable => Some("invariant 13: what was released is cut only by a new association"),
            _ if recovering => Some("the recovering leader's own cut comes first"),
            CutKind::Preparing if removed => Some("PREPARING never once the suffix stands"),
            CutKind::Preparing if facts.preparing_cut.is_some() => Some("PREPARING once per association"),
            CutKind::Stopping if !removed => Some("STOPPING only when the suffix stands"),
            CutKind::Stopping if facts.stopping_cut.is_some() => Some("STOPPING once per association"),
            CutKind::Stopping if facts.preparing_cut.is_none() => Some("STOPPING only after PREPARING"),
            CutKind::Source if removed => Some("SOURCE never once the suffix stands"),
            CutKind::Source if facts.preparing_cut.is_none() => Some("SOURCE only after PREPARING"),
            CutKind::Source if offset < self.truth(cluster, partition).end() => {
                Some("SOURCE takes nothing that is committed")
            }
            _ => None,
        };
        if let Some(rule) = wrong {
            return self.violate("decision 10: who may cut when", || format!("{name}/{partition}: {rule}"));
        }
        if kind == CutKind::Stopping {
            let truth = self.truth(cluster, partition);
            let mut log = ModelLog::default();
            if log.append_copied(&truth.batches).is_ok() && offset < log.decided_cut_point(truth.end()) {
                let end = truth.end();
                return self.violate("decision 10b: STOPPING takes nothing that is decided", || {
                    format!("{name}/{partition} is cut to {offset}, committed is up to {end}")
                });
            }
        }
        if kind == CutKind::Preparing && offset < self.truth(cluster, partition).end() {
            self.check_last_copy(cluster, before, partition, offset);
        }
        let raised = self.clusters[cluster].image().partition(partition_id(partition));
        let raised = raised.map_or(LeaderEpoch(0), |image| image.registration.leader_epoch);
        let truth = &mut self.clusters[cluster].truths[partition];
        truth.cut(offset, raised);
    }

    /// Invariant 13: only a source that can give the data is a reason to cut it here.
    fn check_last_copy(&mut self, cluster: usize, before: &MetadataImage, partition: usize, offset: i64) {
        let Some(mirror) = before.topic_by_id(topic_id()).and_then(|topic| topic.mirror.clone()) else {
            return;
        };
        let Some(source) = self.clusters[cluster].mirrors.iter().position(|name| *name == mirror.mirror)
        else {
            return;
        };
        let since_ms = self.clusters[cluster].associated_ms(mirror.association);
        if !mirror.recopy && self.all_released_uncut(source, cluster, partition, since_ms) {
            return self.violate("decision 12: released without a cut is not nothing recorded", || {
                format!("{}/{partition} is cut to {offset}", cluster_name(cluster))
            });
        }
        let source_image = self.clusters[source].image();
        let writable = source_image.topic_by_id(topic_id()).is_some_and(|t| t.is_writable(partition as i32));
        let truth = self.truth(source, partition);
        let name = cluster_name(cluster);
        if !writable && truth.last_writable_ms < since_ms && !mirror.recopy {
            return self.violate("decision 12: a source that is not writable cuts nothing", || {
                format!("{name}/{partition} is cut to {offset}")
            });
        }
        if truth.last_filled_ms < since_ms && truth.end() == 0 {
            self.violate("invariant 13: the last copy is never emptied", || {
                format!("{name}/{partition} is cut to {offset}, its source is empty")
            });
        }
    }

    /// The source copied from this cluster, always was released before it had cut anything, and has been so
    /// since before it was asked.
    fn all_released_uncut(&self, source: usize, cluster: usize, partition: usize, since_ms: i64) -> bool {
        let it = &self.clusters[source];
        let Some(topic) = it.image().topic_by_id(topic_id()) else { return false };
        let Some(of_partition) = topic.partitions.get(partition) else { return false };
        let name = cluster_name(cluster);
        let releases = of_partition.mirror.history.iter().chain(&of_partition.mirror.release);
        let with_us: Vec<_> = releases
            .filter(|release| {
                release.association.0 >= topic.created_at.0 && release.source_cluster_id == name
            })
            .collect();
        let before = |offset: i64| it.history.get(offset as usize).is_some_and(|c| c.at_ms < since_ms);
        topic.is_writable(partition as i32)
            && !with_us.is_empty()
            && with_us.iter().all(|release| release.offset.is_none() && before(release.released_at.0))
    }

    fn check_release(&mut self, cluster: usize, before: &MetadataImage, partition: usize, offset: i64) {
        let name = cluster_name(cluster);
        let Some(topic) = before.topic_by_id(topic_id()) else { return };
        let Some(of_partition) = topic.partitions.get(partition) else { return };
        let facts = &of_partition.mirror;
        if topic.mirror.as_ref().is_none_or(|mirror| !mirror.removed) {
            return self.violate("decision 14: released only when the suffix stands", || name);
        }
        if facts.preparing_cut.is_none() {
            if offset >= 0 {
                self.violate("decision 10b: without its cut nothing is recorded", || {
                    format!("{name}/{partition} records {offset}")
                });
            }
            return;
        }
        let truth = self.truth(cluster, partition);
        let end = truth.end();
        if end != offset {
            return self.violate("I-M5: a copy is released where all in-sync replicas end", || {
                format!("{name}/{partition} is released at {offset}, committed is up to {end}")
            });
        }
        let mut log = ModelLog::default();
        if log.append_copied(&truth.batches).is_ok() && log.has_open_transaction() {
            self.violate("I-M5: no transaction is open after STOPPED", || format!("{name}/{partition}"));
        }
    }

    /// I-R1, I-R2, I-R4 on the controllers' newest image.
    pub fn check_registration(
        &mut self,
        cluster: usize,
        image: &MetadataImage,
        partition: usize,
        whole: bool,
    ) {
        let name = cluster_name(cluster);
        let Some(of_partition) = image.partition(partition_id(partition)) else { return };
        let r = &of_partition.registration;
        let floor = &mut self.clusters[cluster].truths[partition].highest_epoch;
        if r.leader_epoch.0 < floor.0 {
            let highest = floor.0;
            return self.violate("decision 19: leader epochs never fall", || {
                format!("{name}/{partition}: {} after {highest}", r.leader_epoch)
            });
        }
        floor.0 = r.leader_epoch.0;
        let active = |id: &BrokerId| image.brokers.get(id).is_some_and(|broker| !broker.fenced);
        let minimum = self.profile.min_insync_replicas.min(r.replicas.len());
        let wrong = if r.leader.is_some_and(|leader| !r.isr.contains(&leader)) {
            Some("the leader is not in the ISR")
        } else if r.isr.iter().any(|id| !active(id)) {
            Some("a fenced broker is in the ISR")
        } else if r.isr.iter().chain(&r.elr).any(|id| !r.replicas.contains(id)) {
            Some("ISR and ELR are no replicas")
        } else if r.isr.iter().any(|id| r.elr.contains(id)) {
            Some("ISR and ELR overlap")
        } else if r.isr.len() >= minimum && !r.elr.is_empty() {
            Some("an ELR beside a large enough ISR")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return self.violate("I-R2", || format!("{name}/{partition}: {wrong}: {r:?}"));
        }
        if r.leader_recovery_state == LeaderRecoveryState::Recovering {
            return;
        }
        for id in r.isr.iter().chain(&r.elr) {
            let node = Node { cluster, broker: (id.0 - 1) as usize };
            if self.broker(node).lost_power {
                continue;
            }
            let truth = self.truth(cluster, partition);
            if let Some(batch) = truth.missing_in(self.disk_log(node, partition), whole) {
                return self.violate("I-R1: every member of ISR and ELR has all that was committed", || {
                    format!("{node}/{partition} lacks {batch:?}: {r:?}")
                });
            }
        }
    }
}
