//! Scripted runs: the same world, in which nothing happens that the script does not say.

use super::event::{Event, Node, Produce};
use super::log::Batch;
use super::network::Path;
use super::profile::Profile;
use super::random::Random;
use super::world::{Violation, World, partition_id};

pub struct Scenario {
    pub world: World,
}

impl Scenario {
    /// Clusters with one partition that every broker has a replica of.
    pub fn start(profile: Profile) -> Scenario {
        let mut world = World::new(profile, Random::new(1));
        world.set_up();
        let mut scenario = Scenario { world };
        scenario.run_ms(500);
        scenario
    }

    /// Time passes.
    pub fn run_ms(&mut self, ms: i64) {
        let until_ms = self.world.now_ms + ms;
        while self.world.now_ms < until_ms && self.world.step() {}
        self.world.check_all();
    }

    /// Time passes until something is true; a violation names what was waited for in vain.
    pub fn until(&mut self, what: &'static str, reached: impl Fn(&World) -> bool) {
        let until_ms = self.world.now_ms + 60_000;
        while !reached(&self.world) && self.world.violation.is_none() {
            if self.world.now_ms > until_ms || !self.world.step() {
                return self.world.violate("a scenario goes on", || what.to_owned());
            }
        }
    }

    pub fn leader(&self, cluster: usize) -> Option<Node> {
        let image = self.world.clusters[cluster].image();
        let leader = image.partition(partition_id(0))?.registration.leader?;
        Some(Node { cluster, broker: (leader.0 - 1) as usize })
    }

    pub fn isr(&self, cluster: usize) -> usize {
        let image = self.world.clusters[cluster].image();
        image.partition(partition_id(0)).map_or(0, |partition| partition.registration.isr.len())
    }

    /// One record for this broker; what it makes of it shows in the logs.
    pub fn produce(&mut self, to: Node, acks_all: bool) -> u64 {
        self.world.next_value += 1;
        let value = self.world.next_value;
        let batch = Batch { base: 0, count: 1, epoch: 0, value, producer: None, marker: None };
        let produce = Produce { producer: usize::MAX, number: 0, partition: 0, acks_all, batch };
        let process = self.world.broker(to).process;
        self.world.send(Path::Client, Event::Produce { to, process, produce });
        value
    }

    /// The values in a broker's log.
    pub fn values(&self, node: Node) -> Vec<u64> {
        self.world
            .disk_log(node, 0)
            .map(|log| log.batches.iter().map(|batch| batch.value).collect())
            .unwrap_or_default()
    }

    /// The values that were committed.
    pub fn committed(&self, cluster: usize) -> Vec<u64> {
        self.world.truth(cluster, 0).batches.iter().map(|batch| batch.value).collect()
    }

    pub fn kill(&mut self, node: Node) {
        self.world.crash(node, false);
    }

    pub fn lose_power(&mut self, node: Node) {
        self.world.crash(node, true);
    }

    pub fn pause(&mut self, node: Node, ms: i64) {
        self.world.broker_mut(node).paused_until_ms = self.world.now_ms + ms;
    }

    pub fn restart(&mut self, node: Node) {
        self.world.start_broker(node);
    }

    /// No message between these two gets through.
    pub fn cut_link(&mut self, one: Node, other: Node) {
        self.world.broken_links.push((one, other));
        self.world.broken_links.push((other, one));
    }

    pub fn mend(&mut self) {
        self.world.broken_links.clear();
        self.world.broken_controller_links.clear();
    }

    /// Everything heals and becomes equal; what was violated on the way.
    pub fn end(mut self) -> Option<Violation> {
        self.world.heal();
        self.world.check_all();
        self.world.violation
    }
}
