//! Calls to other voters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::fault;
use futures::stream::{self, Stream, StreamExt as _};
use openraft::OptionalSend;
use openraft::alias;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::impls::BasicNode;
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use parking_lot::Mutex;
use protocol::proto::raft as wire;
use protocol::proto::raft::raft_client::RaftClient;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::transport::{Channel, Endpoint};

use crate::config::{Identity, VoterId};
use crate::files::Contents;
use crate::lineage::Lineage;
use crate::network::silence::Silence;
use crate::network::{SNAPSHOT_CHUNK_BYTES, check_entries, decode, encode, message_limit_bytes, to_wire};
use crate::snapshot::SnapshotFile;
use crate::type_config::{TypeConfig, Vote};

const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// A peer that has vanished without a word is noticed after interval + timeout.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// To open the stream of appends: it may have to connect first.
const STREAM_TIMEOUT: Duration = Duration::from_secs(1);
/// The default of 64 KiB would make a batch wait for several round trips.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Connections to the other voters: made when first used, then kept for ever.
pub(crate) struct Peers {
    identity: Identity,
    lineage: Lineage,
    /// From the configuration. A voter that moved is in the membership at its new address as soon as there is
    /// a leader; where all have moved, only the configuration knows.
    configured: BTreeMap<u64, String>,
    /// From the membership.
    members: Mutex<BTreeMap<VoterId, String>>,
    /// Those of the members that vote.
    voters: Mutex<BTreeSet<VoterId>>,
    message_limit_bytes: usize,
    channels: Mutex<HashMap<(String, Use), Channel>>,
    silence: Silence,
}

/// Snapshots have a connection of their own, so that heartbeats never wait behind them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    Messages,
    Snapshots,
}

impl Peers {
    pub fn new(
        identity: Identity,
        lineage: Lineage,
        voters: &[(u64, String)],
        max_payload_bytes: usize,
    ) -> Arc<Peers> {
        Arc::new(Peers {
            identity,
            lineage,
            configured: voters.iter().cloned().collect(),
            members: Mutex::default(),
            voters: Mutex::default(),
            message_limit_bytes: message_limit_bytes(max_payload_bytes),
            channels: Mutex::default(),
            silence: Silence::default(),
        })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// An address that is none gives an error at each call, as an unreachable peer does.
    pub fn client(
        &self,
        address: &str,
        purpose: Use,
    ) -> Result<RaftClient<Channel>, tonic::transport::Error> {
        let mut channels = self.channels.lock();
        let key = (address.to_owned(), purpose);
        let channel = match channels.get(&key) {
            Some(channel) => channel.clone(),
            None => {
                let channel = Endpoint::from_shared(format!("http://{address}"))?
                    .tcp_nodelay(true)
                    .connect_timeout(CONNECT_TIMEOUT)
                    .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
                    .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                    .keep_alive_while_idle(true)
                    .initial_stream_window_size(STREAM_WINDOW_BYTES)
                    .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                    .connect_lazy();
                channels.entry(key).or_insert(channel).clone()
            }
        };
        Ok(RaftClient::new(channel)
            .max_decoding_message_size(self.message_limit_bytes)
            .max_encoding_message_size(self.message_limit_bytes))
    }

    /// The membership has changed.
    pub fn set_members(&self, members: BTreeMap<VoterId, String>, voters: BTreeSet<VoterId>) {
        *self.members.lock() = members;
        *self.voters.lock() = voters;
    }

    /// What a called controller says of a recovery counts if it is a voter: an observer may have come from
    /// another quorum, and a leader must not end for that.
    fn heed(&self, target: VoterId, status: &tonic::Status) {
        if self.voters.lock().contains(&target) {
            self.lineage.heed(status);
        }
    }

    /// Every address known, each once.
    pub fn all_addresses(&self) -> Vec<String> {
        let mut addresses: Vec<String> = self.members.lock().values().cloned().collect();
        addresses.extend(self.configured.values().cloned());
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Where a voter may be: each failed call moves on to the next of these. Whoever answers there is
    /// asked who it is, so a wrong address is only a waste of time.
    fn address(&self, target: VoterId, first: &str, failures: usize) -> String {
        let member = self.members.lock().get(&target).cloned();
        let mut candidates = vec![member.unwrap_or_else(|| first.to_owned())];
        candidates.extend(self.configured.get(&target.node_id).cloned());
        candidates.swap_remove(failures % candidates.len())
    }
}

pub(crate) struct PeerFactory(pub Arc<Peers>);

impl RaftNetworkFactory<TypeConfig> for PeerFactory {
    type Network = Peer;

    async fn new_client(&mut self, target: VoterId, node: &BasicNode) -> Peer {
        self.peer(target, node, Use::Messages)
    }

    async fn new_snapshot_client(&mut self, target: VoterId, node: &BasicNode) -> Peer {
        self.peer(target, node, Use::Snapshots)
    }
}

impl PeerFactory {
    fn peer(&self, target: VoterId, node: &BasicNode, purpose: Use) -> Peer {
        let failures = AtomicUsize::new(0);
        Peer { peers: self.0.clone(), first_address: node.addr.clone(), failures, purpose, target }
    }
}

/// One voter as the target of calls.
pub(crate) struct Peer {
    peers: Arc<Peers>,
    first_address: String,
    failures: AtomicUsize,
    purpose: Use,
    target: VoterId,
}

type Failure = Unreachable<TypeConfig>;

impl Peer {
    fn client(&self) -> Result<RaftClient<Channel>, Failure> {
        self.peers.silence.called(self.target);
        self.peers.client(&self.address(), self.purpose).map_err(|error| self.failed(error))
    }

    fn address(&self) -> String {
        self.peers.address(self.target, &self.first_address, self.failures.load(Ordering::Relaxed))
    }

    fn failed(&self, error: impl std::fmt::Display) -> Failure {
        let address = self.address();
        self.failures.fetch_add(1, Ordering::Relaxed);
        let reason = format!("controller {} at {address}: {error}", self.target.node_id);
        self.peers.silence.failed(self.target, &reason);
        Failure::from_string(reason)
    }

    fn refused(&self, status: &tonic::Status) -> Failure {
        self.peers.heed(self.target, status);
        self.failed(format_args!("{:?}: {}", status.code(), status.message()))
    }

    /// Where tests cut this voter off from another one.
    fn passes(&self) -> impl Future<Output = ()> + Send + 'static {
        fault::point("quorum.send", self.target.node_id)
    }

    fn header(&self) -> wire::Header {
        let Identity { cluster_id, voter } = &self.peers.identity;
        wire::Header {
            cluster_id: cluster_id.clone(),
            sender: Some(to_wire(*voter)),
            target: Some(to_wire(self.target)),
            recovery: self.peers.lineage.number(),
        }
    }

    fn call(&self, message: &impl Serialize) -> Result<wire::Call, Failure> {
        let body = encode(message).map_err(|error| self.failed(error))?;
        Ok(wire::Call { header: Some(self.header()), body })
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        patience: Duration,
        answer: impl Future<Output = Result<tonic::Response<wire::Answer>, tonic::Status>>,
    ) -> Result<T, Failure> {
        let answer =
            tokio::time::timeout(patience, answer).await.map_err(|_| self.failed("no answer in time"))?;
        let answer = answer.map_err(|status| self.refused(&status))?.into_inner();
        self.peers.silence.answered(self.target);
        decode(&answer.body).map_err(|error| self.failed(error))
    }
}

impl NetVote<TypeConfig> for Peer {
    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let (mut client, call) = (self.client()?, self.call(&rpc)?);
        self.passes().await;
        Ok(self.answer(option.soft_ttl(), client.vote(call)).await?)
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let (mut client, call) = (self.client()?, self.call(&rpc)?);
        self.passes().await;
        Ok(self.answer(option.soft_ttl(), client.pre_vote(call)).await?)
    }
}

impl NetTransferLeader<TypeConfig> for Peer {
    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let (mut client, call) = (self.client()?, self.call(&rpc)?);
        self.passes().await;
        Ok(self.answer(option.soft_ttl(), client.transfer_leader(call)).await?)
    }
}

impl NetStreamAppend<TypeConfig> for Peer {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<
            BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>,
            RPCError<TypeConfig>,
        >,
    >
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(async move {
            // openraft waits out its backoff inside this stream: what has not been asked for a message is
            // not opened, or a dead voter would be dialled without a pause.
            let mut input = input;
            let Some(first) = input.next().await else {
                let nothing: BoxStream<'s, _> = Box::pin(stream::empty());
                return Ok(nothing);
            };
            let input = stream::once(std::future::ready(first)).chain(input);
            let mut client = self.client()?;
            // The header goes with the first message only. A message that cannot be encoded, or has a hole, ends
            // the stream, which openraft then opens anew.
            let mut header = Some(self.header());
            let calls = input.map(move |request| {
                if let Err(reason) = check_entries(request.prev_log_id, &request.entries) {
                    tracing::info!(reason, "the log was purged meanwhile: nothing is sent of this stream");
                    return None;
                }
                let body =
                    encode(&request).inspect_err(|error| tracing::error!(%error, "append not encoded"));
                body.ok().map(|body| wire::Call { header: header.take(), body })
            });
            let target = self.target.node_id;
            let calls = calls
                .take_while(|call| std::future::ready(call.is_some()))
                .filter_map(std::future::ready)
                .then(move |call| async move {
                    fault::point("quorum.send", target).await;
                    call
                });
            let answers = tokio::time::timeout(STREAM_TIMEOUT, client.stream_append(calls))
                .await
                .map_err(|_| self.failed("no answer in time"))?
                .map_err(|status| self.refused(&status))?;
            let this = &*self;
            let results = answers.into_inner().map(move |answer| {
                let answer = answer.map_err(|status| this.refused(&status))?;
                this.peers.silence.answered(this.target);
                decode(&answer.body).map_err(|error| RPCError::Unreachable(this.failed(error)))
            });
            let results: BoxStream<'s, _> = Box::pin(results);
            Ok(results)
        })
    }
}

impl NetSnapshot<TypeConfig> for Peer {
    type SnapshotData = SnapshotFile;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: alias::SnapshotOf<TypeConfig, SnapshotFile>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let mut client = self.client()?;
        let contents = snapshot.snapshot.contents;
        let length = contents.length().map_err(|error| self.failed(error))?;
        let call = self.call(&(vote, snapshot.meta, length))?;
        self.passes().await;
        let first = wire::SnapshotChunk { header: call.header, body: call.body, data: Bytes::new() };
        let chunks = stream::iter([first]).chain(chunks_of(contents, length));
        tokio::select! {
            closed = cancel => Err(closed.into()),
            answer = self.answer(option.soft_ttl(), client.install_snapshot(chunks)) => Ok(answer?),
        }
    }
}

/// A snapshot in chunks. One that cannot be read ends the stream early, which the receiver notices.
fn chunks_of(
    contents: Arc<dyn Contents>,
    length: u64,
) -> impl Stream<Item = wire::SnapshotChunk> + Send + 'static {
    stream::unfold(0u64, move |position| {
        let contents = contents.clone();
        async move {
            if position >= length {
                return None;
            }
            let wanted = usize::try_from(length - position).unwrap_or(usize::MAX).min(SNAPSHOT_CHUNK_BYTES);
            let read = tokio::task::spawn_blocking(move || {
                let mut data = BytesMut::zeroed(wanted);
                contents.read_at(&mut data, position).map(|()| data.freeze())
            });
            match read.await.map_err(std::io::Error::other).flatten() {
                Ok(data) => {
                    let next = position + data.len() as u64;
                    Some((wire::SnapshotChunk { header: None, body: Bytes::new(), data }, next))
                }
                Err(error) => {
                    tracing::error!(%error, "snapshot not read");
                    None
                }
            }
        }
    })
}

impl NetBackoff<TypeConfig> for Peer {
    fn backoff(&self) -> Option<Backoff> {
        // A voter that comes back is served within half a second.
        let delays = (0u32..)
            .map(|attempt| Duration::from_millis(50 << attempt.min(3)).min(Duration::from_millis(400)));
        Some(Backoff::new(delays))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::recovery::Recovered;
    use crate::store::Store;

    #[tokio::test]
    async fn a_recovery_that_an_observer_tells_of_ends_no_leader() {
        let voter = |node_id| VoterId { node_id, directory_id: Uuid::nil() };
        let identity = |node_id| Identity { cluster_id: "test".into(), voter: voter(node_id) };
        let directory = tempfile::tempdir().unwrap();
        let open =
            |node_id: u64| Store::open(&directory.path().join(node_id.to_string()), &identity(node_id));
        let (ours, theirs) = (open(1).unwrap(), open(3).unwrap());
        ours.write_vote(&Vote::new(1, voter(1))).await.unwrap();
        theirs.save_recovered(Recovered::learned(9)).await.unwrap();
        let refusal = Lineage::new(theirs.clone()).check_announced(0).unwrap_err();

        let lineage = Lineage::new(ours.clone());
        let peers = Peers::new(identity(1), lineage.clone(), &[], 1 << 20);
        let members = (1..=3).map(|node_id| (voter(node_id), "host:1".to_owned()));
        peers.set_members(members.collect(), [1, 2].map(voter).into());
        for (node_id, given_up) in [(3, None), (4, None), (2, Some(9))] {
            peers.heed(voter(node_id), &refusal);
            assert_eq!(*lineage.given_up().borrow(), given_up, "controller {node_id}");
        }
        ours.close();
        theirs.close();
    }
}
