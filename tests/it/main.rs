//! Whole clusters of real processes, a module a theme. Kagami is the source of every mirror here: what needs
//! a JDK or a foreign client is in the `interop` program.

#[cfg(debug_assertions)]
mod counterexamples;
mod durability;
mod failover;
mod fuzzing;
mod metadata;
mod mirror;
mod operation;
mod quorum;
mod replication;
mod simulation;
mod storage;
mod support;
