//! What a voter is told at its start, and who it is.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names a voter: its node id and the id of its formatted directory. A controller that comes back
/// with an empty disk has another directory id and so is not the old voter (decision "Voters").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VoterId {
    pub node_id: u64,
    pub directory_id: Uuid,
}

impl fmt::Display for VoterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.node_id, self.directory_id.simple())
    }
}

#[derive(Clone, Debug)]
pub struct RaftLogConfig {
    pub voter: VoterId,
    pub cluster_id: String,
    /// `controller.quorum.voters`: node id and `host:port`. It founds the quorum and gives addresses;
    /// the membership itself comes from the log once there is one.
    pub voters: Vec<(u64, String)>,
    /// Where the others reach this one, `host:port`; `None`: it cannot be told, and so it does not announce
    /// itself.
    pub address: Option<String>,
    /// The controller's formatted directory; the log lives in `quorum` below it.
    pub data_dir: PathBuf,
    pub heartbeat_ms: u64,
    /// A follower waits this long to twice as long for a heartbeat before it asks for votes.
    pub election_timeout_ms: u64,
    pub snapshot_every_entries: u64,
    pub max_payload_bytes: usize,
}

impl RaftLogConfig {
    /// A configuration with the defaults of the `quorum.*` keys.
    pub fn new(voter: VoterId, cluster_id: impl Into<String>, data_dir: impl Into<PathBuf>) -> RaftLogConfig {
        RaftLogConfig {
            voter,
            cluster_id: cluster_id.into(),
            voters: Vec::new(),
            address: None,
            data_dir: data_dir.into(),
            heartbeat_ms: 50,
            election_timeout_ms: 200,
            snapshot_every_entries: 10_000,
            max_payload_bytes: 8 << 20,
        }
    }
}

/// What every call between voters carries and is checked against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub cluster_id: String,
    pub voter: VoterId,
}
