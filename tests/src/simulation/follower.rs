//! Fetching between the replicas of a partition, both sides, as the product's `replica::read` and
//! `replica::follower` do it.

use broker::fetcher::fetch_state::{
    DivergingEpoch, FollowerAction, LeaderAnswer, LocalLog, action, truncation_offset,
};
use broker::replica::PartitionError;
use broker::replica::position::{FollowerPosition, PositionQuestion, follower_position};
use broker::replica::state::{FollowerFetch, ReplicaEvent, Role};
use common::ids::*;
use protocol::ErrorCode;

use super::event::{Event, FollowerAnswer, FollowerRequest, Node, Timer};
use super::log::Batch;
use super::mutation::Mutation;
use super::network::Path;
use super::node::is_eligible;
use super::replica::Following;
use super::world::World;

/// A long poll of an idle follower.
const PARK_MS: i64 = 500;
const FETCH_TIMEOUT_MS: i64 = 1_000;
const PAUSE_MS: i64 = 100;
/// Batches in an answer.
const MOST: usize = 4;

impl World {
    pub fn follow(&mut self, node: Node, partition: usize, leader: Option<BrokerId>, under: LeaderEpoch) {
        self.trace(|| format!("{node}/{partition} follows {leader:?} under {under}"));
        if let Some(replica) = self.replica_mut(node, partition) {
            replica.following = Some(Following { leader, under, number: 0, told_high_watermark: -1 });
        }
        self.send_fetch(node, partition);
    }

    pub fn stop_following(&mut self, node: Node, partition: usize) {
        if let Some(replica) = self.replica_mut(node, partition) {
            replica.following = None;
        }
    }

    fn follows(&self, node: Node, partition: usize, under: LeaderEpoch) -> bool {
        self.replica(node, partition).is_some_and(|replica| {
            !replica.offline
                && matches!(replica.state.role(), Role::Follower { .. })
                && replica.state.leader_epoch() == under
        })
    }

    fn send_fetch(&mut self, node: Node, partition: usize) {
        let number = self.number();
        let broker = self.broker_mut(node);
        let (process, epoch) = (broker.process, broker.epoch);
        let (Some(replica), Some(disk)) = (&mut broker.replicas[partition], &broker.disks[partition]) else {
            return;
        };
        let Some(following) = &mut replica.following else { return };
        following.number = number;
        let Some(leader) = following.leader else { return };
        let to = Node { cluster: node.cluster, broker: (leader.0 - 1) as usize };
        let fetch = FollowerRequest {
            from: node,
            from_process: process,
            partition,
            number,
            under: following.under,
            broker_epoch: epoch.unwrap_or(BrokerEpoch(-1)),
            fetch_offset: disk.log.end(),
            log_start_offset: disk.log.start,
            last_fetched_epoch: disk.log.latest_epoch(),
            known_high_watermark: following.told_high_watermark,
        };
        if self.broker(to).up {
            let to_process = self.broker(to).process;
            self.send(Path::Brokers(node, to), Event::Fetch { to, process: to_process, fetch });
        }
        self.after(FETCH_TIMEOUT_MS, Timer::FetchAgain { node, process, partition, number });
    }

    pub fn fetch_again(&mut self, node: Node, partition: usize, number: u64) {
        let following = self.replica(node, partition).and_then(|replica| replica.following);
        if let Some(following) = following.filter(|following| following.number == number)
            && self.follows(node, partition, following.under)
        {
            self.send_fetch(node, partition);
        }
    }

    pub fn fetch_arrived(&mut self, node: Node, fetch: FollowerRequest) {
        let partition = fetch.partition;
        let answer = self.serve_follower(node, &fetch, true);
        match answer {
            Some(answer) => self.send_fetch_answer(node, &fetch, answer),
            None => {
                let process = self.broker(node).process;
                if let Some(replica) = self.replica_mut(node, partition) {
                    replica.parked.push(fetch);
                }
                self.after(PARK_MS, Timer::Park { node, process, partition });
            }
        }
        self.touched(node, partition);
    }

    fn send_fetch_answer(&mut self, node: Node, fetch: &FollowerRequest, answer: (LeaderAnswer, Vec<Batch>)) {
        let (to, process) = (fetch.from, fetch.from_process);
        let answer = FollowerAnswer {
            partition: fetch.partition,
            number: fetch.number,
            under: fetch.under,
            fetched_from: fetch.fetch_offset,
            answer: answer.0,
            batches: answer.1,
        };
        self.send(Path::Brokers(node, to), Event::FetchAnswer { to, process, answer: Box::new(answer) });
    }

    /// `None`: nothing new, and the follower may wait.
    fn serve_follower(
        &mut self,
        node: Node,
        fetch: &FollowerRequest,
        may_wait: bool,
    ) -> Option<(LeaderAnswer, Vec<Batch>)> {
        let partition = fetch.partition;
        let expected = if self.is(Mutation::FetchEpochIsNotChecked) { None } else { Some(fetch.under) };
        let ignores_divergence = self.is(Mutation::DivergenceIsNotSeen);
        let now_ms = self.clock_ms(node);
        let broker = self.broker(node);
        let refused = |error| Some((refusal(error), Vec::new()));
        let (Some(replica), Some(disk)) = (&broker.replicas[partition], &broker.disks[partition]) else {
            return refused(ErrorCode::NotLeaderOrFollower);
        };
        if let Err(error) = replica.state.check_leader(expected) {
            return refused(error_code(&error));
        }
        let is_replica =
            replica.state.leader().is_some_and(|leader| leader.replicas().contains(&fetch.from.id()));
        if replica.offline || !is_replica {
            return refused(ErrorCode::NotLeaderOrFollower);
        }
        let question = PositionQuestion {
            fetch_offset: Offset(fetch.fetch_offset),
            last_fetched_epoch: fetch.last_fetched_epoch.filter(|_| !ignores_divergence),
            log_start_offset: Offset(disk.log.start),
            log_end_offset: Offset(disk.log.end()),
        };
        let mirroring = replica.mirroring;
        let answers = mirroring && !self.is(Mutation::UnknownEpochsAreUndefined);
        let position = follower_position(question, |epoch| disk.log.end_of_epoch(epoch, answers));
        let mut answer = LeaderAnswer {
            error: ErrorCode::None,
            high_watermark: replica.state.high_watermark(),
            log_start_offset: Offset(disk.log.start),
            diverging: None,
            has_records: false,
        };
        match position {
            FollowerPosition::Prefix => {}
            FollowerPosition::Diverges(diverging) => {
                answer.diverging = Some(diverging);
                return Some((answer, Vec::new()));
            }
            FollowerPosition::OutOfRange => {
                let log_start_offset = answer.log_start_offset;
                let refused = LeaderAnswer { log_start_offset, ..refusal(ErrorCode::OffsetOutOfRange) };
                return Some((refused, Vec::new()));
            }
        }
        let fetched = FollowerFetch {
            broker_id: fetch.from.id(),
            broker_epoch: fetch.broker_epoch,
            leader_epoch: if expected.is_none() { replica.state.leader_epoch() } else { fetch.under },
            fetch_offset: Offset(fetch.fetch_offset),
            log_start_offset: Offset(fetch.log_start_offset),
            eligible: replica.state.isr().contains(&fetch.from.id())
                || is_eligible(broker, fetch.from.id(), fetch.broker_epoch),
            now_ms,
        };
        if may_wait {
            self.replica_event(node, partition, ReplicaEvent::FollowerFetched(fetched));
            self.wake_parked(node, partition);
        }
        let broker = self.broker(node);
        let (Some(replica), Some(disk)) = (&broker.replicas[partition], &broker.disks[partition]) else {
            return refused(ErrorCode::NotLeaderOrFollower);
        };
        answer.high_watermark = replica.state.high_watermark();
        let batches = disk.log.read(fetch.fetch_offset, disk.log.end(), MOST);
        answer.has_records = !batches.is_empty();
        let news = answer.has_records || answer.high_watermark.0 != fetch.known_high_watermark;
        (news || !may_wait).then_some((answer, batches))
    }

    /// Something new at the leader: whoever waits for it is answered.
    pub fn wake_parked(&mut self, node: Node, partition: usize) {
        let broker = self.broker(node);
        let (Some(replica), Some(disk)) = (&broker.replicas[partition], &broker.disks[partition]) else {
            return;
        };
        let (end, high_watermark) = (disk.log.end(), replica.state.high_watermark().0);
        let has_news = |fetch: &FollowerRequest| {
            fetch.fetch_offset < end || fetch.known_high_watermark != high_watermark
        };
        if replica.parked.iter().any(has_news) {
            self.answer_parked(node, partition);
        }
    }

    /// Time is up, or there is news, or the role has changed: all that wait look again.
    pub fn answer_parked(&mut self, node: Node, partition: usize) {
        let Some(replica) = self.replica_mut(node, partition) else { return };
        for fetch in std::mem::take(&mut replica.parked) {
            if let Some(answer) = self.serve_follower(node, &fetch, false) {
                self.send_fetch_answer(node, &fetch, answer);
            }
        }
    }

    pub fn fail_parked(&mut self, node: Node, partition: usize) {
        self.answer_parked(node, partition);
    }

    pub fn fetch_answered(&mut self, node: Node, answer: FollowerAnswer) {
        let partition = answer.partition;
        if !self.follows(node, partition, answer.under) {
            return;
        }
        let broker = self.broker(node);
        let (Some(replica), Some(disk)) = (&broker.replicas[partition], &broker.disks[partition]) else {
            return;
        };
        let current = replica.following.is_some_and(|following| following.number == answer.number);
        let end = disk.log.end();
        self.trace(|| format!("{node}/{partition} at {end} is answered {:?} current {current}", answer));
        let broker = self.broker(node);
        let (Some(replica), Some(disk)) = (&broker.replicas[partition], &broker.disks[partition]) else {
            return;
        };
        // One fetch is under way at a time, and its connection is closed when it is given up.
        let takes = current || self.is(Mutation::LateAnswerIsApplied);
        if takes && disk.log.end() == answer.fetched_from {
            let local = LocalLog {
                log_start_offset: Offset(disk.log.start),
                log_end_offset: Offset(disk.log.end()),
                high_watermark: replica.state.high_watermark(),
            };
            let pauses = match action(&answer.answer, &local) {
                FollowerAction::Append => self.append_fetched(node, partition, &answer),
                FollowerAction::Truncate(diverging) => self.truncate(node, partition, diverging, &local),
                FollowerAction::RestartAt(offset) => {
                    if let Some(disk) = &mut self.broker_mut(node).disks[partition] {
                        disk.log.start_over(offset.0);
                    }
                    self.replica_event(node, partition, ReplicaEvent::Restarted { offset });
                    false
                }
                FollowerAction::Pause => true,
            };
            self.touched(node, partition);
            if pauses && current {
                let process = self.broker(node).process;
                let number = answer.number;
                return self.after(PAUSE_MS, Timer::FetchAgain { node, process, partition, number });
            }
        }
        if current {
            self.send_fetch(node, partition);
        }
    }

    fn append_fetched(&mut self, node: Node, partition: usize, answer: &FollowerAnswer) -> bool {
        let Some(disk) = &mut self.broker_mut(node).disks[partition] else { return true };
        let refused = disk.log.append_copied(&answer.batches).is_err();
        let log_end_offset = Offset(disk.log.end());
        let leader_high_watermark = answer.answer.high_watermark;
        self.replica_event(
            node,
            partition,
            ReplicaEvent::Replicated { log_end_offset, leader_high_watermark },
        );
        if let Some(following) =
            self.replica_mut(node, partition).and_then(|replica| replica.following.as_mut())
        {
            following.told_high_watermark = leader_high_watermark.0;
        }
        refused
    }

    fn truncate(
        &mut self,
        node: Node,
        partition: usize,
        diverging: DivergingEpoch,
        local: &LocalLog,
    ) -> bool {
        let to_high_watermark = self.is(Mutation::TruncatesToHighWatermark);
        let Some(mirroring) = self.replica(node, partition).map(|replica| replica.mirroring) else {
            return true;
        };
        let Some(disk) = &mut self.broker_mut(node).disks[partition] else { return true };
        let own_end = disk.log.end_of_epoch(diverging.epoch, mirroring);
        let target = match to_high_watermark {
            true => local.high_watermark,
            false => truncation_offset(diverging, own_end, local),
        };
        if target >= local.log_end_offset {
            return !disk.log.forget_empty_epochs();
        }
        disk.log.truncate_to(target.0);
        let log_end_offset = Offset(disk.log.end());
        self.trace(|| format!("{node}/{partition} diverges at {diverging:?}: truncates to {target}"));
        self.replica_event(node, partition, ReplicaEvent::Truncated { log_end_offset });
        false
    }
}

pub fn error_code(error: &PartitionError) -> ErrorCode {
    match error {
        PartitionError::FencedLeaderEpoch { .. } => ErrorCode::FencedLeaderEpoch,
        PartitionError::UnknownLeaderEpoch { .. } => ErrorCode::UnknownLeaderEpoch,
        _ => ErrorCode::NotLeaderOrFollower,
    }
}

fn refusal(error: ErrorCode) -> LeaderAnswer {
    LeaderAnswer {
        error,
        high_watermark: Offset(-1),
        log_start_offset: Offset(-1),
        diverging: None,
        has_records: false,
    }
}
