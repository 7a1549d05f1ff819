//! What befalls nodes, disks and links.

use std::collections::BTreeSet;
use std::time::Duration;

use super::executor::{self, WORLD};
use super::mutation::Mutation;
use super::oracle::name;
use super::runtime::{Sleep, spawn_as};
use super::world::World;

const SLOW_DISK_US: u64 = 400_000;

fn draw(low: u64, high: u64) -> u64 {
    executor::random(|random| random.between(low, high))
}

fn later(work: impl Future<Output = ()> + Send + 'static) {
    drop(spawn_as(WORLD, work));
}

/// Faults until the world is healed.
pub async fn run(world: World) {
    loop {
        let pause = world.profile().fault_ms;
        Sleep::truly(Duration::from_millis(draw(pause / 2, pause * 3 / 2))).await;
        if world.is_healed() {
            return;
        }
        let nodes = world.node_ids();
        let Some(node) = executor::random(|random| random.pick(&nodes)) else { return };
        let leader = world.leader().map(|leader| leader.voter.node_id);
        // Whoever leads has the most to lose.
        let node = if draw(0, 2) == 0 { leader.unwrap_or(node) } else { node };
        match draw(0, 20) {
            0..=5 => crash(&world, node, draw(10, 2_500)),
            6 => {
                for node in nodes {
                    crash(&world, node, draw(10, 1_000));
                }
            }
            7..=10 => {
                let side = match draw(0, 2) {
                    0 => BTreeSet::from([node]),
                    _ => nodes.into_iter().filter(|_| draw(0, 1) == 0).collect(),
                };
                world.cut(&side, draw(0, 3) == 0);
                let (world, pause) = (world.clone(), Duration::from_millis(draw(50, 3_000)));
                later(async move {
                    Sleep::truly(pause).await;
                    world.uncut();
                });
            }
            11 | 12 => {
                let pause = Duration::from_millis(draw(20, 2_000));
                world.oracle.trace(|| format!("{node} stands still for {pause:?}"));
                world.set_paused(node, true);
                let world = world.clone();
                later(async move {
                    Sleep::truly(pause).await;
                    world.set_paused(node, false);
                });
            }
            13 | 14 => {
                if let Some(disk) = world.disk(node) {
                    world.oracle.trace(|| format!("the disk of {node} is slow"));
                    disk.set_latency_us(draw(10_000, SLOW_DISK_US));
                    let (usual, pause) = (world.profile().disk_us, Duration::from_millis(draw(200, 4_000)));
                    later(async move {
                        Sleep::truly(pause).await;
                        disk.set_latency_us(usual);
                    });
                }
            }
            // Under a node that is down it would be noticed at the start, which no crash has to do with.
            15 if world.life(node).is_some() => {
                if let Some(disk) = world.disk(node) {
                    world.oracle.trace(|| format!("the disk of {node} fails once"));
                    disk.break_once();
                }
            }
            16 => {
                if let Some(life) = world.life(node) {
                    later(async move { drop(life.raft.trigger().snapshot().await) });
                }
            }
            17 | 18 => {
                if world.may_wipe(node) {
                    world.wipe(node);
                    restart(&world, node, draw(10, 1_500));
                }
            }
            15 => {}
            _ => transfer(&world, node),
        }
    }
}

fn crash(world: &World, node: u64, down_ms: u64) {
    world.crash(node);
    restart(world, node, down_ms);
}

fn restart(world: &World, node: u64, down_ms: u64) {
    let world = world.clone();
    later(async move {
        Sleep::truly(Duration::from_millis(down_ms)).await;
        world.start(node);
    });
}

fn transfer(world: &World, node: u64) {
    let Some(leader) = world.leader() else { return };
    let Some(target) = leader.raft.voter_ids().find(|voter| voter.node_id == node) else { return };
    world.oracle.count(|counts| counts.transfers += 1);
    world.oracle.trace(|| format!("leadership goes to {}", name(target)));
    let unchecked = world.oracle.mutation() == Some(Mutation::HandedToItself);
    later(async move {
        if unchecked {
            drop(leader.raft.trigger().transfer_leader(target).await);
        } else {
            drop(leader.changer.begin_hand_over(target).await);
        }
    });
}

/// A node whose disk has failed ends, as the product does, and starts anew. For anything else there is no
/// reason to end.
pub fn tend(world: &World) {
    for life in world.lives() {
        if life.store.failure().borrow().is_some() {
            crash(world, life.voter.node_id, draw(10, 500));
            continue;
        }
        let fatal = {
            use openraft::async_runtime::WatchReceiver as _;
            life.raft.metrics().borrow_watched().running_state.clone().err()
        };
        if let Some(fatal) = fatal {
            world.oracle.violate("a voter goes on", format!("{}: {fatal}", name(life.voter)));
        }
    }
}
