//! The shell around `control`: one writer, a draft ahead of what is committed, replies that wait for the
//! log, and the push of what is committed.

pub mod controller;
mod dial;
pub mod listener;
mod narrate;
pub mod operation;
pub mod pending;
pub mod publisher;
pub mod state;

pub use controller::{ControllerStatus, QuorumController};
pub use listener::MetadataListener;
pub use operation::{Committed, OperationContext, WriteError};
pub use publisher::Publisher;
