//! Replicas of partitions on this broker: who leads, who is in sync, what is committed, and whoever
//! waits for it.

pub mod alter_partition;
mod append;
mod apply;
pub mod cut;
pub mod delete_records;
pub mod deps;
pub mod directories;
pub mod error;
pub mod fetch;
pub mod fetch_session;
pub mod follower;
mod log_dir_moves;
pub mod manager;
pub mod mirrored;
pub mod partition;
pub mod position;
pub mod purgatory;
pub mod read;
mod read_replica;
pub mod session_cache;
pub mod state;
mod tasks;
#[cfg(test)]
mod tests;
pub mod throttle;

pub use deps::{IsrProposalItem, LossCut, ReplicaDeps};
pub use error::{AppendFailure, MirrorAppendError, PartitionError, ReadFailure, WaitFailure};
pub use manager::{AppendOptions, Appended, ReplicaManager, ReplicaManagerConfig, Waiting};
pub use partition::{Partition, PartitionRole, PartitionStatus};
