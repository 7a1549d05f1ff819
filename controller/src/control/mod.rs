//! PURE: from (image, request, time and random numbers handed in) to records and a response. Nothing
//! here changes an image; only replaying the records does.

pub mod activation;
pub mod broker;
pub mod config;
pub mod directories;
pub mod election;
pub mod fast_detection;
pub mod feature;
pub mod heartbeat;
pub mod min_isr;
pub mod mirror;
pub mod partition;
pub mod partition_change;
pub mod partition_count;
pub mod placement;
pub mod producer_id;
pub mod reassignment;
pub mod result;
pub mod settings;
pub mod topic;

pub use result::{ControlError, ControllerResult};
pub use settings::ControlSettings;

#[cfg(test)]
pub(crate) mod testing;
