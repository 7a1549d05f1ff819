//! Processes that the controller does not let in.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use kagami_tests::cluster::{ClusterSpec, binary};
use kagami_tests::process::{self, Outcome};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{Side, batch};

/// Runs a broker with the properties of broker 1, but a directory and a port of its own, to its end.
async fn intruder(side: &Side, node_id: i32, cluster_id: &str) -> Result<Outcome> {
    let directory = TempDir::with_prefix("kagami-intruder-")?;
    let data = directory.path().join("data");
    fs::create_dir(&data)?;
    let own = fs::read_to_string(side.cluster.properties(1))?;
    let replaced = ["node.id=", "log.dirs=", "listeners=", "metrics.listener="];
    let kept = own.lines().filter(|line| !replaced.iter().any(|key| line.starts_with(key)));
    let mut text = kept.collect::<Vec<_>>().join("\n");
    text += &format!("\nnode.id={node_id}\nlog.dirs={}\nlisteners=PLAINTEXT://127.0.0.1:0\n", data.display());
    let properties = directory.path().join("node.properties");
    fs::write(&properties, text)?;
    let config = properties.display().to_string();
    side.kagami(&["storage", "format", "--config", &config, "--cluster-id", cluster_id]).await?;
    let mut command = Command::new(binary("kagami-broker")?);
    command.args(["--config", &config]);
    process::run("the intruder", command, Duration::from_secs(20)).await
}

#[tokio::test]
async fn a_second_live_broker_with_the_same_id_is_refused() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 1)).await?;
    side.client.create_topic("orders", 1, 1, &[]).await?;
    let outcome = intruder(&side, 1, side.cluster.cluster_id()).await?;
    ensure!(outcome.code > 0, "exit code {}", outcome.code);
    let last = outcome.errors.lines().last().unwrap_or_default();
    ensure!(last.contains("node.id 1") && last.contains("another process"), "{last}");
    // The one that was there has noticed nothing.
    side.write("orders", 0, batch(&["goes on"])).await?;
    assert!(side.cluster.is_running(1));
    Ok(())
}

#[tokio::test]
async fn a_broker_of_another_cluster_and_one_with_a_controllers_id_are_refused() -> Result<()> {
    let side = Side::start(ClusterSpec::new(1, 1)).await?;
    let other_id = side.kagami(&["storage", "random-uuid"]).await?;
    let outcome = intruder(&side, 7, other_id.trim()).await?;
    ensure!(outcome.code > 0, "exit code {}", outcome.code);
    let last = outcome.errors.lines().last().unwrap_or_default();
    ensure!(last.contains("cluster"), "{last}");

    let outcome = intruder(&side, 101, side.cluster.cluster_id()).await?;
    ensure!(outcome.code > 0, "exit code {}", outcome.code);
    let last = outcome.errors.lines().last().unwrap_or_default();
    ensure!(last.contains("101"), "{last}");
    Ok(())
}
