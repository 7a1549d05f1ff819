//! The states of a mirror partition and the transitions between them (KIP-1279, seed text): the one
//! place that names them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Observed state of one partition of a mirror topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MirrorState {
    /// Nothing is recorded. Never a target.
    Unknown,
    /// The local log is being cut to what the source knows of it.
    Preparing,
    /// The fetcher copies.
    Mirroring,
    /// Failover: the fetcher is gone, the log is being cut to the last stable offset.
    Stopping,
    /// Stopped; writable once the release is in the image.
    Stopped,
    /// An error that needs a retry or an operator. Still read-only.
    Failed,
}

impl MirrorState {
    /// The byte in state records and in Read- and WriteMirrorStates.
    pub fn code(self) -> i8 {
        match self {
            MirrorState::Unknown => 16,
            MirrorState::Preparing => 0,
            MirrorState::Mirroring => 1,
            MirrorState::Stopping => 2,
            MirrorState::Stopped => 4,
            MirrorState::Failed => 8,
        }
    }

    pub fn from_code(code: i8) -> Option<MirrorState> {
        Some(match code {
            16 => MirrorState::Unknown,
            0 => MirrorState::Preparing,
            1 => MirrorState::Mirroring,
            2 => MirrorState::Stopping,
            4 => MirrorState::Stopped,
            8 => MirrorState::Failed,
            _ => return None,
        })
    }

    /// The name in DescribeMirrors.
    pub fn name(self) -> &'static str {
        match self {
            MirrorState::Unknown => "UNKNOWN",
            MirrorState::Preparing => "PREPARING",
            MirrorState::Mirroring => "MIRRORING",
            MirrorState::Stopping => "STOPPING",
            MirrorState::Stopped => "STOPPED",
            MirrorState::Failed => "FAILED",
        }
    }

    /// Whether a state record may follow another of the same association. A later association may
    /// begin with PREPARING from any state.
    pub fn may_become(self, next: MirrorState) -> bool {
        use MirrorState::*;
        match (self, next) {
            (_, Unknown) => false,
            (from, to) if from == to => true,
            (Stopped, _) => false,
            (_, Failed) => true,
            (Unknown, Preparing) => true,
            (Unknown, Stopping) => true,
            (Preparing, Mirroring | Stopping) => true,
            (Mirroring, Stopping) => true,
            (Stopping, Stopped) => true,
            (Failed, Preparing | Mirroring | Stopping) => true,
            _ => false,
        }
    }
}

impl fmt::Display for MirrorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Ends `mirror.name` of a topic that was removed from its mirror.
pub const REMOVED_SUFFIX: &str = ".removed";
/// The topic config that ties a topic to its mirror; only the controller writes it.
pub const MIRROR_NAME_CONFIG: &str = "mirror.name";
/// The internal topic of the mirror coordinators.
pub const MIRROR_STATE_TOPIC: &str = "__mirror_state";
