//! Appending as the leader, and waiting until that is replicated.

use std::sync::Arc;

use common::ids::*;

use super::error::{AppendFailure, WaitFailure};
use super::partition::{Inner, Partition};
use super::purgatory::{ProduceWait, WaitKey};
use super::state::{ReplicaEvent, ReplicaState};
use crate::log::{AppendError, AppendInfo, AppendOrigin, LeaderAppend};

/// How a produce or a coordinator appends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Append {
    pub(super) all_in_sync: bool,
    pub(super) origin: AppendOrigin,
    pub(super) expected_leader_epoch: Option<LeaderEpoch>,
}

/// Whether an append has been replicated.
pub(super) enum Replicated {
    Known(Result<(), WaitFailure>),
    /// Not yet; registered under this key, if that was asked for.
    Open(Option<WaitKey>),
}

impl Partition {
    pub(super) fn append(
        &self,
        records: &mut [u8],
        append: Append,
    ) -> Result<(AppendInfo, LeaderEpoch), AppendFailure> {
        let mut inner = self.lock();
        Partition::check_leader(&inner, append.expected_leader_epoch)?;
        if append.origin == AppendOrigin::Client && !inner.writable {
            return Err(AppendFailure::ReadOnlyTopic);
        }
        if append.all_in_sync && !inner.state.has_enough_in_sync() {
            return Err(AppendFailure::NotEnoughReplicas {
                in_sync: inner.state.isr().len(),
                needed: inner.state.effective_min_isr(),
            });
        }
        let leader_epoch = inner.state.leader_epoch();
        let options = LeaderAppend {
            leader_epoch,
            origin: append.origin,
            now_ms: self.context.clock.now_ms(),
            relaxed: self.context.config.relaxed_validation,
        };
        let appended = inner.log.write().append_as_leader(records, options);
        let info = appended.map_err(|error| self.append_failed(&mut inner, error))?;
        if !info.duplicate {
            self.appended(&mut inner);
        }
        Ok((info, leader_epoch))
    }

    fn append_failed(&self, inner: &mut Inner, error: AppendError) -> AppendFailure {
        if let AppendError::Storage(storage) = &error {
            self.fail_storage(inner, storage);
        }
        AppendFailure::Log(error)
    }

    /// The log grew under the leader.
    pub(super) fn appended(&self, inner: &mut Inner) {
        let log_end_offset = inner.log.read().log_end_offset();
        inner.version += 1;
        inner.watchers.log_end_moved();
        let now_ms = self.context.steady_ms();
        let effects = inner.state.apply(ReplicaEvent::Appended { log_end_offset, now_ms });
        if effects.is_empty() {
            self.notify_changed();
        }
        self.run(inner, &effects);
        if let Some(leader) = inner.state.leader()
            && leader.has_followers()
        {
            // A follower whose fetch was sent before it heard of this partition would go on waiting.
            let in_sync = |follower: &BrokerId| inner.state.isr().contains(follower);
            let silent: Vec<BrokerId> = leader.silent_followers().filter(in_sync).collect();
            self.context.nudge(&silent);
        }
    }

    /// Registers a wait for the high watermark to reach `offset`, unless the answer is known already.
    pub(super) fn wait_for(
        &self,
        offset: Offset,
        leader_epoch: LeaderEpoch,
        register: Option<(&Arc<ProduceWait>, usize)>,
    ) -> Replicated {
        let mut inner = self.lock();
        if !inner.state.is_leader() || leader_epoch < inner.tenure {
            return Replicated::Known(Err(WaitFailure::NotLeader));
        }
        if !inner.writable {
            return Replicated::Known(Err(WaitFailure::ReadOnlyTopic));
        }
        if inner.state.high_watermark() >= offset {
            return Replicated::Known(replicated_result(&inner.state));
        }
        Replicated::Open(register.map(|(wait, index)| inner.waiters.add(offset, wait, index)))
    }

    pub(super) fn cancel_wait(&self, key: WaitKey) {
        self.lock().waiters.remove(key);
    }

    /// Decision 10a: before a cut, those who wait for an acknowledgement learn that there is none.
    pub fn fail_waiting_produces_read_only(&self) {
        self.lock().waiters.fail_all(WaitFailure::ReadOnlyTopic);
    }
}

pub(super) fn replicated_result(state: &ReplicaState) -> Result<(), WaitFailure> {
    if state.has_enough_in_sync() { Ok(()) } else { Err(WaitFailure::NotEnoughReplicasAfterAppend) }
}
