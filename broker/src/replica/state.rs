//! PURE. One replica of one partition: leader or follower, epochs, ISR, high watermark.
//!
//! An event goes in, what should happen comes out; the shell (`partition.rs`) runs the effects in
//! order under the lock that also guards the log. Time is handed in.

mod event;
mod leader;
#[cfg(test)]
mod tests;

use common::ids::*;

use super::error::PartitionError;

pub use event::{Assignment, Ignored, IsrOutcome, ReplicaEffect, ReplicaEvent};
pub use leader::{FollowerFetch, IsrMember, IsrProposal, LeaderState};

/// Configs that the rules depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSettings {
    pub min_insync_replicas: usize,
    /// `replica.lag.time.max.ms`
    pub lag_time_max_ms: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Not assigned yet, or removed.
    None,
    /// A cut is being applied; `led`: it was the leader before.
    Suspended {
        led: bool,
    },
    Leader(LeaderState),
    Follower {
        leader: Option<BrokerId>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaState {
    local: BrokerId,
    settings: ReplicaSettings,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    isr: Vec<BrokerId>,
    log_end_offset: Offset,
    high_watermark: Offset,
    role: Role,
}

impl ReplicaState {
    /// After the log is opened; the high watermark is the checkpointed one.
    pub fn new(
        local: BrokerId,
        settings: ReplicaSettings,
        log_start_offset: Offset,
        log_end_offset: Offset,
        high_watermark: Offset,
    ) -> ReplicaState {
        ReplicaState {
            local,
            settings,
            leader_epoch: LeaderEpoch::UNKNOWN,
            partition_epoch: PartitionEpoch(-1),
            isr: Vec::new(),
            log_end_offset,
            high_watermark: high_watermark.min(log_end_offset).max(log_start_offset),
            role: Role::None,
        }
    }

    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The leader's part, where this replica leads.
    pub fn leader(&self) -> Option<&LeaderState> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    pub fn is_leader(&self) -> bool {
        self.leader().is_some()
    }

    /// Leads, and may append and serve.
    pub fn is_serving(&self) -> bool {
        self.leader().is_some_and(|leader| !leader.is_recovering())
    }

    /// Exactly the epoch that the asker knows, if it names one (KIP-320).
    pub fn check_epoch(&self, expected: Option<LeaderEpoch>) -> Result<(), PartitionError> {
        let current = self.leader_epoch;
        match expected {
            Some(asked) if asked < current => Err(PartitionError::FencedLeaderEpoch { asked, current }),
            Some(asked) if asked > current => Err(PartitionError::UnknownLeaderEpoch { asked, current }),
            _ => Ok(()),
        }
    }

    /// Leads and serves, under exactly that epoch.
    pub fn check_leader(&self, expected: Option<LeaderEpoch>) -> Result<(), PartitionError> {
        self.check_epoch(expected)?;
        if self.is_serving() { Ok(()) } else { Err(PartitionError::NotLeader) }
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    pub fn isr(&self) -> &[BrokerId] {
        &self.isr
    }

    pub fn log_end_offset(&self) -> Offset {
        self.log_end_offset
    }

    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// `min.insync.replicas`, or all replicas where there are fewer (as Kafka's effective minimum).
    pub fn effective_min_isr(&self) -> usize {
        let replicas = self.leader().map_or(usize::MAX, |leader| leader.replicas().len());
        self.settings.min_insync_replicas.min(replicas).max(1)
    }

    pub fn has_enough_in_sync(&self) -> bool {
        self.isr.len() >= self.effective_min_isr()
    }

    /// Decision 10e: enough members, each of which has fetched under this or a later epoch and so
    /// applied every cut up to it.
    pub fn fetched_under_epoch(&self, epoch: LeaderEpoch) -> bool {
        let Some(leader) = self.leader() else { return false };
        self.leader_epoch >= epoch
            && self.has_enough_in_sync()
            && self.isr.iter().all(|member| *member == self.local || leader.has_fetched_under(*member, epoch))
    }

    pub fn apply(&mut self, event: ReplicaEvent) -> Vec<ReplicaEffect> {
        match event {
            ReplicaEvent::Assigned { assignment, now_ms } => self.assigned(assignment, now_ms),
            ReplicaEvent::Suspended => self.suspended(),
            ReplicaEvent::Removed => self.removed(),
            ReplicaEvent::Appended { log_end_offset, now_ms } => self.appended(log_end_offset, now_ms),
            ReplicaEvent::Replicated { log_end_offset, leader_high_watermark } => {
                self.replicated(log_end_offset, leader_high_watermark)
            }
            ReplicaEvent::Truncated { log_end_offset } => self.truncated(log_end_offset),
            ReplicaEvent::Restarted { offset } => self.restarted(offset),
            ReplicaEvent::LogStartRaised { log_start_offset } => self.log_start_raised(log_start_offset),
            ReplicaEvent::FollowerFetched(fetch) => self.follower_fetched(fetch),
            ReplicaEvent::IsrAnswered { leader_epoch, partition_epoch, outcome, now_ms } => {
                self.isr_answered(leader_epoch, partition_epoch, outcome, now_ms)
            }
            ReplicaEvent::LagCheck { now_ms, active } => self.lag_check(now_ms, &active),
            ReplicaEvent::SettingsChanged(settings) => {
                self.settings = settings;
                Vec::new()
            }
        }
    }

    fn assigned(&mut self, assignment: Assignment, now_ms: i64) -> Vec<ReplicaEffect> {
        let is_older = assignment.leader_epoch < self.leader_epoch
            || (assignment.leader_epoch == self.leader_epoch
                && assignment.partition_epoch < self.partition_epoch);
        if is_older {
            return vec![ReplicaEffect::Ignored(Ignored::StaleEpoch)];
        }
        let raised = assignment.leader_epoch > self.leader_epoch;
        let isr_changed = assignment.isr != self.isr;
        self.leader_epoch = assignment.leader_epoch;
        self.partition_epoch = assignment.partition_epoch;
        self.isr.clone_from(&assignment.isr);
        if assignment.leader == Some(self.local) {
            self.assigned_leader(assignment, raised, isr_changed, now_ms)
        } else {
            self.assigned_follower(assignment.leader, raised)
        }
    }

    fn assigned_leader(
        &mut self,
        assignment: Assignment,
        raised: bool,
        isr_changed: bool,
        now_ms: i64,
    ) -> Vec<ReplicaEffect> {
        let mut effects = Vec::new();
        let led = matches!(self.role, Role::Leader(_) | Role::Suspended { led: true });
        match &mut self.role {
            Role::Leader(leader) if !raised => {
                leader.reassign(&assignment, self.local);
                if isr_changed {
                    effects.push(ReplicaEffect::IsrChanged {
                        isr: assignment.isr.clone(),
                        partition_epoch: assignment.partition_epoch,
                    });
                }
            }
            _ => {
                let before = match std::mem::replace(&mut self.role, Role::None) {
                    Role::Leader(leader) => Some(leader),
                    _ => None,
                };
                let leader =
                    LeaderState::new(&assignment, self.local, self.log_end_offset, before.as_ref(), now_ms);
                self.role = Role::Leader(leader);
                effects.push(ReplicaEffect::Lead { leader_epoch: assignment.leader_epoch, anew: !led });
                if assignment.recovering {
                    // A sole replica has nobody to have diverged from: whatever its log still holds is what
                    // was committed, and only what is gone from its end is lost. The checkpointed high
                    // watermark, seconds old, would make each kill look like a loss to those that copy from
                    // here. (A reassignment of a recovering partition must not end in one replica.)
                    if assignment.replicas.len() == 1 {
                        self.raise_high_watermark(self.log_end_offset, &mut effects);
                    }
                    effects.push(ReplicaEffect::ProposeLossCut {
                        leader_epoch: assignment.leader_epoch,
                        offset: self.high_watermark,
                    });
                }
            }
        }
        self.advance_high_watermark(now_ms, &mut effects);
        effects
    }

    fn assigned_follower(&mut self, leader: Option<BrokerId>, raised: bool) -> Vec<ReplicaEffect> {
        let mut effects = Vec::new();
        let before = std::mem::replace(&mut self.role, Role::Follower { leader });
        if matches!(before, Role::Leader(_) | Role::Suspended { led: true }) {
            effects.push(ReplicaEffect::LeadershipLost);
        }
        let follows_already = matches!(before, Role::Follower { leader: earlier } if earlier == leader);
        if raised || !follows_already {
            effects.push(ReplicaEffect::Follow { leader, leader_epoch: self.leader_epoch });
        }
        effects
    }

    fn suspended(&mut self) -> Vec<ReplicaEffect> {
        let led = matches!(self.role, Role::Leader(_) | Role::Suspended { led: true });
        self.role = Role::Suspended { led };
        Vec::new()
    }

    fn removed(&mut self) -> Vec<ReplicaEffect> {
        match std::mem::replace(&mut self.role, Role::None) {
            Role::Leader(_) | Role::Suspended { led: true } => vec![ReplicaEffect::LeadershipLost],
            _ => Vec::new(),
        }
    }

    fn replicated(&mut self, log_end_offset: Offset, leader_high_watermark: Offset) -> Vec<ReplicaEffect> {
        if !matches!(self.role, Role::Follower { .. }) {
            return vec![ReplicaEffect::Ignored(Ignored::WrongRole)];
        }
        self.log_end_offset = log_end_offset;
        let mut effects = Vec::new();
        self.raise_high_watermark(leader_high_watermark.min(log_end_offset), &mut effects);
        effects
    }

    fn truncated(&mut self, log_end_offset: Offset) -> Vec<ReplicaEffect> {
        self.log_end_offset = log_end_offset;
        self.high_watermark = self.high_watermark.min(log_end_offset);
        if let Role::Leader(leader) = &mut self.role {
            leader.forget_positions();
        }
        vec![ReplicaEffect::WaitersCut { log_end_offset }]
    }

    fn restarted(&mut self, offset: Offset) -> Vec<ReplicaEffect> {
        self.log_end_offset = offset;
        self.high_watermark = offset;
        if let Role::Leader(leader) = &mut self.role {
            leader.forget_positions();
        }
        vec![ReplicaEffect::WaitersCut { log_end_offset: offset }, ReplicaEffect::HighWatermarkMoved(offset)]
    }

    fn log_start_raised(&mut self, log_start_offset: Offset) -> Vec<ReplicaEffect> {
        let mut effects = Vec::new();
        self.raise_high_watermark(log_start_offset.min(self.log_end_offset), &mut effects);
        effects
    }

    fn raise_high_watermark(&mut self, to: Offset, effects: &mut Vec<ReplicaEffect>) {
        if to > self.high_watermark {
            self.high_watermark = to;
            effects.push(ReplicaEffect::HighWatermarkMoved(to));
        }
    }
}
