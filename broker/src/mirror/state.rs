//! PURE: one mirror partition that this broker leads.
//!
//! Events and the image's facts go in, effects come out; no clock, lock, task or socket in here. The
//! order in which things become true is the whole safety of mirroring, so it is worth reading once:
//!
//! 1. What the coordinator has recorded is read; "could not ask" is never "nothing recorded".
//! 2. A state is durable before its action starts (decision 16), and a new leader repeats the action
//!    of the recorded state after it has put its own epoch on the record.
//! 3. A cut comes at most once per association and kind, and only the image says that it was made.
//! 4. Copying starts only behind a cut that all in-sync replicas applied, from a source whose
//!    identity, epoch and cuts were checked, under a leader epoch not below the source's.
//! 5. Writable is what the image calls released, nothing else.

mod changes;
mod effect;
mod event;
mod facts;
mod failure;
mod mirroring;
mod preparing;
mod saving;
mod stopping;
#[cfg(test)]
mod tests;

use common::ids::*;
use common::metadata::record::CutKind;
use common::mirror_state::MirrorState;

use crate::mirror::coordinator::record::{StateEpoch, StateRecord};

pub use effect::{MirrorEffect, MirrorReport};
pub use event::*;
pub use facts::{CutFact, MirrorFacts};
pub use failure::{FailureKind, FailureReason, Moment, RetryPolicy, SourceFailure};

/// The state of the machine: what is wanted, what is recorded, and the one thing being waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorPartition {
    id: TopicIdPartition,
    /// The epoch at which this leadership began.
    leadership: LeaderEpoch,
    facts: MirrorFacts,
    /// The last record known durable, of this or an earlier association.
    record: Option<StateRecord>,
    phase: Phase,
    step: u32,
    /// Failures in a row, without a successful fetch between.
    attempt: u32,
    /// Pauses in a row of one action.
    pauses: u32,
    /// The source's leader epoch as far as known; never falls (decision 20).
    tracked_epoch: LeaderEpoch,
    /// A batch epoch above what the source said of itself: asked again once before it counts as damage.
    doubted_epoch: Option<LeaderEpoch>,
    /// The last fetch was out of range: the next check asks for the source's bounds.
    bounds_wanted: bool,
    shown: MirrorReport,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    /// An unclean election's LOSS cut is not committed yet.
    Recovering,
    /// An effect is under way; its answer carries the current token.
    Doing(Action),
    /// The action could not be done; again at `until_ms`.
    Pausing {
        until_ms: i64,
        action: Action,
    },
    /// Committed by the controller, not yet in this broker's image.
    AwaitingImage(Awaited),
    /// The record is of a newer association, or of a later step, than the image shows.
    ImageBehind,
    Fetching {
        source: SourceLeader,
        fetched: bool,
    },
    Failed {
        until_ms: i64,
    },
    Released,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Read,
    Save(PendingSave),
    Quiesce,
    AskSource {
        local_end: Offset,
        highest_batch_epoch: LeaderEpoch,
    },
    ProposeCut {
        kind: CutKind,
        offset: Offset,
        highest_batch_epoch: LeaderEpoch,
        source_cut_id: Option<CutId>,
    },
    AwaitHighWatermark,
    AwaitReplicas(CutFact),
    CheckSource,
    Raise {
        minimum: LeaderEpoch,
        source: SourceLeader,
    },
    RestartLog {
        offset: Offset,
    },
    Release,
}

#[derive(Clone, Debug, PartialEq)]
enum Awaited {
    Cut,
    Raise { source: SourceLeader },
    Release,
}

#[derive(Clone, Debug, PartialEq)]
struct PendingSave {
    record: StateRecord,
    then: Then,
}

/// What follows a durable record.
#[derive(Clone, Debug, PartialEq)]
enum Then {
    /// The action of the state.
    Resume,
    Fetch(SourceLeader),
    RestartLog {
        offset: Offset,
    },
}

type Effects = Vec<MirrorEffect>;

const LEADERSHIP_MOVES: &str = "the local partition is changing its leader";

/// The step function: a state and an event give the next state and what to do.
pub fn step(mut state: MirrorPartition, event: MirrorEvent, at: Moment) -> (MirrorPartition, Effects) {
    let mut out = Effects::new();
    state.apply(event, at, &mut out);
    (state, out)
}

impl MirrorPartition {
    /// This broker leads the partition, from an image at or past its own registration (decision 16).
    pub fn lead(id: TopicIdPartition, facts: MirrorFacts, at: Moment) -> (MirrorPartition, Effects) {
        let shown = MirrorReport {
            state: MirrorState::Unknown,
            reason: String::new(),
            since_ms: at.now_ms,
            attempt: 0,
            next_retry_ms: -1,
        };
        let mut partition = MirrorPartition {
            id,
            leadership: facts.leader_epoch,
            facts,
            record: None,
            phase: Phase::Recovering,
            step: 0,
            attempt: 0,
            pauses: 0,
            tracked_epoch: LeaderEpoch::UNKNOWN,
            doubted_epoch: None,
            bounds_wanted: false,
            shown,
        };
        let mut out = Effects::new();
        partition.enter(at, &mut out);
        (partition, out)
    }

    pub fn facts(&self) -> &MirrorFacts {
        &self.facts
    }

    pub fn shown(&self) -> &MirrorReport {
        &self.shown
    }

    /// Of the source's cuts. The image has it from the cuts that took note of them, so it survives the loss
    /// of `__mirror_state`.
    pub fn checked_cut_id(&self) -> Option<CutId> {
        self.own_record().and_then(|own| own.checked_cut_id).max(self.facts.checked_source_cut)
    }

    /// The time before which a `Tick` does nothing.
    pub fn wakes_at_ms(&self) -> Option<i64> {
        match self.phase {
            Phase::Pausing { until_ms, .. } | Phase::Failed { until_ms } => Some(until_ms),
            _ => None,
        }
    }

    /// Of the question whose answer is waited for.
    pub fn current_token(&self) -> Token {
        self.token()
    }

    fn token(&self) -> Token {
        Token { leadership: self.leadership, association: self.facts.association, step: self.step }
    }

    /// The record, if it is of the current association.
    fn own_record(&self) -> Option<&StateRecord> {
        self.record.as_ref().filter(|record| record.association == self.facts.association)
    }

    fn recorded_state(&self) -> MirrorState {
        self.own_record().map_or(MirrorState::Unknown, |record| record.state)
    }

    fn apply(&mut self, event: MirrorEvent, at: Moment, out: &mut Effects) {
        if event.token().is_some_and(|token| token != self.token()) {
            let why = "late: its question is no longer the current one";
            return out.push(MirrorEffect::Ignore { event: event.name(), why });
        }
        let name = event.name();
        match (event, self.phase.clone()) {
            (MirrorEvent::FactsChanged(facts), _) => self.facts_changed(facts, at, out),
            (MirrorEvent::SettingsChanged, phase) => self.settings_changed(phase, at, out),
            (MirrorEvent::Tick, phase) => self.tick(phase, at, out),
            (MirrorEvent::StateRead { result, .. }, Phase::Doing(Action::Read)) => {
                self.state_read(result, at, out);
            }
            (MirrorEvent::StateWritten { result, .. }, Phase::Doing(Action::Save(save))) => {
                self.state_written(save, result, at, out);
            }
            (MirrorEvent::Quiesced { log_end, highest_batch_epoch, .. }, Phase::Doing(Action::Quiesce)) => {
                self.quiesced(log_end, highest_batch_epoch, at, out);
            }
            (
                MirrorEvent::SourceAnswered { result, .. },
                Phase::Doing(Action::AskSource { local_end, highest_batch_epoch }),
            ) => self.source_answered(result, local_end, highest_batch_epoch, at, out),
            (MirrorEvent::Proposed { result, .. }, Phase::Doing(action)) => {
                self.proposed(action, result, at, out);
            }
            (
                MirrorEvent::HighWatermarkAtEnd { cut_point, highest_batch_epoch, .. },
                Phase::Doing(Action::AwaitHighWatermark),
            ) => {
                let (kind, offset, source_cut_id) = (CutKind::Stopping, cut_point, None);
                self.begin(Action::ProposeCut { kind, offset, highest_batch_epoch, source_cut_id }, out);
            }
            (MirrorEvent::ReplicasAligned { log_end, .. }, Phase::Doing(Action::AwaitReplicas(_))) => {
                self.replicas_aligned(log_end, at, out);
            }
            (MirrorEvent::SourceChecked { result, .. }, Phase::Doing(Action::CheckSource)) => {
                self.source_checked(result, at, out);
            }
            (MirrorEvent::LogRestarted { result, .. }, Phase::Doing(Action::RestartLog { .. })) => {
                match result {
                    Ok(()) => self.begin(Action::CheckSource, out),
                    Err(FetchStop::Failed(reason)) => self.fail(reason, at, out),
                    Err(_) => self.pause(Action::CheckSource, LEADERSHIP_MOVES.to_owned(), at, out),
                }
            }
            (MirrorEvent::FetchSucceeded { .. }, Phase::Fetching { source, .. }) => {
                self.attempt = 0;
                self.pauses = 0;
                self.phase = Phase::Fetching { source, fetched: true };
                self.show_record(out);
            }
            (MirrorEvent::FetchStopped { why, .. }, Phase::Fetching { source, fetched }) => {
                self.fetch_stopped(why, source, fetched, at, out);
            }
            _ => out.push(MirrorEffect::Ignore { event: name, why: "not what this phase waits for" }),
        }
    }

    fn state_read(&mut self, result: Result<Option<StateRecord>, StoreError>, at: Moment, out: &mut Effects) {
        match result {
            Err(error) => self.pause(Action::Read, describe(&error), at, out),
            Ok(record) => {
                self.pauses = 0;
                self.record = record;
                self.take_over(at, out);
            }
        }
    }

    /// Goes on from what a predecessor, or this leader itself, has recorded.
    fn take_over(&mut self, at: Moment, out: &mut Effects) {
        let Some(record) = self.record.clone() else {
            let first = if self.facts.removed { MirrorState::Stopping } else { MirrorState::Preparing };
            return self.save(first, at, out);
        };
        if record.association > self.facts.association {
            self.phase = Phase::ImageBehind;
            return;
        }
        if record.association < self.facts.association {
            let first = if self.facts.removed { MirrorState::Stopping } else { MirrorState::Preparing };
            return self.save(first, at, out);
        }
        self.attempt = self.attempt.max(record.attempt);
        let own_epoch = record.leader_epoch == self.facts.leader_epoch;
        match (self.facts.removed, record.state) {
            (true, MirrorState::Stopped) | (false, MirrorState::Failed) => {
                self.show_record(out);
                self.resume(at, out);
            }
            (true, MirrorState::Stopping) if own_epoch => {
                self.show_record(out);
                self.resume(at, out);
            }
            (true, _) => self.save(MirrorState::Stopping, at, out),
            // A stop is recorded that the image does not ask for yet.
            (false, MirrorState::Stopping | MirrorState::Stopped) => {
                self.show_record(out);
                self.phase = Phase::ImageBehind;
            }
            (false, _) if own_epoch => {
                self.show_record(out);
                self.resume(at, out);
            }
            // Repeating the state under the new epoch fences whatever the old leader still writes.
            (false, state) => self.save(state, at, out),
        }
    }

    /// The action of the recorded state, from the point the image shows it has reached.
    fn resume(&mut self, at: Moment, out: &mut Effects) {
        match self.recorded_state() {
            MirrorState::Unknown => self.begin(Action::Read, out),
            MirrorState::Preparing => self.resume_preparing(out),
            MirrorState::Mirroring => self.resume_mirroring(out),
            MirrorState::Stopping => self.resume_stopping(out),
            MirrorState::Stopped => self.resume_stopped(out),
            MirrorState::Failed => {
                let next = self.own_record().map_or(-1, |record| record.next_retry_ms);
                let until_ms = next.max(at.now_ms);
                self.phase = Phase::Failed { until_ms };
                out.push(MirrorEffect::WakeAt { at_ms: until_ms });
            }
        }
    }

    fn proposed(
        &mut self,
        action: Action,
        result: Result<MetadataOffset, ProposalError>,
        at: Moment,
        out: &mut Effects,
    ) {
        let awaited = match &action {
            Action::ProposeCut { .. } => Awaited::Cut,
            Action::Raise { source, .. } => Awaited::Raise { source: source.clone() },
            Action::Release => Awaited::Release,
            _ => {
                let why = "no proposal is under way";
                return out.push(MirrorEffect::Ignore { event: "Proposed", why });
            }
        };
        match result {
            Ok(_) => {
                self.pauses = 0;
                self.phase = Phase::AwaitingImage(awaited);
            }
            // Refused: the image is about to show why. Unavailable: it may have been committed all the
            // same, and then the image shows it. Either way the next try begins from the image.
            Err(ProposalError::Refused(why) | ProposalError::Unavailable(why)) => {
                self.pause(action, format!("controller: {why}"), at, out);
            }
        }
    }

    fn begin(&mut self, action: Action, out: &mut Effects) {
        self.step = self.step.wrapping_add(1);
        let token = self.token();
        let leader_epoch = self.facts.leader_epoch;
        let association = self.facts.association;
        out.push(match &action {
            Action::Read => MirrorEffect::ReadState { token },
            Action::Save(save) => {
                let expected = self.record.as_ref().map_or(StateEpoch::NONE, |record| record.state_epoch);
                MirrorEffect::SaveState { token, record: save.record.clone(), expected }
            }
            Action::Quiesce => MirrorEffect::Quiesce { token },
            Action::AskSource { .. } => MirrorEffect::AskLastMirroredOffset {
                token,
                seen: self.checked_cut_id(),
                recopy: self.facts.recopy,
            },
            Action::ProposeCut { kind, offset, highest_batch_epoch, source_cut_id } => {
                MirrorEffect::ProposeCut {
                    token,
                    kind: *kind,
                    association,
                    offset: *offset,
                    leader_epoch,
                    highest_batch_epoch: *highest_batch_epoch,
                    source_cut_id: *source_cut_id,
                }
            }
            Action::AwaitHighWatermark => MirrorEffect::AwaitHighWatermark { token },
            Action::AwaitReplicas(cut) => MirrorEffect::AwaitReplicas {
                token,
                epoch: cut.leader_epoch,
                high_watermark_at_end: self.recorded_state() != MirrorState::Preparing,
            },
            Action::CheckSource => MirrorEffect::CheckSource {
                token,
                seen: self.checked_cut_id(),
                tracked_epoch: self.tracked_epoch,
                bounds: self.bounds_wanted,
            },
            Action::Raise { minimum, .. } => {
                MirrorEffect::ProposeRaise { token, leader_epoch, minimum: *minimum }
            }
            Action::RestartLog { offset } => {
                MirrorEffect::RestartLogAt { token, leader_epoch, offset: *offset }
            }
            Action::Release => {
                let record = self.own_record();
                MirrorEffect::ProposeRelease {
                    token,
                    association,
                    leader_epoch,
                    offset: record.and_then(|record| record.last_mirrored_offset),
                    checked_cut_id: self.checked_cut_id(),
                }
            }
        });
        self.phase = Phase::Doing(action);
    }

    fn pause(&mut self, action: Action, why: String, at: Moment, out: &mut Effects) {
        let until_ms = at.now_ms + at.pause_ms(self.pauses);
        self.pauses = self.pauses.saturating_add(1);
        // A question still under way is dropped with the old token.
        self.step = self.step.wrapping_add(1);
        self.phase = Phase::Pausing { until_ms, action };
        self.show(self.shown.state, why, at, out);
        out.push(MirrorEffect::WakeAt { at_ms: until_ms });
    }
}

fn describe(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(why) => format!("mirror coordinator: {why}"),
        StoreError::FencedLeaderEpoch => "mirror coordinator: a later leader has written".to_owned(),
        StoreError::FencedStateEpoch => "mirror coordinator: the record has changed".to_owned(),
        StoreError::FencedAssociation => "mirror coordinator: a newer association is recorded".to_owned(),
        StoreError::Unreadable(why) => format!("mirror coordinator: the record cannot be read: {why}"),
    }
}
