//! The mirror APIs of KIP-1279: one file each, fields in the order of the KIP's schemas, all at version
//! 0 and flexible. What we add stands in tagged fields, so that the untagged bytes are the KIP's.
//!
//! Numbers that may be missing have -1 for it, times are milliseconds since the epoch.

pub mod add_topics_to_mirror;
pub mod create_mirror;
pub mod describe_mirrors;
pub mod last_mirrored_offsets;
pub mod list_mirrors;
pub mod list_source_topics;
pub mod read_mirror_states;
pub mod remove_topics_from_mirror;
pub mod verify_mirror;
pub mod write_mirror_states;

pub use add_topics_to_mirror::{AddTopicsToMirrorRequest, AddTopicsToMirrorResponse};
pub use create_mirror::{CreateMirrorRequest, CreateMirrorResponse};
pub use describe_mirrors::{DescribeMirrorsRequest, DescribeMirrorsResponse};
pub use last_mirrored_offsets::{LastMirroredOffsetsRequest, LastMirroredOffsetsResponse};
pub use list_mirrors::{ListMirrorsRequest, ListMirrorsResponse};
pub use list_source_topics::{ListSourceTopicsRequest, ListSourceTopicsResponse};
pub use read_mirror_states::{ReadMirrorStatesRequest, ReadMirrorStatesResponse};
pub use remove_topics_from_mirror::{RemoveTopicsFromMirrorRequest, RemoveTopicsFromMirrorResponse};
pub use verify_mirror::{VerifyMirrorRequest, VerifyMirrorResponse};
pub use write_mirror_states::{WriteMirrorStatesRequest, WriteMirrorStatesResponse};

#[cfg(test)]
mod golden;
