//! The controllers of a cluster, as far as brokers can tell: one active writer with the product's draft
//! and pending replies, a log that commits its entries in order, or loses the tail with the leadership.

use std::collections::VecDeque;
use std::sync::Arc;

use broker::mirror::state::Token;
use broker::replica::manager::IsrAnswer;
use common::ids::*;
use common::metadata::{MetadataBatch, MetadataDelta, MetadataRecord};
use controller::control::activation;
use controller::control::broker::fence;
use controller::control::heartbeat::Heartbeats;
use controller::control::placement::PlacementSeed;
use controller::control::topic::Randomness;
use controller::quorum::pending::Pending;
use controller::quorum::state::Draft;

use super::event::{Event, Node, Response, Timer};
use super::mutation::Mutation;
use super::network::Path;
use super::random::Random;
use super::world::{Committed, World, cluster_name};

/// The active controller.
pub struct Active {
    pub draft: Draft,
    pub heartbeats: Heartbeats,
    pending: Pending<Waiting>,
    entries: VecDeque<MetadataBatch>,
    activation: u64,
}

/// A reply that waits for its entry.
#[derive(Clone)]
struct Waiting {
    to: Option<(Node, u32)>,
    reply: Reply,
    offset: MetadataOffset,
}

/// What is answered once the entry is committed.
#[derive(Clone, Debug)]
pub enum Reply {
    Nothing,
    Registered(BrokerEpoch),
    Heartbeat { should_shut_down: bool },
    AlterPartition { number: u64, answers: Vec<IsrAnswer> },
    Proposed { partition: usize, token: Option<Token> },
}

impl Randomness for Random {
    fn topic_id(&mut self) -> TopicId {
        TopicId(uuid::Uuid::from_u64_pair(self.number(), self.number()))
    }

    fn placement(&mut self) -> PlacementSeed {
        PlacementSeed { start: self.number() as u32, shift: self.number() as u32 }
    }
}

pub fn directory_of(node: Node) -> DirectoryId {
    DirectoryId(uuid::Uuid::from_u128(0xd000 + 16 * node.cluster as u128 + node.broker as u128))
}

impl World {
    pub fn activate(&mut self, cluster: usize) {
        let it = &mut self.clusters[cluster];
        if it.active.is_some() {
            return;
        }
        it.term += 1;
        it.activations += 1;
        it.deposed = None;
        let (term, activation) = (it.term, it.activations);
        let image = it.image().clone();
        let mut heartbeats = Heartbeats::new(it.settings.session_timeout_ms);
        heartbeats.restart(&image, self.now_ms as u64);
        it.active = Some(Active {
            draft: Draft::new(Term(term), (*image).clone()),
            heartbeats,
            pending: Pending::default(),
            entries: VecDeque::new(),
            activation,
        });
        self.trace(|| format!("{} controller active in term {term}", cluster_name(cluster)));
        let mut random = self.random.clone();
        let records = activation::activate(&image, &self.clusters[cluster].settings, &mut random);
        self.random = random;
        self.run_operation(cluster, records, None, Reply::Nothing);
        self.after(300, Timer::ControllerTick { cluster, activation });
    }

    /// The leadership of the log is lost: a prefix of what was in flight survives.
    pub fn lose_leadership(&mut self, cluster: usize) {
        let Some(mut active) = self.clusters[cluster].active.take() else { return };
        let survive = self.random.below(active.entries.len() + 1);
        self.trace(|| {
            let lost = active.entries.len() - survive;
            format!("{} controller deposed, {lost} entries lost", cluster_name(cluster))
        });
        self.clusters[cluster].deposed = Some(self.clusters[cluster].history.len() - 1);
        for _ in 0..survive {
            if let Some(batch) = active.entries.pop_front() {
                self.commit(cluster, &batch);
            }
        }
        if let Some(stray) = active.entries.pop_front().filter(|_| self.random.chance(500)) {
            self.clusters[cluster].strays.push(stray);
        }
        // What waited for them gets no answer: to the one who asked the outcome is not known.
        let delay = self.random.between(30, 900);
        self.after(delay, Timer::Activate { cluster });
    }

    /// Runs records on the draft, as the single writer does; the reply goes out with the commit.
    pub fn run_operation(
        &mut self,
        cluster: usize,
        records: Vec<MetadataRecord>,
        to: Option<(Node, u32)>,
        reply: Reply,
    ) -> Option<MetadataOffset> {
        let now_ms = self.now_ms;
        let delay = self.random.between(2, 12);
        let records = self.mutated_records(records);
        let active = self.clusters[cluster].active.as_mut()?;
        let mut waiting = Waiting { to, reply, offset: active.draft.offset() };
        if records.is_empty() {
            let offset = waiting.offset;
            if let Some(waiting) = active.pending.wait_for_newest(waiting) {
                self.reply(cluster, waiting);
            }
            return Some(offset);
        }
        let batch = active.draft.batch(records, now_ms);
        if let Err(error) = active.draft.replay(&batch) {
            self.violate("records of control fit the image", || error.to_string());
            return None;
        }
        waiting.offset = batch.offset;
        let offset = batch.offset;
        active.entries.push_back(batch);
        active.pending.appended(vec![waiting]);
        let activation = active.activation;
        self.after(delay, Timer::Commit { cluster, activation });
        if !self.healing && std::mem::take(&mut self.clusters[cluster].falls_when_busy) {
            self.lose_leadership(cluster);
        }
        Some(offset)
    }

    pub fn commit_next(&mut self, cluster: usize, activation: u64) {
        let Some(active) = self.clusters[cluster].active.as_mut() else { return };
        if active.activation != activation {
            return;
        }
        let Some(batch) = active.entries.pop_front() else { return };
        let waiting = active.pending.ended();
        self.commit(cluster, &batch);
        for waiting in waiting {
            self.reply(cluster, waiting);
        }
        if let Some(stray) = self.clusters[cluster].strays.pop() {
            self.commit_stray(cluster, stray);
        }
    }

    /// An entry of a deposed controller comes after those of its successor: it must have no effect.
    fn commit_stray(&mut self, cluster: usize, mut stray: MetadataBatch) {
        let image = self.clusters[cluster].image().clone();
        if stray.offset == image.offset.next() && stray.predecessor_term == image.term {
            // Nothing has been written since: it is simply the next one, had it come earlier.
            return;
        }
        if self.is(Mutation::StrayEntryApplies) {
            stray.offset = image.offset.next();
            stray.predecessor_term = image.term;
            stray.term = image.term;
        }
        let mut next = (*image).clone();
        let mut delta = MetadataDelta::default();
        if next.apply(&stray, &mut delta).is_ok() {
            self.violate("a batch that was computed on another predecessor is ignored", || {
                format!("batch {} of term {} applied", stray.offset, stray.term)
            });
        }
    }

    fn commit(&mut self, cluster: usize, batch: &MetadataBatch) {
        let before = self.clusters[cluster].image().clone();
        let mut image = (*before).clone();
        let mut delta = MetadataDelta::default();
        if let Err(error) = image.apply(batch, &mut delta) {
            return self.violate("an entry of the active controller applies", || error.to_string());
        }
        self.trace(|| format!("{} commits {}: {:?}", cluster_name(cluster), batch.offset, batch.records));
        let image = Arc::new(image);
        let at_ms = self.now_ms;
        self.clusters[cluster].history.push(Committed { image, delta: Arc::new(delta), at_ms });
        self.check_commit(cluster, &before, batch);
        let offset = self.clusters[cluster].offset();
        for broker in 0..self.clusters[cluster].brokers.len() {
            self.push_metadata(Node { cluster, broker }, offset);
        }
        if batch.records.iter().any(|record| matches!(record, MetadataRecord::Cut { .. })) {
            self.fault_at_cut(cluster);
        }
    }

    pub fn push_metadata(&mut self, to: Node, offset: i64) {
        if self.broker(to).up {
            let process = self.broker(to).process;
            self.send(Path::Controller(to), Event::Metadata { to, process, offset });
        }
    }

    fn reply(&mut self, _cluster: usize, waiting: Waiting) {
        let Some((to, process)) = waiting.to else { return };
        let response = match waiting.reply {
            Reply::Nothing => return,
            Reply::Registered(epoch) => Response::Registered(epoch),
            Reply::Heartbeat { should_shut_down } => Response::Heartbeat { should_shut_down },
            Reply::AlterPartition { number, answers } => {
                Response::AlterPartition { number, answers: Ok(answers) }
            }
            Reply::Proposed { token: None, .. } => return,
            Reply::Proposed { partition, token: Some(token) } => {
                Response::Proposed { partition, token, result: Ok(waiting.offset) }
            }
        };
        self.respond(to, process, response);
    }

    pub fn respond(&mut self, to: Node, process: u32, response: Response) {
        self.send(Path::Controller(to), Event::Response { to, process, response: Box::new(response) });
    }

    pub fn controller_tick(&mut self, cluster: usize, activation: u64) {
        let now_ms = self.now_ms as u64;
        let it = &self.clusters[cluster];
        let Some(active) = it.active.as_ref().filter(|active| active.activation == activation) else {
            return;
        };
        for broker in active.heartbeats.lapsed(active.draft.image(), now_ms) {
            let it = &self.clusters[cluster];
            let Some(active) = &it.active else { return };
            let records = fence(active.draft.image(), &it.settings, broker);
            self.run_operation(cluster, records, None, Reply::Nothing);
        }
        self.after(300, Timer::ControllerTick { cluster, activation });
    }

    pub fn connection_closed(&mut self, node: Node, process: u32) {
        if let Some(active) = self.clusters[node.cluster].active.as_mut() {
            active.heartbeats.connection_closed(connection(node, process));
        }
    }
}

/// Names the connection of a broker's process.
pub fn connection(node: Node, process: u32) -> u64 {
    (node.broker as u64) << 32 | u64::from(process)
}
