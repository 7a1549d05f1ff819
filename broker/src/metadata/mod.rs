//! The broker's side of the metadata log: it registers, subscribes, replays what the quorum
//! committed, and applies each change in a fixed order.

pub mod cache;
pub mod controller_channel;
pub mod dynamic_config;
pub mod lifecycle;
pub mod loader;
pub mod publisher;
pub mod store;

pub use cache::MetadataCache;
pub use controller_channel::{ChannelError, ControllerChannel, QuorumVoter};
pub use dynamic_config::DynamicBrokerConfig;
pub use publisher::{MetadataPublisher, MetadataSubscriber};

#[cfg(test)]
mod tests;
