//! The deterministic simulation: a short run of seeds, and traces that are known to have broken others.

mod t01_seeds;
mod t02_replication;
