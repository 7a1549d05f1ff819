//! The quorum as DescribeQuorum shows it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openraft::async_runtime::{Instant as _, WatchReceiver as _};
use openraft::{LogIdOptionExt as _, RaftMetrics, ServerState};

use crate::config::VoterId;
use crate::type_config::TypeConfig;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuorumStatus {
    pub term: u64,
    /// Whom this node follows; it may be stale. Only what a leader says of itself after
    /// `read_index` is certain.
    pub leader: Option<VoterId>,
    pub is_leader: bool,
    /// First index not known to be committed.
    pub committed_end_index: u64,
    /// First index that this node's log still has: a snapshot stands for those before.
    pub log_start_index: u64,
    /// First index that this node has not written.
    pub log_end_index: u64,
    /// First index that this node has not applied.
    pub applied_end_index: u64,
    pub voters: Vec<QuorumReplica>,
    pub observers: Vec<QuorumReplica>,
}

/// What is not known on this node is `None`: only the leader knows the others' progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumReplica {
    pub voter: VoterId,
    pub address: String,
    pub log_end_index: Option<u64>,
    /// Milliseconds since the epoch.
    pub last_fetch_ms: Option<i64>,
    pub last_caught_up_ms: Option<i64>,
}

pub(crate) fn status(raft: &crate::type_config::Raft, now: SystemTime) -> QuorumStatus {
    let metrics = raft.metrics().borrow_watched().clone();
    status_of(&metrics, now)
}

fn status_of(metrics: &RaftMetrics<TypeConfig>, now: SystemTime) -> QuorumStatus {
    let is_leader = metrics.state == ServerState::Leader && metrics.current_leader == Some(metrics.id);
    let log_end_index = metrics.last_log_index.map_or(0, |index| index + 1);
    let membership = metrics.membership_config.membership();
    let voters: std::collections::BTreeSet<VoterId> = membership.voter_ids().collect();
    let now_ms = millis(now);
    let mut status = QuorumStatus {
        term: metrics.current_term,
        leader: metrics.current_leader,
        is_leader,
        committed_end_index: metrics.local_committed.next_index(),
        log_end_index,
        log_start_index: metrics.purged.next_index(),
        applied_end_index: metrics.last_applied.next_index(),
        voters: Vec::new(),
        observers: Vec::new(),
    };
    for (&voter, node) in membership.nodes() {
        let own = voter == metrics.id;
        let matched = metrics.replication.as_ref().and_then(|all| all.get(&voter));
        let heard = metrics.heartbeat.as_ref().and_then(|all| all.get(&voter)).and_then(Option::as_ref);
        let end = if own { Some(log_end_index) } else { matched.map(|log_id| log_id.next_index()) };
        let fetched = if own && is_leader {
            Some(now_ms)
        } else {
            heard.map(|heard| millis(now.checked_sub(heard.elapsed()).unwrap_or(now)))
        };
        let replica = QuorumReplica {
            voter,
            address: node.addr.clone(),
            log_end_index: end,
            last_fetch_ms: fetched,
            // What a replica lacks is what it had not acknowledged when it was last heard.
            last_caught_up_ms: fetched.filter(|_| end == Some(log_end_index)),
        };
        if voters.contains(&voter) {
            status.voters.push(replica);
        } else {
            status.observers.push(replica);
        }
    }
    status
}

fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
