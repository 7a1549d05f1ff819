//! Everything that can happen to a mirror partition.

use std::sync::Arc;

use common::ids::*;

use crate::mirror::coordinator::record::{StateEpoch, StateRecord};

use super::facts::MirrorFacts;
use super::failure::{FailureReason, SourceFailure};

/// Ties an answer to its question. An answer whose token is not the current one is late: its
/// question was dropped by a change of leadership, of association, or of what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The epoch at which this leadership began. Raises without a change of leader keep it.
    pub leadership: LeaderEpoch,
    pub association: Association,
    pub step: u32,
}

/// Where the source serves a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLeader {
    pub host: Arc<str>,
    pub port: u16,
    /// Of the source's own cluster; only compared within it.
    pub node_id: i32,
    pub epoch: LeaderEpoch,
}

/// What the source told before the PREPARING cut (decisions 11, 12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// The source's log end (high watermark).
    pub log_end: Offset,
    pub last_mirrored: LastMirrored,
    /// The newest of the source's cut ids.
    pub newest_cut: Option<CutId>,
    /// The newest of *our* cut ids that the association recorded there had checked.
    pub checked_own_cut: Option<CutId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastMirrored {
    /// The source does not know the question: plain Kafka.
    NotSupported,
    /// Exclusive: both logs agree below it.
    Recorded(Offset),
    /// The source is writable and never mirrored this topic from here.
    Nothing,
    /// All associations with this cluster were released before they cut anything.
    OnlyUncut,
    /// The topic is not writable there; `mirrors_other` if it is MIRRORING from a third cluster.
    NotWritable { mirrors_other: bool },
}

/// What the source told before a fetch (decision 20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCheck {
    pub leader: SourceLeader,
    /// `None`: the source keeps no cuts (plain Kafka).
    pub cuts: Option<SourceCuts>,
    /// The local log end the answers are about.
    pub local_end: Offset,
    pub end_of_last_epoch: EpochEnd,
    /// Asked only after an offset out of range.
    pub bounds: Option<SourceBounds>,
}

/// Where the epoch of our last batch ends at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochEnd {
    /// The local log holds no batch.
    NotAsked,
    /// The source has no batch of that epoch or a later one (Kafka's UNDEFINED).
    Unknown,
    At(Offset),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceCuts {
    pub newest: Option<CutId>,
    /// The lowest cut with a higher id than the one sent.
    pub lowest_since: Option<Offset>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceBounds {
    pub log_start: Offset,
    pub log_end: Offset,
}

/// Why a fetcher let go of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchStop {
    /// The source's leader or epoch changed; `epoch` if the answer told one.
    SourceMoved {
        epoch: Option<LeaderEpoch>,
    },
    OffsetOutOfRange,
    /// A batch carries an epoch above ours; nothing of it was appended.
    EpochAboveOwn {
        batch: LeaderEpoch,
    },
    /// The local partition refused: leadership is moving. The image will tell.
    NotLeader,
    Failed(FailureReason),
}

/// Why the coordinator did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// Could not ask, or outcome unknown. Never "nothing recorded".
    Unavailable(String),
    FencedLeaderEpoch,
    FencedStateEpoch,
    /// A record of a newer association stands.
    FencedAssociation,
    /// The stored record cannot be read.
    Unreadable(String),
}

/// Why the controller did not commit what was proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposalError {
    /// Could not ask, or outcome unknown.
    Unavailable(String),
    /// Association, epoch or state of the image are not what the proposal was made from.
    Refused(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum MirrorEvent {
    /// The image changed, the broker still leads.
    FactsChanged(MirrorFacts),
    /// `None`: the coordinator answered that nothing is recorded.
    StateRead {
        token: Token,
        result: Result<Option<StateRecord>, StoreError>,
    },
    StateWritten {
        token: Token,
        result: Result<StateEpoch, StoreError>,
    },
    /// No fetcher, no append in flight, no produce waiting; the log end then.
    Quiesced {
        token: Token,
        log_end: Offset,
        highest_batch_epoch: LeaderEpoch,
    },
    SourceAnswered {
        token: Token,
        result: Result<SourcePosition, SourceFailure>,
    },
    SourceChecked {
        token: Token,
        result: Result<SourceCheck, SourceFailure>,
    },
    /// The metadata offset at which the proposal is committed.
    Proposed {
        token: Token,
        result: Result<MetadataOffset, ProposalError>,
    },
    HighWatermarkAtEnd {
        token: Token,
        cut_point: Offset,
        highest_batch_epoch: LeaderEpoch,
    },
    ReplicasAligned {
        token: Token,
        log_end: Offset,
    },
    LogRestarted {
        token: Token,
        result: Result<(), FetchStop>,
    },
    /// The first batches, or an empty answer at our end, arrived after a start.
    FetchSucceeded {
        token: Token,
    },
    FetchStopped {
        token: Token,
        why: FetchStop,
    },
    /// The mirror's configuration changed: what failed under the old one may go well now.
    SettingsChanged,
    /// A time asked for with `WakeAt` may have come.
    Tick,
}

impl MirrorEvent {
    pub fn name(&self) -> &'static str {
        match self {
            MirrorEvent::FactsChanged(_) => "FactsChanged",
            MirrorEvent::StateRead { .. } => "StateRead",
            MirrorEvent::StateWritten { .. } => "StateWritten",
            MirrorEvent::Quiesced { .. } => "Quiesced",
            MirrorEvent::SourceAnswered { .. } => "SourceAnswered",
            MirrorEvent::SourceChecked { .. } => "SourceChecked",
            MirrorEvent::Proposed { .. } => "Proposed",
            MirrorEvent::HighWatermarkAtEnd { .. } => "HighWatermarkAtEnd",
            MirrorEvent::ReplicasAligned { .. } => "ReplicasAligned",
            MirrorEvent::LogRestarted { .. } => "LogRestarted",
            MirrorEvent::FetchSucceeded { .. } => "FetchSucceeded",
            MirrorEvent::FetchStopped { .. } => "FetchStopped",
            MirrorEvent::SettingsChanged => "SettingsChanged",
            MirrorEvent::Tick => "Tick",
        }
    }

    pub fn token(&self) -> Option<Token> {
        match self {
            MirrorEvent::FactsChanged(_) | MirrorEvent::SettingsChanged | MirrorEvent::Tick => None,
            MirrorEvent::StateRead { token, .. }
            | MirrorEvent::StateWritten { token, .. }
            | MirrorEvent::Quiesced { token, .. }
            | MirrorEvent::SourceAnswered { token, .. }
            | MirrorEvent::SourceChecked { token, .. }
            | MirrorEvent::Proposed { token, .. }
            | MirrorEvent::HighWatermarkAtEnd { token, .. }
            | MirrorEvent::ReplicasAligned { token, .. }
            | MirrorEvent::LogRestarted { token, .. }
            | MirrorEvent::FetchSucceeded { token }
            | MirrorEvent::FetchStopped { token, .. } => Some(*token),
        }
    }
}
