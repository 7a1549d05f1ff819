//! Deterministic simulation of the quorum: openraft with the product's store, state machine, snapshots and
//! rules of membership, on disks, a network, clocks and a scheduler that come from a seed. One thread runs
//! all voters; the same seed always runs the same way. See docs/simulation.md.

mod disk;
mod executor;
mod faults;
mod handler;
mod machine;
mod mutation;
mod network;
mod node;
mod oracle;
mod profile;
mod random;
mod run;
mod runtime;
mod workload;
mod world;

pub use mutation::Mutation;
pub use oracle::{Counts, Violation};
pub use run::{Outcome, Run};

use crate::type_config::{LeaderId, Payload};
use openraft::impls::BasicNode;

openraft::declare_raft_types!(
    pub(crate) Simulated:
        D = Payload,
        R = (),
        NodeId = crate::config::VoterId,
        Node = BasicNode,
        LeaderId = LeaderId,
        AsyncRuntime = runtime::SimulatedRuntime,
);

type SimulatedRaft = crate::type_config::Raft<Simulated>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_hold() {
        for seed in 1..=3 {
            let outcome = Run::of(seed).go();
            assert!(outcome.violation.is_none(), "seed {seed}: {:?}", outcome.violation);
            assert!(outcome.counts.commits > 20, "seed {seed}: {:?}", outcome.counts);
        }
    }

    #[test]
    fn a_seed_always_runs_the_same_way() {
        let first = Run { trace: true, ..Run::of(5) }.go();
        let second = Run { trace: true, ..Run::of(5) }.go();
        assert_eq!(first.trace, second.trace);
        assert_eq!((first.digest, first.steps), (second.digest, second.steps));
        assert_ne!(first.digest, Run::of(6).go().digest);
    }
}
