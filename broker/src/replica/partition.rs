//! One partition's replica on this broker: its state and its log behind one lock.
//!
//! Every operation takes the lock, asks the pure state, touches the log, runs the effects and lets go;
//! nothing awaits in between. Lock order: this lock, then the log's, then watches, waits and the queue
//! of ISR proposals.

use std::sync::Arc;

use common::ids::*;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tracing::{debug, error, info, warn};

use super::append::replicated_result;
use super::error::{PartitionError, WaitFailure};
use super::manager::Context;
use super::purgatory::{FetchWatch, Interest, ProduceWaiters, Watchers};
use super::state::*;
use super::{IsrProposalItem, LossCut};
use crate::log::{AppendError, LogError, SharedLog};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionRole {
    Leader,
    Follower,
    /// Not assigned, being cut, or its directory failed.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStatus {
    pub role: PartitionRole,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    /// The newest epoch in the log's cache.
    pub latest_batch_epoch: Option<LeaderEpoch>,
    pub isr: Vec<BrokerId>,
    /// The effective one: never more than there are replicas.
    pub min_insync_replicas: usize,
    /// Elected uncleanly; serves nothing until its LOSS cut is committed.
    pub recovering: bool,
}

impl PartitionStatus {
    pub fn is_leader(&self) -> bool {
        self.role == PartitionRole::Leader
    }
}

pub struct Partition {
    pub(super) id: TopicIdPartition,
    pub(super) topic: Arc<str>,
    pub(super) context: Arc<Context>,
    inner: Mutex<Inner>,
    changed: Notify,
}

pub(super) struct Inner {
    pub(super) state: ReplicaState,
    pub(super) log: Arc<SharedLog>,
    /// The directory failed: nothing is served, and what is on disk is not known.
    pub(super) offline: bool,
    /// An unreleased mirror: the epoch cache follows the batches (decision 8).
    pub(super) mirroring: bool,
    /// Clients may write (decision 14).
    pub(super) writable: bool,
    /// An operator throttles this replica: as the leader, and as a follower.
    pub(super) leader_throttled: bool,
    pub(super) follower_throttled: bool,
    pub(super) watchers: Watchers,
    pub(super) waiters: ProduceWaiters,
    /// Raised by whatever a fetch could see.
    pub(super) version: u64,
    /// The leader epoch since which every appended offset has kept its meaning here.
    pub(super) tenure: LeaderEpoch,
}

impl Partition {
    pub(super) fn new(
        id: TopicIdPartition,
        topic: Arc<str>,
        log: Arc<SharedLog>,
        settings: ReplicaSettings,
        context: Arc<Context>,
    ) -> Partition {
        let (start, end) = {
            let log = log.read();
            (log.log_start_offset(), log.log_end_offset())
        };
        let state = ReplicaState::new(context.local, settings, start, end, log.high_watermark());
        let inner = Inner {
            state,
            log,
            offline: false,
            mirroring: false,
            writable: true,
            leader_throttled: false,
            follower_throttled: false,
            watchers: Watchers::default(),
            waiters: ProduceWaiters::default(),
            version: 0,
            tenure: LeaderEpoch::UNKNOWN,
        };
        Partition { id, topic, context, inner: Mutex::new(inner), changed: Notify::new() }
    }

    pub fn id(&self) -> TopicIdPartition {
        self.id
    }

    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    pub fn directory_id(&self) -> DirectoryId {
        self.inner.lock().log.directory().id()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Resolves after the next change of `status`. Create it before reading the status.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub fn status(&self) -> PartitionStatus {
        let inner = self.inner.lock();
        let log = inner.log.read();
        let high_watermark = inner.state.high_watermark();
        PartitionStatus {
            role: match inner.state.role() {
                Role::Leader(_) => PartitionRole::Leader,
                Role::Follower { .. } => PartitionRole::Follower,
                Role::None | Role::Suspended { .. } => PartitionRole::None,
            },
            leader_epoch: inner.state.leader_epoch(),
            partition_epoch: inner.state.partition_epoch(),
            log_start_offset: log.log_start_offset(),
            log_end_offset: log.log_end_offset(),
            high_watermark,
            last_stable_offset: log.last_stable_offset(high_watermark),
            latest_batch_epoch: log.latest_epoch(),
            isr: inner.state.isr().to_vec(),
            min_insync_replicas: inner.state.effective_min_isr(),
            recovering: inner.state.leader().is_some_and(LeaderState::is_recovering),
        }
    }

    /// Decision 10e.
    pub fn fetched_under_epoch(&self, epoch: LeaderEpoch) -> bool {
        self.inner.lock().state.fetched_under_epoch(epoch)
    }

    /// Hands an event to the state and runs what it says; fetchers are the caller's.
    pub(super) fn apply(&self, inner: &mut Inner, event: ReplicaEvent) -> Vec<ReplicaEffect> {
        let effects = inner.state.apply(event);
        self.run(inner, &effects);
        effects
    }

    pub(super) fn run(&self, inner: &mut Inner, effects: &[ReplicaEffect]) {
        for effect in effects {
            match effect {
                ReplicaEffect::Lead { leader_epoch, anew } => self.lead(inner, *leader_epoch, *anew),
                ReplicaEffect::Follow { leader, leader_epoch } => {
                    debug!(partition = %self, ?leader, %leader_epoch, "follows");
                    self.visible_change(inner);
                }
                ReplicaEffect::LeadershipLost => {
                    info!(partition = %self, leader_epoch = %inner.state.leader_epoch(), "no longer leads");
                    inner.waiters.fail_all(WaitFailure::NotLeader);
                    self.visible_change(inner);
                }
                ReplicaEffect::HighWatermarkMoved(to) => {
                    inner.log.set_high_watermark(*to);
                    if !inner.waiters.is_empty() {
                        let result = replicated_result(&inner.state);
                        inner.waiters.reached(*to, result);
                    }
                    inner.version += 1;
                    inner.watchers.high_watermark_moved();
                    self.changed.notify_waiters();
                }
                ReplicaEffect::WaitersCut { log_end_offset } => {
                    inner.log.set_high_watermark(inner.state.high_watermark());
                    inner.waiters.cut(*log_end_offset, WaitFailure::NotLeader);
                    inner.tenure = inner.state.leader_epoch().next();
                    self.visible_change(inner);
                }
                ReplicaEffect::ProposeIsr(proposal) => self.propose_isr(inner, proposal),
                ReplicaEffect::IsrChanged { isr, partition_epoch } => {
                    info!(partition = %self, ?isr, %partition_epoch, "ISR is now");
                    self.changed.notify_waiters();
                }
                ReplicaEffect::ProposeLossCut { leader_epoch, offset } => {
                    self.propose_loss_cut(inner, *leader_epoch, *offset);
                }
                ReplicaEffect::Ignored(_) => {}
            }
        }
    }

    fn lead(&self, inner: &mut Inner, leader_epoch: LeaderEpoch, anew: bool) {
        let log_end_offset = inner.state.log_end_offset();
        info!(partition = %self, %leader_epoch, %log_end_offset,
            high_watermark = %inner.state.high_watermark(), anew, "leads");
        if anew {
            inner.tenure = leader_epoch;
        }
        if !inner.mirroring {
            self.start_epoch(inner, leader_epoch);
        }
        if let Some(leader) = inner.state.leader() {
            self.context.nudge(leader.replicas());
        }
        self.visible_change(inner);
    }

    fn start_epoch(&self, inner: &mut Inner, leader_epoch: LeaderEpoch) {
        let started = inner.log.write().start_epoch(leader_epoch, inner.state.log_end_offset());
        match started {
            Ok(()) => {}
            Err(AppendError::Storage(error)) => self.fail_storage(inner, &error),
            Err(error) => {
                // The controller keeps the epoch at or above every batch (decision 8); a log that says
                // otherwise must not be led.
                error!(partition = %self, %leader_epoch, %error, "cannot lead under this epoch");
                self.go_offline(inner);
            }
        }
    }

    fn propose_isr(&self, inner: &Inner, proposal: &IsrProposal) {
        info!(partition = %self, isr = ?inner.state.isr(), leader_epoch = %proposal.leader_epoch,
            new_isr = ?proposal.new_isr.iter().map(|member| member.broker_id.0).collect::<Vec<_>>(),
            "proposes an ISR");
        self.context.propose_isr(IsrProposalItem {
            id: self.id,
            leader_epoch: proposal.leader_epoch,
            partition_epoch: proposal.partition_epoch,
            new_isr: proposal
                .new_isr
                .iter()
                .map(|member| {
                    let own = || self.context.own_broker_epoch(member.broker_id);
                    (member.broker_id, member.broker_epoch.unwrap_or_else(own))
                })
                .collect(),
        });
    }

    fn propose_loss_cut(&self, inner: &Inner, leader_epoch: LeaderEpoch, offset: Offset) {
        let image = self.context.image.load();
        let topic = image.topic_by_id(self.id.topic_id);
        let (decided, highest_batch_epoch) = {
            let log = inner.log.read();
            let decided = topic
                .filter(|topic| super::cut::stopping_cut_stands(topic, self.id.partition))
                .map(|_| log.decided_cut_point(log.log_end_offset()));
            (decided.transpose(), log.latest_epoch().unwrap_or(LeaderEpoch::UNKNOWN))
        };
        let offset = match decided {
            Ok(decided) => decided.map_or(offset, |decided| decided.min(offset)),
            // Proposed again with the next tick, should the log be readable then.
            Err(error) => {
                inner.log.directory().report(&error);
                return error!(partition = %self, %error, "cannot tell what is decided in the log");
            }
        };
        info!(partition = %self, %leader_epoch, %offset, "elected uncleanly: proposes a LOSS cut");
        self.context.deps.propose_loss_cut(LossCut {
            id: self.id,
            leader_epoch,
            offset,
            highest_batch_epoch,
            directory: inner.log.directory().id(),
        });
    }

    pub(super) fn notify_changed(&self) {
        self.changed.notify_waiters();
    }

    pub(super) fn visible_change(&self, inner: &mut Inner) {
        inner.version += 1;
        inner.watchers.changed();
        self.changed.notify_waiters();
    }

    /// Leads under exactly this epoch, and serves.
    pub(super) fn check_leader(inner: &Inner, expected: Option<LeaderEpoch>) -> Result<(), PartitionError> {
        Partition::check_epoch(inner, expected)?;
        if inner.state.is_serving() { Ok(()) } else { Err(PartitionError::NotLeader) }
    }

    /// May be read from under exactly this epoch: leads and serves, or follows.
    pub(super) fn check_readable(inner: &Inner, expected: Option<LeaderEpoch>) -> Result<(), PartitionError> {
        if matches!(inner.state.role(), Role::Follower { .. }) {
            return Partition::check_epoch(inner, expected);
        }
        Partition::check_leader(inner, expected)
    }

    fn check_epoch(inner: &Inner, expected: Option<LeaderEpoch>) -> Result<(), PartitionError> {
        if inner.offline {
            return Err(PartitionError::Offline);
        }
        inner.state.check_epoch(expected)
    }

    /// Disk errors end this replica's service, and that of its directory: what is on disk is not known any
    /// more. Where something merely ran out the log is whole, and whoever asked is refused.
    pub(super) fn fail_storage(&self, inner: &mut Inner, error: &LogError) {
        if error.is_exhausted() {
            warn!(partition = %self, %error, "refused");
            return;
        }
        inner.log.directory().report(error);
        error!(partition = %self, %error, "log failed");
        self.go_offline(inner);
    }

    pub(super) fn go_offline(&self, inner: &mut Inner) {
        inner.offline = true;
        self.apply(inner, ReplicaEvent::Removed);
        self.visible_change(inner);
    }

    /// On an unreleased mirror partition the epoch cache follows the batches; the leader's own epoch
    /// enters it with the release (decision 8).
    pub fn set_mirroring(&self, mirroring: bool) {
        let mut inner = self.inner.lock();
        let was = std::mem::replace(&mut inner.mirroring, mirroring);
        if was && !mirroring && inner.state.is_leader() {
            let leader_epoch = inner.state.leader_epoch();
            self.start_epoch(&mut inner, leader_epoch);
        }
        if mirroring && !was {
            // An epoch of our own without a batch would stand above the source's.
            let forgotten = inner.log.write().forget_empty_epochs();
            if let Err(error) = forgotten {
                self.fail_storage(&mut inner, &error);
            }
        }
        if was != mirroring {
            self.changed.notify_waiters();
        }
    }

    /// Whether clients may write; those who wait on a partition that becomes read-only are told.
    pub(super) fn set_writable(&self, writable: bool) {
        let mut inner = self.inner.lock();
        if std::mem::replace(&mut inner.writable, writable) && !writable {
            inner.waiters.fail_all(WaitFailure::ReadOnlyTopic);
        }
    }

    pub(super) fn watch(&self, watch: &Arc<FetchWatch>, slot: u32, interest: Interest, seen: Option<u64>) {
        let mut inner = self.inner.lock();
        inner.watchers.add(watch, slot, interest);
        if seen != Some(inner.version) {
            watch.mark(slot);
        }
    }

    pub(super) fn unwatch(&self, watch: &Arc<FetchWatch>, slot: u32) {
        self.inner.lock().watchers.remove(watch, slot);
    }
}

impl std::fmt::Display for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.id.partition)
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
