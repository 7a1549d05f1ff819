//! Configuration: Kafka's property files, and the definition of every key with its type, default,
//! range and whether it may change at run time.
//!
//! A value comes from, in this order: the topic, the broker's dynamic configuration, the dynamic
//! cluster default, the properties file, the default. Kafka's documentation calls the keys of one
//! setting at these levels its synonyms.

pub mod broker;
mod broker_keys;
pub mod controller;
mod controller_keys;
pub mod definition;
pub mod describe;
pub mod describe_response;
pub mod error;
mod known_keys;
pub mod listener;
pub mod mirror;
pub mod properties;
mod reader;
mod resolve;
pub mod topic;
mod topic_keys;

pub use broker::BrokerConfig;
pub use controller::ControllerConfig;
pub use definition::{ConfigDef, Dynamic, ValueType};
pub use error::{ConfigError, Warning};
pub use listener::{HostPort, ListenerEndpoint, QuorumVoter, SecurityProtocol};
pub use mirror::MirrorConfig;
pub use properties::{Properties, PropertiesError};
pub use resolve::{ConfigSource, Resolved, Synonym};
pub use topic::{TopicConfig, TopicConfigSources};
