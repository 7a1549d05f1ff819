//! Replicas with real logs, alone and as clusters that replicate over loopback.

mod apis;
mod cluster;
mod cuts;
mod fetching;
mod read_replicas;
mod replication;
mod scale;
mod throttling;
