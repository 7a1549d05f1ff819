//! `kagami verify`: a mirror partition's log against the source's, byte by byte, streaming.

pub mod compaction;
pub mod compare;
pub mod expand;
pub mod policy;
pub mod run;

pub use run::verify_partition;
