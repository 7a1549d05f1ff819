//! What goes wrong, and comes right again.

use super::event::{Node, Timer};
use super::world::{World, cluster_name};

impl World {
    pub fn fault(&mut self) {
        if self.healing {
            return;
        }
        let pause = self.random.between(self.profile.fault_ms / 3, self.profile.fault_ms * 2);
        self.after(pause, Timer::Fault);
        self.mend_some();
        let nodes = self.all_nodes();
        let Some(node) = self.random.pick(&nodes) else { return };
        let cluster = node.cluster;
        match self.random.below(100) {
            0..22 => {
                let power = self.profile.loses_power && self.random.chance(500);
                self.crash(node, power);
                // Whole clusters fail together, too.
                if self.random.chance(120) {
                    for broker in 0..self.profile.brokers {
                        self.crash(Node { cluster, broker }, power);
                    }
                }
            }
            22..30 => self.broker_mut(node).stopping = true,
            30..45 => {
                let broker = self.random.below(self.profile.brokers);
                let other = Node { cluster, broker };
                self.broken_links.push((node, other));
                if self.random.chance(600) {
                    self.broken_links.push((other, node));
                }
            }
            45..57 => self.broken_controller_links.push(node),
            57..65 if self.clusters.len() > 1 => {
                let other = (cluster + 1) % self.clusters.len();
                self.broken_wan.push((cluster, other));
            }
            65..70 => self.lose_leadership(cluster),
            70..78 => self.clusters[cluster].falls_when_busy = true,
            78..90 => {
                let until_ms = self.now_ms + self.random.between(200, 4_500);
                self.trace(|| format!("{node} stands still until {until_ms}"));
                self.broker_mut(node).paused_until_ms = until_ms;
            }
            90..95 => {
                let until_ms = self.now_ms + self.random.between(100, 1_500);
                self.clusters[cluster].coordinator.away_until_ms = until_ms;
            }
            95..97 if self.profile.loses_state_topic => self.lose_state_topic(cluster),
            97..100 if self.profile.skews_clocks => {
                let skew_ms = self.random.between(-4_000, 4_000);
                self.trace(|| format!("{node} clock {skew_ms} ms off ({})", cluster_name(cluster)));
                self.broker_mut(node).skew_ms = skew_ms;
            }
            _ => {}
        }
    }

    /// A cut is committed, and no replica has heard of it: the moment at which most can go wrong.
    pub fn fault_at_cut(&mut self, cluster: usize) {
        if self.healing {
            return;
        }
        if self.profile.loses_power && self.random.chance(80) {
            for broker in 0..self.profile.brokers {
                self.crash(Node { cluster, broker }, true);
            }
        } else if self.random.chance(150) {
            let broker = self.random.below(self.profile.brokers);
            let until_ms = self.now_ms + self.random.between(200, 4_500);
            self.broker_mut(Node { cluster, broker }).paused_until_ms = until_ms;
        }
    }

    fn mend_some(&mut self) {
        if self.random.chance(500) {
            self.broken_links.clear();
        }
        if self.random.chance(500) {
            self.broken_controller_links.clear();
        }
        if self.random.chance(400) {
            self.broken_wan.clear();
        }
    }
}
