//! Whole clusters of real processes, for tests: start them, break them, look at what they hold.

pub mod cluster;
pub mod eventually;
pub mod ports;
