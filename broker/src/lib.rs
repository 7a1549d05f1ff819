//! A Kagami broker: partitions on disk in Kafka's format, replication, mirroring, and Kafka's protocol
//! on its listeners. `server` composes it; the daemon, `kagami dev`, `kagami demo` and the tests all
//! start it there.

pub mod api;
pub mod client;
pub mod coordinator;
pub mod fetcher;
pub mod log;
pub mod metadata;
pub mod mirror;
pub mod replica;
pub mod server;
