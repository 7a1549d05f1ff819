//! The receiving end of the simulated network, as `network::server` is of the real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use openraft::async_runtime::WatchReceiver as _;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use openraft::storage::Snapshot;
use openraft::vote::RaftLeaderId as _;
use serde::Serialize;
use tokio::sync::mpsc;

use super::node::Life;
use super::oracle::position;
use super::runtime::spawn_as;
use super::world::World;
use super::{Simulated, executor};
use crate::config::VoterId;
use crate::network::server::{check_directory, check_vote};
use crate::network::{check_entries, decode, encode};
use crate::type_config::{SnapshotMeta, Vote};

#[derive(Clone, Debug)]
pub enum Request {
    Vote(Bytes),
    PreVote(Bytes),
    Transfer(Bytes),
    /// Outside of a stream: a repetition.
    Append(Bytes),
    /// A controller at this address observes.
    Announce(String),
}

pub enum Incoming {
    Call(Request),
    Appends(mpsc::UnboundedReceiver<Bytes>, mpsc::UnboundedSender<Result<Bytes, String>>),
    Snapshot(Bytes, mpsc::UnboundedReceiver<Bytes>),
}

/// Who is meant, if it is the one that runs there.
fn find(world: &World, target: VoterId) -> Result<Life, String> {
    let life = world.life(target.node_id).ok_or("connection refused")?;
    if life.voter == target { Ok(life) } else { Err(format!("this is {}, not {target}", life.voter)) }
}

/// Has the target handle it, and gives its answer. Nothing comes back from one that ends meanwhile.
pub async fn deliver(
    world: &World,
    sender: VoterId,
    target: VoterId,
    incoming: Incoming,
) -> Result<Bytes, String> {
    let life = find(world, target)?;
    let (world, owner) = (world.clone(), life.owner);
    let handled = spawn_as(owner, async move { handle(&world, &life, sender, incoming).await });
    handled.await.map_err(|_| "the other side has ended".to_owned())?
}

/// Opens a stream there.
pub fn open(world: &World, sender: VoterId, target: VoterId, incoming: Incoming) -> Result<(), String> {
    let life = find(world, target)?;
    let (world, owner) = (world.clone(), life.owner);
    drop(spawn_as(owner, async move { drop(handle(&world, &life, sender, incoming).await) }));
    Ok(())
}

fn answer(message: &impl Serialize) -> Result<Bytes, String> {
    encode(message).map_err(|error| error.to_string())
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn check(sender: VoterId, vote: &Vote) -> Result<(), String> {
    check_vote(sender, vote).map_err(|status| status.message().to_owned())
}

async fn handle(world: &World, life: &Life, sender: VoterId, incoming: Incoming) -> Result<Bytes, String> {
    match incoming {
        Incoming::Call(Request::Vote(body)) => {
            let request: VoteRequest<Simulated> = decode(&body).map_err(text)?;
            check_candidate(life, sender, &request)?;
            let vote = request.vote;
            let response = life.raft.vote(request).await.map_err(text)?;
            if response.vote_granted {
                world.oracle.voted(life.voter, &vote, world.durable_vote(life.voter));
            }
            answer(&response)
        }
        Incoming::Call(Request::PreVote(body)) => {
            let request: VoteRequest<Simulated> = decode(&body).map_err(text)?;
            check_candidate(life, sender, &request)?;
            answer(&life.raft.pre_vote(request).await.map_err(text)?)
        }
        Incoming::Call(Request::Transfer(body)) => {
            let request: TransferLeaderRequest<Simulated> = decode(&body).map_err(text)?;
            check(sender, request.from_leader())?;
            answer(&life.raft.handle_transfer_leader(request).await.map_err(text)?)
        }
        Incoming::Call(Request::Append(body)) => {
            let request: AppendEntriesRequest<Simulated> = decode(&body).map_err(text)?;
            check(sender, &request.vote)?;
            check_entries(request.prev_log_id, &request.entries)?;
            answer(&life.raft.append_entries(request).await.map_err(text)?)
        }
        Incoming::Call(Request::Announce(address)) => {
            life.changer.announced(sender, &address).await.map_err(text)?;
            answer(&())
        }
        Incoming::Appends(messages, answers) => {
            appends(world, life, sender, messages, &answers).await;
            answer(&())
        }
        Incoming::Snapshot(body, chunks) => {
            let (vote, meta, length): (Vote, SnapshotMeta, u64) = decode(&body).map_err(text)?;
            check(sender, &vote)?;
            let received = life.snapshots.receive(length, stream_of(chunks).map(Ok)).await.map_err(text)?;
            let name = received.name.clone();
            let installed =
                life.raft.install_full_snapshot(vote, Snapshot { meta, snapshot: received }).await;
            life.snapshots.discard(name).await;
            answer(&installed.map_err(text)?)
        }
    }
}

fn check_candidate(life: &Life, sender: VoterId, request: &VoteRequest<Simulated>) -> Result<(), String> {
    check(sender, &request.vote)?;
    let metrics = life.raft.server_metrics();
    let membership = metrics.borrow_watched().membership_config.clone();
    let checked = check_directory(sender, membership.membership().voter_ids());
    checked.map_err(|status| status.message().to_owned())
}

fn stream_of(mut received: mpsc::UnboundedReceiver<Bytes>) -> impl Stream<Item = Bytes> + Unpin + Send {
    stream::poll_fn(move |context| received.poll_recv(context))
}

/// A stream of appends from one leader.
async fn appends(
    world: &World,
    life: &Life,
    sender: VoterId,
    messages: mpsc::UnboundedReceiver<Bytes>,
    answers: &mpsc::UnboundedSender<Result<Bytes, String>>,
) {
    let term = Arc::new(AtomicU64::new(0));
    let term_of_leader = term.clone();
    let requests = stream_of(messages).scan((), move |(), body| {
        let request = decode::<AppendEntriesRequest<Simulated>>(&body).ok();
        let sound = |request: &AppendEntriesRequest<Simulated>| {
            *request.vote.leader_id.node_id() == sender
                && check_entries(request.prev_log_id, &request.entries).is_ok()
        };
        let request = request.filter(sound);
        if let Some(request) = &request {
            term_of_leader.store(request.vote.leader_id.term, Ordering::Relaxed);
        }
        std::future::ready(request)
    });
    let results = life.raft.stream_append(requests);
    let mut results = std::pin::pin!(results);
    while let Some(result) = results.next().await {
        let body = result.map_err(text).and_then(|result| {
            life.heard_ns.store(executor::true_now_ns(), Ordering::Relaxed);
            if let Ok(Some(matched)) = &result {
                world.check_durable(life.voter, position(matched), term.load(Ordering::Relaxed));
            }
            answer(&result)
        });
        if answers.send(body).is_err() {
            return;
        }
    }
}
