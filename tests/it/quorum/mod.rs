//! The controller quorum, and what it notices of brokers.

mod t01_fast_detection;
mod t02_voters;
mod t03_no_quorum;
