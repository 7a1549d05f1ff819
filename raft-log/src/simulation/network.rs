//! Messages between the voters: lost, late, twice, cut off. Who sends and who is meant is checked as the
//! product's service does, before the consensus sees anything.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use openraft::async_runtime::{AsyncRuntime as _, Select2};
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
use openraft::{OptionalSend, alias};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use super::Simulated;
use super::executor;
use super::handler::{self, Incoming, Request};
use super::runtime::{SimulatedRuntime, Sleep, spawn_as};
use super::world::World;
use crate::config::VoterId;
use crate::network::{check_entries, decode, encode};
use crate::snapshot::SnapshotFile;
use crate::type_config::Vote;

const CHUNK_BYTES: usize = 1_000;
/// A connection that has died without a word is noticed by then.
const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// What happens to a message.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    Lost,
    After(Duration),
}

#[derive(Clone)]
pub struct Factory {
    pub world: World,
    pub me: VoterId,
}

impl RaftNetworkFactory<Simulated> for Factory {
    type Network = Peer;

    async fn new_client(&mut self, target: VoterId, _node: &BasicNode) -> Peer {
        Peer { world: self.world.clone(), me: self.me, target }
    }
}

pub struct Peer {
    world: World,
    me: VoterId,
    target: VoterId,
}

type Failure = Unreachable<Simulated>;

fn failure(reason: impl ToString) -> Failure {
    Failure::from_string(reason)
}

/// Until a message is there; for ever, where it is lost.
async fn travel(world: &World, from: VoterId, to: VoterId) {
    match world.fate(from.node_id, to.node_id) {
        Fate::After(delay) => Sleep::truly(delay).await,
        Fate::Lost => std::future::pending().await,
    }
}

/// Brings a request there and the answer back.
pub async fn call(world: &World, from: VoterId, to: VoterId, incoming: Incoming) -> Result<Bytes, String> {
    travel(world, from, to).await;
    let answer = handler::deliver(world, from, to, incoming).await?;
    travel(world, to, from).await;
    Ok(answer)
}

impl Peer {
    /// Brings a request there and the answer back.
    async fn ask<T: DeserializeOwned>(&self, patience: Duration, request: Request) -> Result<T, Failure> {
        if let Some(delay) = self.world.repeated() {
            let (world, me, target, request) = (self.world.clone(), self.me, self.target, request.clone());
            drop(spawn_as(executor::WORLD, async move {
                Sleep::truly(delay).await;
                drop(handler::deliver(&world, me, target, Incoming::Call(request)).await);
            }));
        }
        let asked = async {
            let answer = call(&self.world, self.me, self.target, Incoming::Call(request)).await?;
            decode(&answer).map_err(|error| error.to_string())
        };
        let answer =
            SimulatedRuntime::timeout(patience, asked).await.map_err(|_| failure("no answer in time"))?;
        answer.map_err(failure)
    }

    fn body(&self, message: &impl Serialize) -> Result<Bytes, Failure> {
        encode(message).map_err(failure)
    }
}

impl NetVote<Simulated> for Peer {
    async fn vote(
        &mut self,
        rpc: VoteRequest<Simulated>,
        option: RPCOption,
    ) -> Result<VoteResponse<Simulated>, RPCError<Simulated>> {
        self.world.asks_for_votes(self.me, &rpc.vote);
        let request = Request::Vote(self.body(&rpc)?);
        Ok(self.ask(option.soft_ttl(), request).await?)
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Simulated>,
        option: RPCOption,
    ) -> Result<VoteResponse<Simulated>, RPCError<Simulated>> {
        let request = Request::PreVote(self.body(&rpc)?);
        Ok(self.ask(option.soft_ttl(), request).await?)
    }
}

impl NetTransferLeader<Simulated> for Peer {
    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<Simulated>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Simulated>, RPCError<Simulated>> {
        let request = Request::Transfer(self.body(&rpc)?);
        Ok(self.ask(option.soft_ttl(), request).await?)
    }
}

impl NetStreamAppend<Simulated> for Peer {
    fn stream_append<'s, S>(
        &'s mut self,
        mut input: S,
        _option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<
            BoxStream<'s, Result<StreamAppendResult<Simulated>, RPCError<Simulated>>>,
            RPCError<Simulated>,
        >,
    >
    where
        S: Stream<Item = AppendEntriesRequest<Simulated>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(async move {
            // As in the product: what has not been asked for a message is not opened.
            let Some(first) = input.next().await else {
                let nothing: BoxStream<'s, _> = Box::pin(stream::empty());
                return Ok(nothing);
            };
            let (answer, answers) = mpsc::unbounded_channel();
            // Closed when openraft drops the answers.
            let (open, closed) = oneshot::channel::<()>();
            let input = stream::once(std::future::ready(first)).chain(input);
            let carrier = Carrier { world: self.world.clone(), me: self.me, target: self.target };
            drop(SimulatedRuntime::spawn(async move {
                let _either = SimulatedRuntime::select2(closed, carrier.carry(input, answer)).await;
            }));
            let this = &*self;
            let results = stream::unfold(Some((answers, open)), move |state| async move {
                let (mut answers, open) = state?;
                let received: Option<Result<Bytes, String>> = answers.recv().await;
                match received? {
                    Err(reason) => Some((Err(failure(reason).into()), None)),
                    Ok(answer) => match this.world.fate(this.target.node_id, this.me.node_id) {
                        Fate::Lost => {
                            Sleep::truly(this.world.until_noticed(KEEP_ALIVE)).await;
                            Some((Err(failure("the connection broke").into()), None))
                        }
                        Fate::After(delay) => {
                            Sleep::truly(delay).await;
                            let result = decode(&answer).map_err(|error| failure(error).into());
                            Some((result, Some((answers, open))))
                        }
                    },
                }
            });
            let results: BoxStream<'s, _> = Box::pin(results);
            Ok(results)
        })
    }
}

/// Brings the messages of one stream of appends to the other side, in order.
struct Carrier {
    world: World,
    me: VoterId,
    target: VoterId,
}

type Answers = mpsc::UnboundedSender<Result<Bytes, String>>;

impl Carrier {
    async fn carry<S>(self, mut input: S, answers: Answers)
    where
        S: Stream<Item = AppendEntriesRequest<Simulated>> + Send + Unpin,
    {
        let mut stream: Option<mpsc::UnboundedSender<Bytes>> = None;
        while let Some(request) = input.next().await {
            if check_entries(request.prev_log_id, &request.entries).is_err() {
                return;
            }
            let Ok(body) = encode(&request) else { return };
            match self.world.fate(self.me.node_id, self.target.node_id) {
                Fate::Lost => {
                    Sleep::truly(self.world.until_noticed(KEEP_ALIVE)).await;
                    drop(answers.send(Err("the connection broke".into())));
                    return;
                }
                Fate::After(delay) => Sleep::truly(delay).await,
            }
            self.repeat_later(&body);
            let messages = match stream.take() {
                Some(messages) => messages,
                None => {
                    let (messages, received) = mpsc::unbounded_channel();
                    let incoming = Incoming::Appends(received, answers.clone());
                    if let Err(reason) = handler::open(&self.world, self.me, self.target, incoming) {
                        drop(answers.send(Err(reason)));
                        return;
                    }
                    messages
                }
            };
            if messages.send(body).is_err() {
                drop(answers.send(Err("the other side has ended".into())));
                return;
            }
            stream = Some(messages);
        }
    }

    /// A connection that was given up may still deliver, long after its successor.
    fn repeat_later(&self, body: &Bytes) {
        if let Some(delay) = self.world.repeated() {
            let (world, me, target) = (self.world.clone(), self.me, self.target);
            let request = Request::Append(body.clone());
            drop(spawn_as(executor::WORLD, async move {
                Sleep::truly(delay).await;
                drop(handler::deliver(&world, me, target, Incoming::Call(request)).await);
            }));
        }
    }
}

impl NetSnapshot<Simulated> for Peer {
    type SnapshotData = SnapshotFile;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: alias::SnapshotOf<Simulated, SnapshotFile>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Simulated>, StreamingError<Simulated>> {
        let contents = snapshot.snapshot.contents;
        let length = contents.length().map_err(failure)?;
        let mut data = vec![0; usize::try_from(length).map_err(failure)?];
        contents.read_at(&mut data, 0).map_err(failure)?;
        let body = self.body(&(vote, snapshot.meta, length))?;
        let (chunks, received) = mpsc::unbounded_channel();
        let sending = async {
            for chunk in data.chunks(CHUNK_BYTES) {
                match self.world.fate(self.me.node_id, self.target.node_id) {
                    Fate::Lost => {
                        drop(chunks);
                        return std::future::pending().await;
                    }
                    Fate::After(delay) => Sleep::truly(delay).await,
                }
                drop(chunks.send(Bytes::copy_from_slice(chunk)));
            }
            drop(chunks);
            std::future::pending::<()>().await
        };
        let answered = async {
            let incoming = Incoming::Snapshot(body, received);
            let answer = call(&self.world, self.me, self.target, incoming).await?;
            decode(&answer).map_err(|error| error.to_string())
        };
        let answered = SimulatedRuntime::timeout(option.soft_ttl(), answered);
        let all = SimulatedRuntime::select2(Box::pin(answered), Box::pin(sending));
        match SimulatedRuntime::select2(Box::pin(cancel), Box::pin(all)).await {
            Select2::First(closed) => Err(closed.into()),
            Select2::Second(Select2::Second(())) => Err(failure("not sent").into()),
            Select2::Second(Select2::First(Err(_))) => Err(failure("no answer in time").into()),
            Select2::Second(Select2::First(Ok(answer))) => Ok(answer.map_err(failure)?),
        }
    }
}

impl NetBackoff<Simulated> for Peer {
    fn backoff(&self) -> Option<Backoff> {
        let delays = (0u32..)
            .map(|attempt| Duration::from_millis(50 << attempt.min(3)).min(Duration::from_millis(400)));
        Some(Backoff::new(delays))
    }
}
