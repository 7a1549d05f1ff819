//! B1: a second process of the same broker. With a directory of its own it is refused by the controller
//! (`metadata::t01`); with the same directory it does not even start.

use std::time::Duration;

use anyhow::{Result, ensure};
use kagami_tests::cluster::{ClusterSpec, binary};
use kagami_tests::process;
use tokio::process::Command;

use crate::support::{Side, batch};

#[tokio::test]
async fn a_second_process_on_the_same_directory_does_not_start() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 1)).await?;
    side.client.create_topic("orders", 1, 1, &[]).await?;
    let mut command = Command::new(binary("kagami-broker")?);
    command.arg("--config").arg(side.cluster.properties(1));
    command.args(["--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "metrics.listener="]);
    let outcome = process::run("the second process", command, Duration::from_secs(20)).await?;
    ensure!(outcome.code > 0, "exit code {}", outcome.code);
    let last = outcome.errors.lines().last().unwrap_or_default();
    ensure!(last.contains("lock"), "{last}");
    side.write("orders", 0, batch(&["goes on"])).await?;
    assert!(side.cluster.is_running(1));
    Ok(())
}
