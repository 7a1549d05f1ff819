//! PURE. What only the leader knows: how far each follower is, and which ISR it has proposed.

use std::collections::BTreeMap;

use common::ids::*;

use super::{Assignment, Ignored, IsrOutcome, ReplicaEffect, ReplicaState, Role};
use crate::replica::read_replica::FollowerView;

/// How long the high watermark waits for a follower that has caught up but is not in the ISR yet.
/// Without the wait a busy leader that is alone in its ISR would move its high watermark away from
/// the follower for ever. Kafka waits as long as `replica.lag.time.max.ms`; a follower that fetches
/// at all does so well within this, and a dead one then delays acknowledgements by no more.
const JOIN_WAIT_MS: i64 = 1_000;

/// A follower's fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetch {
    pub broker_id: BrokerId,
    /// -1: the follower did not say.
    pub broker_epoch: BrokerEpoch,
    /// The leader epoch it fetched under.
    pub leader_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    pub log_start_offset: Offset,
    /// May join an ISR: registered under this epoch, unfenced, not shutting down.
    pub eligible: bool,
    pub now_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsrMember {
    pub broker_id: BrokerId,
    /// `None`: the leader itself, whose epoch the shell knows, or a member that has not fetched yet.
    pub broker_epoch: Option<BrokerEpoch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrProposal {
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub new_isr: Vec<IsrMember>,
}

#[derive(Clone, Debug, PartialEq)]
struct FollowerProgress {
    /// Unknown until it fetches under this leader epoch: what it held before may be of another lineage.
    log_end_offset: Option<Offset>,
    log_start_offset: Option<Offset>,
    last_caught_up_ms: i64,
    last_fetch_ms: i64,
    /// The leader's log end at that fetch.
    leader_end_at_last_fetch: Offset,
    fetched_under: Option<LeaderEpoch>,
    broker_epoch: Option<BrokerEpoch>,
    eligible: bool,
}

impl FollowerProgress {
    fn new(last_caught_up_ms: i64) -> FollowerProgress {
        FollowerProgress {
            log_end_offset: None,
            log_start_offset: None,
            last_caught_up_ms,
            last_fetch_ms: 0,
            leader_end_at_last_fetch: Offset::ZERO,
            fetched_under: None,
            broker_epoch: None,
            eligible: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct LeaderState {
    replicas: Vec<BrokerId>,
    /// The log end when this epoch began: a follower must have passed it to join the ISR.
    epoch_start_offset: Offset,
    recovering: bool,
    followers: BTreeMap<BrokerId, FollowerProgress>,
    /// One proposal at a time; its members count for the high watermark until its fate is known.
    pending: Option<IsrProposal>,
    /// It was answered from a newer registration, which has not come yet: perhaps it was never committed.
    superseded: bool,
}

impl LeaderState {
    pub(super) fn new(
        assignment: &Assignment,
        local: BrokerId,
        log_end_offset: Offset,
        before: Option<&LeaderState>,
        now_ms: i64,
    ) -> LeaderState {
        let mut leader = LeaderState {
            replicas: assignment.replicas.clone(),
            epoch_start_offset: log_end_offset,
            recovering: assignment.recovering,
            followers: BTreeMap::new(),
            pending: None,
            superseded: false,
        };
        for replica in assignment.replicas.iter().filter(|replica| **replica != local) {
            // A member gets the whole lag time to show itself; another has never been caught up.
            let since = if assignment.isr.contains(replica) { now_ms } else { i64::MIN / 2 };
            let mut progress = FollowerProgress::new(since);
            if let Some(earlier) = before.and_then(|before| before.followers.get(replica)) {
                progress.fetched_under = earlier.fetched_under;
                progress.broker_epoch = earlier.broker_epoch;
            }
            leader.followers.insert(*replica, progress);
        }
        leader
    }

    /// A newer registration under the same leader epoch. What was proposed on the older one is void.
    pub(super) fn reassign(&mut self, assignment: &Assignment, local: BrokerId) {
        self.replicas.clone_from(&assignment.replicas);
        self.recovering = assignment.recovering;
        self.followers.retain(|follower, _| assignment.replicas.contains(follower));
        for replica in assignment.replicas.iter().filter(|replica| **replica != local) {
            self.followers.entry(*replica).or_insert_with(|| FollowerProgress::new(i64::MIN / 2));
        }
        for (id, progress) in &mut self.followers {
            // Whoever the controller took out has to show anew that it may come back.
            progress.eligible &= assignment.isr.contains(id);
        }
        if self.pending.as_ref().is_some_and(|pending| pending.partition_epoch < assignment.partition_epoch) {
            self.pending = None;
        }
    }

    pub(super) fn forget_positions(&mut self) {
        for progress in self.followers.values_mut() {
            progress.log_end_offset = None;
        }
    }

    pub fn replicas(&self) -> &[BrokerId] {
        &self.replicas
    }

    pub fn is_recovering(&self) -> bool {
        self.recovering
    }

    pub fn epoch_start_offset(&self) -> Offset {
        self.epoch_start_offset
    }

    pub fn pending_isr(&self) -> Option<&IsrProposal> {
        self.pending.as_ref()
    }

    pub fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    /// Replicas outside of this ISR.
    pub fn absent<'a>(&'a self, isr: &'a [BrokerId]) -> impl Iterator<Item = BrokerId> + 'a {
        self.followers.keys().copied().filter(|follower| !isr.contains(follower))
    }

    /// Followers that have not fetched under this leader epoch yet.
    pub fn silent_followers(&self) -> impl Iterator<Item = BrokerId> + '_ {
        let silent = self.followers.iter().filter(|(_, progress)| progress.log_end_offset.is_none());
        silent.map(|(follower, _)| *follower)
    }

    pub(super) fn has_fetched_under(&self, follower: BrokerId, epoch: LeaderEpoch) -> bool {
        self.followers.get(&follower).and_then(|progress| progress.fetched_under) >= Some(epoch)
    }

    /// DeleteRecords' low watermark: the lowest log start over the replicas that count. `None`: one of them
    /// has not told its own yet.
    pub fn low_watermark(
        &self,
        own_log_start_offset: Offset,
        counts: impl Fn(BrokerId) -> bool,
    ) -> Option<Offset> {
        let mut followers = self.followers.iter().filter(|(follower, _)| counts(**follower));
        followers.try_fold(own_log_start_offset, |lowest, (_, progress)| {
            progress.log_start_offset.map(|start| lowest.min(start))
        })
    }

    pub fn follower_log_start_offset(&self, follower: BrokerId) -> Option<Offset> {
        self.followers.get(&follower)?.log_start_offset
    }

    /// Followers that have fetched under this leader epoch.
    pub fn follower_views(&self) -> impl Iterator<Item = FollowerView> + '_ {
        self.followers.iter().filter_map(|(broker_id, progress)| {
            Some(FollowerView {
                broker_id: *broker_id,
                log_start_offset: progress.log_start_offset?,
                log_end_offset: progress.log_end_offset?,
                last_caught_up_ms: progress.last_caught_up_ms,
            })
        })
    }

    pub fn follower_log_end_offset(&self, follower: BrokerId) -> Option<Offset> {
        self.followers.get(&follower)?.log_end_offset
    }

    fn counts_as_member(&self, isr: &[BrokerId], follower: BrokerId) -> bool {
        let proposed = |pending: &IsrProposal| pending.new_isr.iter().any(|m| m.broker_id == follower);
        isr.contains(&follower) || self.pending.as_ref().is_some_and(proposed)
    }
}

impl ReplicaState {
    pub(super) fn appended(&mut self, log_end_offset: Offset, now_ms: i64) -> Vec<ReplicaEffect> {
        let before = self.log_end_offset;
        let Role::Leader(leader) = &mut self.role else {
            return vec![ReplicaEffect::Ignored(Ignored::WrongRole)];
        };
        for progress in leader.followers.values_mut() {
            // Nothing was asked of a follower at the end of an idle log: its lag begins now.
            if progress.log_end_offset.is_some_and(|end| end >= before) {
                progress.last_caught_up_ms = progress.last_caught_up_ms.max(now_ms);
            }
        }
        self.log_end_offset = log_end_offset;
        let mut effects = Vec::new();
        self.advance_high_watermark(now_ms, &mut effects);
        effects
    }

    pub(super) fn follower_fetched(&mut self, fetch: FollowerFetch) -> Vec<ReplicaEffect> {
        let leader_end = self.log_end_offset;
        let Role::Leader(leader) = &mut self.role else {
            return vec![ReplicaEffect::Ignored(Ignored::WrongRole)];
        };
        if fetch.leader_epoch != self.leader_epoch {
            return vec![ReplicaEffect::Ignored(Ignored::StaleEpoch)];
        }
        let Some(progress) = leader.followers.get_mut(&fetch.broker_id) else {
            return vec![ReplicaEffect::Ignored(Ignored::NotAReplica)];
        };
        if fetch.broker_epoch.0 >= 0 {
            if progress.broker_epoch.is_some_and(|known| fetch.broker_epoch < known) {
                return vec![ReplicaEffect::Ignored(Ignored::StaleBrokerEpoch)];
            }
            progress.broker_epoch = Some(fetch.broker_epoch);
        }
        if fetch.fetch_offset >= leader_end {
            progress.last_caught_up_ms = progress.last_caught_up_ms.max(fetch.now_ms);
        } else if progress.fetched_under == Some(self.leader_epoch)
            && fetch.fetch_offset >= progress.leader_end_at_last_fetch
        {
            // It has all that was there at its last fetch: caught up as of then (as in Kafka).
            progress.last_caught_up_ms = progress.last_caught_up_ms.max(progress.last_fetch_ms);
        }
        progress.log_end_offset = Some(fetch.fetch_offset);
        progress.log_start_offset = Some(fetch.log_start_offset);
        progress.last_fetch_ms = fetch.now_ms;
        progress.leader_end_at_last_fetch = leader_end;
        progress.fetched_under = Some(fetch.leader_epoch);
        progress.eligible = fetch.eligible;

        let mut effects = Vec::new();
        self.propose_expansion(fetch.broker_id, &mut effects);
        self.advance_high_watermark(fetch.now_ms, &mut effects);
        effects
    }

    /// A follower joins once it has passed the high watermark and the start of this epoch.
    fn propose_expansion(&mut self, follower: BrokerId, effects: &mut Vec<ReplicaEffect>) {
        let Role::Leader(leader) = &self.role else { return };
        if leader.recovering || leader.pending.is_some() || self.isr.contains(&follower) {
            return;
        }
        let Some(progress) = leader.followers.get(&follower) else { return };
        let caught_up = progress
            .log_end_offset
            .is_some_and(|end| end >= self.high_watermark && end >= leader.epoch_start_offset);
        if caught_up && progress.eligible {
            let mut members = self.isr.clone();
            members.push(follower);
            self.propose(members, effects);
        }
    }

    fn propose(&mut self, members: Vec<BrokerId>, effects: &mut Vec<ReplicaEffect>) {
        let Role::Leader(leader) = &mut self.role else { return };
        let new_isr = members
            .into_iter()
            .map(|broker_id| IsrMember {
                broker_id,
                broker_epoch: leader.followers.get(&broker_id).and_then(|progress| progress.broker_epoch),
            })
            .collect();
        let proposal =
            IsrProposal { leader_epoch: self.leader_epoch, partition_epoch: self.partition_epoch, new_isr };
        leader.pending = Some(proposal.clone());
        leader.superseded = false;
        effects.push(ReplicaEffect::ProposeIsr(proposal));
    }

    pub(super) fn lag_check(
        &mut self,
        now_ms: i64,
        active: &[(BrokerId, BrokerEpoch)],
    ) -> Vec<ReplicaEffect> {
        let mut effects = Vec::new();
        let Role::Leader(leader) = &mut self.role else { return effects };
        if leader.recovering {
            // The proposal, or its answer, may have been lost; asking again is harmless.
            let offset = self.high_watermark;
            return vec![ReplicaEffect::ProposeLossCut { leader_epoch: self.leader_epoch, offset }];
        }
        if let Some(pending) = leader.pending.as_ref().filter(|_| leader.superseded) {
            // A controller that lost its leadership may have answered from what never became true. The same
            // proposal again is harmless: it is refused if anything newer is.
            effects.push(ReplicaEffect::ProposeIsr(pending.clone()));
            leader.superseded = false;
        }
        if leader.pending.is_none() {
            let lags = |member: &BrokerId| {
                leader.followers.get(member).is_some_and(|progress| {
                    progress.log_end_offset != Some(self.log_end_offset)
                        && now_ms - progress.last_caught_up_ms > self.settings.lag_time_max_ms
                })
            };
            let remaining: Vec<BrokerId> = self.isr.iter().copied().filter(|member| !lags(member)).collect();
            if remaining.len() < self.isr.len() {
                self.propose(remaining, &mut effects);
            }
        }
        self.readmit(active, &mut effects);
        self.advance_high_watermark(now_ms, &mut effects);
        effects
    }

    /// A follower at the end of an idle log has nothing to fetch, so no fetch of it comes to show that it
    /// may join: whoever was refused, or taken out, comes back here.
    fn readmit(&mut self, active: &[(BrokerId, BrokerEpoch)], effects: &mut Vec<ReplicaEffect>) {
        for (follower, broker_epoch) in active {
            let Role::Leader(leader) = &mut self.role else { return };
            let Some(progress) = leader.followers.get_mut(follower) else { continue };
            let is_at_end = progress.log_end_offset == Some(self.log_end_offset);
            if is_at_end && progress.broker_epoch.is_none_or(|known| known == *broker_epoch) {
                progress.eligible = true;
                self.propose_expansion(*follower, effects);
            }
        }
    }

    pub(super) fn isr_answered(
        &mut self,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        outcome: IsrOutcome,
        now_ms: i64,
    ) -> Vec<ReplicaEffect> {
        let Role::Leader(leader) = &mut self.role else {
            return vec![ReplicaEffect::Ignored(Ignored::WrongRole)];
        };
        let is_pending = leader.pending.as_ref().is_some_and(|pending| {
            pending.leader_epoch == leader_epoch && pending.partition_epoch == partition_epoch
        });
        if !is_pending {
            return vec![ReplicaEffect::Ignored(Ignored::NotPending)];
        }
        let mut effects = Vec::new();
        match outcome {
            IsrOutcome::Superseded => {
                leader.superseded = true;
                return effects;
            }
            IsrOutcome::Refused => leader.pending = None,
            IsrOutcome::Committed { isr, leader_epoch: committed_under, partition_epoch: epoch } => {
                if committed_under != self.leader_epoch || epoch <= self.partition_epoch {
                    return vec![ReplicaEffect::Ignored(Ignored::StaleEpoch)];
                }
                if self.isr.iter().any(|member| !isr.contains(member)) {
                    // Whoever left may be eligible under a `min.insync.replicas` that this broker has not
                    // heard of yet: the high watermark waits for the metadata log, which tells both in
                    // their order.
                    return effects;
                }
                leader.pending = None;
                self.partition_epoch = epoch;
                self.isr.clone_from(&isr);
                effects.push(ReplicaEffect::IsrChanged { isr, partition_epoch: epoch });
            }
        }
        self.advance_high_watermark(now_ms, &mut effects);
        effects
    }

    /// The lowest log end over the maximal ISR and those about to join it; it stands still while fewer
    /// than `min.insync.replicas` are in sync (KIP-966), and under an unclean leader (decision 10).
    pub(super) fn advance_high_watermark(&mut self, now_ms: i64, effects: &mut Vec<ReplicaEffect>) {
        let Role::Leader(leader) = &self.role else { return };
        if leader.recovering || !self.has_enough_in_sync() {
            return;
        }
        let mut lowest = self.log_end_offset;
        for (follower, progress) in &leader.followers {
            let joins = progress.eligible && now_ms - progress.last_caught_up_ms <= JOIN_WAIT_MS;
            if leader.counts_as_member(&self.isr, *follower) {
                match progress.log_end_offset {
                    Some(end) => lowest = lowest.min(end),
                    None => return,
                }
            } else if let Some(end) = progress.log_end_offset
                && joins
            {
                lowest = lowest.min(end);
            }
        }
        self.raise_high_watermark(lowest, effects);
    }
}
