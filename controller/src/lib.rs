//! One voter of the controller quorum: the metadata state machine on the replicated log, the push of
//! committed metadata to brokers, and a Kafka listener for admin clients.
//!
//! `control` is pure: an image and a request in, records and a response out. `quorum` is the shell
//! around it: one writer, the draft ahead of what is committed, replies that wait for the log. `api`
//! turns bytes into requests and responses into bytes.

pub mod api;
pub mod control;
mod metrics;
pub mod quorum;
pub mod recovery;
pub mod server;

pub use server::ControllerServer;
