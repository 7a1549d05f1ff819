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
use std::path::Path;

use openraft::entry::RaftEntry as _;
use openraft::impls::BasicNode;
use openraft::impls::leader_id_std::LeaderId;
use openraft::vote::RaftLeaderId as _;
use openraft::{EntryPayload, LogIdOptionExt as _, Membership};
use serde::{Deserialize, Serialize};

pub use plan::{Plan, Position, RecoveryError, StoppedVoter, check};

use crate::config::{Identity, VoterId};
use crate::snapshot::Snapshots;
use crate::store::{CREATED_MARK, Store};
use crate::type_config::{Entry, LogId, StoredMembership, Vote};

/// From the highest term known to that of the recovery: lost voters may have counted on for a while.
const TERM_STEP: u64 = 1000;
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
    let mut store = open(data_dir, cluster_id, voter).await?;
    let found = read(&mut store, data_dir, voter).await;
    close(store).await;
    found.map(|(found, _)| found)
}

/// Makes the kept voter the only one, as planned.
pub async fn recover(
    data_dir: &Path,
    cluster_id: &str,
    voter: VoterId,
    plan: &Plan,
    at_ms: i64,
) -> Result<StoppedVoter, RecoveryError> {
    let mut store = open(data_dir, cluster_id, voter).await?;
    let outcome = write(&mut store, data_dir, voter, plan, at_ms).await;
    close(store).await;
    outcome?;
    inspect(data_dir, cluster_id, voter).await
}

async fn write(
    store: &mut Store,
    data_dir: &Path,
    voter: VoterId,
    plan: &Plan,
    at_ms: i64,
) -> Result<(), RecoveryError> {
    let (found, membership) = read(store, data_dir, voter).await?;
    check(&found, plan)?;
    let known = plan.survivors.iter().map(|survivor| survivor.last_term);
    let known = known.chain([found.term, found.position.last_term, found.recovery]);
    let number = known.max().unwrap_or_default() + TERM_STEP;
    let node = membership.membership().get_node(&voter).cloned().unwrap_or_else(|| BasicNode::new(""));
    let nodes = BTreeMap::from([(voter, node)]);
    let alone = Membership::new(vec![BTreeSet::from([voter])], nodes).map_err(std::io::Error::other)?;
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
    let opened = tokio::task::spawn_blocking(move || Store::open(&directory, &identity)).await;
    Ok(opened.map_err(std::io::Error::other)??)
}

async fn close(store: Store) {
    drop(tokio::task::spawn_blocking(move || store.close()).await);
}

async fn read(
    store: &mut Store,
    data_dir: &Path,
    voter: VoterId,
) -> Result<(StoppedVoter, StoredMembership), RecoveryError> {
    let snapshots = Snapshots::open(data_dir.join("quorum").join("snapshots"), store.clone())?;
    let snapshot = snapshots.current().map(|(meta, _)| meta);
    store.check_complete(snapshot.as_ref().and_then(|meta| meta.last_log_id))?;
    let (_, last_in_log) = store.ends();
    let last = last_in_log.max(snapshot.as_ref().and_then(|meta| meta.last_log_id));
    let in_log = newest_membership(store, last_in_log.next_index()).await?;
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
        recovery: store.recovery(),
    };
    Ok((found, membership))
}

/// The last one in the log, committed or not, as the consensus itself goes by it.
async fn newest_membership(store: &mut Store, end: u64) -> std::io::Result<Option<StoredMembership>> {
    let mut end = end;
    loop {
        let start = end.saturating_sub(READ_ENTRIES);
        let entries = store.read(start, end)?;
        for entry in entries.iter().rev() {
            if let EntryPayload::Membership(membership) = &entry.payload {
                return Ok(Some(StoredMembership::new(Some(entry.log_id()), membership.clone())));
            }
        }
        if start == 0 || entries.is_empty() {
            return Ok(None);
        }
        end = start;
    }
}
