//! Cluster mirroring (KIP-1279), the pulling side.
//!
//! `state` decides what each mirror partition does next, `coordinator` keeps what was decided,
//! `manager` turns metadata and answers into its events and carries out its effects, `fetcher` copies,
//! `source` asks, `sync` keeps topics and configs in line. `deps` is all they need of the broker.

pub mod coordinator;
pub mod deps;
pub mod fetcher;
pub mod glue;
pub mod lag;
pub mod leaders;
pub mod manager;
pub mod metrics;
pub mod source;
pub mod state;
pub mod subsystem;
pub mod sync;
#[cfg(test)]
mod testing;
pub mod verify;
pub mod view;

pub use manager::{MirrorDeps, MirrorManager, MirrorManagerConfig};
pub use subsystem::Mirroring;
