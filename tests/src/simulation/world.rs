//! Everything there is in a run: clusters, what is on its way, and who watches.

use std::sync::Arc;

use common::ids::*;
use common::metadata::{MetadataDelta, MetadataImage};
use controller::control::ControlSettings;

use super::client::Producer;
use super::coordinator::Coordinator;
use super::drill::Drill;
use super::event::{Event, Node, Timer};
use super::mutation::Mutation;
use super::node::Broker;
use super::oracle::Truth;
use super::profile::Profile;
use super::queue::Queue;
use super::quorum::Active;
use super::random::Random;

pub const TOPIC: &str = "t";

pub fn topic_id() -> TopicId {
    TopicId(uuid::Uuid::from_u128(0x7001))
}

pub fn partition_id(partition: usize) -> TopicIdPartition {
    TopicIdPartition::new(topic_id(), partition as i32)
}

pub fn cluster_name(cluster: usize) -> String {
    format!("cluster-{}", (b'A' + cluster as u8) as char)
}

/// The name of the mirror that copies from a cluster.
pub fn mirror_name(source: usize) -> String {
    format!("from-{}", (b'A' + source as u8) as char)
}

/// One committed batch: the image after it, and what it touched.
pub struct Committed {
    pub image: Arc<MetadataImage>,
    pub delta: Arc<MetadataDelta>,
    pub at_ms: i64,
}

pub struct Cluster {
    pub settings: ControlSettings,
    /// Index is the metadata offset.
    pub history: Vec<Committed>,
    pub active: Option<Active>,
    /// Where a controller stands that has not noticed yet that it was deposed.
    pub deposed: Option<usize>,
    pub term: u64,
    pub activations: u64,
    /// Entries of a lost leader that turn up after those of the next one.
    pub strays: Vec<common::metadata::MetadataBatch>,
    /// The leadership is lost with the next entry that is appended.
    pub falls_when_busy: bool,
    pub brokers: Vec<Broker>,
    pub coordinator: Coordinator,
    pub producers: Vec<Producer>,
    pub truths: Vec<Truth>,
    /// Names of the mirrors, by source.
    pub mirrors: Vec<Arc<str>>,
}

impl Cluster {
    pub fn image(&self) -> &Arc<MetadataImage> {
        &self.history[self.history.len() - 1].image
    }

    pub fn offset(&self) -> i64 {
        self.history.len() as i64 - 1
    }

    /// When the record that began an association was committed.
    pub fn associated_ms(&self, association: Association) -> i64 {
        self.history.get(association.0 as usize).map_or(0, |committed| committed.at_ms)
    }
}

/// What must never happen has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, as in the fault list or the decisions.
    pub rule: &'static str,
    pub detail: String,
}

pub struct World {
    pub random: Random,
    pub now_ms: i64,
    pub queue: Queue,
    pub steps: u64,
    pub profile: Profile,
    pub clusters: Vec<Cluster>,
    pub violation: Option<Violation>,
    pub mutation: Option<Mutation>,
    /// No more faults: everything has to come right.
    pub healing: bool,
    /// Links that are down, from and to.
    pub broken_links: Vec<(Node, Node)>,
    pub broken_controller_links: Vec<Node>,
    /// Clusters that cannot reach each other.
    pub broken_wan: Vec<(usize, usize)>,
    pub next_number: u64,
    pub next_value: u64,
    pub trace: Option<Vec<String>>,
    pub drill: Drill,
}

impl World {
    pub fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub fn trace(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.trace {
            lines.push(format!("{:>8} {}", self.now_ms, line()));
        }
    }

    pub fn violate(&mut self, rule: &'static str, detail: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let detail = detail();
            self.trace(|| format!("VIOLATION {rule}: {detail}"));
            self.violation = Some(Violation { rule, detail });
        }
    }

    pub fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub fn after(&mut self, delay_ms: i64, timer: Timer) {
        self.queue.push(self.now_ms + delay_ms.max(0), Event::Timer(timer));
    }

    pub fn broker(&self, node: Node) -> &Broker {
        &self.clusters[node.cluster].brokers[node.broker]
    }

    pub fn broker_mut(&mut self, node: Node) -> &mut Broker {
        &mut self.clusters[node.cluster].brokers[node.broker]
    }

    /// Whether this process of the node still runs.
    pub fn runs(&self, node: Node, process: u32) -> bool {
        let broker = self.broker(node);
        broker.up && broker.process == process
    }

    /// The node's own clock.
    pub fn clock_ms(&self, node: Node) -> i64 {
        self.now_ms + self.broker(node).skew_ms
    }

    pub fn all_nodes(&self) -> Vec<Node> {
        let clusters = self.clusters.iter().enumerate();
        clusters
            .flat_map(|(cluster, it)| (0..it.brokers.len()).map(move |broker| Node { cluster, broker }))
            .collect()
    }

    /// One event. False: nothing is going to happen any more.
    pub fn step(&mut self) -> bool {
        let Some((at_ms, event)) = self.queue.pop() else { return false };
        self.now_ms = self.now_ms.max(at_ms);
        if let Some(node) = event.node()
            && self.broker(node).paused_until_ms > self.now_ms
        {
            // The process stands still; what reaches it waits in its sockets.
            self.queue.push(self.broker(node).paused_until_ms, event);
            return true;
        }
        self.steps += 1;
        self.handle(event);
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request { from, process, request } => self.controller_request(from, process, *request),
            Event::Response { to, process, response } => {
                if self.runs(to, process) {
                    self.controller_response(to, *response);
                }
            }
            Event::Metadata { to, process, offset } => {
                if self.runs(to, process) {
                    self.metadata_arrived(to, offset);
                }
            }
            Event::Fetch { to, process, fetch } => {
                if self.runs(to, process) {
                    self.fetch_arrived(to, fetch);
                }
            }
            Event::FetchAnswer { to, process, answer } => {
                if self.runs(to, process) {
                    self.fetch_answered(to, *answer);
                }
            }
            Event::MirrorFetch { to, process, fetch } => {
                if self.runs(to, process) {
                    self.mirror_fetch_arrived(to, fetch);
                }
            }
            Event::MirrorFetched { to, process, answer } => {
                if self.runs(to, process) {
                    self.mirror_fetched(to, *answer);
                }
            }
            Event::Produce { to, process, produce } => {
                if self.runs(to, process) {
                    self.produce_arrived(to, produce);
                }
            }
            Event::Produced { cluster, producer, number, result } => {
                self.produced(cluster, producer, number, result);
            }
            Event::Ask { ask } => self.ask_arrived(*ask),
            Event::Mirror { to, process, partition, event } => {
                if self.runs(to, process) {
                    self.mirror_event(to, partition, *event);
                }
            }
            Event::ReadState { from, process, partition, token, mirror } => {
                self.read_state(from, process, partition, token, mirror);
            }
            Event::WriteState { from, process, partition, token, write } => {
                self.write_state(from, process, partition, token, &write);
            }
            Event::Timer(timer) => self.timer(timer),
        }
    }

    fn timer(&mut self, timer: Timer) {
        match timer {
            Timer::Start(node) => self.start_broker(node),
            Timer::Heartbeat { node, process } if self.runs(node, process) => self.heartbeat(node),
            Timer::Tick { node, process } if self.runs(node, process) => self.tick(node),
            Timer::Checkpoint { node, process } if self.runs(node, process) => self.checkpoint(node),
            Timer::Park { node, process, partition } if self.runs(node, process) => {
                self.answer_parked(node, partition);
            }
            Timer::FetchAgain { node, process, partition, number } if self.runs(node, process) => {
                self.fetch_again(node, partition, number);
            }
            Timer::MirrorMetadata { node, process } if self.runs(node, process) => {
                self.take_mirror_metadata(node);
            }
            Timer::MirrorWake { node, process, partition } if self.runs(node, process) => {
                self.mirror_wake(node, partition);
            }
            Timer::MirrorFetchAgain { node, process, partition, number } if self.runs(node, process) => {
                self.mirror_fetch_again(node, partition, number);
            }
            Timer::AskExpired { node, process, partition, number } if self.runs(node, process) => {
                self.ask_expired(node, partition, number);
            }
            Timer::ProposalsExpired { node, process, number } if self.runs(node, process) => {
                self.proposals_expired(node, number);
            }
            Timer::Commit { cluster, activation } => self.commit_next(cluster, activation),
            Timer::Activate { cluster } => self.activate(cluster),
            Timer::ControllerTick { cluster, activation } => self.controller_tick(cluster, activation),
            Timer::Client { cluster, producer } => self.client_tick(cluster, producer),
            Timer::Fault => self.fault(),
            Timer::Operator => self.operate(),
            Timer::Drill { until_ms } => self.drill_on(until_ms),
            _ => {}
        }
    }
}
