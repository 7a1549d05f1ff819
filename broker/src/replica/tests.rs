//! Replicas with real logs, alone and as clusters that replicate over loopback.

mod apis;
mod cluster;
mod cuts;
mod fetching;
mod moves;
mod read_replicas;
mod replication;
mod scale;
mod throttling;
