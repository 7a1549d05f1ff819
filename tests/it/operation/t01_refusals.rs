//! Bad flags, bad configs, bad directories: an exit code that is not 0 and one clear line.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::cluster::{Cluster, ClusterSpec, binary};
use kagami_tests::process;
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::LIMIT;

const DAEMONS: [(&str, i32); 2] = [("kagami-broker", 1), ("kagami-controller", 101)];

/// Runs a daemon that must refuse to start; its last line.
async fn refusal(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(binary(program)?);
    command.args(arguments);
    let what = format!("{program} {}", arguments.join(" "));
    let outcome = process::run(&what, command, Duration::from_secs(20)).await?;
    ensure!(outcome.code > 0, "{what}: exit code {}", outcome.code);
    ensure!(!outcome.errors.contains("panicked"), "{what}: {}", outcome.errors);
    ensure!(outcome.output.is_empty(), "{what} writes to standard output: {}", outcome.output);
    let last = outcome.errors.lines().rfind(|line| !line.trim().is_empty());
    Ok(last.with_context(|| format!("{what} says nothing"))?.to_owned())
}

fn config(cluster: &Cluster, node: i32) -> String {
    cluster.properties(node).display().to_string()
}

#[tokio::test]
async fn a_wrong_value_is_named_with_its_key_and_what_is_allowed() -> Result<()> {
    let cluster = Cluster::format(ClusterSpec::new(1, 1))?;
    let cases = [
        (DAEMONS[0], "num.partitions=0", "at least 1"),
        (DAEMONS[0], "num.partitions=many", "integer"),
        (DAEMONS[0], "auto.create.topics.enable=maybe", "true"),
        (DAEMONS[0], "listeners=PLAINTEXT://nowhere", "host:port"),
        (DAEMONS[0], "node.id=-5", "at least 0"),
        (DAEMONS[0], "log.segment.bytes=3", "at least 1048576"),
        (DAEMONS[0], "controller.quorum.voters=here", "@"),
        (DAEMONS[1], "quorum.heartbeat.interval.ms=0", "from 1 to 60000"),
        (DAEMONS[1], "default.replication.factor=x", "integer"),
        (DAEMONS[1], "quorum.listener=nowhere", "host:port"),
    ];
    for ((program, node), setting, allowed) in cases {
        let line = refusal(program, &["--config", &config(&cluster, node), "--override", setting]).await?;
        let (key, value) = setting.split_once('=').context("a setting")?;
        for word in [key, value, allowed] {
            ensure!(line.contains(word), "{program} with {setting} does not say {word}: {line}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn bad_flags_files_and_missing_keys_are_refused() -> Result<()> {
    let cluster = Cluster::format(ClusterSpec::new(1, 1))?;
    for (program, node) in DAEMONS {
        let config = config(&cluster, node);
        for arguments in [
            &["--config", "/nowhere/x.properties"][..],
            &["--config", &config, "--override", "no-equals-sign"],
            &["--config", &config, "--log-format", "xml"],
            &["--config", &config, "--unknown"],
            &[],
        ] {
            refusal(program, arguments).await?;
        }
        let directory = TempDir::with_prefix("kagami-refusals-")?;
        let text = fs::read_to_string(cluster.properties(node))?;
        for key in ["node.id", "controller.quorum.voters"] {
            let without: Vec<_> = text.lines().filter(|line| !line.starts_with(&format!("{key}="))).collect();
            let path = directory.path().join("without.properties");
            fs::write(&path, without.join("\n"))?;
            let line = refusal(program, &["--config", &path.display().to_string()]).await?;
            ensure!(line.contains(key), "{program} without {key}: {line}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn directories_that_are_unformatted_of_another_node_or_in_use_are_refused() -> Result<()> {
    let mut cluster = Cluster::format(ClusterSpec::new(1, 1))?;
    for (program, node) in DAEMONS {
        let config = config(&cluster, node);
        let empty = TempDir::with_prefix("kagami-empty-")?;
        let path = empty.path().display().to_string();
        let setting = format!("log.dirs={path}");
        let line = refusal(program, &["--config", &config, "--override", &setting]).await?;
        ensure!(line.contains("format") && line.contains(&path), "{program} unformatted: {line}");
        let line = refusal(program, &["--config", &config, "--override", "node.id=55"]).await?;
        ensure!(line.contains("55"), "{program} as another node: {line}");
    }
    for (_, node) in DAEMONS {
        cluster.start_node(node)?;
    }
    Client::new(&cluster.bootstrap()).await_brokers(1, LIMIT).await?;
    for (program, node) in DAEMONS {
        // Ports in use are told as such, and once.
        let line = refusal(program, &["--config", &config(&cluster, node)]).await?;
        ensure!(line.matches("in use").count() <= 1, "a second {program}: {line}");
        let host = kagami_tests::ports::cluster_host();
        let mut arguments = vec!["--config".to_owned(), config(&cluster, node)];
        let listeners = match node {
            101 => format!("listeners=CONTROLLER://{host}:9190"),
            _ => format!("listeners=PLAINTEXT://{host}:9092"),
        };
        let metrics = format!("metrics.listener={host}:9390");
        let quorum = format!("quorum.listener={host}:9290");
        let settings = [listeners, metrics, quorum];
        for setting in settings.iter().take(if node == 101 { 3 } else { 2 }) {
            arguments.extend(["--override".to_owned(), setting.clone()]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let line = refusal(program, &arguments).await?;
        let directory = cluster.data_directory(node).display().to_string();
        ensure!(line.contains(&directory), "a second {program} in its directory: {line}");
        ensure!(cluster.is_running(node), "the first {program} has ended");
    }
    Ok(())
}

#[tokio::test]
async fn an_unknown_key_is_a_warning_with_the_nearest_known_one() -> Result<()> {
    let mut cluster = Cluster::start(ClusterSpec::new(1, 1).with("num.partitons", "3"))?;
    Client::new(&cluster.bootstrap()).await_brokers(1, LIMIT).await?;
    for (program, node) in DAEMONS {
        let log = cluster.log(node);
        let warning = log.lines().find(|line| line.contains("num.partitons"));
        ensure!(warning.is_some_and(|line| line.contains("num.partitions")), "{program}: {warning:?}");
        // A signal ends it in order, with exit code 0.
        cluster.stop(node)?;
    }
    Ok(())
}
