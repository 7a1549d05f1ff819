//! A broker process: what it has in memory, what is on its disk, how it comes and goes.

use std::sync::Arc;

use broker::replica::alter_partition::IsrQueue;
use broker::replica::state::{IsrOutcome, ReplicaEvent};
use common::ids::*;
use common::metadata::MetadataImage;

use super::event::{Event, Node, Request, Response, Timer};
use super::log::ModelLog;
use super::mirror::{Mirror, Noted};
use super::mutation::Mutation;
use super::network::Path;
use super::replica::Replica;
use super::requests::take_answers;
use super::world::{World, partition_id};

const HEARTBEAT_MS: i64 = 700;
const TICK_MS: i64 = 1_000;
const CHECKPOINT_MS: i64 = 900;
const PROPOSALS_TIMEOUT_MS: i64 = 800;

/// What a replica leaves on the disk.
pub struct Disk {
    pub log: ModelLog,
    /// The metadata offset of the topic's record (decision 3).
    pub topic_record: MetadataOffset,
    pub applied_cut: Option<CutId>,
    pub high_watermark: i64,
}

pub struct Broker {
    pub up: bool,
    /// Counts the processes of this node.
    pub process: u32,
    pub skew_ms: i64,
    /// The process stands still until then.
    pub paused_until_ms: i64,
    /// Of the registration of this process.
    pub epoch: Option<BrokerEpoch>,
    /// The image it has learned, and so kept on disk.
    pub learned: i64,
    /// The image that its partitions have; none before it holds the own registration.
    pub applied: Option<Arc<MetadataImage>>,
    /// The epoch of the registration that ended with a clean stop.
    pub clean_epoch: Option<BrokerEpoch>,
    pub stopping: bool,
    /// Its disk has lost what was not synced, and the controllers do not know yet.
    pub lost_power: bool,
    pub disks: Vec<Option<Disk>>,
    pub replicas: Vec<Option<Replica>>,
    pub isr_queue: IsrQueue,
    pub isr_number: u64,
    pub mirrors: Vec<Option<Mirror>>,
    pub noted: Noted,
    /// The image that mirroring has taken.
    pub mirror_image: Option<Arc<MetadataImage>>,
}

impl Broker {
    pub fn new(partitions: usize) -> Broker {
        Broker {
            up: false,
            process: 0,
            skew_ms: 0,
            paused_until_ms: 0,
            epoch: None,
            learned: 0,
            applied: None,
            clean_epoch: None,
            stopping: false,
            lost_power: false,
            disks: (0..partitions).map(|_| None).collect(),
            replicas: (0..partitions).map(|_| None).collect(),
            isr_queue: IsrQueue::default(),
            isr_number: 0,
            mirrors: (0..partitions).map(|_| None).collect(),
            noted: Noted::default(),
            mirror_image: None,
        }
    }
}

impl World {
    pub fn start_broker(&mut self, node: Node) {
        let partitions = self.profile.partitions;
        let forgets = self.random.chance(200);
        let broker = self.broker_mut(node);
        if broker.up {
            return;
        }
        broker.up = true;
        broker.process += 1;
        broker.epoch = None;
        broker.applied = None;
        broker.stopping = false;
        broker.isr_queue = IsrQueue::default();
        broker.replicas = (0..partitions).map(|_| None).collect();
        broker.mirrors = (0..partitions).map(|_| None).collect();
        broker.noted = Noted::default();
        broker.mirror_image = None;
        if forgets {
            // What it had learned last was not on its disk yet.
            broker.learned = (broker.learned - 3).max(0);
        }
        let process = broker.process;
        self.trace(|| format!("{node} starts, process {process}"));
        self.heartbeat(node);
        let (tick, checkpoint) = (self.random.between(1, TICK_MS), self.random.between(1, CHECKPOINT_MS));
        self.after(tick, Timer::Tick { node, process });
        self.after(checkpoint, Timer::Checkpoint { node, process });
    }

    fn request(&mut self, from: Node, request: Request) {
        let process = self.broker(from).process;
        self.send(Path::Controller(from), Event::Request { from, process, request: Box::new(request) });
    }

    pub fn propose(
        &mut self,
        from: Node,
        partition: usize,
        token: Option<broker::mirror::state::Token>,
        proposal: controller::control::mirror::propose::Proposal,
    ) {
        let Some(broker_epoch) = self.broker(from).epoch else { return };
        self.request(from, Request::Propose { broker_epoch, partition, token, proposal });
    }

    pub fn heartbeat(&mut self, node: Node) {
        let broker = self.broker(node);
        let (process, learned) = (broker.process, broker.learned);
        let request = match broker.epoch {
            Some(broker_epoch) => {
                Request::Heartbeat { broker_epoch, metadata_offset: learned, want_shutdown: broker.stopping }
            }
            None => Request::Register { previous_broker_epoch: broker.clean_epoch },
        };
        let waits = if broker.epoch.is_none() || broker.stopping { HEARTBEAT_MS / 5 } else { HEARTBEAT_MS };
        let caught_up = broker.epoch.is_some_and(|epoch| broker.applied.is_some() && learned >= epoch.0);
        self.request(node, request);
        let waits = if caught_up { waits } else { waits.min(HEARTBEAT_MS / 3) };
        self.after(waits, Timer::Heartbeat { node, process });
    }

    pub fn controller_response(&mut self, to: Node, response: Response) {
        match response {
            Response::Registered(epoch) => {
                if self.broker(to).epoch.is_none() {
                    self.trace(|| format!("{to} registered as {epoch}"));
                    let broker = self.broker_mut(to);
                    broker.epoch = Some(epoch);
                    broker.clean_epoch = None;
                    let learned = broker.learned;
                    let offset = self.clusters[to.cluster].offset();
                    self.push_metadata(to, offset.max(learned));
                }
            }
            Response::Heartbeat { should_shut_down } => {
                if should_shut_down && self.broker(to).stopping {
                    self.stop_cleanly(to);
                } else if self
                    .broker(to)
                    .applied
                    .as_ref()
                    .is_some_and(|image| image.brokers.get(&to.id()).is_some_and(|broker| broker.fenced))
                {
                    // Fenced and caught up: the next heartbeat asks for what this one has brought.
                }
            }
            Response::Stale => self.crash(to, false),
            Response::AlterPartition { number, answers } => {
                if self.broker(to).isr_number == number {
                    self.isr_answered(to, answers);
                }
            }
            Response::Proposed { partition, token, result } => {
                let event = broker::mirror::state::MirrorEvent::Proposed { token, result };
                self.mirror_event(to, partition, event);
            }
            Response::Nothing => {}
        }
    }

    pub fn send_proposals(&mut self, node: Node, proposals: Vec<broker::replica::IsrProposalItem>) {
        let number = self.number();
        self.trace(|| format!("{node} sends proposals {number}: {proposals:?}"));
        let broker = self.broker_mut(node);
        broker.isr_number = number;
        let process = broker.process;
        if let Some(broker_epoch) = broker.epoch {
            self.request(node, Request::AlterPartition { broker_epoch, number, proposals });
        }
        self.after(PROPOSALS_TIMEOUT_MS, Timer::ProposalsExpired { node, process, number });
    }

    pub fn proposals_expired(&mut self, node: Node, number: u64) {
        if self.broker(node).isr_number != number {
            return;
        }
        if self.is(Mutation::ProposedIsrIsAssumed) {
            for item in self.broker(node).isr_queue.answered(true) {
                let event = ReplicaEvent::IsrAnswered {
                    leader_epoch: item.leader_epoch,
                    partition_epoch: item.partition_epoch,
                    outcome: IsrOutcome::Refused,
                    now_ms: self.clock_ms(node),
                };
                self.replica_event(node, item.id.partition as usize, event);
            }
        }
        self.isr_answered(node, Err("timed out".to_owned()));
    }

    fn isr_answered(
        &mut self,
        node: Node,
        answers: Result<Vec<broker::replica::manager::IsrAnswer>, String>,
    ) {
        self.broker_mut(node).isr_number = 0;
        self.trace(|| format!("{node} proposals are answered: {answers:?}"));
        let answered = answers.is_ok();
        let now_ms = self.clock_ms(node);
        for taken in take_answers(&self.broker(node).isr_queue, answers) {
            let event = ReplicaEvent::IsrAnswered {
                leader_epoch: taken.item.leader_epoch,
                partition_epoch: taken.item.partition_epoch,
                outcome: taken.outcome,
                now_ms,
            };
            self.replica_event(node, taken.item.id.partition as usize, event);
        }
        if answered && let Some(batch) = self.broker(node).isr_queue.next_batch() {
            self.send_proposals(node, batch);
        }
    }

    pub fn tick(&mut self, node: Node) {
        let now_ms = self.clock_ms(node);
        for partition in 0..self.profile.partitions {
            let broker = self.broker(node);
            let Some(replica) = &broker.replicas[partition] else { continue };
            let Some(leader) = replica.state.leader() else { continue };
            if leader.has_followers() || leader.is_recovering() {
                let active = leader.absent(replica.state.isr());
                let active = active.filter_map(|id| active_broker(broker, id)).collect();
                self.replica_event(node, partition, ReplicaEvent::LagCheck { now_ms, active });
            }
        }
        if let Some(batch) = self.broker(node).isr_queue.tick() {
            self.send_proposals(node, batch);
        }
        let process = self.broker(node).process;
        self.after(TICK_MS, Timer::Tick { node, process });
    }

    pub fn checkpoint(&mut self, node: Node) {
        let sync = self.random.chance(self.profile.sync);
        let broker = self.broker_mut(node);
        let process = broker.process;
        for (disk, replica) in broker.disks.iter_mut().zip(&broker.replicas) {
            if let (Some(disk), Some(replica)) = (disk, replica) {
                disk.high_watermark = replica.state.high_watermark().0;
                // A checkpoint that is on the disk has the file system's journal there with it.
                disk.log.settle_truncations();
                if sync {
                    disk.log.sync();
                }
            }
        }
        self.after(CHECKPOINT_MS, Timer::Checkpoint { node, process });
    }

    /// The process ends at once; `power`: and the machine with it.
    pub fn crash(&mut self, node: Node, power: bool) {
        if !self.broker(node).up {
            return;
        }
        self.trace(|| format!("{node} {}", if power { "loses power" } else { "is killed" }));
        let mut random = self.random.clone();
        let broker = self.broker_mut(node);
        let process = broker.process;
        broker.up = false;
        broker.clean_epoch = None;
        broker.lost_power |= power;
        for disk in broker.disks.iter_mut().flatten() {
            disk.log.crash(power, &mut random);
            disk.high_watermark = disk.high_watermark.min(disk.log.end());
        }
        self.random = random;
        self.forget_process(node, process);
    }

    fn stop_cleanly(&mut self, node: Node) {
        self.trace(|| format!("{node} stops cleanly"));
        let broker = self.broker_mut(node);
        let process = broker.process;
        broker.up = false;
        broker.clean_epoch = broker.epoch;
        for (disk, replica) in broker.disks.iter_mut().zip(&broker.replicas) {
            if let Some(disk) = disk {
                disk.log.sync();
                if let Some(replica) = replica {
                    disk.high_watermark = replica.state.high_watermark().0;
                }
            }
        }
        self.forget_process(node, process);
    }

    fn forget_process(&mut self, node: Node, process: u32) {
        let broker = self.broker_mut(node);
        broker.epoch = None;
        broker.applied = None;
        broker.replicas.iter_mut().for_each(|replica| *replica = None);
        broker.mirrors.iter_mut().for_each(|mirror| *mirror = None);
        self.connection_closed(node, process);
        if self.healing || self.profile.restarts {
            let slowest_ms = if self.random.chance(350) { 300 } else { 5_000 };
            let delay = if self.healing { 50 } else { self.random.between(50, slowest_ms) };
            self.after(delay, Timer::Start(node));
        }
    }
}

/// A broker that may join an ISR, as the image that has been applied here says.
fn active_broker(broker: &Broker, id: BrokerId) -> Option<(BrokerId, BrokerEpoch)> {
    let image = broker.applied.as_ref()?;
    image.brokers.get(&id).filter(|broker| broker.is_active()).map(|broker| (id, broker.broker_epoch))
}

/// The process that is registered, unfenced and staying.
pub fn is_eligible(broker: &Broker, id: BrokerId, epoch: BrokerEpoch) -> bool {
    active_broker(broker, id).is_some_and(|(_, registered)| epoch.0 < 0 || registered == epoch)
}

pub fn id_of(partition: usize) -> TopicIdPartition {
    partition_id(partition)
}
