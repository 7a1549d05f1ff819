//! What is fuzzed.

mod batch_samples;
mod checkpoint;
mod index;
mod log;
mod log_files;
mod message_samples;
mod metadata;
mod metadata_samples;
mod mirror_state;
mod own;
mod properties;
mod quorum_store;
mod record_batch;
mod request;
mod response;

use super::Target;
pub use own::OWN_TESTS;

pub struct TargetEntry {
    pub name: &'static str,
    pub make: fn() -> Box<dyn Target>,
}

/// The slow ones first, so that they do not run alone at the end.
pub const TARGETS: &[TargetEntry] = &[
    TargetEntry { name: "log", make: || Box::new(log::Logs::new()) },
    TargetEntry { name: "properties", make: || Box::new(properties::PropertyFiles) },
    TargetEntry { name: "record-batch", make: || Box::new(record_batch::RecordBatches::new()) },
    TargetEntry { name: "index", make: || Box::new(index::Indexes::new()) },
    TargetEntry { name: "checkpoint", make: || Box::new(checkpoint::Checkpoints::new()) },
    TargetEntry { name: "metadata", make: || Box::new(metadata::Metadata::new()) },
    TargetEntry { name: "request", make: || Box::new(request::Requests::new()) },
    TargetEntry { name: "response", make: || Box::new(response::Responses) },
    TargetEntry { name: "mirror-state", make: || Box::new(mirror_state::MirrorStates) },
    TargetEntry { name: "quorum-store", make: || Box::new(quorum_store::QuorumStore::new()) },
];
