//! Nodes, their disks, and the links between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use openraft::Config;
use openraft::async_runtime::WatchReceiver as _;
use parking_lot::Mutex;
use uuid::Uuid;

use super::disk::Disk;
use super::executor::{self, Owner};
use super::mutation::Mutation;
use super::network::Fate;
use super::node::{self, Life};
use super::oracle::{Oracle, Position, Voters, name};
use super::profile::Profile;
use super::runtime::spawn_as;
use crate::config::VoterId;
use crate::error::OpenError;
use crate::type_config::Vote;

/// A voter that was not heard of for so many election timeouts does not answer, as in the product.
const SILENCE_TIMEOUTS: u64 = 5;
/// A repeated message comes up to so much later.
const REPEATED_US: u64 = 1_500_000;

/// Clones are the same world.
#[derive(Clone)]
pub struct World {
    pub oracle: Oracle,
    inner: Arc<Inner>,
}

struct Inner {
    profile: Profile,
    nodes: Mutex<BTreeMap<u64, Node>>,
    /// Of all voters that ever were.
    disks: Mutex<BTreeMap<VoterId, Disk>>,
    /// From whom to whom nothing comes through.
    cut: Mutex<BTreeSet<(u64, u64)>>,
    founded: AtomicBool,
    healed: AtomicBool,
    next_owner: AtomicU32,
    next_directory: AtomicU64,
}

struct Node {
    disk: Disk,
    /// Of the life that runs or starts; `None`: it is down.
    owner: Option<Owner>,
    life: Option<Life>,
}

impl World {
    pub fn new(profile: Profile, oracle: Oracle) -> World {
        let inner = Inner {
            profile,
            nodes: Mutex::default(),
            disks: Mutex::default(),
            cut: Mutex::default(),
            founded: AtomicBool::new(false),
            healed: AtomicBool::new(false),
            next_owner: AtomicU32::new(1),
            next_directory: AtomicU64::new(1),
        };
        World { oracle, inner: Arc::new(inner) }
    }

    pub fn profile(&self) -> &Profile {
        &self.inner.profile
    }

    pub fn consensus(&self) -> Result<Config, OpenError> {
        let mut config = self.profile().config().consensus()?;
        if self.oracle.mutation() == Some(Mutation::LeaderRestored) {
            config.enable_leader_restore = Some(true);
        }
        Ok(config)
    }

    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.profile().election_timeout_ms * SILENCE_TIMEOUTS)
    }

    pub fn is_founded(&self) -> bool {
        self.inner.founded.load(Ordering::Relaxed)
    }

    pub fn found(&self) {
        self.inner.founded.store(true, Ordering::Relaxed);
    }

    /// Nothing fails any more.
    pub fn is_healed(&self) -> bool {
        self.inner.healed.load(Ordering::Relaxed)
    }

    // ---- nodes

    /// An empty disk, with an id of its own.
    pub fn format(&self, node_id: u64) {
        let number = self.inner.next_directory.fetch_add(1, Ordering::Relaxed);
        let voter = VoterId { node_id, directory_id: Uuid::from_u64_pair(node_id, number) };
        self.format_as(voter);
    }

    fn format_as(&self, voter: VoterId) {
        let disk = Disk::new(voter, self.oracle.clone(), self.profile().disk_us);
        self.inner.disks.lock().insert(voter, disk.clone());
        self.inner.nodes.lock().insert(voter.node_id, Node { disk, owner: None, life: None });
    }

    pub fn start(&self, node_id: u64) {
        let owner = self.inner.next_owner.fetch_add(1, Ordering::Relaxed);
        let skew = self.profile().skew_thousandths;
        executor::set_clock(owner, executor::random(|random| random.between(1_000 - skew, 1_000 + skew)));
        let disk = {
            let mut nodes = self.inner.nodes.lock();
            let Some(node) = nodes.get_mut(&node_id).filter(|node| node.owner.is_none()) else { return };
            node.owner = Some(owner);
            node.disk.clone()
        };
        self.oracle.trace(|| format!("{} starts", name(disk.voter)));
        let world = self.clone();
        drop(spawn_as(owner, async move {
            match node::open(&world, owner, disk).await {
                Ok(life) => {
                    if let Some(node) = world.inner.nodes.lock().get_mut(&node_id) {
                        node.life = Some(life.clone());
                    }
                    node::announce(world, life).await;
                }
                // As at any other time, a disk that fails ends the process, and somebody starts it again.
                Err(OpenError::Io { .. }) => drop(spawn_as(executor::WORLD, async move {
                    world.crash(node_id);
                    world.start(node_id);
                })),
                Err(error) => world.oracle.violate("a store opens again after a crash", error.to_string()),
            }
        }));
    }

    /// The power of a node is gone.
    pub fn crash(&self, node_id: u64) {
        let (owner, life, disk) = {
            let mut nodes = self.inner.nodes.lock();
            let Some(node) = nodes.get_mut(&node_id) else { return };
            let Some(owner) = node.owner.take() else { return };
            (owner, node.life.take(), node.disk.clone())
        };
        executor::kill(owner);
        drop(life);
        executor::random(|random| disk.crash(random));
        self.oracle.count(|counts| counts.crashes += 1);
        self.oracle.trace(|| format!("{} crashes", name(disk.voter)));
    }

    /// The node loses its disk, and gets an empty one.
    pub fn wipe(&self, node_id: u64) {
        self.crash(node_id);
        let Some(voter) = self.disk(node_id).map(|disk| disk.voter) else { return };
        self.oracle.count(|counts| counts.wiped += 1);
        self.oracle.trace(|| format!("{} is wiped", name(voter)));
        if self.oracle.mutation() == Some(Mutation::WipedVoterKeepsItsId) {
            self.format_as(voter);
        } else {
            self.oracle.voter_gone(voter);
            self.format(node_id);
        }
    }

    /// Whether the quorum survives the loss of this disk for good.
    pub fn may_wipe(&self, node_id: u64) -> bool {
        let Some(voter) = self.disk(node_id).map(|disk| disk.voter) else { return false };
        let lives = self.lives();
        // Who is down may know of another membership.
        lives.len() == self.node_ids().len()
            && lives.iter().all(|life| {
                let (configs, _) = voters_of(life);
                configs.iter().all(|voters| {
                    let gone = voters.iter().filter(|known| **known == voter || self.oracle.is_gone(known));
                    gone.count() * 2 < voters.len()
                })
            })
    }

    pub fn node_ids(&self) -> Vec<u64> {
        self.inner.nodes.lock().keys().copied().collect()
    }

    pub fn disk(&self, node_id: u64) -> Option<Disk> {
        self.inner.nodes.lock().get(&node_id).map(|node| node.disk.clone())
    }

    pub fn life(&self, node_id: u64) -> Option<Life> {
        self.inner.nodes.lock().get(&node_id).and_then(|node| node.life.clone())
    }

    pub fn lives(&self) -> Vec<Life> {
        self.inner.nodes.lock().values().filter_map(|node| node.life.clone()).collect()
    }

    pub fn voters_running(&self) -> Vec<VoterId> {
        self.lives().iter().map(|life| life.voter).collect()
    }

    /// One that leads and says so; there may be more than one that believes it.
    pub fn leader(&self) -> Option<Life> {
        let leaders = self.lives().into_iter().filter(Life::is_leader);
        leaders.max_by_key(|life| life.leadership.borrow().term)
    }

    pub fn set_paused(&self, node_id: u64, paused: bool) {
        let owner = self.inner.nodes.lock().get(&node_id).and_then(|node| node.owner);
        match owner {
            Some(owner) if paused => executor::pause(owner),
            Some(owner) => executor::resume(owner),
            None => {}
        }
    }

    // ---- links

    pub fn fate(&self, from: u64, to: u64) -> Fate {
        let profile = self.profile();
        let healed = self.is_healed();
        let lost = self.inner.cut.lock().contains(&(from, to));
        executor::random(|random| {
            if lost || (!healed && random.chance(profile.lost_thousandths)) {
                return Fate::Lost;
            }
            // Now and then a message takes its time.
            let slow = if !healed && random.chance(10) { 40 } else { 1 };
            Fate::After(Duration::from_micros(random.between(50, profile.delay_us * slow)))
        })
    }

    /// How much later the same message comes a second time, if it does.
    pub fn repeated(&self) -> Option<Duration> {
        let thousandths = if self.is_healed() { 0 } else { self.profile().repeated_thousandths };
        executor::random(|random| {
            random.chance(thousandths).then(|| Duration::from_micros(random.between(100, REPEATED_US)))
        })
    }

    /// Until a broken connection is noticed.
    pub fn until_noticed(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        executor::random(|random| {
            if random.chance(500) {
                Duration::from_micros(random.between(100, 20_000))
            } else {
                Duration::from_micros(random.between(0, most))
            }
        })
    }

    /// Cuts the nodes into those in `side` and the rest; `one_way`: only from the first to the second.
    pub fn cut(&self, side: &BTreeSet<u64>, one_way: bool) {
        let nodes = self.node_ids();
        let mut cut = self.inner.cut.lock();
        cut.clear();
        for from in &nodes {
            for to in &nodes {
                let across = side.contains(from) != side.contains(to);
                if across && (!one_way || side.contains(from)) {
                    cut.insert((*from, *to));
                }
            }
        }
        drop(cut);
        self.oracle.trace(|| format!("{side:?} is cut off{}", if one_way { ", one way" } else { "" }));
    }

    pub fn uncut(&self) {
        self.inner.cut.lock().clear();
    }

    /// All faults end; what is down starts.
    pub fn heal(&self) {
        self.oracle.trace(|| "all is healed".into());
        self.inner.healed.store(true, Ordering::Relaxed);
        self.uncut();
        for node_id in self.node_ids() {
            self.set_paused(node_id, false);
            if let Some(disk) = self.disk(node_id) {
                disk.set_latency_us(self.profile().disk_us);
            }
            self.start(node_id);
        }
    }

    // ---- what must be durable

    pub fn durable_vote(&self, voter: VoterId) -> Option<Vote> {
        self.inner.disks.lock().get(&voter).and_then(Disk::durable_vote)
    }

    /// A candidate has voted for itself.
    pub fn asks_for_votes(&self, candidate: VoterId, vote: &Vote) {
        self.oracle.voted(candidate, vote, self.durable_vote(candidate));
    }

    /// A follower says that it has the entry, to the leader of `term`.
    pub fn check_durable(&self, voter: VoterId, at: Position, term: u64) {
        let disk = self.inner.disks.lock().get(&voter).cloned();
        let Some(disk) = disk else { return };
        // A newer leader may have taken it away again.
        let newer = disk.durable_vote().is_some_and(|vote| vote.leader_id.term > term);
        if !newer && !disk.holds(at) {
            let detail = format!("{} acknowledges {at:?} to the leader of term {term}", name(voter));
            self.oracle.violate("entries are durable before they are acknowledged", detail);
        }
    }

    /// A client was told so by this leader: a majority has it on its disks.
    pub fn check_majority(&self, leader: &Life, at: Position) {
        let (configs, since) = voters_of(leader);
        if since >= Some(at.0) {
            return;
        }
        for voters in configs {
            let holders = {
                let disks = self.inner.disks.lock();
                voters.iter().filter(|voter| disks.get(voter).is_some_and(|disk| disk.holds(at))).count()
            };
            if holders * 2 <= voters.len() {
                let detail = format!("{at:?} is on {holders} of {} disks", voters.len());
                self.oracle.violate("what is acknowledged is on a majority of disks", detail);
            }
        }
    }
}

/// The voters a node goes by, and the index of that membership.
pub fn voters_of(life: &Life) -> (Voters, Option<u64>) {
    let metrics = life.raft.server_metrics();
    let metrics = metrics.borrow_watched();
    let index = metrics.membership_config.log_id().as_ref().map(|log_id| log_id.index);
    (metrics.membership_config.membership().get_joint_config().clone(), index)
}
