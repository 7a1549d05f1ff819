//! The controller quorum, and what it notices of brokers.

mod t01_fast_detection;
