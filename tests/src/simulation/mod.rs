//! Deterministic simulation: the pure machines of controllers, replicas and mirrors together on a seeded
//! network, clock and metadata log, in one thread. docs/simulation.md tells what is modelled and what is
//! real, which invariants are checked, and how a seed is replayed.

pub mod client;
pub mod coordinator;
pub mod drill;
pub mod event;
pub mod faults;
pub mod follower;
mod forgery;
pub mod heal;
pub mod log;
pub mod metadata;
pub mod mirror;
pub mod mirror_fetch;
pub mod mutation;
pub mod network;
pub mod node;
pub mod operator;
pub mod oracle;
pub mod profile;
pub mod queue;
pub mod quorum;
pub mod random;
pub mod replica;
pub mod requests;
pub mod rules;
pub mod run;
pub mod scenario;
pub mod source;
pub mod world;

pub use mutation::Mutation;
pub use profile::Profile;
pub use run::{Outcome, Run};
pub use scenario::Scenario;
