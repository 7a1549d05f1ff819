//! A course of events that chance alone brings about once in 150,000 seeds, so it is played on purpose amid
//! everything else that happens: two clusters copy from A. The leader of B's copy is cut off from its followers
//! while C is released, copies on from A under the leader epoch that C has now, too, and is gone when A is cut
//! to what it shares with C and grows on from there (ADR 11).

use common::ids::*;
use common::metadata::MetadataRecord;
use common::metadata::record::PartitionChange;
use common::mirror_state::MirrorState;

use super::event::{Node, Timer};
use super::quorum::Reply;
use super::world::{TOPIC, World, partition_id, topic_id};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const LOOKS_MS: i64 = 60;
/// Whatever else happens may keep it from getting on.
const PATIENCE_MS: i64 = 6_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drill {
    NotYet,
    /// B and C become copies of A.
    Copies,
    /// C is released; B's leader is alone.
    Release {
        alone: Node,
    },
    /// B's leader copies what nobody else will ever have.
    Grow {
        alone: Node,
    },
    Over,
}

impl Drill {
    /// Operators do nothing else meanwhile.
    pub fn is_on(self) -> bool {
        !matches!(self, Drill::NotYet | Drill::Over)
    }
}

impl World {
    pub fn begin_drill(&mut self) {
        if self.profile.drills {
            let delay = self.random.between(200, 3_000);
            self.after(delay, Timer::Drill { until_ms: self.now_ms + delay + PATIENCE_MS });
        }
    }

    pub fn drill_on(&mut self, until_ms: i64) {
        if self.healing || self.now_ms > until_ms {
            self.drill = Drill::Over;
            return;
        }
        let mut pause = LOOKS_MS;
        let drill = self.drill;
        match drill {
            Drill::NotYet => self.drill = Drill::Copies,
            Drill::Copies => {
                let ready = [self.is_writable_now(A, None), self.copies_from_a(B), self.copies_from_a(C)];
                if let ([true, true, true], Some(alone)) = (ready, self.leader_now(B)) {
                    self.isolate(alone);
                    self.remove(C, A);
                    self.drill = Drill::Release { alone };
                }
            }
            Drill::Release { alone } if self.is_writable_now(C, Some(A)) => {
                self.raise_to(A, C);
                pause = self.random.between(150, 500);
                self.drill = Drill::Grow { alone };
            }
            Drill::Release { .. } => {}
            Drill::Grow { alone } => {
                self.crash(alone, false);
                self.add(A, C, false);
                self.drill = Drill::Over;
                return;
            }
            Drill::Over => return,
        }
        self.after(pause, Timer::Drill { until_ms });
    }

    fn leader_now(&self, cluster: usize) -> Option<Node> {
        let leader = self.clusters[cluster].image().partition(partition_id(0))?.registration.leader?;
        Some(Node { cluster, broker: (leader.0 - 1) as usize })
    }

    /// All partitions; where none is, the topic is removed from its mirror, other than `expected`.
    fn is_writable_now(&mut self, cluster: usize, expected: Option<usize>) -> bool {
        let image = self.clusters[cluster].image().clone();
        let Some(topic) = image.topic(TOPIC) else { return false };
        if (0..topic.partitions.len()).all(|partition| topic.is_writable(partition as i32)) {
            return true;
        }
        if let Some(mirror) = topic.mirror.as_ref().filter(|mirror| !mirror.removed)
            && let Some(from) = self.clusters[cluster].mirrors.iter().position(|name| *name == mirror.mirror)
            && expected != Some(from)
        {
            self.remove(cluster, from);
        }
        false
    }

    fn copies_from_a(&mut self, cluster: usize) -> bool {
        let image = self.clusters[cluster].image().clone();
        let mirror = image.topic(TOPIC).and_then(|topic| topic.mirror.clone());
        let from_a = mirror
            .is_some_and(|mirror| !mirror.removed && mirror.mirror == self.clusters[cluster].mirrors[A]);
        if from_a {
            let recorded = self.recorded(cluster, A, 0);
            return recorded.is_some_and(|record| record.state == MirrorState::Mirroring);
        }
        if self.is_writable_now(cluster, None) {
            self.add(cluster, A, true);
        }
        false
    }

    fn isolate(&mut self, node: Node) {
        for broker in (0..self.profile.brokers).filter(|broker| *broker != node.broker) {
            let other = Node { broker, ..node };
            self.broken_links.push((node, other));
            self.broken_links.push((other, node));
        }
    }

    /// As many elections as it takes until both clusters write under one leader epoch.
    fn raise_to(&mut self, cluster: usize, other: usize) {
        for partition in 0..self.profile.partitions {
            let (Some(here), Some(there)) =
                (self.newest_epoch(cluster, partition), self.newest_epoch(other, partition))
            else {
                continue;
            };
            if here < there {
                let change = PartitionChange {
                    leader_epoch: Some(LeaderEpoch(there.0)),
                    ..PartitionChange::default()
                };
                let partition = partition as i32;
                let record = MetadataRecord::PartitionChange { topic_id: topic_id(), partition, change };
                self.run_operation(cluster, vec![record], None, Reply::Nothing);
            }
        }
    }
}
