//! The metadata log: records, their bytes, and the image that replaying them gives.

pub mod codec;
pub mod delta;
pub mod image;
pub mod local_changes;
pub mod record;
mod replay;
pub mod snapshot;

pub use delta::MetadataDelta;
pub use image::MetadataImage;
pub use local_changes::LocalChanges;
pub use record::{MetadataBatch, MetadataRecord};
pub use replay::ApplyError;

#[cfg(test)]
mod tests;
