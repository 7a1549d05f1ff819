//! Producers: plain ones, idempotent ones that repeat what they got no answer for, and transactional ones.

use super::event::{Event, Node, Produce, ProduceError, Timer};
use super::log::{Batch, ProducerPart};
use super::network::Path;
use super::world::{World, partition_id};

const ANSWER_TIMEOUT_MS: i64 = 400;

#[derive(Clone, Debug)]
pub struct Producer {
    pub id: i64,
    pub next_sequence: i32,
    pub transactional: bool,
    pub partition: usize,
    /// Batches of the open transaction.
    pub in_transaction: u32,
    pub waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub produce: Produce,
    pub since_ms: i64,
}

impl World {
    pub fn new_producer(&mut self, cluster: usize, transactional: bool) -> Producer {
        let number = self.number() as i64;
        Producer {
            id: (cluster as i64 + 1) << 40 | number,
            next_sequence: 0,
            transactional,
            partition: self.random.below(self.profile.partitions),
            in_transaction: 0,
            waiting: None,
        }
    }

    pub fn client_tick(&mut self, cluster: usize, producer: usize) {
        if self.healing {
            return;
        }
        let pause = self.random.between(self.profile.client_ms / 2, self.profile.client_ms * 2);
        self.after(pause, Timer::Client { cluster, producer });
        let now_ms = self.now_ms;
        match &self.clusters[cluster].producers[producer].waiting {
            Some(waiting) if now_ms - waiting.since_ms < ANSWER_TIMEOUT_MS => return,
            Some(waiting) if waiting.produce.batch.producer.is_some() => {}
            _ => self.next_batch(cluster, producer),
        }
        self.send_produce(cluster, producer);
    }

    fn next_batch(&mut self, cluster: usize, producer: usize) {
        let number = self.number();
        self.next_value += 1;
        let value = self.next_value;
        let acks_all = self.random.chance(750);
        let idempotent = self.random.chance(600);
        let ends = self.random.chance(350);
        let commit = self.random.chance(700);
        let count = self.random.between(1, 3);
        let now_ms = self.now_ms;
        let it = &mut self.clusters[cluster].producers[producer];
        let marker = (it.transactional && it.in_transaction > 0 && ends).then_some(commit);
        let count = if marker.is_some() { 1 } else { count };
        let part = (it.transactional || idempotent).then(|| ProducerPart {
            id: it.id,
            sequence: if marker.is_some() { -1 } else { it.next_sequence },
            transactional: it.transactional,
        });
        let batch = Batch { base: 0, count, epoch: 0, value, producer: part, marker };
        let acks_all = acks_all || it.transactional;
        let produce = Produce { producer, number, partition: it.partition, acks_all, batch };
        it.waiting = Some(Waiting { produce, since_ms: now_ms });
    }

    fn send_produce(&mut self, cluster: usize, producer: usize) {
        let now_ms = self.now_ms;
        let guess = self.random.below(self.clusters[cluster].brokers.len());
        let guesses = self.random.chance(150);
        let it = &mut self.clusters[cluster];
        let Some(waiting) = &mut it.producers[producer].waiting else { return };
        waiting.since_ms = now_ms;
        let produce = waiting.produce;
        let known = it.image().partition(partition_id(produce.partition)).and_then(|p| p.registration.leader);
        let broker = match known {
            Some(leader) if !guesses => (leader.0 - 1) as usize,
            _ => guess,
        };
        let to = Node { cluster, broker };
        if self.broker(to).up {
            let process = self.broker(to).process;
            self.send(Path::Client, Event::Produce { to, process, produce });
        }
    }

    pub fn produced(
        &mut self,
        cluster: usize,
        producer: usize,
        number: u64,
        result: Result<i64, ProduceError>,
    ) {
        let Some(it) = self.clusters[cluster].producers.get(producer) else { return };
        let Some(waiting) = it.waiting.filter(|waiting| waiting.produce.number == number) else { return };
        match result {
            Ok(_) => {
                let it = &mut self.clusters[cluster].producers[producer];
                it.waiting = None;
                if waiting.produce.batch.marker.is_some() {
                    it.in_transaction = 0;
                } else if waiting.produce.batch.producer.is_some() {
                    it.next_sequence += waiting.produce.batch.count as i32;
                    it.in_transaction += 1;
                }
            }
            // Sent again with the next tick, where that can do no harm.
            Err(ProduceError::Retriable) if waiting.produce.batch.producer.is_some() => {}
            Err(ProduceError::Retriable) => self.clusters[cluster].producers[producer].waiting = None,
            Err(ProduceError::ReadOnly | ProduceError::Sequence) => {
                let transactional = it.transactional;
                let next = self.new_producer(cluster, transactional);
                self.clusters[cluster].producers[producer] = next;
            }
        }
    }
}
