//! The mirror coordinator: partition states in `__mirror_state` (KIP-1279), a shard of the coordinator
//! runtime.

pub mod codec;
pub mod record;
pub mod service;
pub mod shard;

pub use record::{StateEpoch, StateKey, StateRecord};
pub use service::MirrorStateService;
pub use shard::{MirrorShard, WriteRefusal};
