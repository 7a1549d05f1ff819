//! The machine alone: each interleaving of the counterexamples that concerns it has a test of its
//! number, each case of the reference likewise; a property test covers what nobody thought of.

mod counterexamples;
mod decisions;
mod flow;
mod properties;

use common::ids::*;
use common::metadata::record::CutKind;
use common::mirror_state::MirrorState;
use uuid::Uuid;

use super::*;
use crate::mirror::coordinator::record::{StateEpoch, StateRecord};

pub(super) const ASSOCIATION: Association = Association(10);
/// The topic's creation, its oldest cut.
pub(super) const CREATED: CutId = CutId(3);
pub(super) const PREPARING_CUT: CutFact =
    CutFact { id: CutId(20), offset: Offset(0), leader_epoch: LeaderEpoch(6) };
pub(super) const STOPPING_CUT: CutFact =
    CutFact { id: CutId(40), offset: Offset(100), leader_epoch: LeaderEpoch(30) };

pub(super) fn id() -> TopicIdPartition {
    TopicIdPartition::new(TopicId(Uuid::from_bytes([1; 16])), 0)
}

pub(super) fn at(now_ms: i64) -> Moment {
    Moment { now_ms, random: u32::MAX / 2, retry: RetryPolicy::default() }
}

/// An added topic that this broker leads under epoch 5.
pub(super) fn added() -> MirrorFacts {
    MirrorFacts {
        topic: "t".into(),
        mirror: "m".into(),
        association: ASSOCIATION,
        removed: false,
        recopy: false,
        leader_epoch: LeaderEpoch(5),
        preparing_cut: None,
        stopping_cut: None,
        released: false,
        recovering: false,
        created_at: MetadataOffset(3),
        cut_log: Vec::new(),
        checked_source_cut: None,
    }
}

pub(super) fn cut() -> MirrorFacts {
    let cut_log = vec![(PREPARING_CUT.id, PREPARING_CUT.offset)];
    MirrorFacts {
        preparing_cut: Some(PREPARING_CUT),
        leader_epoch: PREPARING_CUT.leader_epoch,
        cut_log,
        ..added()
    }
}

pub(super) fn removed() -> MirrorFacts {
    MirrorFacts { removed: true, ..cut() }
}

pub(super) fn stopping_cut() -> MirrorFacts {
    MirrorFacts { stopping_cut: Some(STOPPING_CUT), leader_epoch: STOPPING_CUT.leader_epoch, ..removed() }
}

pub(super) fn released() -> MirrorFacts {
    MirrorFacts { released: true, ..stopping_cut() }
}

pub(super) fn record(state: MirrorState, leader_epoch: i32) -> StateRecord {
    StateRecord {
        topic: "t".into(),
        partition: 0,
        state,
        association: ASSOCIATION,
        leader_epoch: LeaderEpoch(leader_epoch),
        state_epoch: StateEpoch(7),
        last_mirrored_offset: None,
        reason: String::new(),
        since_ms: 0,
        attempt: 0,
        next_retry_ms: -1,
        failed_state: None,
        checked_cut_id: None,
    }
}

pub(super) fn leader(epoch: i32) -> SourceLeader {
    SourceLeader { host: "source".into(), port: 9092, node_id: 1, epoch: LeaderEpoch(epoch) }
}

/// A plain source at `epoch` that is fine.
pub(super) fn check(epoch: i32, local_end: i64) -> SourceCheck {
    SourceCheck {
        leader: leader(epoch),
        cuts: None,
        local_end: Offset(local_end),
        end_of_last_epoch: if local_end > 0 { EpochEnd::At(Offset(local_end)) } else { EpochEnd::NotAsked },
        bounds: None,
    }
}

pub(super) fn position(last_mirrored: LastMirrored, log_end: i64) -> SourcePosition {
    SourcePosition {
        log_end: Offset(log_end),
        last_mirrored,
        newest_cut: None,
        checked_own_cut: Some(CREATED),
    }
}

/// The machine with what it wanted last.
pub(super) struct Machine {
    state: Option<MirrorPartition>,
    pub effects: Vec<MirrorEffect>,
    pub now_ms: i64,
    /// The state epoch that the pretended coordinator hands out next.
    next_epoch: i32,
}

impl Machine {
    pub fn lead(facts: MirrorFacts) -> Machine {
        let (state, effects) = MirrorPartition::lead(id(), facts, at(0));
        Machine { state: Some(state), effects, now_ms: 0, next_epoch: 8 }
    }

    pub fn state(&self) -> &MirrorPartition {
        self.state.as_ref().expect("between steps")
    }

    pub fn shown(&self) -> MirrorState {
        self.state().shown().state
    }

    pub fn send(&mut self, event: MirrorEvent) -> &[MirrorEffect] {
        let state = self.state.take().expect("between steps");
        let (state, effects) = step(state, event, at(self.now_ms));
        self.state = Some(state);
        self.effects = effects;
        &self.effects
    }

    pub fn facts(&mut self, facts: MirrorFacts) -> &[MirrorEffect] {
        self.send(MirrorEvent::FactsChanged(facts))
    }

    pub fn tick_after(&mut self, ms: i64) -> &[MirrorEffect] {
        self.now_ms += ms;
        self.send(MirrorEvent::Tick)
    }

    /// The token of what is under way.
    pub fn token(&self) -> Token {
        self.state().token()
    }

    /// Answers a read of the coordinator.
    pub fn read(&mut self, recorded: Option<StateRecord>) -> &[MirrorEffect] {
        assert!(matches!(self.effects[..], [.., MirrorEffect::ReadState { .. }]), "{:?}", self.effects);
        let token = self.token();
        self.send(MirrorEvent::StateRead { token, result: Ok(recorded) })
    }

    /// The write under way becomes durable; it must be of this state.
    pub fn saved(&mut self, state: MirrorState) -> &[MirrorEffect] {
        let written = self.effects.iter().find_map(|effect| match effect {
            MirrorEffect::SaveState { record, .. } => Some(record.state),
            _ => None,
        });
        assert_eq!(written, Some(state), "{:?}", self.effects);
        let (token, epoch) = (self.token(), StateEpoch(self.next_epoch));
        self.next_epoch += 1;
        self.send(MirrorEvent::StateWritten { token, result: Ok(epoch) })
    }

    pub fn saving(&self) -> Option<&StateRecord> {
        self.effects.iter().find_map(|effect| match effect {
            MirrorEffect::SaveState { record, .. } => Some(record),
            _ => None,
        })
    }

    pub fn quiesced(&mut self, log_end: i64) -> &[MirrorEffect] {
        assert!(
            self.effects.iter().any(|effect| matches!(effect, MirrorEffect::Quiesce { .. })),
            "{:?}",
            self.effects
        );
        let token = self.token();
        let highest_batch_epoch = LeaderEpoch(3);
        self.send(MirrorEvent::Quiesced { token, log_end: Offset(log_end), highest_batch_epoch })
    }

    pub fn answered(&mut self, position: SourcePosition) -> &[MirrorEffect] {
        let token = self.token();
        self.send(MirrorEvent::SourceAnswered { token, result: Ok(position) })
    }

    pub fn proposed(&mut self) -> &[MirrorEffect] {
        let token = self.token();
        self.send(MirrorEvent::Proposed { token, result: Ok(MetadataOffset(50)) })
    }

    pub fn refused(&mut self) -> &[MirrorEffect] {
        let token = self.token();
        self.send(MirrorEvent::Proposed { token, result: Err(ProposalError::Refused("no".to_owned())) })
    }

    pub fn aligned(&mut self, log_end: i64) -> &[MirrorEffect] {
        let token = self.token();
        self.send(MirrorEvent::ReplicasAligned { token, log_end: Offset(log_end) })
    }

    pub fn checked(&mut self, check: SourceCheck) -> &[MirrorEffect] {
        let token = self.token();
        self.send(MirrorEvent::SourceChecked { token, result: Ok(check) })
    }

    pub fn stopped(&mut self, why: FetchStop) -> &[MirrorEffect] {
        let token = self.token();
        self.send(MirrorEvent::FetchStopped { token, why })
    }

    pub fn fetched(&mut self) -> &[MirrorEffect] {
        let token = self.token();
        self.send(MirrorEvent::FetchSucceeded { token })
    }

    pub fn wants(&self, wanted: impl Fn(&MirrorEffect) -> bool) -> bool {
        self.effects.iter().any(wanted)
    }

    /// The cut of the source that a wanted cut takes note of.
    pub fn noted(&self) -> Option<CutId> {
        self.effects.iter().find_map(|effect| match effect {
            MirrorEffect::ProposeCut { source_cut_id, .. } => *source_cut_id,
            _ => None,
        })
    }

    pub fn cut_wanted(&self) -> Option<(CutKind, Offset)> {
        self.effects.iter().find_map(|effect| match effect {
            MirrorEffect::ProposeCut { kind, offset, .. } => Some((*kind, *offset)),
            _ => None,
        })
    }

    /// A partition that waits for the answer of a source in PREPARING, its log ending at `log_end`.
    pub fn asking(facts: MirrorFacts, log_end: i64) -> Machine {
        let mut machine = Machine::lead(facts);
        machine.read(None);
        machine.saved(MirrorState::Preparing);
        machine.quiesced(log_end);
        assert!(machine.wants(|effect| matches!(effect, MirrorEffect::AskLastMirroredOffset { .. })));
        machine
    }

    /// A partition that copies from a plain source at epoch 2.
    pub fn mirroring() -> Machine {
        let mut machine = Machine::asking(added(), 0);
        machine.answered(position(LastMirrored::NotSupported, 50));
        machine.proposed();
        machine.facts(cut());
        machine.aligned(0);
        machine.saved(MirrorState::Mirroring);
        machine.checked(check(2, 0));
        assert!(
            machine.wants(|effect| matches!(effect, MirrorEffect::StartFetcher { .. })),
            "{:?}",
            machine.effects
        );
        machine
    }
}
