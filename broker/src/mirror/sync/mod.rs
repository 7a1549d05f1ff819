//! The refresh of a mirror: topics, partitions and configs brought in line with the source, by the
//! mirror's coordinator alone. The differences are computed by pure code.

pub mod configs;
pub mod job;
mod remarks;
pub mod topics;
