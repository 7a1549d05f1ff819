//! Clients that write and read, and an operator that changes the voters.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use openraft::ReadPolicy;
use openraft::async_runtime::{AsyncRuntime as _, WatchReceiver as _};
use openraft::impls::ProgressResponder;

use super::executor::{self, WORLD};
use super::node::{Life, address};
use super::oracle::name;
use super::runtime::{SimulatedRuntime, Sleep, spawn_as};
use super::world::{World, voters_of};
use crate::config::VoterId;
use crate::error::MembershipError;
use crate::store::crc;
use crate::type_config::Payload;

const PATIENCE: Duration = Duration::from_secs(5);
const OPERATOR_PATIENCE: Duration = Duration::from_secs(4);

fn draw(low: u64, high: u64) -> u64 {
    executor::random(|random| random.between(low, high))
}

pub async fn client(world: World) {
    while !world.is_healed() {
        Sleep::truly(Duration::from_micros(draw(200, 60_000))).await;
        let lives = world.lives();
        let any = lives.get(executor::random(|random| random.below(lives.len()))).cloned();
        let leader = if draw(0, 9) == 0 { any } else { world.leader().or(any) };
        let Some(leader) = leader else { continue };
        if draw(0, 6) == 0 {
            read(&world, &leader).await;
            continue;
        }
        for _ in 0..draw(1, 4) {
            let (world, leader) = (world.clone(), leader.clone());
            drop(spawn_as(WORLD, async move { write(&world, &leader).await }));
        }
    }
}

/// Whether it was acknowledged. Otherwise it may or may not be in the log.
pub async fn write(world: &World, leader: &Life) -> bool {
    let payload: Vec<u8> = executor::random(|random| {
        let unique = random.number().to_be_bytes();
        let length = 8 + random.below(40);
        unique.into_iter().cycle().take(length).collect()
    });
    let crc = crc(&[&payload]);
    let term = leader.leadership.borrow().term;
    let (responder, answer) = ProgressResponder::complete_only();
    let request = leader.raft.write(Payload(Bytes::from(payload))).with_leader(term).responder(responder);
    if request.await.is_err() {
        return false;
    }
    let answer = SimulatedRuntime::timeout(PATIENCE, answer).await;
    let Ok(Ok(Ok(response))) = answer else { return false };
    let at = (response.log_id.index(), **response.log_id.committed_leader_id());
    if at.1 != term {
        world
            .oracle
            .violate("a payload is written in the term it was meant for", format!("{at:?}, not {term}"));
    }
    world.oracle.acknowledged(at, crc);
    world.check_majority(leader, at);
    true
}

async fn read(world: &World, leader: &Life) {
    let before = world.oracle.newest_acknowledged();
    let read = leader.raft.ensure_linearizable(ReadPolicy::ReadIndex);
    let Ok(Ok(read)) = SimulatedRuntime::timeout(PATIENCE, read).await else { return };
    world.oracle.count(|counts| counts.reads += 1);
    let index = read.log_id().index();
    if before.is_some_and(|before| before > index) {
        let detail = format!("{} reads at {index} after {before:?} was acknowledged", name(leader.voter));
        world.oracle.violate("a read sees what was acknowledged", detail);
    }
}

/// Replaces voters that are gone, and now and then adds, removes and moves others.
pub async fn operator(world: World) {
    loop {
        let pause = if world.is_healed() { 300 } else { world.profile().operator_ms };
        Sleep::truly(Duration::from_millis(draw(pause / 2, pause * 3 / 2))).await;
        let Some(leader) = world.leader() else { continue };
        let (configs, _) = voters_of(&leader);
        let Some(voters) = configs.last().cloned() else { continue };
        let gone = voters.iter().find(|voter| world.oracle.is_gone(voter)).copied();
        let running = world.voters_running();
        let change = match gone {
            Some(gone) => running.into_iter().find(|voter| voter.node_id == gone.node_id).map(Change::Add),
            None if world.is_healed() => None,
            None => {
                let spare = running.into_iter().find(|voter| !voters.contains(voter));
                let any = voters.iter().nth(executor::random(|random| random.below(voters.len()))).copied();
                match draw(0, 5) {
                    0 | 1 => spare.map(Change::Add),
                    2 | 3 if voters.len() > 1 => any.map(Change::Remove),
                    4 => any.map(Change::Move),
                    _ => None,
                }
            }
        };
        if let Some(change) = change {
            let owner = leader.owner;
            let task_world = world.clone();
            let changed = spawn_as(owner, async move { change.run(&leader, &task_world).await });
            let outcome = changed.await;
            world.oracle.trace(|| format!("{change}: {outcome:?}"));
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Add(VoterId),
    Remove(VoterId),
    Move(VoterId),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Add(voter) => write!(f, "add {}", name(*voter)),
            Change::Remove(voter) => write!(f, "remove {}", name(*voter)),
            Change::Move(voter) => write!(f, "move {}", name(*voter)),
        }
    }
}

impl Change {
    async fn run(self, leader: &Life, world: &World) -> Result<(), MembershipError> {
        world.oracle.trace(|| format!("{} is asked: {self}", name(leader.voter)));
        let changer = &leader.changer;
        match self {
            Change::Add(voter) => changer.add_voter(voter, OPERATOR_PATIENCE).await,
            Change::Remove(voter) => changer.remove_voter(voter, OPERATOR_PATIENCE).await,
            Change::Move(voter) => {
                let moved = format!("{}{}", address(voter.node_id), draw(0, 9));
                changer.update_address(voter, &moved, OPERATOR_PATIENCE).await
            }
        }
    }
}

/// Why the world has not come to rest, if it has not.
pub fn unrest(world: &World) -> Option<String> {
    let nodes = world.node_ids();
    let lives = world.lives();
    if lives.len() < nodes.len() {
        return Some("not all nodes run".into());
    }
    let Some(leader) = world.leader() else { return Some("nobody leads".into()) };
    let (configs, _) = voters_of(&leader);
    if configs.len() > 1 {
        return Some("a change of the voters is not finished".into());
    }
    let voters = configs.into_iter().next().unwrap_or_default();
    if let Some(gone) = voters.iter().find(|voter| world.oracle.is_gone(voter)) {
        return Some(format!("{} is still a voter", name(*gone)));
    }
    let state_of = |life: &Life| {
        let metrics = life.raft.metrics();
        let metrics = metrics.borrow_watched();
        (metrics.last_applied, *life.machine.state.lock(), metrics.last_log_index)
    };
    let (applied, state, last) = state_of(&leader);
    if applied.map(|log_id| log_id.index) != last {
        return Some(format!("{} has not applied all its log", name(leader.voter)));
    }
    for life in &lives {
        let (applied_there, state_there, _) = state_of(life);
        if (applied_there, state_there) != (applied, state) {
            return Some(format!("{} is at {applied_there:?}, the leader at {applied:?}", name(life.voter)));
        }
    }
    None
}
