//! Kafka's tools for replicas and their configuration, against three brokers: reassignment with a throttle,
//! with cancelling; elections; dynamic configuration; DeleteRecords; comparison of replicas.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use protocol::record_batch::BatchBuilder;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use super::mirroring::start;
use super::note;
use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec};
use crate::eventually::eventually;
use crate::foreign::{self, kafka_tool, script};
use crate::process::run;

const TOPIC: &str = "moving";
const PARTITIONS: i32 = 3;
/// More than one fetch brings of each partition.
const RECORDS: u32 = 120_000;
const LIMIT: Duration = Duration::from_secs(60);

pub async fn replication() -> Result<()> {
    let (mut cluster, mut client) = start(ClusterSpec::new(1, 3).with_broker_directories(2)).await?;
    let bootstrap = cluster.bootstrap();
    let files = TempDir::with_prefix("kagami-tools-")?;
    client.create_topic(TOPIC, PARTITIONS, 2, &[("min.insync.replicas", "1")]).await?;
    foreign::produce_many(&bootstrap, TOPIC, RECORDS, "none").await?;
    client.await_isr(TOPIC, 2, LIMIT).await?;

    reassignment(&cluster, &mut client, files.path()).await?;
    log_directories(&cluster, &mut client, files.path()).await?;
    preferred_leaders(&bootstrap, &mut client).await?;
    configs(&bootstrap).await?;
    delete_records(&bootstrap, files.path()).await?;
    replica_verification(&bootstrap).await?;
    unclean_election(&mut cluster, &mut client).await
}

/// The tool's words; it must succeed.
async fn tool(arguments: &[&str]) -> Result<String> {
    kafka_tool(arguments).await?.success(&arguments.join(" "))
}

fn expect(said: &str, wanted: &str) -> Result<()> {
    ensure!(said.contains(wanted), "not {wanted:?} but: {}", said.trim());
    Ok(())
}

fn write_json(directory: &Path, name: &str, value: &serde_json::Value) -> Result<PathBuf> {
    let path = directory.join(name);
    std::fs::write(&path, value.to_string())?;
    Ok(path)
}

fn plan(directory: &Path, name: &str, replicas: &[Vec<i32>]) -> Result<PathBuf> {
    let partitions: Vec<_> = replicas
        .iter()
        .enumerate()
        .map(|(partition, replicas)| json!({"topic": TOPIC, "partition": partition, "replicas": replicas}))
        .collect();
    write_json(directory, name, &json!({"version": 1, "partitions": partitions}))
}

async fn reassign(bootstrap: &str, arguments: &[&str]) -> Result<String> {
    let mut all = vec!["reassign-partitions", "--bootstrap-server", bootstrap];
    all.extend(arguments);
    tool(&all).await
}

async fn replicas_of(client: &mut Client, partition: i32) -> Result<Vec<i32>> {
    let found = client.topic(TOPIC).await?;
    let partition = found.partitions.iter().find(|found| found.partition_index == partition);
    Ok(partition.context("no such partition")?.replica_nodes.iter().map(|id| id.0).collect())
}

async fn reassignment(cluster: &Cluster, client: &mut Client, directory: &Path) -> Result<()> {
    let bootstrap = cluster.bootstrap();
    // Each partition away from its first replica.
    let (mut targets, mut first) = (Vec::new(), Vec::new());
    for partition in 0..PARTITIONS {
        let now = replicas_of(client, partition).await?;
        let other = cluster.brokers().into_iter().find(|id| !now.contains(id)).context("a third broker")?;
        targets.push(vec![now[1], other]);
        first.push(now[0]);
    }
    let file = plan(directory, "move.json", &targets)?;
    let file = file.to_str().context("a path")?;
    let execute = ["--reassignment-json-file", file, "--execute", "--throttle", "100000000"];
    let said = reassign(&bootstrap, &execute).await?;
    expect(&said, "Successfully started partition reassignments")?;
    let verify = ["--reassignment-json-file", file, "--verify"];
    let said = eventually("the reassignment is done", LIMIT, || async {
        let said = reassign(&bootstrap, &verify).await?;
        Ok((said.matches("is completed.").count() == PARTITIONS as usize).then_some(said))
    })
    .await?;
    expect(&said, "Clearing topic-level throttles")?;
    expect(&reassign(&bootstrap, &["--list"]).await?, "No partition reassignments found.")?;
    for partition in 0..PARTITIONS {
        let (wanted, gone) = (&targets[partition as usize], first[partition as usize]);
        ensure!(replicas_of(client, partition).await? == *wanted, "{TOPIC}-{partition} did not move");
        let left = cluster.data_directory(gone).join(format!("{TOPIC}-{partition}"));
        eventually("the old directory goes", LIMIT, || {
            let gone = !left.exists();
            async move { Ok(gone.then_some(())) }
        })
        .await?;
    }
    note("reassign-partitions: executed with a throttle, verified");

    // Back with a throttle that lets nothing come to its end, and cancelled.
    let back: Vec<Vec<i32>> = (0..PARTITIONS as usize).map(|p| vec![targets[p][0], first[p]]).collect();
    let file = plan(directory, "back.json", &back)?;
    let file = file.to_str().context("a path")?;
    let execute = ["--reassignment-json-file", file, "--execute", "--throttle", "1"];
    reassign(&bootstrap, &execute).await?;
    expect(&reassign(&bootstrap, &["--list"]).await?, "Current partition reassignments")?;
    let said = reassign(&bootstrap, &["--reassignment-json-file", file, "--cancel"]).await?;
    expect(&said, "Successfully cancelled partition reassignments")?;
    expect(&reassign(&bootstrap, &["--list"]).await?, "No partition reassignments found.")?;
    for (partition, wanted) in targets.iter().enumerate() {
        ensure!(replicas_of(client, partition as i32).await? == *wanted, "{TOPIC}-{partition} is not back");
    }
    note("reassign-partitions: held back by a throttle, cancelled");
    Ok(())
}

/// Between the directories of one broker, and to a directory of another one.
async fn log_directories(cluster: &Cluster, client: &mut Client, directory: &Path) -> Result<()> {
    let bootstrap = cluster.bootstrap();
    let now = replicas_of(client, 0).await?;
    let coming = cluster.brokers().into_iter().find(|id| !now.contains(id)).context("a third broker")?;
    let name = format!("{TOPIC}-0");
    let both = |broker: i32| [cluster.data_directory(broker), cluster.further_directory(broker, 2)];
    let other_of = |broker: i32| both(broker).into_iter().find(|path| !path.join(&name).exists());
    let stays = other_of(now[0]).context("another directory")?;
    let comes = both(coming)[1].clone();
    let paths = [&stays, &comes].map(|path| path.display().to_string());
    let partition = json!({"topic": TOPIC, "partition": 0, "replicas": [now[0], coming], "log_dirs": paths});
    let file = write_json(directory, "dirs.json", &json!({"version": 1, "partitions": [partition]}))?;
    let file = file.to_str().context("a path")?;
    let throttles = ["--throttle", "100000000", "--replica-alter-log-dirs-throttle", "100000000"];
    let execute = ["--reassignment-json-file", file, "--execute"];
    let said = reassign(&bootstrap, &[&execute[..], &throttles[..]].concat()).await?;
    for path in &paths {
        expect(&said, &format!("Successfully started moving log directory to {path} for replica {name}"))?;
    }
    let verify = ["--reassignment-json-file", file, "--verify"];
    eventually("both have moved", LIMIT, || async {
        let said = reassign(&bootstrap, &verify).await?;
        let moved = said.matches("completed successfully").count() == 2 && said.contains("is completed.");
        Ok(moved.then_some(()))
    })
    .await?;
    ensure!(stays.join(&name).exists() && comes.join(&name).exists(), "they do not lie there");
    ensure!(other_of(now[0]).is_some() && other_of(coming).is_some(), "they lie elsewhere too");
    note("reassign-partitions: log_dirs, within a broker and on another one");
    Ok(())
}

async fn preferred_leaders(bootstrap: &str, client: &mut Client) -> Result<()> {
    let arguments = ["leader-election", "--bootstrap-server", bootstrap, "--election-type", "preferred"];
    let said = tool(&[&arguments[..], &["--all-topic-partitions"]].concat()).await?;
    client.await_leaders(TOPIC, PARTITIONS).await?;
    for partition in client.topic(TOPIC).await?.partitions {
        ensure!(partition.replica_nodes.first() == Some(&partition.leader_id), "{said}: {partition:?}");
    }
    let again = tool(&[&arguments[..], &["--topic", TOPIC, "--partition", "0"]].concat()).await?;
    expect(&again, "already elected")?;
    note("leader-election: preferred");
    Ok(())
}

async fn configs(bootstrap: &str) -> Result<()> {
    let alter = |arguments: &[&'static str]| {
        let mut all = vec!["configs", "--bootstrap-server", bootstrap];
        all.extend(arguments);
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        async move { kafka_tool(&all.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    let brokers = ["--entity-type", "brokers"];
    let default = [&brokers[..], &["--entity-default"]].concat();
    let own = [&brokers[..], &["--entity-name", "1"]].concat();
    let set = |entity: &[&'static str], config: &'static str| {
        [entity, &["--alter", "--add-config", config]].concat()
    };
    alter(&set(&default, "log.retention.ms=86400000")).await?.success("cluster default")?;
    alter(&set(&own, "log.retention.ms=43200000,leader.replication.throttled.rate=1000000"))
        .await?
        .success("broker")?;
    let shown = alter(&[&own[..], &["--describe"]].concat()).await?.success("describe")?;
    expect(&shown, "log.retention.ms=43200000")?;
    expect(&shown, "DYNAMIC_BROKER_CONFIG:log.retention.ms=43200000")?;
    expect(&shown, "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=86400000")?;
    let all = alter(&[&own[..], &["--describe", "--all"]].concat()).await?.success("describe all")?;
    expect(&all, "STATIC_BROKER_CONFIG:node.id=1")?;
    expect(&all, "DEFAULT_CONFIG:num.replica.fetchers=1")?;
    let refused = alter(&set(&default, "node.id=7")).await?;
    ensure!(refused.code != 0, "node.id was changed: {}", refused.output);
    for entity in [&default, &own] {
        let delete = [&entity[..], &["--alter", "--delete-config", "log.retention.ms"]].concat();
        alter(&delete).await?.success("delete-config")?;
    }
    let topic = ["--entity-type", "topics", "--entity-name", TOPIC];
    alter(&set(&topic, "cleanup.policy=[compact,delete],retention.ms=3600000")).await?.success("topic")?;
    let shown = alter(&[&topic[..], &["--describe"]].concat()).await?.success("describe topic")?;
    expect(&shown, "cleanup.policy=compact,delete")?;
    let delete = [&topic[..], &["--alter", "--delete-config", "cleanup.policy,retention.ms"]].concat();
    alter(&delete).await?.success("delete-config")?;
    note("configs: cluster default, broker, topic");
    Ok(())
}

async fn delete_records(bootstrap: &str, directory: &Path) -> Result<()> {
    let wanted = json!({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "offset": 100}]});
    let file = write_json(directory, "delete.json", &wanted)?;
    let file = file.to_str().context("a path")?;
    let said = tool(&["delete-records", "--bootstrap-server", bootstrap, "--offset-json-file", file]).await?;
    expect(&said, "low_watermark: 100")?;
    let said =
        tool(&["get-offsets", "--bootstrap-server", bootstrap, "--topic", TOPIC, "--time", "-2"]).await?;
    expect(&said, &format!("{TOPIC}:0:100"))?;
    note("delete-records");
    Ok(())
}

/// Fetches from every replica and compares checksums; it runs until it is stopped.
async fn replica_verification(bootstrap: &str) -> Result<()> {
    let mut command = Command::new("timeout");
    command.arg("25").arg(script("kafka/kafka-tool.sh"));
    command.args(["replica-verification", "--broker-list", bootstrap, "--topics-include", TOPIC]);
    command.args(["--time", "-2", "--report-interval-ms", "2000"]).env("KAFKA_TOOL_HEAP", "-Xmx256M");
    let outcome = run("replica-verification", command, LIMIT).await?;
    let said = format!("{}\n{}", outcome.output, outcome.errors);
    let last = said.lines().rfind(|line| line.contains("max lag is"));
    ensure!(last.is_some_and(|line| line.contains("max lag is 0 ")), "no replicas compared: {said}");
    ensure!(!said.contains("has checksum"), "replicas differ: {said}");
    note(&format!("replica-verification: {}", last.unwrap_or_default().trim()));
    Ok(())
}

/// The only one in sync is gone; another is made leader because an operator says so.
async fn unclean_election(cluster: &mut Cluster, client: &mut Client) -> Result<()> {
    let bootstrap = cluster.bootstrap();
    let found = client.topic(TOPIC).await?;
    let partition = found.partitions.into_iter().find(|p| p.partition_index == 0).context("partition 0")?;
    let (leader, follower) = (partition.leader_id.0, partition.replica_nodes[1].0);
    cluster.stop(follower)?;
    let batch = BatchBuilder::new().record(1, None, Some(b"only the leader has it")).build();
    client.forget_leaders();
    let produced = client.produce(TOPIC, 0, batch).await?;
    ensure!(produced.error_code == 0, "{produced:?}");
    cluster.kill(leader)?;
    cluster.start_node(follower)?;
    let leads = |bootstrap: &str| {
        let mut client = Client::new(bootstrap);
        async move {
            let found = client.topic(TOPIC).await?;
            let partition = found.partitions.iter().find(|partition| partition.partition_index == 0);
            anyhow::Ok(partition.context("partition 0")?.leader_id.0)
        }
    };
    // Once the killed one is given up, and the other is back.
    eventually("the partition is without a leader", LIMIT, || async {
        let leader = leads(&bootstrap).await?;
        let brokers = Client::new(&bootstrap).metadata(None).await?.brokers.len();
        Ok((leader == -1 && brokers == 2).then_some(()))
    })
    .await?;
    let arguments = ["leader-election", "--bootstrap-server", &bootstrap, "--election-type", "unclean"];
    let said = tool(&[&arguments[..], &["--topic", TOPIC, "--partition", "0"]].concat()).await?;
    expect(&said, "Successfully completed leader election (UNCLEAN)")?;
    eventually("the partition is led", LIMIT, || async {
        Ok((leads(&bootstrap).await? == follower).then_some(()))
    })
    .await?;
    note("leader-election: unclean");
    Ok(())
}
