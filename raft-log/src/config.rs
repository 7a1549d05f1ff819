//! What a voter is told at its start, and who it is.

use std::fmt;
use std::path::PathBuf;

use openraft::SnapshotPolicy;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::OpenError;

/// Of the entries that are in the snapshot, an interval's worth divided by this stays in the log, so that
/// a voter that was away for a moment needs no snapshot.
const KEPT_DIVISOR: u64 = 2;

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

    /// What of it is for openraft.
    pub(crate) fn consensus(&self) -> Result<openraft::Config, OpenError> {
        let mut node_ids: Vec<u64> = self.voters.iter().map(|(node_id, _)| *node_id).collect();
        node_ids.sort_unstable();
        if node_ids.is_empty() || node_ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(OpenError::Config("the list of voters is empty or names a node twice".into()));
        }
        let every = self.snapshot_every_entries.max(1);
        let consensus = openraft::Config {
            cluster_name: self.cluster_id.clone(),
            heartbeat_interval: self.heartbeat_ms,
            election_timeout_min: self.election_timeout_ms,
            election_timeout_max: self.election_timeout_ms.saturating_mul(2),
            install_snapshot_timeout: 30_000,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(every),
            max_in_snapshot_log_to_keep: every / KEPT_DIVISOR,
            replication_lag_threshold: every.saturating_mul(2),
            enable_pre_vote: Some(true),
            // After a stop of all nodes a restored leader could re-use indices of acknowledged entries.
            enable_leader_restore: Some(false),
            ..openraft::Config::default()
        };
        consensus.validate().map_err(|error| OpenError::Config(error.to_string()))
    }
}

/// What every call between voters carries and is checked against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub cluster_id: String,
    pub voter: VoterId,
}
