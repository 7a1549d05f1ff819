//! What is made durable, and what is shown.

use common::mirror_state::MirrorState;

use crate::mirror::coordinator::record::{StateEpoch, StateRecord};

use super::effect::{MirrorEffect, MirrorReport};
use super::event::StoreError;
use super::failure::{FailureReason, Moment};
use super::{Action, Effects, MirrorPartition, PendingSave, Phase, Then, describe};

impl MirrorPartition {
    pub(super) fn state_written(
        &mut self,
        save: PendingSave,
        result: Result<StateEpoch, StoreError>,
        at: Moment,
        out: &mut Effects,
    ) {
        match result {
            // The outcome is unknown. The same write again is either the first, or refused because
            // the first was done; then the record is read.
            Err(StoreError::Unavailable(why)) => self.pause(Action::Save(save), why, at, out),
            Err(error) => self.pause(Action::Read, describe(&error), at, out),
            Ok(state_epoch) => {
                self.pauses = 0;
                self.record = Some(StateRecord { state_epoch, ..save.record });
                self.show_record(out);
                let stopping = matches!(self.recorded_state(), MirrorState::Stopping | MirrorState::Stopped);
                if self.facts.removed && !stopping {
                    return self.save(MirrorState::Stopping, at, out);
                }
                match save.then {
                    Then::Resume => self.resume(at, out),
                    Then::Fetch(source) => self.fetch_from(source, at, out),
                    Then::RestartLog { offset } => self.begin(Action::RestartLog { offset }, out),
                }
            }
        }
    }

    /// A record of `state`, carrying over what holds for the whole association.
    pub(super) fn record_of(&self, state: MirrorState, at: Moment) -> StateRecord {
        let own = self.own_record();
        StateRecord {
            topic: self.facts.topic.clone(),
            partition: self.id.partition,
            state,
            association: self.facts.association,
            leader_epoch: self.facts.leader_epoch,
            state_epoch: self.record.as_ref().map_or(StateEpoch::NONE, |record| record.state_epoch).next(),
            last_mirrored_offset: None,
            reason: String::new(),
            since_ms: own.filter(|own| own.state == state).map_or(at.now_ms, |own| own.since_ms),
            attempt: self.attempt,
            next_retry_ms: -1,
            failed_state: None,
            checked_cut_id: self.checked_cut_id(),
        }
    }

    pub(super) fn save(&mut self, state: MirrorState, at: Moment, out: &mut Effects) {
        let record = self.record_of(state, at);
        self.save_record(record, Then::Resume, out);
    }

    pub(super) fn save_record(&mut self, record: StateRecord, then: Then, out: &mut Effects) {
        self.begin(Action::Save(PendingSave { record, then }), out);
    }

    pub(super) fn fail(&mut self, reason: FailureReason, at: Moment, out: &mut Effects) {
        self.drop_fetcher(out);
        let next_retry_ms = at.now_ms + at.retry_delay_ms(self.attempt);
        self.attempt = self.attempt.saturating_add(1);
        let failed_state = Some(self.recorded_state()).filter(|state| *state != MirrorState::Unknown);
        let record = StateRecord {
            reason: reason.to_string(),
            next_retry_ms,
            failed_state,
            ..self.record_of(MirrorState::Failed, at)
        };
        self.save_record(record, Then::Resume, out);
    }

    pub(super) fn drop_fetcher(&mut self, out: &mut Effects) {
        if matches!(self.phase, Phase::Fetching { .. }) {
            out.push(MirrorEffect::StopFetcher);
        }
    }

    pub(super) fn show_record(&mut self, out: &mut Effects) {
        let Some(record) = self.own_record() else { return };
        let report = MirrorReport {
            state: record.state,
            reason: record.reason.clone(),
            since_ms: record.since_ms,
            attempt: record.attempt,
            next_retry_ms: record.next_retry_ms,
        };
        if report != self.shown {
            self.shown = report.clone();
            out.push(MirrorEffect::Report(report));
        }
    }

    pub(super) fn show(&mut self, state: MirrorState, reason: String, at: Moment, out: &mut Effects) {
        if self.shown.state == state && self.shown.reason == reason {
            return;
        }
        let since_ms = if self.shown.state == state { self.shown.since_ms } else { at.now_ms };
        self.shown = MirrorReport { state, reason, since_ms, attempt: self.attempt, next_retry_ms: -1 };
        out.push(MirrorEffect::Report(self.shown.clone()));
    }
}
