//! Copying from a source: the fetcher's slot here, and the source's leader that serves it as a consumer.

use broker::mirror::fetcher::answer::{Outcome, refused};
use broker::mirror::state::{FailureKind, FailureReason, FetchStop, MirrorEvent, SourceLeader, Token};
use broker::replica::state::ReplicaEvent;
use common::ids::*;
use protocol::ErrorCode;

use super::event::{Event, MirrorFetch, MirrorFetched, Node, Timer};
use super::follower::error_code;
use super::log::{Batch, CopyRefusal};
use super::mutation::Mutation;
use super::network::Path;
use super::world::World;

const TIMEOUT_MS: i64 = 1_500;
const IDLE_MS: i64 = 120;
const BACKOFF_MS: i64 = 150;
const MOST: usize = 4;
const MOST_REFUSALS: u32 = 5;

#[derive(Clone, Debug)]
pub struct Slot {
    token: Token,
    source: Node,
    source_epoch: LeaderEpoch,
    /// Ours; raised under a running fetcher.
    leader_epoch: LeaderEpoch,
    next: i64,
    number: u64,
    succeeded: bool,
    refusals: u32,
    answered: bool,
}

impl World {
    pub fn start_slot(
        &mut self,
        node: Node,
        partition: usize,
        token: Token,
        source: usize,
        leader: &SourceLeader,
        leader_epoch: LeaderEpoch,
    ) {
        let Some(status) = self.local_status(node, partition) else {
            let why = FetchStop::NotLeader;
            return self.mirror_event_soon(node, partition, MirrorEvent::FetchStopped { token, why });
        };
        let newest = self.newest_epoch(source, partition).filter(|_| self.is(Mutation::EpochMayLieAboveOwn));
        let source_epoch = newest.unwrap_or(leader.epoch);
        let slot = Slot {
            token,
            source: Node { cluster: source, broker: (leader.node_id - 1).max(0) as usize },
            source_epoch,
            leader_epoch,
            next: status.log_end_offset.0,
            number: 0,
            succeeded: false,
            refusals: 0,
            answered: true,
        };
        if let Some(mirror) = &mut self.broker_mut(node).mirrors[partition] {
            mirror.slot = Some(slot);
        }
        self.send_mirror_fetch(node, partition);
    }

    fn slot_mut(&mut self, node: Node, partition: usize) -> Option<&mut Slot> {
        self.broker_mut(node).mirrors[partition].as_mut()?.slot.as_mut()
    }

    pub fn stop_slot(&mut self, node: Node, partition: usize) {
        if self.is(Mutation::FetcherOutlivesItsStop) && self.random.chance(500) {
            return;
        }
        if let Some(mirror) = &mut self.broker_mut(node).mirrors[partition] {
            mirror.slot = None;
        }
    }

    pub fn append_under(&mut self, node: Node, partition: usize, leader_epoch: LeaderEpoch) {
        if let Some(slot) = self.slot_mut(node, partition) {
            slot.leader_epoch = leader_epoch;
        }
    }

    fn close_slot(&mut self, node: Node, partition: usize, why: FetchStop) {
        let Some(slot) = self.slot_mut(node, partition) else { return };
        let token = slot.token;
        if let Some(mirror) = &mut self.broker_mut(node).mirrors[partition] {
            mirror.slot = None;
        }
        self.mirror_event_soon(node, partition, MirrorEvent::FetchStopped { token, why });
    }

    fn send_mirror_fetch(&mut self, node: Node, partition: usize) {
        let number = self.number();
        let process = self.broker(node).process;
        let Some(slot) = self.slot_mut(node, partition) else { return };
        slot.number = number;
        slot.answered = false;
        let to = slot.source;
        let fetch = MirrorFetch {
            from: node,
            from_process: process,
            partition,
            token: slot.token,
            number,
            source_epoch: slot.source_epoch,
            offset: slot.next,
        };
        if self.clusters[to.cluster].brokers.get(to.broker).is_some_and(|broker| broker.up) {
            let to_process = self.broker(to).process;
            self.send(Path::Brokers(node, to), Event::MirrorFetch { to, process: to_process, fetch });
        }
        self.after(TIMEOUT_MS, Timer::MirrorFetchAgain { node, process, partition, number });
    }

    pub fn mirror_fetch_again(&mut self, node: Node, partition: usize, number: u64) {
        let Some(slot) = self.slot_mut(node, partition) else { return };
        if slot.number != number {
            return;
        }
        if slot.answered {
            self.send_mirror_fetch(node, partition);
        } else {
            // No answer: the connection is given up, and the machine asks where the source is.
            self.close_slot(node, partition, FetchStop::SourceMoved { epoch: None });
        }
    }

    pub fn mirror_fetch_arrived(&mut self, node: Node, fetch: MirrorFetch) {
        let answer = self.serve_mirror(node, &fetch);
        let (to, process) = (fetch.from, fetch.from_process);
        self.send(Path::Brokers(node, to), Event::MirrorFetched { to, process, answer: Box::new(answer) });
    }

    fn serve_mirror(&self, node: Node, fetch: &MirrorFetch) -> MirrorFetched {
        let mut answer = MirrorFetched {
            partition: fetch.partition,
            token: fetch.token,
            number: fetch.number,
            fetched_from: fetch.offset,
            error_code: 0,
            told_epoch: None,
            batches: Vec::new(),
            source_previous: None,
            undecided: None,
        };
        let broker = self.broker(node);
        let (Some(replica), Some(disk)) = (&broker.replicas[fetch.partition], &broker.disks[fetch.partition])
        else {
            answer.error_code = ErrorCode::NotLeaderOrFollower.code();
            return answer;
        };
        let expected =
            if self.is(Mutation::FetchEpochIsNotChecked) { None } else { Some(fetch.source_epoch) };
        if let Err(error) = replica.state.check_leader(expected) {
            answer.error_code = error_code(&error).code();
            answer.told_epoch = replica.state.is_leader().then(|| replica.state.leader_epoch());
            return answer;
        }
        if fetch.offset < disk.log.start || fetch.offset > disk.log.end() {
            answer.error_code = ErrorCode::OffsetOutOfRange.code();
            return answer;
        }
        let high_watermark = replica.state.high_watermark().0;
        let upper = match self.is(Mutation::MirrorsUndecidedData) {
            true => disk.log.end(),
            false => disk.log.last_stable_offset(high_watermark),
        };
        answer.batches = disk.log.read(fetch.offset, upper, MOST);
        answer.source_previous = disk.log.ending_at(fetch.offset);
        let truth = self.truth(node.cluster, fetch.partition);
        let undecided = |batch: &&Batch| {
            truth.at(batch.base) != Some(batch) || batch.base >= disk.log.last_stable_offset(high_watermark)
        };
        let newest =
            self.clusters[node.cluster].image().partition(super::world::partition_id(fetch.partition));
        if newest.is_some_and(|newest| newest.registration.leader_epoch == replica.state.leader_epoch()) {
            answer.undecided = answer.batches.iter().find(undecided).copied();
        }
        answer
    }

    pub fn mirror_fetched(&mut self, node: Node, answer: MirrorFetched) {
        let partition = answer.partition;
        let process = self.broker(node).process;
        let backoff = self.random.between(BACKOFF_MS / 2, BACKOFF_MS);
        let Some(slot) = self.slot_mut(node, partition) else { return };
        if slot.token != answer.token || slot.number != answer.number || slot.answered {
            return;
        }
        slot.answered = true;
        let number = slot.number;
        if answer.error_code != 0 {
            match refused(answer.error_code, answer.told_epoch) {
                Outcome::Stop(why) => return self.close_slot(node, partition, why),
                _ => {
                    slot.refusals += 1;
                    if slot.refusals >= MOST_REFUSALS {
                        return self.close_slot(node, partition, FetchStop::SourceMoved { epoch: None });
                    }
                    return self.after(backoff, Timer::MirrorFetchAgain { node, process, partition, number });
                }
            }
        }
        slot.refusals = 0;
        let token = slot.token;
        if !std::mem::replace(&mut slot.succeeded, true) {
            self.mirror_event_soon(node, partition, MirrorEvent::FetchSucceeded { token });
        }
        if answer.batches.is_empty() {
            return self.after(IDLE_MS, Timer::MirrorFetchAgain { node, process, partition, number });
        }
        if let Err(why) = self.append_mirrored(node, partition, &answer) {
            return self.close_slot(node, partition, why);
        }
        let Some(slot) = self.slot_mut(node, partition) else { return };
        slot.next = answer.batches.last().map_or(slot.next, Batch::next);
        self.send_mirror_fetch(node, partition);
    }

    /// As the product's `Partition::append_mirrored`, and the checks of I-M1 and I-M2.
    fn append_mirrored(
        &mut self,
        node: Node,
        partition: usize,
        answer: &MirrorFetched,
    ) -> Result<(), FetchStop> {
        let now_ms = self.clock_ms(node);
        let any_epoch = self.is(Mutation::EpochMayLieAboveOwn);
        let any_leader = self.is(Mutation::MirrorAppendIsNotFenced);
        let Some(under) = self.slot_mut(node, partition).map(|slot| slot.leader_epoch) else { return Ok(()) };
        let broker = &mut self.clusters[node.cluster].brokers[node.broker];
        let (Some(replica), Some(disk)) = (&mut broker.replicas[partition], &mut broker.disks[partition])
        else {
            return Err(FetchStop::NotLeader);
        };
        let refuses =
            replica.state.check_leader(Some(under)).is_err() || !replica.mirroring || replica.offline;
        if refuses && !any_leader {
            return Err(FetchStop::NotLeader);
        }
        let highest = answer.batches.iter().map(|batch| LeaderEpoch(batch.epoch)).max();
        if let Some(batch) = highest.filter(|batch| *batch > under && !any_epoch) {
            return Err(FetchStop::EpochAboveOwn { batch });
        }
        let end = disk.log.end();
        let previous = disk.log.ending_at(end);
        let failed = |kind| FetchStop::Failed(FailureReason::new(kind, ""));
        match disk.log.append_copied(&answer.batches) {
            Ok(()) => {}
            Err(CopyRefusal::OutOfOrder) if end != answer.fetched_from => return Err(FetchStop::NotLeader),
            Err(refusal) => {
                let epochs = disk.log.epochs.latest();
                self.trace(|| {
                    format!(
                        "{node}/{partition} at {end}, epoch {epochs:?}: {refusal:?} of {:?}",
                        answer.batches
                    )
                });
                return Err(failed(FailureKind::UnexpectedOffset));
            }
        }
        let log_end_offset = Offset(disk.log.end());
        let own_epoch = replica.state.leader_epoch();
        self.trace(|| format!("{node}/{partition} copies up to {log_end_offset} under {under}"));
        if self.broker(node).mirrors[partition].as_ref().is_some_and(|mirror| mirror.quiesced) {
            self.violate("decision 10a: nothing is appended once the fetcher is gone", || node.to_string());
        }
        if previous != answer.source_previous && previous.is_some() {
            self.violate("I-M1: nothing is spliced: a copy continues what the source has", || {
                format!(
                    "{node}/{partition} had {previous:?} at its end, the source {:?}",
                    answer.source_previous
                )
            });
        }
        if let Some(batch) = answer.undecided {
            self.violate("I-M2: only what is committed and decided at the source is copied", || {
                format!("{node}/{partition} copies {batch:?}")
            });
        }
        if let Some(batch) = highest.filter(|batch| *batch > own_epoch) {
            self.violate("decision 8: the leader epoch is at least every batch epoch", || {
                format!("{node}/{partition} has a batch of {batch} under {own_epoch}")
            });
        }
        self.replica_event(node, partition, ReplicaEvent::Appended { log_end_offset, now_ms });
        self.wake_parked(node, partition);
        self.touched(node, partition);
        Ok(())
    }
}
