//! Mirrors: the desired state, and the facts that partition leaders have committed (decisions 8 to 19).

pub mod create;
pub mod cut;
pub mod last_mirrored;
pub mod propose;
pub mod release;
pub mod source;
pub mod topics;

use common::metadata::image::{PartitionImage, TopicImage};
use common::metadata::record::TopicMirror;
use common::mirror_state::REMOVED_SUFFIX;
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::result::refuse;
use super::topic::{MAX_TOPIC_NAME_LENGTH, has_legal_characters};

/// Whether the partition's newest association is released.
pub fn is_released(partition: &PartitionImage, mirror: &TopicMirror) -> bool {
    partition.mirror.release.as_ref().is_some_and(|release| release.association == mirror.association)
}

/// An ordinary topic, or one whose newest association is released in every partition (decision 18).
pub fn every_partition_writable(topic: &TopicImage) -> bool {
    match &topic.mirror {
        None => true,
        Some(mirror) => topic.partitions.iter().all(|partition| is_released(partition, mirror)),
    }
}

/// The rules for mirror names.
pub fn validate_mirror_name(name: Option<&str>) -> Result<&str, ControlError> {
    let invalid = |reason: &str| refuse(ErrorCode::InvalidMirrorName, reason);
    match name {
        None | Some("") => invalid("a mirror needs a name"),
        Some("." | "..") => invalid("a mirror name is neither '.' nor '..'"),
        Some(name) if name.len() > MAX_TOPIC_NAME_LENGTH => {
            invalid(&format!("a mirror name has at most {MAX_TOPIC_NAME_LENGTH} characters"))
        }
        Some(name) if !has_legal_characters(name) => {
            invalid("a mirror name consists of ASCII letters, digits, '.', '_' and '-'")
        }
        Some(name) if name.ends_with(REMOVED_SUFFIX) => {
            invalid(&format!("a mirror name does not end in '{REMOVED_SUFFIX}'"))
        }
        Some(name) => Ok(name),
    }
}
