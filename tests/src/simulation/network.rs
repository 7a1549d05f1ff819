//! Messages between nodes: late, lost, twice, in another order, or not at all over a broken link.

use super::event::{Event, Node};
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Between a broker and its controllers.
    Controller(Node),
    /// Between two brokers of one or two clusters.
    Brokers(Node, Node),
    /// From a broker to another cluster's controllers.
    Wan(usize, usize),
    /// Between a client and its cluster.
    Client,
}

impl World {
    fn is_broken(&self, path: Path) -> bool {
        let wan = |one: usize, two: usize| {
            self.broken_wan.iter().any(|broken| *broken == (one, two) || *broken == (two, one))
        };
        match path {
            Path::Controller(node) => self.broken_controller_links.contains(&node),
            Path::Brokers(from, to) if from.cluster != to.cluster => wan(from.cluster, to.cluster),
            Path::Brokers(from, to) => self.broken_links.contains(&(from, to)),
            Path::Wan(one, two) => wan(one, two),
            Path::Client => false,
        }
    }

    pub fn delay_ms(&mut self) -> i64 {
        if self.random.chance(self.profile.slow) && !self.healing {
            self.random.between(5, self.profile.slowest_ms.max(6))
        } else {
            self.random.between(1, 4)
        }
    }

    pub fn send(&mut self, path: Path, event: Event) {
        if self.is_broken(path) {
            return;
        }
        if !self.healing {
            if self.random.chance(self.profile.lost) {
                return;
            }
            if self.random.chance(self.profile.repeated) {
                let at_ms = self.now_ms + self.delay_ms() + self.delay_ms();
                self.queue.push(at_ms, event.clone());
            }
        }
        let at_ms = self.now_ms + self.delay_ms();
        self.queue.push(at_ms, event);
    }
}
