//! What controllers and brokers must agree on: identifiers, metadata records and the image that
//! replaying them gives, configuration definitions, and the names of mirror states.
//!
//! Everything here is synchronous and deterministic, except `clock`, `daemon`, `descriptors`, `fault`, `network`, `storage`,
//! `task` and `telemetry`: what both daemons need of the world outside.

pub mod clock;
pub mod config;
pub mod daemon;
pub mod descriptors;
pub mod fault;
pub mod ids;
pub mod metadata;
pub mod mirror_state;
pub mod network;
pub mod storage;
pub mod task;
pub mod telemetry;
pub mod topic_name;
