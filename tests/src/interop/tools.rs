//! Stock tools, by the suites of `scripts/suites`, against one broker with the settings that those name.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::process::Command;

use super::mirroring::start;
use super::note;
use crate::cluster::ClusterSpec;
use crate::foreign::script;
use crate::process::run;

const JAVA_CHECKS: &str = "^(broker-api-versions|cluster-id|features|metadata-quorum|topics-.*|\
    verifiable-producer|seed-1|producer-perf|get-offsets|configs-alter|configs-describe|delete-records|\
    log-dirs|leader-election)$";
/// Less than the scenarios' own limits.
const LIMIT: Duration = Duration::from_secs(400);

pub async fn kcat() -> Result<()> {
    suite("suites/client_matrix.sh", "kcat").await
}

/// Case 30: Kafka's own admin client, producer and consumer of 4.x, by the tools built on them.
pub async fn case_30_java_clients_work_as_on_kafka() -> Result<()> {
    suite("suites/java_tools.sh", JAVA_CHECKS).await
}

async fn suite(name: &str, argument: &str) -> Result<()> {
    let spec = ClusterSpec::new(1, 1)
        .with("auto.create.topics.enable", "true")
        .with("num.partitions", "4")
        .with("log.message.timestamp.after.max.ms", "9223372036854775807");
    let (cluster, _client) = start(spec).await?;
    let mut command = Command::new(script(name));
    command.arg(cluster.bootstrap()).arg(argument).env("SUITE_NICE", "0");
    let outcome = run(name, command, LIMIT).await?;
    let said: Vec<&str> = outcome.output.lines().collect();
    let failed: Vec<&str> = said.iter().copied().filter(|line| line.starts_with("FAIL ")).collect();
    let last = said.last().copied().unwrap_or_default();
    ensure!(outcome.code == 0 && failed.is_empty(), "{last}: {failed:?} {}", outcome.errors.trim());
    note(last);
    Ok(())
}
