//! AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853), and our TransferQuorumLeader.
//!
//! The listeners that AddRaftVoter names are those for Kafka's protocol; raft has its own, and an
//! observer has told where that is. UpdateRaftVoter takes the new address from a listener named QUORUM.

use std::time::Duration;

use common::ids::BrokerId as BrokerNodeId;
use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::update_raft_voter_response::CurrentLeader;
use protocol::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, BrokerId, RemoveRaftVoterRequest, RemoveRaftVoterResponse,
    UpdateRaftVoterRequest, UpdateRaftVoterResponse,
};
use protocol::quorum::{TransferQuorumLeaderRequest, TransferQuorumLeaderResponse};
use raft_log::{MembershipError, RaftLogError, VoterId};
use uuid::Uuid;

use super::text;
use crate::api::ApiContext;

const QUORUM_LISTENER: &str = "QUORUM";
/// Requests that carry no time-out of their own.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_PATIENCE: Duration = Duration::from_secs(300);

type Refusal = (ErrorCode, String);

pub async fn add(context: &ApiContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse {
    let added = async {
        let voter = check(context, &request.cluster_id, request.voter_id, request.voter_directory_id)?;
        // Brokers are shown among the observers, but none of them ever announces itself.
        let is_broker = context.image().brokers.contains_key(&BrokerNodeId(request.voter_id));
        if is_broker {
            return Err((ErrorCode::InvalidRequest, format!("node {} is a broker", request.voter_id)));
        }
        context.raft.add_voter(voter, patience(request.timeout_ms)).await.map_err(refusal)
    };
    let (code, message) = outcome("AddRaftVoter", added.await);
    AddRaftVoterResponse::default().with_error_code(code).with_error_message(message)
}

pub async fn remove(context: &ApiContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse {
    let removed = async {
        let voter = check(context, &request.cluster_id, request.voter_id, request.voter_directory_id)?;
        context.raft.remove_voter(voter, PATIENCE).await.map_err(refusal)
    };
    let (code, message) = outcome("RemoveRaftVoter", removed.await);
    RemoveRaftVoterResponse::default().with_error_code(code).with_error_message(message)
}

pub async fn update(context: &ApiContext, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse {
    let updated = async {
        let voter = check(context, &request.cluster_id, request.voter_id, request.voter_directory_id)?;
        let term = context.raft.status().term;
        if request.current_leader_epoch >= 0 && u64::from(request.current_leader_epoch.unsigned_abs()) < term
        {
            return Err((ErrorCode::FencedLeaderEpoch, format!("the leader epoch is {term}")));
        }
        let listener = request.listeners.iter().find(|listener| &*listener.name == QUORUM_LISTENER);
        let listener = listener.filter(|listener| !listener.host.is_empty() && listener.port > 0);
        let Some(listener) = listener else {
            let message = format!("no listener {QUORUM_LISTENER}, which gives the address for raft");
            return Err((ErrorCode::InvalidRequest, message));
        };
        let address = format!("{}:{}", &*listener.host, listener.port);
        context.raft.update_voter(voter, &address, PATIENCE).await.map_err(refusal)
    };
    let (code, _) = outcome("UpdateRaftVoter", updated.await);
    let status = context.raft.status();
    let leader = status.leader.and_then(|leader| i32::try_from(leader.node_id).ok()).unwrap_or(-1);
    let leader = CurrentLeader::default()
        .with_leader_id(BrokerId(leader))
        .with_leader_epoch(i32::try_from(status.term).unwrap_or(i32::MAX));
    UpdateRaftVoterResponse::default().with_error_code(code).with_current_leader(leader)
}

pub async fn transfer(
    context: &ApiContext,
    request: TransferQuorumLeaderRequest,
) -> TransferQuorumLeaderResponse {
    let transferred = async {
        if !context.controller.is_active() {
            return Err(refusal(MembershipError::NotLeader));
        }
        let unknown = || (ErrorCode::VoterNotFound, format!("controller {} is not a voter", request.node_id));
        let node_id = u64::try_from(request.node_id).map_err(|_| unknown())?;
        if node_id == context.raft.voter().node_id {
            return Ok(());
        }
        context.raft.transfer_leader(node_id).await.map_err(|error| match error {
            RaftLogError::NotAVoter(_) => unknown(),
            RaftLogError::NotLeader | RaftLogError::Shutdown => refusal(MembershipError::NotLeader),
            RaftLogError::TimedOut => {
                (ErrorCode::RequestTimedOut, format!("controller {node_id} has not taken the leadership"))
            }
        })
    };
    let (error_code, error_message) = outcome("TransferQuorumLeader", transferred.await);
    TransferQuorumLeaderResponse { throttle_time_ms: 0, error_code, error_message }
}

fn check(
    context: &ApiContext,
    cluster_id: &Option<StrBytes>,
    node_id: i32,
    directory_id: Uuid,
) -> Result<VoterId, Refusal> {
    if !context.controller.is_active() {
        return Err(refusal(MembershipError::NotLeader));
    }
    if let Some(cluster_id) = cluster_id
        && **cluster_id != *context.cluster_id
    {
        let message = format!("this is cluster {}, not {}", context.cluster_id, &**cluster_id);
        return Err((ErrorCode::InconsistentClusterId, message));
    }
    match u64::try_from(node_id) {
        Ok(node_id) if !directory_id.is_nil() => Ok(VoterId { node_id, directory_id }),
        _ => Err((ErrorCode::InvalidRequest, "a voter is named by its node id and directory id".to_owned())),
    }
}

fn patience(timeout_ms: i32) -> Duration {
    match u64::try_from(timeout_ms) {
        Ok(ms) if ms > 0 => Duration::from_millis(ms).min(LONGEST_PATIENCE),
        _ => PATIENCE,
    }
}

/// As Kafka answers; what it has no code for is told in words.
fn refusal(error: MembershipError) -> Refusal {
    let code = match &error {
        MembershipError::NotLeader
        | MembershipError::HandedOver(_)
        | MembershipError::Lost
        | MembershipError::Shutdown => ErrorCode::NotController,
        MembershipError::AlreadyAVoter(_) | MembershipError::NodeIsAVoter { .. } => ErrorCode::DuplicateVoter,
        MembershipError::NotAVoter(_) => ErrorCode::VoterNotFound,
        MembershipError::LastVoter
        | MembershipError::NoMajority { .. }
        | MembershipError::NotAnObserver(_)
        | MembershipError::Refused(_) => ErrorCode::InvalidRequest,
        MembershipError::InProgress
        | MembershipError::NotCaughtUp(_)
        | MembershipError::NotHandedOver
        | MembershipError::TimedOut => ErrorCode::RequestTimedOut,
    };
    (code, error.to_string())
}

fn outcome(what: &str, result: Result<(), Refusal>) -> (i16, Option<StrBytes>) {
    match result {
        Ok(()) => (0, None),
        Err((code, message)) => {
            tracing::info!(code = code.name(), "{what} refused: {message}");
            (code.code(), Some(text(message)))
        }
    }
}
