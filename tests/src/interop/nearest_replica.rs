//! Stock consumers with a rack read from the follower there (KIP-392).

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use tokio::process::Command;

use super::note;
use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec};
use crate::foreign::{self, kafka_tool};
use crate::http;
use crate::process::run;

const TOPIC: &str = "near";
const RECORDS: u32 = 5_000;
const SELECTOR: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
const LIMIT: Duration = Duration::from_secs(60);

pub async fn run_all() -> Result<()> {
    let spec = ClusterSpec::new(1, 2).with("replica.selector.class", SELECTOR);
    let mut cluster = Cluster::format(spec)?;
    for id in cluster.brokers() {
        let mut file = File::options().append(true).open(cluster.properties(id))?;
        writeln!(file, "broker.rack=rack-{id}")?;
    }
    for id in [cluster.controllers(), cluster.brokers()].concat() {
        cluster.start_node(id)?;
    }
    let bootstrap = cluster.bootstrap();
    let mut client = Client::new(&bootstrap);
    client.await_brokers(2, LIMIT).await?;
    client.create_topic(TOPIC, 1, 2, &[]).await?;
    foreign::produce_many(&bootstrap, TOPIC, RECORDS, "none").await?;
    client.await_isr(TOPIC, 2, LIMIT).await?;
    let partition = client.topic(TOPIC).await?.partitions.into_iter().next().context("a partition")?;
    let leader = partition.leader_id.0;
    let follower = 3 - leader;

    // Nobody fetches from a broker that leads nothing, unless it is sent there.
    let before = fetches(&cluster, follower).await?;
    let read = kcat(&bootstrap, leader).await?;
    ensure!(read == RECORDS as usize, "kcat in the leader's rack read {read}");
    ensure!(fetches(&cluster, follower).await? == before, "read from the follower in another rack");
    let read = kcat(&bootstrap, follower).await?;
    ensure!(read == RECORDS as usize, "kcat in the follower's rack read {read}");
    let by_kcat = fetches(&cluster, follower).await? - before;
    ensure!(by_kcat > 0, "kcat did not read from the follower");
    note(&format!("kcat: {by_kcat} fetches from the follower in its rack"));

    let before = fetches(&cluster, follower).await?;
    let (records, rack) = (RECORDS.to_string(), format!("client.rack=rack-{follower}"));
    let mut arguments = vec!["console-consumer", "--bootstrap-server", &bootstrap, "--topic", TOPIC];
    // Assigned by hand: it needs no group.
    arguments.extend(["--partition", "0", "--offset", "earliest", "--max-messages", &records]);
    arguments.extend(["--timeout-ms", "30000", "--command-property", &rack]);
    let said = kafka_tool(&arguments).await?.success("console-consumer")?;
    ensure!(said.lines().count() == RECORDS as usize, "console-consumer read {}", said.lines().count());
    let by_java = fetches(&cluster, follower).await? - before;
    ensure!(by_java > 0, "Kafka's consumer did not read from the follower");
    note(&format!("console-consumer: {by_java} fetches from the follower in its rack"));
    Ok(())
}

/// Fetch requests that a broker has answered.
async fn fetches(cluster: &Cluster, broker: i32) -> Result<u64> {
    let body = http::get(&cluster.metrics_address(broker), "/metrics").await?.body;
    let count = Regex::new(r#"(?m)requests_total\{[^}]*"Fetch"[^}]*\} (\d+)"#)?;
    Ok(count.captures(&body).and_then(|found| found[1].parse().ok()).unwrap_or(0))
}

/// How many records kcat reads with the rack of this broker.
async fn kcat(bootstrap: &str, broker: i32) -> Result<usize> {
    let mut command = Command::new("kcat");
    command.args(["-C", "-q", "-e", "-b", bootstrap, "-t", TOPIC, "-o", "beginning"]);
    command.args(["-X", &format!("client.rack=rack-{broker}"), "-f", "%o\n"]);
    let said = run("kcat", command, LIMIT).await?.success("kcat")?;
    Ok(said.lines().count())
}
