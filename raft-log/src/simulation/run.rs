//! One run from a seed: found a quorum, let things happen, heal, look at all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use openraft::impls::BasicNode;

use super::executor::{self, Executor, WORLD};
use super::mutation::Mutation;
use super::node::address;
use super::oracle::{Counts, Oracle, Violation, position};
use super::profile::Profile;
use super::runtime::{Sleep, spawn_as};
use super::world::World;
use super::{faults, workload};

const TICK: Duration = Duration::from_millis(20);
/// By then all must be well again.
const REST_TICKS: u32 = 3_000;
const LAST_WRITES: u32 = 50;

#[derive(Clone, Debug)]
pub struct Run {
    pub seed: u64,
    pub mutation: Option<Mutation>,
    pub trace: bool,
    /// How long faults go on, if not as the seed has it.
    pub faults: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub violation: Option<Violation>,
    pub counts: Counts,
    pub steps: u64,
    pub simulated_ms: u64,
    /// Of everything that happened, in order.
    pub digest: u64,
    pub trace: Vec<String>,
}

impl Run {
    pub fn of(seed: u64) -> Run {
        Run { seed, mutation: None, trace: false, faults: None }
    }

    pub fn go(&self) -> Outcome {
        let executor = Executor::new(self.seed);
        let begun_ns = executor.now_ns();
        let oracle = Oracle::new(self.mutation, self.trace);
        let panic = caught(|| executor.block_on(play(oracle.clone(), self.faults)));
        if let Some(panic) = panic {
            oracle.violate("nothing panics", panic);
        }
        let outcome = Outcome {
            seed: self.seed,
            violation: oracle.violation(),
            counts: oracle.counts(),
            steps: executor.steps(),
            simulated_ms: (executor.now_ns() - begun_ns) / 1_000_000,
            digest: executor.digest(),
            trace: oracle.take_trace(),
        };
        drop(caught(|| executor.clear()));
        outcome
    }
}

async fn play(oracle: Oracle, faults_for: Option<Duration>) {
    let profile = executor::random(Profile::of);
    oracle.trace(|| format!("{profile:?}"));
    let world = World::new(profile, oracle.clone());
    if !found(&world).await {
        return;
    }
    let profile = world.profile().clone();
    for _ in 0..profile.clients {
        drop(spawn_as(WORLD, workload::client(world.clone())));
    }
    drop(spawn_as(WORLD, workload::operator(world.clone())));
    drop(spawn_as(WORLD, faults::run(world.clone())));
    let end_ns = executor::true_now_ns()
        + u64::try_from(faults_for.unwrap_or(profile.duration).as_nanos()).unwrap_or(u64::MAX);
    while executor::true_now_ns() < end_ns {
        if !tick(&world).await {
            return;
        }
    }
    world.heal();
    if !rest(&world, "after the last fault").await {
        return;
    }
    if !last_write(&world).await || !rest(&world, "after the last write").await {
        return;
    }
    let Some(leader) = world.leader() else { return };
    let applied = leader.raft.metrics().borrow_watched().last_applied;
    if let Some(applied) = applied {
        oracle.check_log(position(&applied));
    }
}

/// It comes through, if not at once: a quorum on slow disks may still change its leader.
async fn last_write(world: &World) -> bool {
    for _ in 0..LAST_WRITES {
        if let Some(leader) = world.leader()
            && workload::write(world, &leader).await
        {
            return true;
        }
        if !tick(world).await {
            return false;
        }
    }
    world.oracle.violate("everything comes right", "no write after the last fault is acknowledged");
    false
}

/// False once something is wrong.
async fn tick(world: &World) -> bool {
    Sleep::truly(TICK).await;
    faults::tend(world);
    world.oracle.violation().is_none()
}

async fn rest(world: &World, when: &str) -> bool {
    for _ in 0..REST_TICKS {
        if !tick(world).await {
            return false;
        }
        if workload::unrest(world).is_none() {
            return true;
        }
    }
    let reason = workload::unrest(world).unwrap_or_default();
    world.oracle.violate("everything comes right", format!("{when}: {reason}"));
    false
}

async fn found(world: &World) -> bool {
    let profile = world.profile();
    for node_id in 1..=profile.voters + profile.spares {
        world.format(node_id);
        world.start(node_id);
    }
    while world.lives().len() < world.node_ids().len() {
        if !tick(world).await {
            return false;
        }
    }
    let lives = world.lives();
    let founders = lives.iter().filter(|life| life.voter.node_id <= profile.voters);
    let members: BTreeMap<_, _> =
        founders.map(|life| (life.voter, BasicNode::new(address(life.voter.node_id)))).collect();
    let Some(first) = world.life(1) else { return false };
    let founded = spawn_as(first.owner, async move { first.raft.initialize(members).await });
    if !matches!(founded.await, Ok(Ok(()))) {
        world.oracle.violate("everything comes right", "the quorum was not founded");
        return false;
    }
    world.found();
    true
}

thread_local! {
    /// The last panic on this thread, while a simulation runs there.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static SIMULATES: RefCell<bool> = const { RefCell::new(false) };
}

/// What the work panicked with. A panic is a finding here, and is told with the others.
fn caught(work: impl FnOnce()) -> Option<String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if SIMULATES.with_borrow(|simulates| *simulates) {
                PANIC.replace(Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
    SIMULATES.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    SIMULATES.replace(false);
    result.err().map(|_| PANIC.take().unwrap_or_default())
}
