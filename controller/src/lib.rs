//! being written
pub mod control;
