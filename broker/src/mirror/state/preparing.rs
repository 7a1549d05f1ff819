//! PREPARING: cut the local log to what the source knows of it, once per association.

use common::ids::*;
use common::metadata::record::CutKind;

use super::event::{LastMirrored, SourcePosition};
use super::facts::MirrorFacts;
use super::failure::{Moment, SourceFailure};
use super::{Action, Effects, MirrorPartition};

/// What the source's answer allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CutDecision {
    Cut(Offset),
    /// Uncut, and shown so.
    Wait(&'static str),
}

pub(super) const WAITS_FOR_RECOPY: &str =
    "the source cannot tell what both logs share: copy anew with --recopy";
pub(super) const WAITS_SOURCE_EMPTY: &str = "the source's log is empty and the local one is not";
pub(super) const WAITS_SOURCE_READ_ONLY: &str = "the topic is not writable at the source";

/// Decisions 11 and 12. The rule behind all arms: nothing is cut on a guess, and the last copy is never
/// emptied. An empty local log has nothing to lose, so its cut at 0 is always right.
pub(super) fn decide_cut(position: &SourcePosition, local_end: Offset, facts: &MirrorFacts) -> CutDecision {
    let source_is_empty = position.log_end <= Offset::ZERO;
    let may_recopy = facts.recopy && !source_is_empty;
    match position.last_mirrored {
        // Whatever it has recorded: a source that lost its log would take the last copy with it.
        LastMirrored::Recorded(_) if source_is_empty && local_end > Offset::ZERO => {
            CutDecision::Wait(WAITS_SOURCE_EMPTY)
        }
        LastMirrored::Recorded(offset) => CutDecision::Cut(lowered(offset, position.checked_own_cut, facts)),
        _ if local_end == Offset::ZERO => CutDecision::Cut(Offset::ZERO),
        _ if source_is_empty => CutDecision::Wait(WAITS_SOURCE_EMPTY),
        LastMirrored::Nothing => CutDecision::Cut(Offset::ZERO),
        LastMirrored::NotSupported | LastMirrored::OnlyUncut if may_recopy => CutDecision::Cut(Offset::ZERO),
        LastMirrored::NotSupported | LastMirrored::OnlyUncut => CutDecision::Wait(WAITS_FOR_RECOPY),
        LastMirrored::NotWritable { mirrors_other: true } if may_recopy => CutDecision::Cut(Offset::ZERO),
        LastMirrored::NotWritable { .. } => CutDecision::Wait(WAITS_SOURCE_READ_ONLY),
    }
}

/// The recorded offset, lowered to each cut made here that the source's association had not checked;
/// a topic created since counts as a cut at 0 (decision 12). Where the id is not known, because the source's
/// `__mirror_state` was lost, it may have been created since.
fn lowered(offset: Offset, checked_own_cut: Option<CutId>, facts: &MirrorFacts) -> Offset {
    let checked = checked_own_cut.map_or(-1, |id| id.0);
    if facts.created_at.0 > checked {
        return Offset::ZERO;
    }
    facts.cut_log.iter().filter(|(id, _)| id.0 > checked).map(|(_, cut)| *cut).fold(offset, Offset::min)
}

impl MirrorPartition {
    pub(super) fn resume_preparing(&mut self, out: &mut Effects) {
        match self.facts.preparing_cut {
            // The cut stands (a retry, a new leader, a lost record): it is only completed, and no
            // source is asked (decision 11).
            Some(cut) => self.begin(Action::AwaitReplicas(cut), out),
            None => self.begin(Action::Quiesce, out),
        }
    }

    pub(super) fn source_answered(
        &mut self,
        result: Result<SourcePosition, SourceFailure>,
        local_end: Offset,
        highest_batch_epoch: LeaderEpoch,
        at: Moment,
        out: &mut Effects,
    ) {
        let again = Action::AskSource { local_end, highest_batch_epoch };
        let position = match result {
            Ok(position) => position,
            Err(SourceFailure::Failed(reason)) => return self.fail(reason, at, out),
            Err(could_not_ask) => return self.pause(again, could_not_ask.to_string(), at, out),
        };
        match decide_cut(&position, local_end, &self.facts) {
            CutDecision::Wait(why) => self.pause(again, why.to_owned(), at, out),
            CutDecision::Cut(offset) => {
                // The cuts the source made up to this answer are in it: offset and id are of one answer and
                // are committed together.
                let (kind, source_cut_id) = (CutKind::Preparing, position.newest_cut);
                self.begin(Action::ProposeCut { kind, offset, highest_batch_epoch, source_cut_id }, out);
            }
        }
    }
}
