//! `kagami quorum recover`: a majority of the voters is lost for good, and the survivor with the most goes on
//! alone. It is done to a store that nobody has open, because an operator says so, and never by itself.
//!
//! What is in the survivor's log counts as committed from then on; what only lost voters had is gone. The
//! store gets, in one write, a vote above all that were known, the number of this recovery, and a
//! membership of the survivor alone at the end of its log. Voters that were given up, those with less in
//! their logs as well, are refused by that number (`lineage`), and come back formatted anew.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::Path;

use openraft::entry::RaftEntry as _;
use openraft::impls::BasicNode;
use openraft::impls::leader_id_std::LeaderId;
use openraft::vote::RaftLeaderId as _;
use openraft::{EntryPayload, LogIdOptionExt as _, Membership};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use plan::{Plan, Position, RecoveryError, StoppedVoter, check};

use crate::config::{Identity, VoterId};
use crate::snapshot::Snapshots;
use crate::store::{CREATED_MARK, Store, damaged};
use crate::type_config::{Entry, LogId, StoredMembership, Vote};

const READ_ENTRIES: u64 = 512;

/// The mark that a recovery leaves, for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recovered {
    /// The term that began with it.
    pub number: u64,
    pub at_ms: i64,
    /// Nobody where this voter came later.
    pub given_up: Vec<VoterId>,
    pub kept: Option<Position>,
}

impl Recovered {
    /// By one who was empty then.
    pub fn learned(number: u64) -> Recovered {
        Recovered { number, at_ms: 0, given_up: Vec::new(), kept: None }
    }
}

impl fmt::Display for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this quorum was recovered by an operator's command (recovery {})", self.number)?;
        if let Some(kept) = &self.kept {
            let ids: Vec<String> = self.given_up.iter().map(VoterId::to_string).collect();
            write!(f, " from this voter, at {kept}; given up: {}", ids.join(", "))?;
        }
        Ok(())
    }
}

/// Reads a stopped voter's store. `data_dir` is that of its configuration.
pub async fn inspect(
    data_dir: &Path,
    cluster_id: &str,
    voter: VoterId,
) -> Result<StoppedVoter, RecoveryError> {
    let store = open(data_dir, cluster_id, voter).await?;
    let read = read(&store, data_dir, voter);
    close(store).await;
    read.map(|read| read.found)
}

/// Makes the kept voter the only one, as planned.
pub async fn recover(
    data_dir: &Path,
    cluster_id: &str,
    voter: VoterId,
    plan: &Plan,
    at_ms: i64,
) -> Result<StoppedVoter, RecoveryError> {
    let store = open(data_dir, cluster_id, voter).await?;
    let outcome = write(&store, data_dir, voter, plan, at_ms).await;
    close(store).await;
    outcome?;
    inspect(data_dir, cluster_id, voter).await
}

async fn write(
    store: &Store,
    data_dir: &Path,
    voter: VoterId,
    plan: &Plan,
    at_ms: i64,
) -> Result<(), RecoveryError> {
    let Read { found, membership, covered } = read(store, data_dir, voter)?;
    check(&found, plan)?;
    fill_gap(store, covered).await?;
    let number = plan::number(&found, plan, Uuid::new_v4().as_u64_pair().1)?;
    let node = membership.membership().get_node(&voter).cloned().unwrap_or_else(|| BasicNode::new(""));
    let nodes = BTreeMap::from([(voter, node)]);
    let alone = Membership::new(vec![BTreeSet::from([voter])], nodes).map_err(io::Error::other)?;
    let log_id = LogId::new(LeaderId::new(number, voter).to_committed(), found.position.end_index);
    let entry: Entry = Entry::new(log_id, EntryPayload::Membership(alone));
    let given_up = found.voters.iter().map(|(id, _)| *id).filter(|id| *id != voter).collect();
    let recovered = Recovered { number, at_ms, given_up, kept: Some(found.position) };
    tracing::warn!("{recovered}");
    store.recover(recovered, Vote::new(number, voter), entry).await?;
    Ok(())
}

async fn open(data_dir: &Path, cluster_id: &str, voter: VoterId) -> Result<Store, RecoveryError> {
    let directory = data_dir.join("quorum");
    if !directory.join(CREATED_MARK).exists() {
        return Err(RecoveryError::NoStore(directory));
    }
    let identity = Identity { cluster_id: cluster_id.to_owned(), voter };
    let opened = tokio::task::spawn_blocking(move || Store::open_stopped(&directory, &identity)).await;
    Ok(opened.map_err(io::Error::other)??)
}

async fn close(store: Store) {
    drop(tokio::task::spawn_blocking(move || store.close()).await);
}

struct Read {
    found: StoppedVoter,
    membership: StoredMembership,
    /// How far the snapshot reaches.
    covered: Option<LogId>,
}

fn read(store: &Store, data_dir: &Path, voter: VoterId) -> Result<Read, RecoveryError> {
    let snapshots = Snapshots::open(data_dir.join("quorum").join("snapshots"), store.clone())?;
    let snapshot = snapshots.current().map(|(meta, _)| meta);
    let covered = snapshot.as_ref().and_then(|meta| meta.last_log_id);
    store.check_complete(covered)?;
    let (_, last_in_log) = store.ends();
    let last = last_in_log.max(covered);
    let in_log = newest_membership(store, covered.next_index(), last_in_log.next_index())?;
    let membership = in_log.or_else(|| snapshot.map(|meta| meta.last_membership));
    let membership = membership.ok_or(RecoveryError::NoMembership)?;
    let ids: BTreeSet<VoterId> = membership.membership().voter_ids().collect();
    let nodes = membership.membership().nodes().filter(|(id, _)| ids.contains(id));
    let found = StoppedVoter {
        voter,
        position: Position {
            node_id: voter.node_id,
            last_term: last.as_ref().map_or(0, |id| **id.committed_leader_id()),
            end_index: last.next_index(),
        },
        term: store.vote().map_or(0, |vote| vote.leader_id.term),
        committed_end_index: store.committed().next_index(),
        voters: nodes.map(|(id, node)| (*id, node.addr.clone())).collect(),
        configurations: membership.membership().get_joint_config().clone(),
        recovery: store.recovery(),
        given_up: store.given_up(),
    };
    Ok(Read { found, membership, covered })
}

/// The last one in these entries, committed or not, as the consensus itself goes by it. What is below the
/// snapshot's end counts no more.
fn newest_membership(store: &Store, start: u64, end: u64) -> io::Result<Option<StoredMembership>> {
    let mut end = end;
    while start < end {
        let from = end.saturating_sub(READ_ENTRIES).max(start);
        let entries = store.read(from, end)?;
        for entry in entries.iter().rev() {
            if let EntryPayload::Membership(membership) = &entry.payload {
                return Ok(Some(StoredMembership::new(Some(entry.log_id()), membership.clone())));
            }
        }
        end = from;
    }
    Ok(None)
}

/// Where a voter was killed after it had taken in a snapshot and before its log was cut to it, the log ends
/// below the snapshot. It goes on after it, as at any other start: nothing else may be appended.
async fn fill_gap(store: &Store, covered: Option<LogId>) -> io::Result<()> {
    let (_, last) = store.ends();
    match covered {
        Some(covered) if last < Some(covered) && covered.index < last.next_index() => {
            Err(damaged("the log goes on beside the snapshot"))
        }
        Some(covered) if last < Some(covered) => store.drop_upto(covered).await,
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_config::{Payload, SnapshotMeta};

    const CLUSTER: &str = "test";

    fn voter(node_id: u64) -> VoterId {
        VoterId { node_id, directory_id: Uuid::from_u128(u128::from(node_id) + 100) }
    }

    fn log_id(term: u64, index: u64) -> LogId {
        LogId::new(LeaderId::new(term, voter(1)).to_committed(), index)
    }

    fn membership(node_ids: &[u64]) -> Membership<VoterId, BasicNode> {
        let ids: BTreeSet<VoterId> = node_ids.iter().copied().map(voter).collect();
        let nodes: BTreeMap<_, _> = ids.iter().map(|id| (*id, BasicNode::new("host:1"))).collect();
        Membership::new(vec![ids], nodes).unwrap()
    }

    /// A log that begins with this membership.
    async fn log(store: &Store, voters: &[u64], end: u64) {
        let first = EntryPayload::Membership(membership(voters));
        let rest = |index| Entry::new(log_id(1, index), EntryPayload::Normal(Payload(vec![7_u8].into())));
        let first = Entry::new(log_id(1, 0), first);
        store.write_durably(std::iter::once(first).chain((1..end).map(rest))).await.unwrap();
        store.write_vote(&Vote::new(1, voter(1))).await.unwrap();
    }

    #[tokio::test]
    async fn a_snapshot_behind_the_logs_end_is_what_the_log_goes_on_from() {
        let directory = tempfile::tempdir().unwrap();
        let quorum = directory.path().join("quorum");
        let identity = Identity { cluster_id: CLUSTER.into(), voter: voter(1) };
        let store = Store::open(&quorum, &identity).unwrap();
        log(&store, &[1, 2, 3], 500).await;
        let snapshots = Snapshots::open(quorum.join("snapshots"), store.clone()).unwrap();
        // Killed before the log was cut to it; meanwhile there were other voters.
        let meta = SnapshotMeta {
            last_log_id: Some(log_id(2, 1_000)),
            last_membership: StoredMembership::new(Some(log_id(2, 700)), membership(&[1, 2, 4])),
        };
        snapshots.save(meta, Box::new(|| b"state".to_vec())).await.unwrap();
        close(store).await;

        let found = inspect(directory.path(), CLUSTER, voter(1)).await.unwrap();
        assert_eq!((found.position.last_term, found.position.end_index), (2, 1_001));
        let node_ids: Vec<u64> = found.voters.iter().map(|(id, _)| id.node_id).collect();
        assert_eq!(node_ids, [1, 2, 4]);
        let plan = Plan { keep: 1, lost: BTreeSet::from([2, 4]), survivors: Vec::new() };
        let after = recover(directory.path(), CLUSTER, voter(1), &plan, 1).await.unwrap();
        assert_eq!(after.position.end_index, 1_002);
        assert_eq!(after.voters.len(), 1);
        let store = Store::open(&quorum, &identity).unwrap();
        let entries = store.read(0, u64::MAX).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.log_id().index).collect::<Vec<_>>(), [1_001]);
        close(store).await;
    }

    #[tokio::test]
    async fn nothing_is_written_behind_a_gap() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity { cluster_id: CLUSTER.into(), voter: voter(1) };
        let store = Store::open(&directory.path().join("quorum"), &identity).unwrap();
        log(&store, &[1, 2, 3], 5).await;
        let entry = |index| Entry::new(log_id(9, index), EntryPayload::Membership(membership(&[1])));
        for index in [4, 6] {
            let refused = store.recover(Recovered::learned(9), Vote::new(9, voter(1)), entry(index)).await;
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidData, "{index}");
        }
        assert_eq!((store.recovery(), store.ends().1), (0, Some(log_id(1, 4))));
        close(store).await;
    }
}
