//! What a step of the machine wants done. The shell runs effects in order and answers with an event
//! that carries the same token.

use common::ids::*;
use common::metadata::record::CutKind;
use common::mirror_state::MirrorState;

use crate::mirror::coordinator::record::{StateEpoch, StateRecord};

use super::event::{SourceLeader, Token};

#[derive(Clone, Debug, PartialEq)]
pub enum MirrorEffect {
    ReadState {
        token: Token,
    },
    /// Make the record durable, if the recorded state epoch still is `expected`.
    SaveState {
        token: Token,
        record: StateRecord,
        expected: StateEpoch,
    },
    /// Remove the fetcher, drain its appends, answer waiting produces READ_ONLY_TOPIC (decision 10a).
    Quiesce {
        token: Token,
    },
    /// With `recopy`, a source where the topic is not writable is also asked what it copies from.
    AskLastMirroredOffset {
        token: Token,
        seen: Option<CutId>,
        recopy: bool,
    },
    /// Learn the source's leader and epoch, its cuts since `seen`, and where our last epoch ends there.
    CheckSource {
        token: Token,
        seen: Option<CutId>,
        tracked_epoch: LeaderEpoch,
        bounds: bool,
    },
    ProposeCut {
        token: Token,
        kind: CutKind,
        association: Association,
        offset: Offset,
        leader_epoch: LeaderEpoch,
        highest_batch_epoch: LeaderEpoch,
        /// Of PREPARING and SOURCE: the newest of the source's cuts that it takes note of.
        source_cut_id: Option<CutId>,
    },
    ProposeRaise {
        token: Token,
        leader_epoch: LeaderEpoch,
        minimum: LeaderEpoch,
    },
    ProposeRelease {
        token: Token,
        association: Association,
        leader_epoch: LeaderEpoch,
        /// `None`: no last mirrored offset is recorded.
        offset: Option<Offset>,
        checked_cut_id: Option<CutId>,
    },
    /// Wait until the high watermark has reached the log end, then find the cut point (decision 10b).
    AwaitHighWatermark {
        token: Token,
    },
    /// Wait until the ISR is large enough and each member has fetched under `epoch` or a later one.
    AwaitReplicas {
        token: Token,
        epoch: LeaderEpoch,
        high_watermark_at_end: bool,
    },
    /// The source's log begins above our end: drop the local log and start there.
    RestartLogAt {
        token: Token,
        leader_epoch: LeaderEpoch,
        offset: Offset,
    },
    /// Copy from the local log end, appending under `leader_epoch`.
    StartFetcher {
        token: Token,
        source: SourceLeader,
        leader_epoch: LeaderEpoch,
    },
    /// The leader epoch was raised under a running fetcher.
    AppendUnder {
        leader_epoch: LeaderEpoch,
    },
    StopFetcher,
    WakeAt {
        at_ms: i64,
    },
    /// The state others see changed.
    Report(MirrorReport),
    /// A late or out-of-place event; nothing vanishes silently.
    Ignore {
        event: &'static str,
        why: &'static str,
    },
}

/// What List, Describe, logs and metrics show of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorReport {
    pub state: MirrorState,
    /// Why it failed or waits; empty if all is well.
    pub reason: String,
    pub since_ms: i64,
    pub attempt: u32,
    /// -1: no retry is planned.
    pub next_retry_ms: i64,
}
