//! One replica on a broker: the product's state machine, a modelled log beside it, and those who wait.
//! What the product's `replica::partition` does under its lock happens here within one event.

use broker::log::AppendOrigin;
use broker::replica::IsrProposalItem;
use broker::replica::cut;
use broker::replica::state::*;
use common::ids::*;
use common::metadata::record::CutKind;
use controller::control::mirror::cut::CutRequest;
use controller::control::mirror::propose::Proposal;

use super::event::{Event, FollowerRequest, Node, Produce, ProduceError};
use super::mutation::Mutation;
use super::network::Path;
use super::node::id_of;
use super::quorum::directory_of;
use super::world::{World, topic_id};

pub struct Replica {
    pub state: ReplicaState,
    /// The directory failed, or the log must not be led.
    pub offline: bool,
    /// An unreleased mirror: the epoch cache follows the batches.
    pub mirroring: bool,
    pub writable: bool,
    pub waiters: Vec<Waiter>,
    /// Followers' fetches that wait for something new.
    pub parked: Vec<FollowerRequest>,
    pub following: Option<Following>,
}

/// A produce with acks=all that waits for the high watermark.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    pub offset: i64,
    pub produce: Produce,
}

#[derive(Clone, Copy, Debug)]
pub struct Following {
    pub leader: Option<BrokerId>,
    pub under: LeaderEpoch,
    /// Of the fetch under way.
    pub number: u64,
    pub told_high_watermark: i64,
}

impl Replica {
    pub fn new(state: ReplicaState) -> Replica {
        Replica {
            state,
            offline: false,
            mirroring: false,
            writable: true,
            waiters: Vec::new(),
            parked: Vec::new(),
            following: None,
        }
    }
}

impl World {
    pub fn replica(&self, node: Node, partition: usize) -> Option<&Replica> {
        self.broker(node).replicas.get(partition)?.as_ref()
    }

    pub fn replica_mut(&mut self, node: Node, partition: usize) -> Option<&mut Replica> {
        self.broker_mut(node).replicas.get_mut(partition)?.as_mut()
    }

    /// Hands an event to the state and runs what it says; following is the caller's.
    pub fn replica_event(&mut self, node: Node, partition: usize, event: ReplicaEvent) -> Vec<ReplicaEffect> {
        let event = self.mutated_event(node, partition, event);
        let Some(replica) = self.replica_mut(node, partition) else { return Vec::new() };
        let effects = replica.state.apply(event);
        for effect in &effects {
            self.run_replica_effect(node, partition, effect);
        }
        effects
    }

    fn run_replica_effect(&mut self, node: Node, partition: usize, effect: &ReplicaEffect) {
        match effect {
            ReplicaEffect::Lead { leader_epoch, .. } => {
                self.trace(|| format!("{node}/{partition} leads under {leader_epoch}"));
                if self.replica(node, partition).is_some_and(|replica| !replica.mirroring) {
                    self.start_epoch(node, partition, *leader_epoch);
                }
                self.fail_parked(node, partition);
            }
            ReplicaEffect::LeadershipLost => {
                self.fail_waiters(node, partition, i64::MIN, ProduceError::Retriable);
                self.fail_parked(node, partition);
            }
            ReplicaEffect::HighWatermarkMoved(to) => self.high_watermark_moved(node, partition, *to),
            ReplicaEffect::WaitersCut { log_end_offset } => {
                self.fail_waiters(node, partition, log_end_offset.0, ProduceError::Retriable);
                self.fail_parked(node, partition);
            }
            ReplicaEffect::ProposeIsr(proposal) => self.propose_isr(node, partition, proposal),
            ReplicaEffect::ProposeLossCut { leader_epoch, offset } => {
                self.propose_loss_cut(node, partition, *leader_epoch, *offset);
            }
            ReplicaEffect::Follow { .. } | ReplicaEffect::IsrChanged { .. } | ReplicaEffect::Ignored(_) => {}
        }
    }

    fn start_epoch(&mut self, node: Node, partition: usize, leader_epoch: LeaderEpoch) {
        let Some(disk) = &mut self.broker_mut(node).disks[partition] else { return };
        if !disk.log.start_epoch(leader_epoch) {
            let latest = disk.log.latest_epoch();
            self.violate("decision 8: the leader epoch is at least every batch epoch", || {
                format!("{node}/{partition} leads under {leader_epoch}, its log has {latest:?}")
            });
        }
    }

    fn high_watermark_moved(&mut self, node: Node, partition: usize, to: Offset) {
        let epoch = self.replica(node, partition).map(|replica| replica.state.leader_epoch());
        let leads = self.replica(node, partition).is_some_and(|replica| replica.state.is_leader());
        if let Some(epoch) = epoch.filter(|_| leads) {
            self.committed(node, partition, epoch, to.0);
        }
        let Some(replica) = self.replica_mut(node, partition) else { return };
        let enough = replica.state.has_enough_in_sync();
        let mut reached = Vec::new();
        replica.waiters.retain(|waiter| {
            let waits = waiter.offset > to.0;
            if !waits {
                reached.push(*waiter);
            }
            waits
        });
        for waiter in reached {
            let result = if enough { Ok(waiter.offset) } else { Err(ProduceError::Retriable) };
            self.answer_produce(node, waiter.produce, result);
        }
    }

    fn propose_isr(&mut self, node: Node, partition: usize, proposal: &IsrProposal) {
        let own = |id: BrokerId| {
            let image = self.broker(node).applied.as_ref()?;
            image.brokers.get(&id).filter(|_| id == node.id()).map(|broker| broker.broker_epoch)
        };
        let members = proposal.new_isr.iter().map(|member| {
            let epoch = member.broker_epoch.or_else(|| own(member.broker_id));
            (member.broker_id, epoch.unwrap_or(BrokerEpoch(-1)))
        });
        let item = IsrProposalItem {
            id: id_of(partition),
            leader_epoch: proposal.leader_epoch,
            partition_epoch: proposal.partition_epoch,
            new_isr: members.collect(),
        };
        self.trace(|| format!("{node}/{partition} proposes ISR {:?}", item.new_isr));
        if let Some(batch) = self.broker(node).isr_queue.push(item) {
            self.send_proposals(node, batch);
        }
    }

    fn propose_loss_cut(&mut self, node: Node, partition: usize, leader_epoch: LeaderEpoch, offset: Offset) {
        let stops = self.broker(node).applied.as_ref().is_some_and(|image| {
            image
                .topic_by_id(topic_id())
                .is_some_and(|topic| cut::stopping_cut_stands(topic, partition as i32))
        });
        let keeps_undecided = self.is(Mutation::LossKeepsUndecidedTail);
        let Some(disk) = &self.broker(node).disks[partition] else { return };
        let offset = match stops && !keeps_undecided {
            true => offset.min(Offset(disk.log.decided_cut_point(disk.log.end()))),
            false => offset,
        };
        let request = CutRequest {
            id: id_of(partition),
            leader_epoch,
            kind: CutKind::Loss,
            association: None,
            offset,
            highest_batch_epoch: disk.log.latest_epoch().unwrap_or(LeaderEpoch::UNKNOWN),
            directory: directory_of(node),
            only_release: false,
            source_cut_id: None,
        };
        self.propose(node, partition, None, Proposal::Cut(request));
    }

    /// Before any role: whether clients may write, and whether the epoch cache follows the batches.
    pub fn set_mirror_facts(&mut self, node: Node, partition: usize, writable: bool) {
        let Some(replica) = self.replica_mut(node, partition) else { return };
        let was_writable = std::mem::replace(&mut replica.writable, writable);
        let was_mirroring = std::mem::replace(&mut replica.mirroring, !writable);
        let leads = replica.state.is_leader().then(|| replica.state.leader_epoch());
        if was_writable && !writable && !self.is(Mutation::WaitingProducesStay) {
            self.fail_waiters(node, partition, i64::MIN, ProduceError::ReadOnly);
        }
        if was_mirroring
            && writable
            && let Some(epoch) = leads
        {
            self.start_epoch(node, partition, epoch);
        }
        if !was_mirroring
            && !writable
            && let Some(disk) = &mut self.broker_mut(node).disks[partition]
        {
            disk.log.forget_empty_epochs();
        }
    }

    pub fn fail_waiters(&mut self, node: Node, partition: usize, above: i64, error: ProduceError) {
        let Some(replica) = self.replica_mut(node, partition) else { return };
        if replica.waiters.is_empty() {
            return;
        }
        let (failed, kept) = replica.waiters.drain(..).partition(|waiter| waiter.offset > above);
        replica.waiters = kept;
        let failed: Vec<Waiter> = failed;
        for waiter in failed {
            self.answer_produce(node, waiter.produce, Err(error));
        }
    }

    fn answer_produce(&mut self, node: Node, produce: Produce, result: Result<i64, ProduceError>) {
        if let Ok(offset) = result {
            self.acknowledged(node, produce, offset);
        }
        let (cluster, producer, number) = (node.cluster, produce.producer, produce.number);
        self.send(Path::Client, Event::Produced { cluster, producer, number, result });
    }

    pub fn produce_arrived(&mut self, node: Node, produce: Produce) {
        let partition = produce.partition;
        let ignores_minimum = self.is(Mutation::AcksAllBelowMinimum);
        match self.append_produce(node, produce) {
            Ok(end) => {
                let Some(replica) = self.replica_mut(node, partition) else { return };
                let hurries = ignores_minimum && !replica.state.has_enough_in_sync();
                let reached = replica.state.high_watermark().0 >= end || hurries;
                if !produce.acks_all || reached {
                    let enough = !produce.acks_all || hurries || replica.state.has_enough_in_sync();
                    let result = if enough { Ok(end) } else { Err(ProduceError::Retriable) };
                    self.answer_produce(node, produce, result);
                } else {
                    replica.waiters.push(Waiter { offset: end, produce });
                }
                self.touched(node, partition);
            }
            Err(error) => self.answer_produce(node, produce, Err(error)),
        }
    }

    fn append_produce(&mut self, node: Node, produce: Produce) -> Result<i64, ProduceError> {
        let partition = produce.partition;
        let now_ms = self.clock_ms(node);
        let writes_always = self.is(Mutation::ReadOnlyIsWritable);
        let ignores_minimum = self.is(Mutation::AcksAllBelowMinimum);
        let origin = match produce.batch.marker {
            Some(_) => AppendOrigin::Coordinator,
            None => AppendOrigin::Client,
        };
        let (cluster, broker) = (node.cluster, node.broker);
        let broker = &mut self.clusters[cluster].brokers[broker];
        let (Some(replica), Some(disk)) = (&mut broker.replicas[partition], &mut broker.disks[partition])
        else {
            return Err(ProduceError::Retriable);
        };
        if replica.offline || replica.state.check_leader(None).is_err() {
            return Err(ProduceError::Retriable);
        }
        if !replica.writable && !writes_always {
            return Err(ProduceError::ReadOnly);
        }
        if produce.acks_all && !replica.state.has_enough_in_sync() && !ignores_minimum {
            return Err(ProduceError::Retriable);
        }
        let epoch = replica.state.leader_epoch();
        let appended = disk.log.append_as_leader(produce.batch, epoch, origin);
        let (end, duplicate) = appended.map_err(|_| ProduceError::Sequence)?;
        if !duplicate {
            let log_end_offset = Offset(disk.log.end());
            self.check_client_append(node, partition, epoch);
            self.replica_event(node, partition, ReplicaEvent::Appended { log_end_offset, now_ms });
            self.wake_parked(node, partition);
        }
        Ok(end)
    }
}
