//! Replicas with real logs, alone and as clusters that replicate over loopback.

mod cluster;
mod cuts;
mod fetching;
mod replication;
mod scale;
