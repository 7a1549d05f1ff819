//! Carries out what the machines want. Reads, writes and proposals that come together travel together.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use common::fault;
use common::ids::*;
use protocol::proto::controller::{ProposeMirrorRequest, propose_mirror_request};

use crate::mirror::coordinator::StateKey;
use crate::mirror::deps::{LocalPartition, MirrorAppendError, StateWrite};
use crate::mirror::source::{Question, QuestionKind};
use crate::mirror::state::{
    FailureKind, FailureReason, FetchStop, MirrorEffect, MirrorEvent, SourceFailure, StoreError, Token,
};

use super::conditions::{high_watermark_at_end, replicas_aligned};
use super::proposals::{self, Proposal};
use super::{ManagerTask, Message};

/// A watched partition is looked at again after this time even if no change was told.
const WATCH_AGAIN: Duration = Duration::from_secs(1);

/// Gathered during one turn of the manager's loop.
#[derive(Default)]
pub struct Batches {
    reads: Vec<(TopicIdPartition, Token, StateKey)>,
    writes: Vec<(TopicIdPartition, Token, StateWrite)>,
    proposals: Vec<Proposal>,
    /// Mirrors whose first contact is being recorded.
    pub first_contacts: HashSet<Arc<str>>,
}

impl ManagerTask {
    pub(super) fn run_effects(&mut self, id: TopicIdPartition, effects: Vec<MirrorEffect>) {
        for effect in effects {
            self.run_effect(id, effect);
        }
    }

    fn machine_key(&self, id: TopicIdPartition) -> Option<StateKey> {
        let facts = self.machines.get(&id)?.machine.as_ref()?.facts();
        Some(StateKey { mirror: facts.mirror.clone(), topic_id: id.topic_id, partition: id.partition })
    }

    fn run_effect(&mut self, id: TopicIdPartition, effect: MirrorEffect) {
        match effect {
            MirrorEffect::ReadState { token } => {
                if let Some(key) = self.machine_key(id) {
                    self.batches.reads.push((id, token, key));
                }
            }
            MirrorEffect::SaveState { token, record, expected } => {
                if let Some(key) = self.machine_key(id) {
                    self.batches.writes.push((id, token, StateWrite { key, record, expected }));
                }
            }
            MirrorEffect::Quiesce { token } => self.quiesce(id, token),
            MirrorEffect::AskLastMirroredOffset { token, seen, recopy } => {
                self.ask(id, token, seen, |_| QuestionKind::Position { recopy });
            }
            MirrorEffect::CheckSource { token, seen, bounds, tracked_epoch: _ } => {
                self.ask(id, token, seen, |partition| {
                    let status = partition.status();
                    let empty = status.log_end_offset <= status.log_start_offset;
                    let known = status.latest_batch_epoch > LeaderEpoch::UNKNOWN;
                    QuestionKind::Check {
                        bounds,
                        local_end: status.log_end_offset,
                        last_epoch: (known && !empty).then_some(status.latest_batch_epoch),
                    }
                });
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
                let cut = propose_mirror_request::Cut {
                    source_cut_id: source_cut_id.map_or(0, |id| id.0),
                    ..proposals::cut(id, kind, association, offset, leader_epoch, highest_batch_epoch)
                };
                self.batches.proposals.push(Proposal::Cut(id, token, cut));
            }
            MirrorEffect::ProposeRaise { token, leader_epoch, minimum } => {
                let raise = propose_mirror_request::Raise {
                    topic_id: proposals::topic_bytes(id.topic_id),
                    partition: id.partition,
                    leader_epoch: leader_epoch.0,
                    minimum: minimum.0,
                };
                self.batches.proposals.push(Proposal::Raise(id, token, raise));
            }
            MirrorEffect::ProposeRelease { token, association, leader_epoch, offset, checked_cut_id } => {
                let release = propose_mirror_request::Release {
                    topic_id: proposals::topic_bytes(id.topic_id),
                    partition: id.partition,
                    leader_epoch: leader_epoch.0,
                    association: association.0,
                    offset: offset.map_or(-1, |offset| offset.0),
                    checked_cut_id: checked_cut_id.map_or(-1, |id| id.0),
                };
                self.batches.proposals.push(Proposal::Release(id, token, release));
            }
            MirrorEffect::AwaitHighWatermark { token } => self.watch(id, token, |partition, token| {
                let status = partition.status();
                if !high_watermark_at_end(&status) {
                    return None;
                }
                // A log that cannot be read keeps the partition waiting: its directory is failing.
                let cut_point = partition.decided_cut_point().ok()?;
                let highest_batch_epoch = status.latest_batch_epoch;
                Some(MirrorEvent::HighWatermarkAtEnd { token, cut_point, highest_batch_epoch })
            }),
            MirrorEffect::AwaitReplicas { token, epoch, high_watermark_at_end: at_end } => {
                self.watch(id, token, move |partition, token| {
                    let status = partition.status();
                    let fetched = partition.fetched_under_epoch(epoch);
                    let aligned = replicas_aligned(&status, epoch, fetched, at_end);
                    aligned.then_some(MirrorEvent::ReplicasAligned { token, log_end: status.log_end_offset })
                });
            }
            MirrorEffect::RestartLogAt { token, leader_epoch, offset } => {
                let restarted = match self.deps.partitions.partition(id) {
                    Some(partition) => partition.restart_log_at(leader_epoch, offset),
                    None => Err(MirrorAppendError::NotLeader),
                };
                let result = restarted.map_err(|error| match error {
                    // Most often the epoch was raised and the image with it is still under way.
                    MirrorAppendError::NotLeader => FetchStop::NotLeader,
                    error => FetchStop::Failed(FailureReason::new(
                        FailureKind::LocalStorage,
                        format!("restart at {offset}: {error}"),
                    )),
                });
                self.send(id, MirrorEvent::LogRestarted { token, result });
            }
            MirrorEffect::StartFetcher { token, source, leader_epoch } => {
                self.start_fetcher(id, token, &source, leader_epoch);
            }
            MirrorEffect::AppendUnder { leader_epoch } => self.fetchers.append_under(id, leader_epoch),
            MirrorEffect::StopFetcher => self.fetchers.stop(id),
            MirrorEffect::WakeAt { at_ms } => self.timers.set(id, at_ms),
            // Shown and logged by the caller, who sees the machine before and after.
            MirrorEffect::Report(_) => {}
            MirrorEffect::Ignore { event, why } => {
                tracing::debug!(partition = %id, event, why, "mirror event ignored");
            }
        }
    }

    fn send(&self, id: TopicIdPartition, event: MirrorEvent) {
        // Closed only at shutdown.
        let _ = self.messages.send(Message::Event(id, event));
    }

    /// Decision 10 (a). The fetcher's slot is closed when `stop` returns: no append is under way.
    fn quiesce(&mut self, id: TopicIdPartition, token: Token) {
        self.fetchers.stop(id);
        let Some(partition) = self.deps.partitions.partition(id) else {
            // Metadata comes to the replicas first; a directory that failed leaves nothing to cut.
            return self.watch(id, token, quiesced);
        };
        partition.fail_waiting_produces_read_only();
        self.watch(id, token, quiesced);
    }

    fn ask(
        &mut self,
        id: TopicIdPartition,
        token: Token,
        seen: Option<CutId>,
        kind: impl FnOnce(&dyn LocalPartition) -> QuestionKind,
    ) {
        let Some(facts) = self.machines.get(&id).and_then(|entry| entry.machine.as_ref()).map(|m| m.facts())
        else {
            return;
        };
        let (topic, mirror) = (facts.topic.clone(), facts.mirror.clone());
        let could_not_ask = |why: &str| SourceFailure::CouldNotAsk(why.to_owned());
        let partition = self.deps.partitions.partition(id);
        let failure = match (self.mirrors.asker(&mirror, &self.image), partition) {
            (Some(asker), Some(partition)) => {
                let kind = kind(&*partition);
                return asker.ask(Question { id, topic, token, seen, kind });
            }
            (None, _) => could_not_ask("the mirror has no configuration"),
            (_, None) => could_not_ask("the local partition is not open"),
        };
        // Which of the two it was does not matter to a machine that waits for either.
        self.send(id, MirrorEvent::SourceAnswered { token, result: Err(failure.clone()) });
        self.send(id, MirrorEvent::SourceChecked { token, result: Err(failure) });
    }

    fn start_fetcher(
        &mut self,
        id: TopicIdPartition,
        token: Token,
        source: &crate::mirror::state::SourceLeader,
        leader_epoch: LeaderEpoch,
    ) {
        let Some(entry) = self.machines.get(&id) else { return };
        let Some(facts) = entry.machine.as_ref().map(|machine| machine.facts()) else { return };
        let client = self.mirrors.client_for(&facts.mirror, &self.image);
        match (client, self.deps.partitions.partition(id)) {
            (Some(client), Some(partition)) => {
                let (topic, lag) = (facts.topic.clone(), entry.lag.clone());
                self.fetchers.start(&client, id, topic, token, source, leader_epoch, partition, lag);
            }
            _ => self.send(id, MirrorEvent::FetchStopped { token, why: FetchStop::NotLeader }),
        }
    }

    /// Watches a partition until `reached` has an event; a later watch of it replaces this one.
    fn watch(
        &mut self,
        id: TopicIdPartition,
        token: Token,
        reached: impl Fn(&dyn LocalPartition, Token) -> Option<MirrorEvent> + Send + 'static,
    ) {
        let partitions = self.deps.partitions.clone();
        let messages = self.messages.clone();
        let task = self.runtime.spawn(async move {
            loop {
                if let Some(partition) = partitions.partition(id) {
                    let changed = partition.changed();
                    if let Some(event) = reached(&*partition, token) {
                        let _ = messages.send(Message::Event(id, event));
                        return;
                    }
                    let _ = tokio::time::timeout(WATCH_AGAIN, changed).await;
                } else {
                    tokio::time::sleep(WATCH_AGAIN / 10).await;
                }
            }
        });
        if let Some(entry) = self.machines.get_mut(&id)
            && let Some(earlier) = entry.watcher.replace(task.abort_handle())
        {
            earlier.abort();
        }
    }

    /// Sends what was gathered.
    pub(super) fn flush(&mut self) {
        self.flush_reads();
        self.flush_writes();
        self.flush_proposals();
        self.flush_reports();
    }

    fn flush_reads(&mut self) {
        if self.batches.reads.is_empty() {
            return;
        }
        let reads = std::mem::take(&mut self.batches.reads);
        let (store, messages) = (self.deps.store.clone(), self.messages.clone());
        self.runtime.spawn(async move {
            let keys = reads.iter().map(|(_, _, key)| key.clone()).collect();
            let mut results = store.read(keys).await.into_iter();
            for (id, token, _) in reads {
                let result = results.next().unwrap_or_else(no_answer);
                let _ = messages.send(Message::Event(id, MirrorEvent::StateRead { token, result }));
            }
        });
    }

    fn flush_writes(&mut self) {
        if self.batches.writes.is_empty() {
            return;
        }
        let writes = std::mem::take(&mut self.batches.writes);
        let (store, messages) = (self.deps.store.clone(), self.messages.clone());
        self.runtime.spawn(async move {
            for (id, _, write) in &writes {
                let passed = fault::point("mirror.state.write", format_args!("{id}@{}", write.record.state));
                passed.await;
            }
            let batch = writes.iter().map(|(_, _, write)| write.clone()).collect();
            let mut results = store.write(batch).await.into_iter();
            for (id, token, write) in writes {
                let passed =
                    fault::point("mirror.state.written", format_args!("{id}@{}", write.record.state));
                passed.await;
                let result = results.next().unwrap_or_else(no_answer);
                let _ = messages.send(Message::Event(id, MirrorEvent::StateWritten { token, result }));
            }
        });
    }

    fn flush_proposals(&mut self) {
        if self.batches.proposals.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batches.proposals);
        let (controller, messages) = (self.deps.controller.clone(), self.messages.clone());
        self.runtime.spawn(async move {
            for proposal in &batch {
                let (name, id) = proposal.fault_point();
                fault::point(name, id).await;
            }
            let (request, order) = proposals::request(batch);
            let results = proposals::propose(&*controller, request, order.len()).await;
            for (id, _) in &order {
                fault::point("mirror.proposal.answered", id).await;
            }
            for ((id, token), result) in order.into_iter().zip(results) {
                let _ = messages.send(Message::Event(id, MirrorEvent::Proposed { token, result }));
            }
        });
    }

    /// Stored before anything else is asked of that source (decision 19).
    pub(super) fn record_first_contact(&mut self, mirror: Arc<str>, source_cluster_id: String) {
        if !self.batches.first_contacts.insert(mirror.clone()) {
            return;
        }
        let (controller, messages) = (self.deps.controller.clone(), self.messages.clone());
        let client = self.mirrors.client_for(&mirror, &self.image);
        self.runtime.spawn(async move {
            let told = source_cluster_id.clone();
            let source =
                propose_mirror_request::MirrorSource { mirror: mirror.to_string(), source_cluster_id };
            let request = ProposeMirrorRequest { sources: vec![source], ..Default::default() };
            if let Ok(answer) = controller.propose(request).await
                && let Some(client) = client
                && let own = client.identity().own_cluster_id.clone()
                && let Some(reason) = proposals::first_contact_refusal(&answer, &own, &told)
            {
                tracing::warn!(%mirror, %reason, "the source is refused");
                client.refuse(reason);
            }
            let _ = messages.send(Message::FirstContactDone { mirror });
        });
    }
}

fn quiesced(partition: &dyn LocalPartition, token: Token) -> Option<MirrorEvent> {
    let status = partition.status();
    status.is_leader.then_some(MirrorEvent::Quiesced {
        token,
        log_end: status.log_end_offset,
        highest_batch_epoch: status.latest_batch_epoch,
    })
}

fn no_answer<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("no answer".to_owned()))
}
