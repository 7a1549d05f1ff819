//! The metadata log: records, their bytes, and the image that replaying them gives.

pub mod image;
pub mod record;

pub use image::MetadataImage;
pub use record::{MetadataBatch, MetadataRecord};
