//! Pulling from a leader: what a follower's fetchers do.

pub mod backoff;
pub mod fetch_state;
// The folder is about fetching; this file is one fetcher.
#[allow(clippy::module_inception)]
mod fetcher;
pub mod leader_endpoint;
pub mod manager;
pub mod session;

pub use manager::{FetcherConfig, FetcherManager};
