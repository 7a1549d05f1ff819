//! What the mirror scenarios have in common.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec, binary};
use crate::process::run;
use crate::segments;

/// The name of every mirror here.
pub const MIRROR: &str = "interop";
const START_LIMIT: Duration = Duration::from_secs(30);
const COMMAND_LIMIT: Duration = Duration::from_secs(100);
const REPLICAS_EQUAL_LIMIT: Duration = Duration::from_secs(30);
const HTTP_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// A cluster of which all brokers serve, and a client of it.
pub async fn start(spec: ClusterSpec) -> Result<(Cluster, Client)> {
    let brokers = spec.brokers as usize;
    let cluster = Cluster::start(spec)?;
    let mut client = Client::new(&cluster.bootstrap());
    if let Err(error) = client.await_brokers(brokers, START_LIMIT).await {
        let said = |id: &i32| format!("{id}: {}", crate::process::last_lines(&cluster.log(*id)));
        let nodes = [cluster.controllers(), cluster.brokers()].concat();
        let logs: Vec<String> = nodes.iter().map(said).collect();
        return Err(error.context(format!("start of a cluster; logs: {}", logs.join("\n"))));
    }
    Ok((cluster, client))
}

/// The operator's command; it must succeed.
pub async fn kagami(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(binary("kagami")?);
    command.args(arguments);
    let what = format!("kagami {}", arguments.join(" "));
    run(&what, command, COMMAND_LIMIT).await?.success(&what)
}

/// Creates the mirror and mirrors topics, until every partition is MIRRORING.
pub async fn mirror(cluster: &Cluster, source: &str, topic: &str) -> Result<()> {
    let server = cluster.bootstrap();
    kagami(&["mirror", "create", "--bootstrap-server", &server, "--mirror", MIRROR, "--source", source])
        .await?;
    let add =
        ["mirror", "add", "--bootstrap-server", &server, "--mirror", MIRROR, "--topic", topic, "--wait"];
    kagami(&add).await?;
    Ok(())
}

/// The node id of the active controller.
pub async fn active_controller(cluster: &Cluster) -> Result<i32> {
    let controllers = cluster.bootstrap_controller();
    let output = kagami(&["quorum", "describe", "--bootstrap-controller", &controllers, "--json"]).await?;
    let value: serde_json::Value = serde_json::from_str(&output).context("quorum describe")?;
    Ok(value["leader"].as_i64().context("no leader")? as i32)
}

/// The broker that leads a partition.
pub async fn leader_of(client: &mut Client, topic: &str, partition: i32) -> Result<i32> {
    let found = client.topic(topic).await?;
    let partition = found.partitions.iter().find(|found| found.partition_index == partition);
    Ok(partition.context("no such partition")?.leader_id.0)
}

/// Waits until every partition of the mirror ends where the source's last stable offset is; these offsets.
pub async fn caught_up(
    source: &mut Client,
    mirror: &mut Client,
    topic: &str,
    partitions: i32,
    within: Duration,
) -> Result<Vec<i64>> {
    let deadline = Instant::now() + within;
    loop {
        let wanted = source.end_offsets(topic, partitions, true).await;
        let found = mirror.end_offsets(topic, partitions, false).await;
        let last = match (wanted, found) {
            (Ok(wanted), Ok(found)) if wanted == found => return Ok(wanted),
            (Ok(wanted), Ok(found)) => format!("last stable offsets {wanted:?}, here {found:?}"),
            (Err(error), _) => format!("source: {error:#}"),
            (_, Err(error)) => {
                mirror.forget_leaders();
                format!("mirror: {error:#}")
            }
        };
        if Instant::now() > deadline {
            let bootstrap = mirror.bootstrap();
            let states =
                kagami(&["mirror", "describe", "--bootstrap-server", &bootstrap, "--timeout", "5"]).await;
            let states = states.unwrap_or_else(|error| format!("{error:#}"));
            bail!("{topic} not caught up within {within:?}: {last}; {states}");
        }
        sleep(PAUSE).await;
    }
}

/// The bytes of each partition below its end, from one log directory.
pub fn read_below(data: &std::path::Path, topic: &str, ends: &[i64]) -> Result<Vec<Vec<u8>>> {
    let read = |(partition, end): (usize, &i64)| {
        let directory = segments::partition_directory(data, topic, partition as i32);
        let bytes = segments::read(&directory)?;
        let below = segments::below(&bytes, *end).with_context(|| directory.display().to_string())?;
        Ok(below.to_vec())
    };
    ends.iter().enumerate().map(read).collect()
}

/// Every replica of every partition begins with these bytes; followers get a moment to come up.
pub async fn ensure_replicas_hold(
    cluster: &Cluster,
    topic: &str,
    expected: &[Vec<u8>],
    whole: bool,
) -> Result<()> {
    let deadline = Instant::now() + REPLICAS_EQUAL_LIMIT;
    for broker in cluster.brokers() {
        let data: PathBuf = cluster.data_directory(broker);
        for (partition, expected) in expected.iter().enumerate() {
            let directory = segments::partition_directory(&data, topic, partition as i32);
            let what = format!("{topic}-{partition} on broker {broker}");
            loop {
                let outcome = segments::read(&directory).and_then(|found| {
                    let begin = if whole { &found[..] } else { &found[..found.len().min(expected.len())] };
                    segments::ensure_equal(&what, expected, begin)
                });
                match outcome {
                    Ok(()) => break,
                    Err(error) if Instant::now() > deadline => return Err(error),
                    Err(_) => sleep(PAUSE).await,
                }
            }
        }
    }
    Ok(())
}

/// All replicas of a partition are equal; their bytes.
pub async fn equal_replicas(cluster: &Cluster, topic: &str, partitions: i32) -> Result<Vec<Vec<u8>>> {
    let deadline = Instant::now() + REPLICAS_EQUAL_LIMIT;
    let mut all = Vec::new();
    for partition in 0..partitions {
        loop {
            let read = |broker: i32| {
                let data = cluster.data_directory(broker);
                segments::read(&segments::partition_directory(&data, topic, partition))
            };
            let copies: Result<Vec<Vec<u8>>> = cluster.brokers().into_iter().map(read).collect();
            let compared = copies.and_then(|mut copies| {
                let last = copies.pop().context("no broker")?;
                for copy in &copies {
                    segments::ensure_equal(&format!("{topic}-{partition}, replicas"), &last, copy)?;
                }
                Ok(last)
            });
            match compared {
                Ok(bytes) => {
                    all.push(bytes);
                    break;
                }
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
    Ok(all)
}

/// GET of a daemon's HTTP server: the body.
pub async fn http_get(address: &str, path: &str) -> Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
            .await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        anyhow::Ok(text)
    };
    let text = timeout(HTTP_LIMIT, exchange).await.with_context(|| format!("GET {address}{path}"))??;
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no head in {text:?}"))?;
    ensure!(head.starts_with("HTTP/1.1 200"), "GET {address}{path}: {head}");
    Ok(body.to_owned())
}

/// How many requests of an API the brokers have answered.
pub async fn requests(cluster: &mut Cluster, api: &str) -> Result<u64> {
    let wanted = format!("kagami_requests_total{{api=\"{api}\"}} ");
    let mut sum = 0;
    for broker in cluster.brokers() {
        if !cluster.is_running(broker) {
            continue;
        }
        let body = http_get(&cluster.metrics_address(broker), "/metrics").await?;
        let line = body.lines().find_map(|line| line.strip_prefix(&wanted));
        sum += line.map_or(Ok(0), |count| count.trim().parse::<u64>()).context("a count")?;
    }
    Ok(sum)
}
