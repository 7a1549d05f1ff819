//! Bad input on every port: Kafka's error or a closed connection, a daemon that keeps serving, flat memory.
//! The cases' names are those of a catalogue of faults: N1 frames, N2 slow and silent peers, N3 versions,
//! N4 counts, N6 batches, N7 sizes, S9 mirror configs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::mirroring::start;
use super::note;
use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec};

mod batches;
mod commands;
mod frames;
mod sizes;

const HEALTHY: Duration = Duration::from_secs(1);
/// What a daemon may grow by over all cases: buffers and caches of its allocator, not what was claimed.
const GROWTH_KIB: u64 = 192 << 10;

/// The daemons under test.
struct Target {
    cluster: Cluster,
    client: Client,
    broker: String,
    controller: String,
    quorum: String,
    /// Node id and resident memory after the warm-up.
    resident_kib: Vec<(i32, u64)>,
}

pub async fn run() -> Result<()> {
    let (cluster, mut client) = start(ClusterSpec::new(1, 1)).await?;
    client.create_topic("t", 2, 1, &[]).await?;
    let (controller, broker) = (cluster.controllers()[0], cluster.brokers()[0]);
    let mut target = Target {
        broker: cluster.broker_address(broker),
        controller: cluster.controller_address(controller),
        quorum: cluster.quorum_address(controller),
        resident_kib: Vec::new(),
        cluster,
        client,
    };
    for node in [controller, broker] {
        target.resident_kib.push((node, resident_kib(target.cluster.pid(node)?)?));
    }
    // Each part by itself, so that one finding hides no other.
    let mut findings = Vec::new();
    for outcome in [
        frames::run(&mut target).await,
        batches::run(&mut target).await,
        sizes::run(&mut target).await,
        commands::run(&mut target).await,
        frames::claims_on_every_port(&mut target).await,
    ] {
        findings.extend(outcome.err().map(|error| format!("{error:#}")));
    }
    ensure!(findings.is_empty(), "{}", findings.join("; "));
    target.client.create_topic("after-everything", 1, 1, &[]).await?;
    Ok(())
}

impl Target {
    /// Both daemons answer on new connections within a second, and have not grown.
    async fn ensure_healthy(&mut self, after: &str) -> Result<()> {
        for address in [self.broker.clone(), self.controller.clone()] {
            let took = Client::probe(&address).await.with_context(|| format!("after {after}"))?;
            ensure!(took < HEALTHY, "{address} answered ApiVersions after {took:?}, after {after}");
        }
        let mut sizes = Vec::new();
        for (node, before) in self.resident_kib.clone() {
            ensure!(
                self.cluster.is_running(node),
                "node {node} ended after {after}: {}",
                crate::process::last_lines(&self.cluster.log(node))
            );
            let now = resident_kib(self.cluster.pid(node)?)?;
            ensure!(now < before + GROWTH_KIB, "node {node} grew from {before} to {now} KiB after {after}");
            sizes.push(format!("node {node}: {} MiB", now >> 10));
        }
        for node in [self.cluster.controllers(), self.cluster.brokers()].concat() {
            let log = self.cluster.log(node);
            let panic = log.lines().find(|line| line.contains("panicked"));
            ensure!(panic.is_none(), "node {node} after {after}: {}", panic.unwrap_or_default());
        }
        note(&format!("{after}: {}", sizes.join(", ")));
        Ok(())
    }
}

fn resident_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.trim().trim_end_matches("kB").trim().parse().context("VmRSS")
}
