//! Whole clusters of real processes, for tests: start them, break them, look at what they hold.

pub mod chaos;
pub mod client;
pub mod cluster;
pub mod eventually;
pub mod fault;
pub mod foreign;
pub mod fuzz;
pub mod history;
pub mod http;
pub mod interop;
pub mod kafka;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod segments;
pub mod simulation;
