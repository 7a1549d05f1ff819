//! The mirror machines of a broker, and whoever acts for them: the product's `mirror::manager` in the small.

use std::sync::Arc;

use broker::mirror::coordinator::StateKey;
use broker::mirror::deps::{LocalStatus, StateWrite};
use broker::mirror::manager::conditions::{high_watermark_at_end, may_act, replicas_aligned};
use broker::mirror::state::*;
use broker::replica::state::ReplicaEvent;
use common::ids::*;
use common::metadata::record::CutKind;
use common::metadata::{MetadataDelta, MetadataImage};
use common::mirror_state::MirrorState;
use controller::control::mirror::cut::{CutRequest, RaiseRequest};
use controller::control::mirror::propose::Proposal;
use controller::control::mirror::release::ReleaseRequest;

use super::event::{AskKind, Event, Node, ProduceError, Timer};
use super::mutation::Mutation;
use super::node::id_of;
use super::world::{World, partition_id, topic_id};

pub const RETRY: RetryPolicy = RetryPolicy { initial_ms: 200, maximum_ms: 3_000 };

pub struct Mirror {
    pub machine: Option<MirrorPartition>,
    pub watch: Option<Watch>,
    pub slot: Option<super::mirror_fetch::Slot>,
    /// Of the question under way.
    pub asking: u64,
    /// For the oracle: no fetcher until the machine wants one again.
    pub quiesced: bool,
}

/// What a machine waits for at its own partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Watch {
    Quiesced(Token),
    HighWatermark(Token),
    Replicas { token: Token, epoch: LeaderEpoch, at_end: bool },
}

/// What metadata has brought and mirroring has not taken yet.
#[derive(Default)]
pub struct Noted {
    image: Option<Arc<MetadataImage>>,
    touched: Vec<usize>,
    lost: Vec<usize>,
    everything: bool,
}

impl World {
    pub fn note_mirror_metadata(
        &mut self,
        node: Node,
        before: &MetadataImage,
        delta: &MetadataDelta,
        after: &Arc<MetadataImage>,
    ) {
        let me = node.id();
        let noted = &mut self.broker_mut(node).noted;
        for id in &delta.partitions {
            let partition = id.partition as usize;
            noted.touched.push(partition);
            let leader = after.partition(*id).and_then(|partition| partition.registration.leader);
            if leader != Some(me) {
                noted.lost.push(partition);
            }
        }
        for topic in &delta.topics_deleted {
            noted.touched.extend(0..topic.partitions.len());
            noted.lost.extend(0..topic.partitions.len());
        }
        for topic in delta.topics_mirror.iter().chain(&delta.topics_created) {
            let topic = after.topic_by_id(*topic).or_else(|| before.topic_by_id(*topic));
            noted.touched.extend(0..topic.map_or(0, |topic| topic.partitions.len()));
        }
        noted.everything |= delta.everything || delta.brokers.contains(&me);
        let wakes = noted.image.is_none();
        noted.image = Some(after.clone());
        if wakes {
            let process = self.broker(node).process;
            let delay = self.random.between(0, 3);
            self.after(delay, Timer::MirrorMetadata { node, process });
        }
    }

    pub fn take_mirror_metadata(&mut self, node: Node) {
        let noted = std::mem::take(&mut self.broker_mut(node).noted);
        let Some(image) = noted.image else { return };
        self.broker_mut(node).mirror_image = Some(image.clone());
        let own_epoch = self.broker(node).epoch;
        if !may_act(&image, node.id(), own_epoch) {
            return (0..self.profile.partitions).for_each(|partition| self.drop_machine(node, partition));
        }
        for partition in noted.lost {
            self.drop_machine(node, partition);
        }
        let mut touched = noted.touched;
        if noted.everything {
            touched.extend(0..self.profile.partitions);
        }
        touched.sort_unstable();
        touched.dedup();
        for partition in touched {
            let facts = MirrorFacts::of(&image, node.id(), partition_id(partition));
            match facts.map(|facts| self.mutated_facts(facts)) {
                None => self.drop_machine(node, partition),
                Some(facts) if self.broker(node).mirrors[partition].is_some() => {
                    self.mirror_event(node, partition, MirrorEvent::FactsChanged(facts));
                }
                Some(facts) => self.lead_mirror(node, partition, facts),
            }
        }
    }

    fn moment(&mut self, node: Node) -> Moment {
        Moment { now_ms: self.clock_ms(node), random: self.random.number() as u32, retry: RETRY }
    }

    fn lead_mirror(&mut self, node: Node, partition: usize, facts: MirrorFacts) {
        let at = self.moment(node);
        let (machine, effects) = MirrorPartition::lead(id_of(partition), facts, at);
        self.broker_mut(node).mirrors[partition] =
            Some(Mirror { machine: Some(machine), watch: None, slot: None, asking: 0, quiesced: false });
        self.run_mirror_effects(node, partition, effects);
    }

    fn drop_machine(&mut self, node: Node, partition: usize) {
        self.broker_mut(node).mirrors[partition] = None;
    }

    pub fn mirror_event(&mut self, node: Node, partition: usize, event: MirrorEvent) {
        let at = self.moment(node);
        let event = self.mutated_mirror_event(node, partition, event);
        let Some(mirror) = &mut self.broker_mut(node).mirrors[partition] else { return };
        let Some(machine) = mirror.machine.take() else { return };
        let name = event.name();
        let before = machine.shown().state;
        let (machine, effects) = step(machine, event, at);
        let shown = machine.shown().clone();
        mirror.machine = Some(machine);
        self.trace(|| {
            format!("{node}/{partition} mirror: {name} {before} -> {} {}", shown.state, shown.reason)
        });
        self.run_mirror_effects(node, partition, effects);
    }

    pub fn mirror_wake(&mut self, node: Node, partition: usize) {
        let now_ms = self.clock_ms(node);
        let machine =
            self.broker(node).mirrors[partition].as_ref().and_then(|mirror| mirror.machine.as_ref());
        let Some(wakes) = machine.and_then(MirrorPartition::wakes_at_ms) else { return };
        if wakes <= now_ms {
            self.mirror_event(node, partition, MirrorEvent::Tick);
        } else {
            // The node's clock was set back.
            self.wake_mirror(node, partition, wakes);
        }
    }

    fn wake_mirror(&mut self, node: Node, partition: usize, at_ms: i64) {
        let (process, now_ms) = (self.broker(node).process, self.clock_ms(node));
        self.after((at_ms - now_ms).clamp(1, 5_000), Timer::MirrorWake { node, process, partition });
    }

    /// An answer that comes by itself, a moment later.
    pub fn mirror_event_soon(&mut self, node: Node, partition: usize, event: MirrorEvent) {
        let process = self.broker(node).process;
        let at_ms = self.now_ms + self.random.between(0, 2);
        self.queue.push(at_ms, Event::Mirror { to: node, process, partition, event: Box::new(event) });
    }

    fn source_of(&self, node: Node, mirror: &str) -> usize {
        let mirrors = &self.clusters[node.cluster].mirrors;
        mirrors.iter().position(|name| **name == *mirror).unwrap_or(0)
    }

    pub fn machine_facts(&self, node: Node, partition: usize) -> Option<&MirrorFacts> {
        let mirror = self.broker(node).mirrors.get(partition)?.as_ref()?;
        mirror.machine.as_ref().map(MirrorPartition::facts)
    }

    fn run_mirror_effects(&mut self, node: Node, partition: usize, effects: Vec<MirrorEffect>) {
        for effect in effects {
            self.run_mirror_effect(node, partition, effect);
        }
    }

    fn run_mirror_effect(&mut self, node: Node, partition: usize, effect: MirrorEffect) {
        let Some(facts) = self.machine_facts(node, partition) else { return };
        let (mirror, process) = (facts.mirror.clone(), self.broker(node).process);
        let source = self.source_of(node, &mirror);
        match effect {
            MirrorEffect::ReadState { token } => {
                let at_ms = self.now_ms + self.delay_ms();
                let event = Event::ReadState { from: node, process, partition, token, mirror: source };
                self.queue.push(at_ms, event);
            }
            MirrorEffect::SaveState { token, record, expected } => {
                let key = StateKey { mirror, topic_id: topic_id(), partition: partition as i32 };
                let write = Box::new(StateWrite { key, record, expected });
                if self.is(Mutation::ActionBeforeState) {
                    let epoch = write.expected.next();
                    self.mirror_event_soon(
                        node,
                        partition,
                        MirrorEvent::StateWritten { token, result: Ok(epoch) },
                    );
                }
                let at_ms = self.now_ms + self.delay_ms();
                self.queue.push(at_ms, Event::WriteState { from: node, process, partition, token, write });
            }
            MirrorEffect::Quiesce { token } => {
                self.stop_slot(node, partition);
                self.set_quiesced(node, partition, true);
                if !self.is(Mutation::WaitingProducesStay) {
                    self.fail_waiters(node, partition, i64::MIN, ProduceError::ReadOnly);
                }
                self.watch(node, partition, Watch::Quiesced(token));
            }
            MirrorEffect::AskLastMirroredOffset { token, seen, recopy } => {
                self.ask(node, partition, token, source, seen, AskKind::Position { recopy });
            }
            MirrorEffect::CheckSource { token, seen, bounds, .. } => {
                let Some(status) = self.local_status(node, partition) else { return };
                let empty = status.log_end_offset <= status.log_start_offset;
                let known = status.latest_batch_epoch > LeaderEpoch::UNKNOWN;
                let last_epoch = (known && !empty).then_some(status.latest_batch_epoch);
                let kind = AskKind::Check { bounds, local_end: status.log_end_offset, last_epoch };
                self.ask(node, partition, token, source, seen, kind);
            }
            MirrorEffect::ProposeCut {
                token,
                kind,
                association,
                offset,
                leader_epoch,
                highest_batch_epoch,
                source_cut_id,
            } => {
                let state = match kind {
                    CutKind::Preparing => MirrorState::Preparing,
                    CutKind::Source => MirrorState::Mirroring,
                    _ => MirrorState::Stopping,
                };
                self.check_recorded(node, partition, source, state, leader_epoch);
                if self.is(Mutation::TruncatesBeforeCommit)
                    && let Some(disk) = &mut self.broker_mut(node).disks[partition]
                    && offset.0 < disk.log.end()
                {
                    disk.log.truncate_to(offset.0);
                    let log_end_offset = Offset(disk.log.end());
                    self.replica_event(node, partition, ReplicaEvent::Truncated { log_end_offset });
                }
                let request = CutRequest {
                    id: id_of(partition),
                    leader_epoch,
                    kind,
                    association: Some(association),
                    offset,
                    highest_batch_epoch,
                    directory: DirectoryId::ZERO,
                    only_release: false,
                    source_cut_id,
                };
                self.propose_mirror(node, partition, token, Proposal::Cut(request));
            }
            MirrorEffect::ProposeRaise { token, leader_epoch, minimum } => {
                let request = RaiseRequest { id: id_of(partition), leader_epoch, minimum };
                self.propose_mirror(node, partition, token, Proposal::Raise(request));
            }
            MirrorEffect::ProposeRelease { token, association, leader_epoch, offset, checked_cut_id } => {
                let request = ReleaseRequest {
                    id: id_of(partition),
                    leader_epoch,
                    association,
                    offset,
                    checked_cut_id: checked_cut_id.map_or(-1, |id| id.0),
                };
                self.propose_mirror(node, partition, token, Proposal::Release(request));
            }
            MirrorEffect::AwaitHighWatermark { token } => {
                self.watch(node, partition, Watch::HighWatermark(token));
            }
            MirrorEffect::AwaitReplicas { token, epoch, high_watermark_at_end: at_end } => {
                self.watch(node, partition, Watch::Replicas { token, epoch, at_end });
            }
            MirrorEffect::RestartLogAt { token, .. } => {
                let result = Err(FetchStop::NotLeader);
                self.mirror_event_soon(node, partition, MirrorEvent::LogRestarted { token, result });
            }
            MirrorEffect::StartFetcher { token, source: leader, leader_epoch } => {
                let image = self.broker(node).mirror_image.clone();
                if !image.is_some_and(|image| may_act(&image, node.id(), self.broker(node).epoch)) {
                    self.violate("decision 16: a fenced broker acts on nothing", || format!("{node}"));
                }
                self.check_recorded(node, partition, source, MirrorState::Mirroring, leader_epoch);
                self.set_quiesced(node, partition, false);
                self.start_slot(node, partition, token, source, &leader, leader_epoch);
            }
            MirrorEffect::AppendUnder { leader_epoch } => self.append_under(node, partition, leader_epoch),
            MirrorEffect::StopFetcher => self.stop_slot(node, partition),
            MirrorEffect::WakeAt { at_ms } => self.wake_mirror(node, partition, at_ms),
            MirrorEffect::Report(_) | MirrorEffect::Ignore { .. } => {}
        }
    }

    fn set_quiesced(&mut self, node: Node, partition: usize, quiesced: bool) {
        if let Some(mirror) = &mut self.broker_mut(node).mirrors[partition] {
            mirror.quiesced = quiesced;
        }
    }

    /// The controller's answer may be lost; then the caller's own time-out says so.
    fn propose_mirror(&mut self, node: Node, partition: usize, token: Token, proposal: Proposal) {
        self.propose(node, partition, Some(token), proposal);
        let process = self.broker(node).process;
        let result = Err(ProposalError::Unavailable("timed out".to_owned()));
        let event = Box::new(MirrorEvent::Proposed { token, result });
        let at_ms = self.now_ms + 1_500;
        self.queue.push(at_ms, Event::Mirror { to: node, process, partition, event });
    }

    pub fn local_status(&self, node: Node, partition: usize) -> Option<LocalStatus> {
        let broker = self.broker(node);
        let replica = broker.replicas[partition].as_ref()?;
        let log = &broker.disks[partition].as_ref()?.log;
        Some(LocalStatus {
            is_leader: replica.state.is_serving() && !replica.offline,
            leader_epoch: replica.state.leader_epoch(),
            log_start_offset: Offset(log.start),
            log_end_offset: Offset(log.end()),
            high_watermark: replica.state.high_watermark(),
            latest_batch_epoch: log.latest_epoch().unwrap_or(LeaderEpoch::UNKNOWN),
        })
    }

    fn watch(&mut self, node: Node, partition: usize, watch: Watch) {
        if let Some(mirror) = &mut self.broker_mut(node).mirrors[partition] {
            mirror.watch = Some(watch);
        }
        self.poll_watch(node, partition);
    }

    /// Whether what a machine waits for has come.
    pub fn poll_watch(&mut self, node: Node, partition: usize) {
        let Some(watch) = self.broker(node).mirrors[partition].as_ref().and_then(|mirror| mirror.watch)
        else {
            return;
        };
        let Some(status) = self.local_status(node, partition) else { return };
        let impatient = self.is(Mutation::ReplicasAreNotAwaited);
        let hasty = impatient || self.is(Mutation::StoppingDoesNotWait);
        let (Some(replica), Some(disk)) =
            (&self.broker(node).replicas[partition], &self.broker(node).disks[partition])
        else {
            return;
        };
        let event = match watch {
            Watch::Quiesced(token) => status.is_leader.then_some(MirrorEvent::Quiesced {
                token,
                log_end: status.log_end_offset,
                highest_batch_epoch: status.latest_batch_epoch,
            }),
            Watch::HighWatermark(token) => {
                let reached = high_watermark_at_end(&status) || (hasty && status.is_leader);
                let cut_point = match self.is(Mutation::StopsAtLastStableOffset) {
                    true => disk.log.last_stable_offset(status.high_watermark.0),
                    false => {
                        let stable = disk.log.last_stable_offset(status.high_watermark.0);
                        disk.log.decided_cut_point(stable)
                    }
                };
                reached.then_some(MirrorEvent::HighWatermarkAtEnd {
                    token,
                    cut_point: Offset(cut_point),
                    highest_batch_epoch: status.latest_batch_epoch,
                })
            }
            Watch::Replicas { token, epoch, at_end } => {
                let fetched = replica.state.fetched_under_epoch(epoch);
                let aligned = replicas_aligned(&status, epoch, fetched, at_end)
                    || (impatient && status.is_leader && status.leader_epoch >= epoch);
                let log_end = status.log_end_offset;
                aligned.then_some(MirrorEvent::ReplicasAligned { token, log_end })
            }
        };
        if let Some(event) = event {
            if let Some(mirror) = &mut self.broker_mut(node).mirrors[partition] {
                mirror.watch = None;
            }
            self.mirror_event_soon(node, partition, event);
        }
    }
}
