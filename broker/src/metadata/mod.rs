//! The broker's side of the metadata log: it registers, subscribes, replays what the quorum
//! committed, and applies each change in a fixed order.

pub mod cache;
pub mod controller_channel;
