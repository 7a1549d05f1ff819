//! One run from a seed: set up, let things happen, heal, look at all.

use std::sync::Arc;

use common::metadata::{MetadataDelta, MetadataImage, MetadataRecord};
use controller::control::ControlSettings;

use super::coordinator::Coordinator;
use super::drill::Drill;
use super::event::{Node, Timer};
use super::mutation::Mutation;
use super::node::Broker;
use super::oracle::Truth;
use super::profile::Profile;
use super::queue::Queue;
use super::quorum::Reply;
use super::random::Random;
use super::world::{Cluster, Committed, TOPIC, Violation, World, cluster_name, mirror_name};

/// How often everything is compared with everything.
const WHOLE_CHECK_STEPS: u64 = 200;

#[derive(Clone, Debug)]
pub struct Run {
    pub seed: u64,
    /// Events before the world heals.
    pub steps: u64,
    pub mutation: Option<Mutation>,
    pub trace: bool,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub steps: u64,
    pub simulated_ms: i64,
    pub violation: Option<Violation>,
    pub trace: Vec<String>,
}

impl Run {
    pub fn of(seed: u64, steps: u64) -> Run {
        Run { seed, steps, mutation: None, trace: false }
    }

    pub fn go(&self) -> Outcome {
        let mut random = Random::new(self.seed);
        let profile = Profile::of(&mut random);
        let mut world = World::new(profile, random);
        world.mutation = self.mutation;
        world.trace = self.trace.then(Vec::new);
        let line = format!("{:?}", world.profile);
        world.trace(|| line);
        world.set_up();
        let begun = world.steps;
        world.begin();
        while world.violation.is_none() && world.steps - begun < self.steps {
            if !world.step() {
                break;
            }
            if world.steps.is_multiple_of(WHOLE_CHECK_STEPS) {
                world.check_all();
            }
        }
        if world.violation.is_none() {
            world.check_all();
            world.heal();
            if self.seed.is_multiple_of(2) {
                world.exercise_mirrors();
            }
            world.check_all();
        }
        Outcome {
            seed: self.seed,
            steps: world.steps,
            simulated_ms: world.now_ms,
            violation: world.violation,
            trace: world.trace.unwrap_or_default(),
        }
    }
}

impl World {
    pub fn new(profile: Profile, random: Random) -> World {
        let clusters = (0..profile.clusters).map(|cluster| cluster_of(&profile, cluster)).collect();
        World {
            random,
            now_ms: 0,
            queue: Queue::default(),
            steps: 0,
            profile,
            clusters,
            violation: None,
            mutation: None,
            healing: true,
            broken_links: Vec::new(),
            broken_controller_links: Vec::new(),
            broken_wan: Vec::new(),
            next_number: 0,
            next_value: 0,
            trace: None,
            drill: Drill::NotYet,
        }
    }

    /// Clusters that run, each with the topic and a mirror of every other one. Nothing fails yet.
    pub fn set_up(&mut self) {
        for cluster in 0..self.clusters.len() {
            self.activate(cluster);
            for broker in 0..self.profile.brokers {
                self.start_broker(Node { cluster, broker });
            }
        }
        self.settle("brokers register", |world| {
            let unready = world.clusters.iter().position(|cluster| {
                let active = cluster.image().brokers.values().filter(|broker| broker.is_active()).count();
                active < cluster.brokers.len()
            });
            unready.map_or(Ok(()), |cluster| Err(cluster_name(cluster)))
        });
        for cluster in 0..self.clusters.len() {
            self.create_topic(cluster);
            for source in (0..self.clusters.len()).filter(|source| *source != cluster) {
                let name: Arc<str> = mirror_name(source).into();
                let mut records = vec![MetadataRecord::Mirror { name: name.clone() }];
                if self.random.chance(800) {
                    let source_cluster_id = cluster_name(source);
                    records.push(MetadataRecord::MirrorSource { name, source_cluster_id });
                }
                self.run_operation(cluster, records, None, Reply::Nothing);
            }
        }
        self.settle("topics are created", |world| {
            let unready = world.clusters.iter().position(|cluster| cluster.image().topic(TOPIC).is_none());
            unready.map_or(Ok(()), |cluster| Err(cluster_name(cluster)))
        });
        self.healing = false;
    }

    /// Clients, operators and faults.
    fn begin(&mut self) {
        for cluster in 0..self.clusters.len() {
            for transactional in [false, true, true] {
                if transactional && !self.profile.transactions {
                    continue;
                }
                let producer = self.new_producer(cluster, transactional);
                self.clusters[cluster].producers.push(producer);
                let producer = self.clusters[cluster].producers.len() - 1;
                self.after(1, Timer::Client { cluster, producer });
            }
        }
        self.after(self.profile.fault_ms, Timer::Fault);
        self.after(50, Timer::Operator);
        self.begin_drill();
    }
}

fn cluster_of(profile: &Profile, cluster: usize) -> Cluster {
    let settings = ControlSettings {
        cluster_id: cluster_name(cluster),
        min_insync_replicas: profile.min_insync_replicas,
        unclean_leader_election_enable: profile.unclean_elections,
        session_timeout_ms: 3_000,
        // Its records are kept by the modelled coordinator.
        mirror_state_replication_factor: 100,
        ..ControlSettings::default()
    };
    let empty = Committed {
        image: Arc::new(MetadataImage::default()),
        delta: Arc::new(MetadataDelta::default()),
        at_ms: 0,
    };
    Cluster {
        settings,
        history: vec![empty],
        active: None,
        deposed: None,
        term: 0,
        activations: 0,
        strays: Vec::new(),
        falls_when_busy: false,
        brokers: (0..profile.brokers).map(|_| Broker::new(profile.partitions)).collect(),
        coordinator: Coordinator::default(),
        producers: Vec::new(),
        truths: (0..profile.partitions).map(|_| Truth::default()).collect(),
        mirrors: (0..profile.clusters).map(|source| mirror_name(source).into()).collect(),
    }
}
