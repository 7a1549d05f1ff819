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
    use std::time::Duration;

    use super::*;

    /// Short: `simulate` runs the long ones.
    fn run(seed: u64) -> Run {
        Run { faults: Some(Duration::from_secs(2)), ..Run::of(seed) }
    }

    #[test]
    fn a_seed_holds_and_always_runs_the_same_way() {
        let first = Run { trace: true, ..run(5) }.go();
        assert!(first.violation.is_none(), "{:?}", first.violation);
        assert!(first.counts.commits > 20, "{:?}", first.counts);
        let second = Run { trace: true, ..run(5) }.go();
        assert_eq!(first.trace, second.trace);
        assert_eq!((first.digest, first.steps), (second.digest, second.steps));
    }

    #[test]
    fn a_rule_that_is_taken_out_is_found() {
        let outcome = Run { mutation: Some(Mutation::VoteNotDurable), ..run(1) }.go();
        let violation = outcome.violation.expect("a violation");
        assert_eq!(violation.rule, "a vote is durable before it is answered");
    }
}
