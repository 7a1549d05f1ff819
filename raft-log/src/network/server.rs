//! Calls from other voters. Cluster and both ends are checked before the consensus sees anything.

use std::pin::Pin;

use futures::stream::{self, Stream, StreamExt as _};
use openraft::alias::SnapshotOf;
use openraft::async_runtime::WatchReceiver as _;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use openraft::storage::Snapshot;
use openraft::vote::RaftLeaderId as _;
use protocol::proto::raft as wire;
use protocol::proto::raft::raft_server::{Raft as RaftService, RaftServer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use crate::config::{Identity, VoterId};
use crate::contact::Contact;
use crate::error::MembershipError;
use crate::lineage::Lineage;
use crate::membership::Changer;
use crate::network::{check_entries, decode, encode, from_wire, message_limit_bytes, to_wire};
use crate::snapshot::{SnapshotFile, Snapshots};
use crate::store::Store;
use crate::type_config::{Raft, SnapshotMeta, TypeConfig, Vote};

const MAX_ADDRESS_BYTES: usize = 512;

/// The quorum's gRPC service, to be added to the server of `quorum.listener`.
pub type QuorumServer = RaftServer<QuorumService>;

#[derive(Clone)]
pub struct QuorumService {
    identity: Identity,
    raft: Raft,
    store: Store,
    snapshots: Snapshots,
    contact: Contact,
    changer: Changer,
    lineage: Lineage,
    /// Closed when the log is shut down.
    running: watch::Receiver<()>,
}

#[allow(clippy::too_many_arguments)] // each is one part of the log
pub(crate) fn quorum_server(
    identity: Identity,
    raft: Raft,
    store: Store,
    snapshots: Snapshots,
    contact: Contact,
    changer: Changer,
    lineage: Lineage,
    running: watch::Receiver<()>,
    max_payload_bytes: usize,
) -> QuorumServer {
    let limit = message_limit_bytes(max_payload_bytes);
    RaftServer::new(QuorumService { identity, raft, store, snapshots, contact, changer, lineage, running })
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit)
}

impl QuorumService {
    /// Resolves when the log is shut down.
    fn stopped(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut running = self.running.clone();
        Box::pin(async move { while running.changed().await.is_ok() {} })
    }

    fn check_cluster(&self, cluster_id: &str) -> Result<(), Status> {
        if cluster_id == self.identity.cluster_id {
            return Ok(());
        }
        Err(refuse(format!(
            "this controller belongs to cluster {}, not {cluster_id}",
            self.identity.cluster_id
        )))
    }

    /// Who calls, if the call is for this very voter.
    fn check(&self, header: Option<&wire::Header>) -> Result<Caller, Status> {
        let header = header.ok_or_else(|| malformed("no header"))?;
        self.check_cluster(&header.cluster_id)?;
        let voter = |voter: &Option<wire::Voter>| voter.as_ref().and_then(from_wire);
        let target = voter(&header.target).ok_or_else(|| malformed("no target"))?;
        if target != self.identity.voter {
            return Err(refuse(format!("this is {}, not {target}", self.identity.voter)));
        }
        let sender = voter(&header.sender).ok_or_else(|| malformed("no sender"))?;
        Ok(Caller { voter: sender, recovery: header.recovery })
    }

    fn read<T: DeserializeOwned>(&self, call: &wire::Call) -> Result<(Caller, T), Status> {
        let caller = self.check(call.header.as_ref())?;
        Ok((caller, decode(&call.body).map_err(malformed)?))
    }

    /// The caller speaks for itself, and belongs to our recovery. Whoever appends takes an empty controller in.
    async fn check_speaker(&self, caller: &Caller, vote: &Vote, appends: bool) -> Result<(), Status> {
        check_vote(caller.voter, vote)?;
        let is_member = || {
            let metrics = self.raft.server_metrics();
            metrics.borrow_watched().membership_config.get_node(&caller.voter).is_some()
        };
        self.lineage.check(caller.recovery, vote.leader_id.term, appends, is_member).await
    }

    /// A candidate is not a voter of ours under a new directory, either.
    async fn check_candidate(
        &self,
        caller: &Caller,
        request: &VoteRequest<TypeConfig>,
    ) -> Result<(), Status> {
        self.check_speaker(caller, &request.vote, false).await?;
        let metrics = self.raft.server_metrics();
        let membership = metrics.borrow_watched().membership_config.clone();
        check_directory(caller.voter, membership.membership().voter_ids())
    }
}

/// By the header of a call.
struct Caller {
    voter: VoterId,
    recovery: u64,
}

/// Not a voter of ours under a new directory, which has forgotten whom it voted for.
pub(crate) fn check_directory(sender: VoterId, voters: impl Iterator<Item = VoterId>) -> Result<(), Status> {
    let mut others = voters.filter(|voter| voter.node_id == sender.node_id);
    match others.next() {
        Some(known) if known != sender && !others.any(|other| other == sender) => {
            Err(refuse(format!("the voter is {known}, not {sender}")))
        }
        _ => Ok(()),
    }
}

/// Also refused: a term that Kafka's leader epoch could not show. Whoever took it over could count no further.
pub(crate) fn check_vote(sender: VoterId, vote: &Vote) -> Result<(), Status> {
    let (named, term) = (*vote.leader_id.node_id(), vote.leader_id.term());
    if term > i32::MAX as u64 {
        return Err(refuse(format!("{sender} speaks for term {term}")));
    }
    if named == sender { Ok(()) } else { Err(refuse(format!("{sender} speaks for {named}"))) }
}

fn refuse(reason: String) -> Status {
    tracing::warn!(reason, "call of the quorum refused");
    Status::permission_denied(reason)
}

fn malformed(reason: impl ToString) -> Status {
    Status::invalid_argument(reason.to_string())
}

fn unavailable(error: impl ToString) -> Status {
    Status::unavailable(error.to_string())
}

fn answer(message: &impl Serialize) -> Result<wire::Answer, Status> {
    let body = encode(message).map_err(|error| Status::internal(error.to_string()))?;
    Ok(wire::Answer { body })
}

type Answers = Pin<Box<dyn Stream<Item = Result<wire::Answer, Status>> + Send>>;

#[tonic::async_trait]
impl RaftService for QuorumService {
    type StreamAppendStream = Answers;

    async fn probe(
        &self,
        request: Request<wire::ProbeRequest>,
    ) -> Result<Response<wire::ProbeResponse>, Status> {
        self.check_cluster(&request.into_inner().cluster_id)?;
        Ok(Response::new(wire::ProbeResponse {
            cluster_id: self.identity.cluster_id.clone(),
            voter: Some(to_wire(self.identity.voter)),
            has_log: self.store.has_log(),
            founding: self.store.founding().into_iter().map(to_wire).collect(),
        }))
    }

    async fn pre_vote(&self, request: Request<wire::Call>) -> Result<Response<wire::Answer>, Status> {
        let (caller, request) = self.read(request.get_ref())?;
        self.check_candidate(&caller, &request).await?;
        Ok(Response::new(answer(&self.raft.pre_vote(request).await.map_err(unavailable)?)?))
    }

    async fn vote(&self, request: Request<wire::Call>) -> Result<Response<wire::Answer>, Status> {
        let (caller, request) = self.read(request.get_ref())?;
        self.check_candidate(&caller, &request).await?;
        Ok(Response::new(answer(&self.raft.vote(request).await.map_err(unavailable)?)?))
    }

    async fn transfer_leader(&self, request: Request<wire::Call>) -> Result<Response<wire::Answer>, Status> {
        let (caller, request): (_, TransferLeaderRequest<TypeConfig>) = self.read(request.get_ref())?;
        self.check_speaker(&caller, request.from_leader(), false).await?;
        Ok(Response::new(answer(&self.raft.handle_transfer_leader(request).await.map_err(unavailable)?)?))
    }

    async fn announce(
        &self,
        request: Request<wire::AnnounceRequest>,
    ) -> Result<Response<wire::AnnounceResponse>, Status> {
        let request = request.into_inner();
        self.check_cluster(&request.cluster_id)?;
        let sender = request.sender.as_ref().and_then(from_wire).ok_or_else(|| malformed("no sender"))?;
        if request.has_log {
            self.lineage.check_announced(request.recovery)?;
        }
        if request.address.is_empty() || request.address.len() > MAX_ADDRESS_BYTES {
            return Err(malformed("no address"));
        }
        let leader_address = match self.changer.announced(sender, &request.address).await {
            Err(MembershipError::NotLeader) => {
                let metrics = self.raft.server_metrics();
                let metrics = metrics.borrow_watched();
                let leader = metrics.current_leader.and_then(|leader| {
                    metrics.membership_config.get_node(&leader).map(|node| node.addr.clone())
                });
                leader.unwrap_or_default()
            }
            Err(error) => return Err(unavailable(error)),
            Ok(()) => String::new(),
        };
        Ok(Response::new(wire::AnnounceResponse { leader_address }))
    }

    async fn stream_append(
        &self,
        request: Request<Streaming<wire::Call>>,
    ) -> Result<Response<Answers>, Status> {
        let mut calls = request.into_inner();
        let first = calls.message().await?.ok_or_else(|| malformed("no message"))?;
        let (caller, first): (_, AppendEntriesRequest<TypeConfig>) = self.read(&first)?;
        self.check_speaker(&caller, &first.vote, true).await?;
        check_entries(first.prev_log_id, &first.entries).map_err(malformed)?;
        // The header was checked for the stream; what follows must come from the same leader.
        let vote = first.vote;
        let rest = calls.scan((), move |(), call| {
            let request =
                call.ok().and_then(|call| decode::<AppendEntriesRequest<TypeConfig>>(&call.body).ok());
            let sound = |request: &AppendEntriesRequest<TypeConfig>| {
                request.vote == vote && check_entries(request.prev_log_id, &request.entries).is_ok()
            };
            std::future::ready(request.filter(sound))
        });
        // An idle stream would keep its connection, and so a draining server, for ever; openraft holds
        // on to both directions.
        let rest = rest.take_until(self.stopped());
        let results = self.raft.stream_append(stream::iter([first]).chain(rest));
        let contact = self.contact.clone();
        let answers = results.map(move |result| {
            let result = result.map_err(unavailable)?;
            contact.heard();
            answer(&result)
        });
        Ok(Response::new(Box::pin(answers.take_until(self.stopped()))))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<wire::SnapshotChunk>>,
    ) -> Result<Response<wire::Answer>, Status> {
        let mut chunks = request.into_inner();
        let first = chunks.message().await?.ok_or_else(|| malformed("no message"))?;
        let caller = self.check(first.header.as_ref())?;
        let (vote, meta, length): (Vote, SnapshotMeta, u64) = decode(&first.body).map_err(malformed)?;
        self.check_speaker(&caller, &vote, true).await?;
        let chunks = chunks.map(|chunk| chunk.map(|chunk| chunk.data).map_err(std::io::Error::other));
        let received = self.snapshots.receive(length, chunks).await;
        let received = received.map_err(|error| unavailable(format!("snapshot not received: {error}")))?;
        let name = received.name.clone();
        let snapshot: SnapshotOf<TypeConfig, SnapshotFile> = Snapshot { meta, snapshot: received };
        let installed = self.raft.install_full_snapshot(vote, snapshot).await.map_err(unavailable);
        self.snapshots.discard(name).await;
        Ok(Response::new(answer(&installed?)?))
    }
}
