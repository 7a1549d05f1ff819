//! What can be broken, chosen by a seed.

use std::fmt;
use std::time::Duration;

use crate::cluster::LinkKind;
use crate::proxy::Link;
use crate::raw::Sequence;

/// The kinds that a summary counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Kill,
    Pause,
    Restart,
    Cut,
    HalfOpen,
    Slow,
    DiskFull,
}

impl Kind {
    pub const ALL: [Kind; 7] =
        [Kind::Kill, Kind::Pause, Kind::Restart, Kind::Cut, Kind::HalfOpen, Kind::Slow, Kind::DiskFull];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill -9",
            Kind::Pause => "pause",
            Kind::Restart => "clean restart",
            Kind::Cut => "cut link",
            Kind::HalfOpen => "half-open link",
            Kind::Slow => "slow link",
            Kind::DiskFull => "full disk",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Broker(i32),
    Controller(i32),
    /// Whichever is active when the fault comes.
    ActiveController,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    Kill(Node),
    Pause(Node),
    Restart(Node),
    Break(Node, LinkKind, Link),
    FillDisk(i32),
    KillAllControllers,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub action: Action,
    /// How long it lasts before it is mended.
    pub lasts: Duration,
}

impl Fault {
    pub fn kind(&self) -> Kind {
        match self.action {
            Action::Kill(_) | Action::KillAllControllers => Kind::Kill,
            Action::Pause(_) => Kind::Pause,
            Action::Restart(_) => Kind::Restart,
            Action::Break(_, _, Link::Slow { .. }) => Kind::Slow,
            Action::Break(_, _, Link::Refused | Link::Open) => Kind::Cut,
            Action::Break(..) => Kind::HalfOpen,
            Action::FillDisk(_) => Kind::DiskFull,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} for {} ms", self.action, self.lasts.as_millis())
    }
}

/// The nodes that a plan may break.
#[derive(Clone, Debug)]
pub struct Nodes {
    pub brokers: Vec<i32>,
    pub controllers: Vec<i32>,
    /// Their disks can be filled.
    pub has_small_disks: bool,
}

/// Rounds of faults. Within a round at most one broker and one controller are struck, which is what the
/// promises for acks=all and for the quorum cover; each round begins from a whole cluster.
pub struct Plan {
    numbers: Sequence,
    nodes: Nodes,
    round: usize,
}

impl Plan {
    pub fn new(seed: u64, nodes: Nodes) -> Plan {
        Plan { numbers: Sequence::new(seed), nodes, round: 0 }
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.numbers.number() % limit as u64) as usize
    }

    /// Every kind comes in turn, so that a short run has them all; what and whom it strikes is chance.
    pub fn round(&mut self) -> Vec<Fault> {
        let kinds: Vec<Kind> = match self.nodes.has_small_disks {
            true => Kind::ALL.to_vec(),
            false => Kind::ALL.into_iter().filter(|kind| *kind != Kind::DiskFull).collect(),
        };
        let kind = kinds[self.round % kinds.len()];
        self.round += 1;
        let on_broker = kind == Kind::DiskFull || self.below(2) == 0;
        let mut faults = vec![self.fault(kind, on_broker)];
        if self.below(3) == 0 {
            let kinds = [Kind::Kill, Kind::Pause, Kind::Cut, Kind::HalfOpen, Kind::Slow];
            let kind = kinds[self.below(kinds.len())];
            faults.push(self.fault(kind, !on_broker));
        }
        faults
    }

    fn fault(&mut self, kind: Kind, on_broker: bool) -> Fault {
        let node = match on_broker {
            true => {
                let index = self.below(self.nodes.brokers.len());
                Node::Broker(self.nodes.brokers[index])
            }
            false if self.below(2) == 0 => Node::ActiveController,
            false => {
                let index = self.below(self.nodes.controllers.len());
                Node::Controller(self.nodes.controllers[index])
            }
        };
        let link_kind = match node {
            Node::Broker(_) if self.below(3) == 0 => LinkKind::Clients,
            Node::Broker(_) => LinkKind::Brokers,
            _ => LinkKind::Quorum,
        };
        let action = match (kind, node) {
            (Kind::Kill, Node::ActiveController) if self.below(3) == 0 => Action::KillAllControllers,
            (Kind::Kill, node) => Action::Kill(node),
            (Kind::Pause, node) => Action::Pause(node),
            (Kind::Restart, node) => Action::Restart(node),
            (Kind::Cut, node) => Action::Break(node, link_kind, Link::Refused),
            (Kind::HalfOpen, node) => {
                let links = [Link::Silent, Link::NoAnswers, Link::NoRequests];
                Action::Break(node, link_kind, links[self.below(links.len())])
            }
            (Kind::Slow, node) => {
                let delay = Duration::from_millis(20 + self.below(200) as u64);
                Action::Break(node, link_kind, Link::Slow { delay, bytes_per_second: 50_000 })
            }
            (Kind::DiskFull, Node::Broker(id)) => Action::FillDisk(id),
            (Kind::DiskFull, _) => Action::FillDisk(self.nodes.brokers[0]),
        };
        // Below and above the session time-out and the lag that followers may have.
        let lasts = Duration::from_millis(200 + self.below(2_600) as u64);
        Fault { action, lasts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Nodes {
        Nodes { brokers: vec![1, 2, 3], controllers: vec![101, 102, 103], has_small_disks: true }
    }

    #[test]
    fn a_seed_gives_the_same_plan_and_a_few_rounds_have_every_kind() {
        let plan = |seed| {
            let mut plan = Plan::new(seed, nodes());
            (0..14).map(|_| plan.round()).collect::<Vec<_>>()
        };
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
        let kinds: std::collections::BTreeSet<Kind> = plan(7).iter().flatten().map(Fault::kind).collect();
        assert_eq!(kinds.len(), Kind::ALL.len());
    }

    #[test]
    fn no_round_strikes_two_brokers_or_two_controllers() {
        let mut plan = Plan::new(3, nodes());
        for _ in 0..500 {
            let on_broker = |fault: &Fault| match fault.action {
                Action::Kill(node) | Action::Pause(node) | Action::Restart(node) => {
                    matches!(node, Node::Broker(_))
                }
                Action::Break(_, kind, _) => kind != LinkKind::Quorum,
                Action::FillDisk(_) => true,
                Action::KillAllControllers => false,
            };
            let brokers: Vec<bool> = plan.round().iter().map(on_broker).collect();
            assert!(brokers.len() < 2 || brokers[0] != brokers[1], "{brokers:?}");
        }
    }
}
