//! What is true of each partition, kept apart from the machines: what was committed, and what a record of
//! the metadata log has legitimately undone since. The checks compare the machines with it.

use broker::replica::state::Role;
use common::ids::*;
use common::metadata::record::LeaderRecoveryState;

use super::event::{Node, Produce};
use super::log::{Batch, ModelLog};
use super::world::{World, cluster_name, partition_id, topic_id};

/// One partition of one cluster.
#[derive(Default)]
pub struct Truth {
    /// All that was below some leader's high watermark, and has not been cut since.
    pub batches: Vec<Batch>,
    /// Cuts since the topic was created: the leader epoch each raised, and its offset.
    pub cuts: Vec<(LeaderEpoch, i64)>,
    pub created_at: MetadataOffset,
    /// When the topic was last writable, and when it last held anything.
    pub last_writable_ms: i64,
    pub last_filled_ms: i64,
    pub highest_epoch: LeaderEpochFloor,
}

/// Never falls, not even over a deletion (decision 19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaderEpochFloor(pub i32);

impl Default for LeaderEpochFloor {
    fn default() -> Self {
        LeaderEpochFloor(-1)
    }
}

impl Truth {
    pub fn end(&self) -> i64 {
        self.batches.last().map_or(0, Batch::next)
    }

    /// The topic is gone.
    pub fn emptied(&self) -> Truth {
        Truth {
            last_writable_ms: self.last_writable_ms,
            last_filled_ms: self.last_filled_ms,
            highest_epoch: self.highest_epoch,
            ..Truth::default()
        }
    }

    /// A cut that raised the leader epoch so far.
    pub fn cut(&mut self, offset: i64, raised: LeaderEpoch) {
        let keep = self.batches.partition_point(|batch| batch.next() <= offset);
        self.batches.truncate(keep);
        self.cuts.push((raised, offset));
    }

    /// Below it what a leader of this epoch holds is still what counts.
    fn limit(&self, epoch: LeaderEpoch) -> i64 {
        let later = self.cuts.iter().filter(|(raised, _)| *raised > epoch);
        later.map(|(_, offset)| *offset).min().unwrap_or(i64::MAX)
    }

    pub fn at(&self, base: i64) -> Option<&Batch> {
        let index = self.batches.partition_point(|batch| batch.next() <= base);
        self.batches.get(index).filter(|batch| batch.base == base)
    }

    /// What `log` lacks of it, looking at the end only, or at all.
    pub fn missing_in(&self, log: Option<&ModelLog>, whole: bool) -> Option<Batch> {
        let held =
            |batch: &Batch| log.is_some_and(|log| log.batches.get(log.index_of(batch.base)) == Some(batch));
        if whole {
            self.batches.iter().find(|batch| !held(batch)).copied()
        } else {
            self.batches.last().filter(|batch| !held(batch)).copied()
        }
    }
}

impl World {
    pub fn truth(&self, cluster: usize, partition: usize) -> &Truth {
        &self.clusters[cluster].truths[partition]
    }

    /// The log of the topic as it is now on a node, running or not.
    pub fn disk_log(&self, node: Node, partition: usize) -> Option<&ModelLog> {
        let created_at = self.truth(node.cluster, partition).created_at;
        let disk = self.broker(node).disks[partition].as_ref()?;
        (disk.topic_record == created_at).then_some(&disk.log)
    }

    fn is_current(&self, node: Node, partition: usize) -> bool {
        self.disk_log(node, partition).is_some()
    }

    /// A leader's high watermark has moved: what lies below is committed, and must stay (I-R6).
    pub fn committed(&mut self, node: Node, partition: usize, epoch: LeaderEpoch, high_watermark: i64) {
        if !self.is_current(node, partition) {
            return;
        }
        let truth = self.truth(node.cluster, partition);
        let limit = truth.limit(epoch).min(high_watermark);
        let Some(log) = self.disk_log(node, partition) else { return };
        let from = log.index_of((truth.end() - 8).max(0));
        let below: Vec<Batch> = log.batches[from.min(log.batches.len())..]
            .iter()
            .take_while(|b| b.next() <= limit)
            .copied()
            .collect();
        for batch in below {
            let truth = &mut self.clusters[node.cluster].truths[partition];
            if batch.base >= truth.end() {
                truth.batches.push(batch);
                truth.last_filled_ms = self.now_ms;
            } else if truth.at(batch.base) != Some(&batch) {
                let known = truth.at(batch.base).copied();
                return self.violate("I-R6: what was readable at an offset never changes", || {
                    format!("{node}/{partition} under {epoch} has {batch:?}, known is {known:?}")
                });
            }
        }
    }

    /// A client has its acknowledgement.
    pub fn acknowledged(&mut self, node: Node, produce: Produce, end: i64) {
        if !produce.acks_all || !self.is_current(node, produce.partition) {
            return;
        }
        let truth = self.truth(node.cluster, produce.partition);
        let base = end - produce.batch.count;
        let Some(replica) = self.replica(node, produce.partition) else { return };
        if !replica.writable && !replica.offline {
            return self.violate("decision 10a: a read-only partition acknowledges nothing", || {
                format!("{node} acknowledges {end}")
            });
        }
        if base >= truth.limit(replica.state.leader_epoch()) {
            // A leader that has not heard of the add yet: the operator has cut what it acknowledges.
            return;
        }
        if !replica.state.has_enough_in_sync() {
            return self
                .violate("acks=all waits for min.insync.replicas", || format!("{node} acknowledges {end}"));
        }
        let value = truth.at(base).map(|batch| batch.value);
        if value != Some(produce.batch.value) {
            self.violate("acks=all is acknowledged only once it is committed", || {
                format!("{node} acknowledges {:?} up to {end}, committed is {value:?}", produce.batch.value)
            });
        }
    }

    /// A client's batch was appended under this epoch (I-M3, invariant 5).
    pub fn check_client_append(&mut self, node: Node, partition: usize, epoch: LeaderEpoch) {
        if !self.is_current(node, partition) {
            return;
        }
        let image = self.clusters[node.cluster].image();
        let Some(topic) = image.topic_by_id(topic_id()) else { return };
        let Some(of_partition) = topic.partitions.get(partition) else { return };
        let cut = of_partition.mirror.preparing_cut.as_ref();
        if !topic.is_writable(partition as i32) && cut.is_some_and(|cut| cut.leader_epoch <= epoch) {
            self.violate("I-M3: a client writes only to an ordinary or released partition", || {
                format!("{node}/{partition} takes a client's batch under {epoch}")
            });
        }
    }

    /// After each event at a replica.
    pub fn touched(&mut self, node: Node, partition: usize) {
        self.poll_watch(node, partition);
        self.check_replica(node, partition, false);
    }

    pub fn check_replica(&mut self, node: Node, partition: usize, whole: bool) {
        let broker = self.broker(node);
        let (Some(replica), Some(disk)) = (&broker.replicas[partition], &broker.disks[partition]) else {
            return;
        };
        let (end, high_watermark) = (disk.log.end(), replica.state.high_watermark().0);
        if replica.state.log_end_offset().0 != end && !replica.offline {
            let known = replica.state.log_end_offset();
            return self.violate("the state's log end is the log's", || {
                format!("{node}/{partition} has {known}, the log ends at {end}")
            });
        }
        if high_watermark > end {
            return self.violate("I-X1: the high watermark is at most the log end", || {
                format!("{node}/{partition} high watermark {high_watermark}, log end {end}")
            });
        }
        let image = self.clusters[node.cluster].image();
        let Some(of_partition) = image.partition(partition_id(partition)) else { return };
        let registration = &of_partition.registration;
        let leads = matches!(replica.state.role(), Role::Leader(_));
        if !leads
            || registration.leader != Some(node.id())
            || registration.leader_epoch != replica.state.leader_epoch()
            || registration.leader_recovery_state == LeaderRecoveryState::Recovering
            || !self.is_current(node, partition)
        {
            return;
        }
        // I-R3: the leader counts everybody whom the controller counts.
        let pending = replica.state.leader().and_then(|leader| leader.pending_isr());
        let counts = |id: &BrokerId| {
            replica.state.isr().contains(id)
                || pending.is_some_and(|pending| pending.new_isr.iter().any(|member| member.broker_id == *id))
        };
        if let Some(absent) = registration.isr.iter().find(|id| !counts(id)) {
            let absent = *absent;
            return self.violate("I-R3: the leader's maximal ISR holds the controller's", || {
                format!("{node}/{partition} does not count {absent}")
            });
        }
        let missing = self.truth(node.cluster, partition).missing_in(Some(&disk.log), whole);
        if let Some(batch) = missing.filter(|_| !broker.lost_power) {
            self.violate("I-R4: a leader has all that was committed", || {
                format!("{node}/{partition} leads without {batch:?}")
            });
        }
    }

    /// Everything, of everybody.
    pub fn check_all(&mut self) {
        for node in self.all_nodes() {
            for partition in 0..self.profile.partitions {
                self.check_replica(node, partition, true);
            }
        }
        for cluster in 0..self.clusters.len() {
            let image = self.clusters[cluster].image().clone();
            for partition in 0..self.profile.partitions {
                self.check_registration(cluster, &image, partition, true);
                self.check_duplicates(cluster, partition);
            }
        }
    }

    fn check_duplicates(&mut self, cluster: usize, partition: usize) {
        let truth = self.truth(cluster, partition);
        let idempotent =
            truth.batches.iter().filter(|batch| batch.producer.is_some() && batch.marker.is_none());
        let mut values: Vec<u64> = idempotent.map(|batch| batch.value).collect();
        values.sort_unstable();
        if let Some(twice) = values.windows(2).find(|pair| pair[0] == pair[1]) {
            let value = twice[0];
            self.violate("duplicate: an idempotent producer's batch is in the log once", || {
                format!("{}/{partition}: {value}", cluster_name(cluster))
            });
        }
    }
}
