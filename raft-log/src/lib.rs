//! The replicated log of the controller quorum: openraft and sled, wired once.
//!
//! The log's payloads are opaque here. Whoever opens a [`RaftLog`] gives it a [`Listener`], which
//! sees every committed payload once, in order, and makes and loads snapshots of what it built from
//! them. No type of openraft leaves this crate.

mod announce;
mod config;
mod contact;
mod crash;
mod error;
mod files;
mod founding;
mod gate;
mod leadership;
mod lineage;
mod listener;
mod membership;
mod network;
#[cfg(any(test, feature = "proof"))]
pub mod proof;
mod raft_log;
pub mod recovery;
#[cfg(any(test, feature = "proof"))]
pub mod simulation;
mod snapshot;
mod state_machine;
mod status;
mod store;
mod type_config;

pub use config::{RaftLogConfig, VoterId};
pub use error::{AppendError, MembershipError, OpenError, RaftLogError, ReadIndexError};
pub use leadership::Leadership;
pub use listener::Listener;
pub use network::server::QuorumServer;
pub use raft_log::RaftLog;
pub use status::{QuorumReplica, QuorumStatus};
