//! MIRRORING: check the source, have the epoch raised where it is too low, copy.

use common::ids::*;
use common::metadata::record::CutKind;
use common::mirror_state::MirrorState;

use crate::mirror::coordinator::record::StateRecord;

use super::effect::MirrorEffect;
use super::event::{EpochEnd, FetchStop, SourceCheck, SourceLeader};
use super::failure::{FailureKind, FailureReason, Moment, SourceFailure};
use super::{Action, Effects, LEADERSHIP_MOVES, MirrorPartition, Phase, Then};

/// How far above the source's epoch ours is raised, so that a rolling restart of the source costs few
/// raises (decision 8).
const RAISE_MARGIN: i32 = 10;
/// A larger jump can only be damage: batch epochs are not covered by the CRC.
const LARGEST_EPOCH_JUMP: i32 = 1_000_000;

/// What a check allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckDecision {
    Fetch,
    /// The source's log begins above our end; records between are gone there.
    RestartAt(Offset),
    Fail(FailureReason),
}

/// Decision 20: nothing is ever cut because the source is shorter; that is an error with the data kept.
pub(super) fn decide_check(check: &SourceCheck) -> CheckDecision {
    let local_end = check.local_end;
    if let Some(cut) = check.cuts.and_then(|cuts| cuts.lowest_since).filter(|cut| *cut < local_end) {
        let detail = format!("to {cut}, the log here ends at {local_end}");
        return CheckDecision::Fail(FailureReason::new(FailureKind::SourceCut, detail));
    }
    let shorter = |end: Offset| {
        let detail = format!("it ends at {end}, the log here at {local_end}");
        CheckDecision::Fail(FailureReason::new(FailureKind::SourceShorter, detail))
    };
    if let Some(bounds) = check.bounds {
        if bounds.log_start > local_end {
            return CheckDecision::RestartAt(bounds.log_start);
        }
        if bounds.log_end < local_end {
            return shorter(bounds.log_end);
        }
    }
    match check.end_of_last_epoch {
        EpochEnd::At(end) if end < local_end => shorter(end),
        // A plain source keeps no cuts: its epochs alone tell whether it still has what is here. One that
        // has grown past our end since it lost its log looks like ours in every other way.
        EpochEnd::Unknown if check.cuts.is_none() => {
            let detail = format!("it has nothing of the epoch in which the log here ends at {local_end}");
            CheckDecision::Fail(FailureReason::new(FailureKind::SourceShorter, detail))
        }
        _ => CheckDecision::Fetch,
    }
}

impl MirrorPartition {
    pub(super) fn resume_mirroring(&mut self, out: &mut Effects) {
        if self.facts.preparing_cut.is_none() {
            // Recorded as MIRRORING, but the image does not hold the cut it must have come from.
            self.phase = Phase::ImageBehind;
            return;
        }
        self.begin(Action::CheckSource, out);
    }

    pub(super) fn source_checked(
        &mut self,
        result: Result<SourceCheck, SourceFailure>,
        at: Moment,
        out: &mut Effects,
    ) {
        let check = match result {
            Ok(check) => check,
            Err(SourceFailure::Failed(reason)) => return self.fail(reason, at, out),
            Err(could_not_ask) => {
                return self.pause(Action::CheckSource, could_not_ask.to_string(), at, out);
            }
        };
        if check.leader.epoch < self.tracked_epoch {
            let why = format!(
                "source metadata is stale: epoch {}, known {}",
                check.leader.epoch, self.tracked_epoch
            );
            return self.pause(Action::CheckSource, why, at, out);
        }
        self.tracked_epoch = check.leader.epoch;
        match decide_check(&check) {
            CheckDecision::Fail(reason) => return self.fail(reason, at, out),
            CheckDecision::RestartAt(offset) => {
                let reason = format!(
                    "records {} to {} were deleted at the source before they were mirrored",
                    check.local_end,
                    offset.plus(-1)
                );
                let record = StateRecord { reason, ..self.record_of(MirrorState::Mirroring, at) };
                return self.save_record(record, Then::RestartLog { offset }, out);
            }
            CheckDecision::Fetch => {}
        }
        self.bounds_wanted = false;
        if let Some(batch) = self.doubted_epoch.take().filter(|batch| *batch > check.leader.epoch) {
            let detail = format!("{batch}, the source is at {}", check.leader.epoch);
            return self.fail(FailureReason::new(FailureKind::BatchEpochAboveSource, detail), at, out);
        }
        let newest = check.cuts.and_then(|cuts| cuts.newest);
        if newest > self.checked_cut_id() {
            if let Some(offset) = check.cuts.and_then(|cuts| cuts.lowest_since) {
                return self.take_note(offset, newest, out);
            }
            // Durable before the first fetch under it (decision 20).
            let reason = self.own_record().map_or(String::new(), |own| own.reason.clone());
            let record =
                StateRecord { checked_cut_id: newest, reason, ..self.record_of(MirrorState::Mirroring, at) };
            return self.save_record(record, Then::Fetch(check.leader), out);
        }
        self.fetch_from(check.leader, at, out);
    }

    /// The source undid what lay above `offset`; this log ends at or below it, but that of a replica which is
    /// away may not. Nothing else would tell it: the source may go on under the batch epoch that its tail has.
    fn take_note(&mut self, offset: Offset, source_cut_id: Option<CutId>, out: &mut Effects) {
        let kind = CutKind::Source;
        // No batch here lies above the leader epoch (decision 8).
        let highest_batch_epoch = self.facts.leader_epoch;
        self.begin(Action::ProposeCut { kind, offset, highest_batch_epoch, source_cut_id }, out);
    }

    /// Starts the fetcher once the leader epoch is at least the source's.
    pub(super) fn fetch_from(&mut self, source: SourceLeader, at: Moment, out: &mut Effects) {
        let own = self.facts.leader_epoch;
        if source.epoch <= own {
            return self.start_fetcher(source, out);
        }
        self.raise(source.epoch, source, at, out);
    }

    fn raise(&mut self, wanted: LeaderEpoch, source: SourceLeader, at: Moment, out: &mut Effects) {
        let own = self.facts.leader_epoch;
        if i64::from(wanted.0) - i64::from(own.0) > i64::from(LARGEST_EPOCH_JUMP) {
            let detail = format!("from {own} to {wanted}");
            return self.fail(FailureReason::new(FailureKind::EpochJump, detail), at, out);
        }
        // With the margin it may lie no further ahead than the controller lets it.
        let furthest = own.0.saturating_add(LARGEST_EPOCH_JUMP);
        let minimum = LeaderEpoch(wanted.0.saturating_add(RAISE_MARGIN).min(furthest));
        self.begin(Action::Raise { minimum, source }, out);
    }

    pub(super) fn start_fetcher(&mut self, source: SourceLeader, out: &mut Effects) {
        self.step = self.step.wrapping_add(1);
        out.push(MirrorEffect::StartFetcher {
            token: self.token(),
            source: source.clone(),
            leader_epoch: self.facts.leader_epoch,
        });
        self.phase = Phase::Fetching { source, fetched: false };
    }

    pub(super) fn fetch_stopped(
        &mut self,
        why: FetchStop,
        source: SourceLeader,
        fetched: bool,
        at: Moment,
        out: &mut Effects,
    ) {
        match why {
            FetchStop::Failed(reason) => self.fail(reason, at, out),
            FetchStop::NotLeader => {
                self.pause(Action::CheckSource, LEADERSHIP_MOVES.to_owned(), at, out);
            }
            FetchStop::SourceMoved { epoch } => {
                if let Some(epoch) = epoch {
                    self.tracked_epoch = self.tracked_epoch.max(epoch);
                }
                self.check_again(fetched, "the source's leader is moving", at, out);
            }
            FetchStop::OffsetOutOfRange => {
                let asked_already = std::mem::replace(&mut self.bounds_wanted, true);
                self.check_again(
                    fetched || !asked_already,
                    "the offset is out of the source's range",
                    at,
                    out,
                );
            }
            FetchStop::EpochAboveOwn { batch } if batch > source.epoch => {
                self.doubted_epoch = Some(batch);
                self.begin(Action::CheckSource, out);
            }
            // The epoch was raised while the batch was refused under the old one: nothing is left to raise,
            // and a proposal that changes nothing would never show in the image.
            FetchStop::EpochAboveOwn { batch } if batch <= self.facts.leader_epoch => {
                self.start_fetcher(source, out);
            }
            FetchStop::EpochAboveOwn { batch } => self.raise(batch, source, at, out),
        }
    }

    /// At once after a fetch that worked; with a pause where starting did not help.
    fn check_again(&mut self, at_once: bool, why: &str, at: Moment, out: &mut Effects) {
        if at_once {
            self.begin(Action::CheckSource, out);
        } else {
            self.pause(Action::CheckSource, why.to_owned(), at, out);
        }
    }
}
