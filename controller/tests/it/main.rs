//! One controller in process, asked as brokers and admin clients ask it.

// Wire messages have many fields; a test sets the few that it is about.
#![allow(clippy::field_reassign_with_default)]

mod admin;
mod brokers;
mod failover;
mod harness;
mod restart;
mod stream;
