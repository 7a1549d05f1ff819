//! A voter as it runs: the product's store, state machine, snapshots and rules of membership around openraft,
//! put together as `RaftLog::open` does, on the simulated disk, network and runtime.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::{AsyncRuntime as _, WatchReceiver as _};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::disk::Disk;
use super::executor::{self, Owner};
use super::handler::{Incoming, Request};
use super::machine::Machine;
use super::mutation::tamper;
use super::network::{self, Factory};
use super::runtime::{SimulatedRuntime, Sleep};
use super::world::World;
use super::{Simulated, SimulatedRaft};
use crate::config::{Identity, VoterId};
use crate::error::OpenError;
use crate::gate::Gate;
use crate::leadership::{self, Leadership};
use crate::membership::Changer;
use crate::raft_log::elect_if_alone;
use crate::snapshot::Snapshots;
use crate::state_machine::StateMachine;
use crate::store::Store;
use crate::store::open::{check_identity, open_on};
use crate::store::writer::{Job, Writer};

const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(250);

/// From a start to the crash that ends it.
#[derive(Clone)]
pub struct Life {
    pub owner: Owner,
    pub voter: VoterId,
    pub raft: SimulatedRaft,
    pub store: Store,
    pub snapshots: Snapshots,
    pub changer: Changer<Simulated>,
    pub machine: Arc<Machine>,
    pub leadership: watch::Receiver<Leadership>,
    /// True time at which a leader was last heard of.
    pub heard_ns: Arc<AtomicU64>,
}

impl Life {
    pub fn is_leader(&self) -> bool {
        let now = *self.leadership.borrow();
        now.is_leader && now.ready
    }
}

/// Starts on what the disk holds.
pub async fn open(world: &World, owner: Owner, disk: Disk) -> Result<Life, OpenError> {
    let voter = disk.voter;
    let path = PathBuf::from(format!("node-{}", voter.node_id));
    let identity = Identity { cluster_id: "simulated".into(), voter };
    let damaged =
        |error: std::io::Error| OpenError::Damaged { path: path.clone(), reason: error.to_string() };
    check_identity(&path, &disk, &identity, disk.is_used())?;
    let (store, writer, jobs) = open_on(&path, Arc::new(disk.clone()))?;
    drop(SimulatedRuntime::spawn(write(writer, jobs, disk.clone(), world.clone())));
    let snapshots = Snapshots::open_in(Arc::new(disk), store.clone()).map_err(damaged)?;
    let covered = snapshots.current().and_then(|(meta, _)| meta.last_log_id);
    store.check_complete(covered).map_err(damaged)?;

    let machine = Arc::new(Machine {
        voter,
        oracle: world.oracle.clone(),
        store: store.clone(),
        state: Arc::default(),
        led: Mutex::new(0),
    });
    let gate = Gate::new(machine.clone());
    let (applied_sender, applied) = watch::channel(None);
    let state_machine = StateMachine::new(gate.clone(), snapshots.clone(), applied_sender);
    let factory = Factory { world: world.clone(), me: voter };
    let config = Arc::new(world.consensus()?);
    let raft = SimulatedRaft::new(voter, config, factory, store.clone(), state_machine)
        .await
        .map_err(|error| OpenError::Consensus(error.to_string()))?;
    let (leadership_sender, leadership) = watch::channel(Leadership::default());
    let following = leadership::follow(raft.clone(), applied, leadership_sender, gate, |_, _| {});
    drop(SimulatedRuntime::spawn(following));
    if store.has_log() {
        elect_if_alone(&raft, voter).await;
    }
    let changer = Changer::new(raft.clone(), voter, world.silence());
    drop(SimulatedRuntime::spawn(changer.clone().tend()));
    let heard_ns = Arc::default();
    Ok(Life { owner, voter, raft, store, snapshots, changer, machine, leadership, heard_ns })
}

/// The writer's thread as a task.
async fn write(mut writer: Writer, mut jobs: mpsc::UnboundedReceiver<Job>, disk: Disk, world: World) {
    let mutation = world.oracle.mutation();
    let mut held = None;
    let mut waiting = VecDeque::new();
    while let Some(job) = jobs.recv().await {
        waiting.extend(tamper(mutation, job, &mut held));
        while let Ok(job) = jobs.try_recv() {
            waiting.extend(tamper(mutation, job, &mut held));
        }
        while let Some(job) = waiting.pop_front() {
            let written = writer.write_all(job, || waiting.pop_front());
            Sleep::truly(disk.latency()).await;
            writer.settle(written);
        }
    }
}

/// Tells the others of itself, as long as the membership lacks it or no leader is there.
pub async fn announce(world: World, life: Life) {
    let address = address(life.voter.node_id);
    loop {
        SimulatedRuntime::sleep(ANNOUNCE_INTERVAL).await;
        let needed = {
            let metrics = life.raft.server_metrics();
            let metrics = metrics.borrow_watched();
            let known = metrics.membership_config.get_node(&life.voter).is_some();
            let silent_ns = executor::true_now_ns() - life.heard_ns.load(Ordering::Relaxed);
            let silent = u128::from(silent_ns) > world.silence().as_nanos();
            (!known || silent) && metrics.state != ServerState::Leader && world.is_founded()
        };
        if !needed {
            continue;
        }
        for other in world.voters_running() {
            if other.node_id != life.voter.node_id {
                let request = Request::Announce(address.clone());
                let announced = network::call(&world, life.voter, other, Incoming::Call(request));
                let announced = SimulatedRuntime::timeout(Duration::from_secs(1), announced).await;
                drop(announced);
            }
        }
    }
}

pub fn address(node_id: u64) -> String {
    format!("node-{node_id}:1")
}
