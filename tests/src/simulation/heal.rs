//! The end of a run: nothing fails any more, and everything has to come right within bounded time (I-R7).

use common::metadata::record::LeaderRecoveryState;
use common::mirror_state::MirrorState;

use super::event::Event;
use super::event::{Node, Produce};
use super::log::{Batch, ProducerPart};
use super::network::Path;
use super::world::{TOPIC, World, cluster_name, partition_id};

/// Long enough for every time-out, session and back-off, some times over.
const PATIENCE_MS: i64 = 60_000;

impl World {
    /// Everything is mended; clients and operators stop.
    pub fn heal(&mut self) {
        self.healing = true;
        self.trace(|| "heals".to_owned());
        self.broken_links.clear();
        self.broken_controller_links.clear();
        self.broken_wan.clear();
        for node in self.all_nodes() {
            self.broker_mut(node).paused_until_ms = 0;
            self.broker_mut(node).skew_ms = 0;
        }
        for cluster in 0..self.clusters.len() {
            self.clusters[cluster].coordinator.away_until_ms = 0;
            self.activate(cluster);
            for broker in 0..self.clusters[cluster].brokers.len() {
                self.start_broker(Node { cluster, broker });
            }
        }
        self.settle("I-R7: replicas become equal after the last fault", World::is_replicated);
    }

    /// Runs on until `reached`, or too long.
    pub fn settle(&mut self, rule: &'static str, reached: fn(&mut World) -> Result<(), String>) {
        let deadline_ms = self.now_ms + PATIENCE_MS;
        let mut looks_at_ms = self.now_ms;
        while self.violation.is_none() {
            if self.now_ms >= looks_at_ms {
                looks_at_ms = self.now_ms + 250;
                match reached(self) {
                    Ok(()) => return,
                    Err(why) if self.now_ms > deadline_ms => return self.violate(rule, || why),
                    Err(_) => {}
                }
            }
            if !self.step() {
                return;
            }
        }
    }

    /// Every partition has a leader, every replica is in sync, and all logs are equal.
    fn is_replicated(&mut self) -> Result<(), String> {
        for cluster in 0..self.clusters.len() {
            let name = cluster_name(cluster);
            if self.clusters[cluster].image().topic(TOPIC).is_none() {
                self.create_topic(cluster);
                return Err(format!("{name} has no topic yet"));
            }
            for partition in 0..self.profile.partitions {
                let image = self.clusters[cluster].image().clone();
                let Some(of_partition) = image.partition(partition_id(partition)) else { continue };
                let r = &of_partition.registration;
                let Some(leader) = r.leader else {
                    return Err(format!("{name}/{partition} has no leader: {r:?}"));
                };
                if r.leader_recovery_state == LeaderRecoveryState::Recovering {
                    return Err(format!("{name}/{partition} is recovering"));
                }
                if r.isr.len() < r.replicas.len() {
                    let node = Node { cluster, broker: (leader.0 - 1) as usize };
                    let state = self.replica(node, partition).map(|replica| &replica.state);
                    return Err(format!("{name}/{partition} is not in sync: {r:?}, leader {state:?}"));
                }
                let leader = Node { cluster, broker: (leader.0 - 1) as usize };
                let Some(log) = self.disk_log(leader, partition) else {
                    return Err(format!("{leader} has no log"));
                };
                for replica in &r.replicas {
                    let node = Node { cluster, broker: (replica.0 - 1) as usize };
                    let other = self.disk_log(node, partition).map(|log| &log.batches);
                    if other != Some(&log.batches) {
                        let ends = (other.and_then(|batches| batches.last()), log.batches.last());
                        return Err(format!("{node}/{partition} differs from {leader}: {ends:?}"));
                    }
                }
                let end = log.end();
                if self.truth(cluster, partition).end() != end {
                    return Err(format!("{name}/{partition} is committed up to {end} only in part"));
                }
            }
        }
        Ok(())
    }

    /// Failover of everything, then copies in a row from the first cluster: each must end.
    pub fn exercise_mirrors(&mut self) {
        if self.clusters.len() < 2 || self.violation.is_some() {
            return;
        }
        self.settle("decision 18: a remove always ends released", World::is_released);
        self.settle("transactions end", World::is_decided);
        self.settle("a mirror added in peace copies its source", World::is_copied);
    }

    fn is_released(&mut self) -> Result<(), String> {
        self.is_replicated()?;
        let mut open = Ok(());
        for cluster in 0..self.clusters.len() {
            let image = self.clusters[cluster].image().clone();
            let Some(topic) = image.topic(TOPIC) else { continue };
            let Some(mirror) = &topic.mirror else { continue };
            let from = self.clusters[cluster].mirrors.iter().position(|name| *name == mirror.mirror);
            if !mirror.removed
                && let Some(from) = from
            {
                self.remove(cluster, from);
                open = Err(format!("{} is being removed", cluster_name(cluster)));
            }
            let waiting = (0..topic.partitions.len()).find(|partition| !topic.is_writable(*partition as i32));
            if let Some(partition) = waiting {
                open = Err(format!("{}/{partition} is not released", cluster_name(cluster)));
            }
        }
        open
    }

    /// What a transaction coordinator does with those whose time is up.
    fn is_decided(&mut self) -> Result<(), String> {
        let mut open = Ok(());
        for cluster in 0..self.clusters.len() {
            for partition in 0..self.profile.partitions {
                let leader = self.clusters[cluster]
                    .image()
                    .partition(partition_id(partition))
                    .and_then(|p| p.registration.leader);
                let topic = self.clusters[cluster].image().topic(TOPIC);
                let writable = topic.is_some_and(|topic| topic.is_writable(partition as i32));
                // A copy's transactions are decided by its source.
                let Some(leader) = leader.filter(|_| writable) else { continue };
                let to = Node { cluster, broker: (leader.0 - 1) as usize };
                let producers =
                    self.disk_log(to, partition).map(|log| log.open_producers()).unwrap_or_default();
                let needs_one = cluster == 0 && self.truth(cluster, partition).end() == 0;
                if needs_one {
                    open = Err(format!("{to}/{partition} is empty"));
                    self.produce_in_peace(to, partition, None);
                }
                for id in producers {
                    open = Err(format!("{to}/{partition} has an open transaction of {id}"));
                    self.produce_in_peace(to, partition, Some(id));
                }
            }
        }
        if open.is_ok() { self.is_replicated() } else { open }
    }

    /// A batch, or the marker that aborts a producer's transaction.
    fn produce_in_peace(&mut self, to: Node, partition: usize, aborted: Option<i64>) {
        self.next_value += 1;
        let producer = aborted.map(|id| ProducerPart { id, sequence: -1, transactional: true });
        let marker = aborted.map(|_| false);
        let batch = Batch { base: 0, count: 1, epoch: 0, value: self.next_value, producer, marker };
        let produce = Produce { producer: 0, number: 0, partition, acks_all: true, batch };
        let process = self.broker(to).process;
        self.send(Path::Client, Event::Produce { to, process, produce });
    }

    fn is_removed(&mut self, cluster: usize) -> Result<(), String> {
        let mirror = self.clusters[cluster].image().topic(TOPIC).and_then(|topic| topic.mirror.clone());
        let Some(mirror) = mirror.filter(|mirror| !mirror.removed) else { return Ok(()) };
        let from = self.clusters[cluster].mirrors.iter().position(|name| *name == mirror.mirror);
        if let Some(from) = from {
            self.remove(cluster, from);
        }
        Err(format!("{} is being removed", cluster_name(cluster)))
    }

    /// Each cluster copies from the one before it, and is equal to it.
    fn is_copied(&mut self) -> Result<(), String> {
        self.is_decided()?;
        // The first one copies from nobody, unless an operator's add was still on its way.
        self.is_removed(0)?;
        for cluster in 1..self.clusters.len() {
            let source = cluster - 1;
            let image = self.clusters[cluster].image().clone();
            let Some(topic) = image.topic(TOPIC) else { return Err("no topic".to_owned()) };
            let current = topic.mirror.as_ref().filter(|mirror| !mirror.removed);
            let from = current.and_then(|current| {
                self.clusters[cluster].mirrors.iter().position(|name| *name == current.mirror)
            });
            match from {
                Some(from) if from == source => {}
                // Of an operator whose request was still on its way.
                Some(other) => {
                    self.remove(cluster, other);
                    return Err(format!("{} is being removed", cluster_name(cluster)));
                }
                None => {
                    self.add(cluster, source, false);
                    return Err(format!("{} is being added", cluster_name(cluster)));
                }
            }
            for partition in 0..self.profile.partitions {
                if self.truth(source, partition).end() == 0 {
                    continue;
                }
                let record = self.recorded(cluster, source, partition);
                let cut = topic.partitions.get(partition).is_some_and(|p| p.mirror.preparing_cut.is_some());
                let recopied = topic.mirror.as_ref().is_some_and(|mirror| mirror.recopy);
                if !cut && !recopied {
                    // Whatever it waits for: in the end an operator says so.
                    self.add(cluster, source, true);
                }
                let state = record.as_ref().map(|record| record.state);
                if state != Some(MirrorState::Mirroring) {
                    return Err(format!("{}/{partition} is {record:?}", cluster_name(cluster)));
                }
                let (here, there) = (self.truth(cluster, partition), self.truth(source, partition));
                if here.batches != there.batches {
                    let ends = (here.batches.last(), there.batches.last());
                    return Err(format!(
                        "{}/{partition} differs from its source: {ends:?}",
                        cluster_name(cluster)
                    ));
                }
            }
        }
        self.is_replicated()
    }
}
