//! Clients that are not ours: Kafka's Java clients and tools, librdkafka, kcat, kafka-python, kafkajs. All
//! are started by the scripts of `scripts/`, which install them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::process::{Conversation, Outcome, run};

/// For one JVM's start and a small job on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// For downloads on a machine that has none of them yet.
const PREPARE_LIMIT: Duration = Duration::from_secs(900);

/// A file below `scripts/`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(name)
}

/// Fetches and builds what the scenarios use, so that none of them waits for it.
pub async fn prepare() -> Result<()> {
    let command = Command::new(script("interop/prepare.sh"));
    run("prepare.sh", command, PREPARE_LIMIT).await?.success("prepare.sh")?;
    Ok(())
}

/// The clients that produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Java,
    Librdkafka,
    KafkaPython,
    Kafkajs,
}

impl Client {
    pub const ALL: [Client; 4] = [Client::Java, Client::Librdkafka, Client::KafkaPython, Client::Kafkajs];

    fn command(self) -> Command {
        let (starter, program) = match self {
            Client::Java => ("interop/java.sh", "Produce"),
            Client::Librdkafka => ("interop/python.sh", "librdkafka.py"),
            Client::KafkaPython => ("interop/python.sh", "kafka_python.py"),
            Client::Kafkajs => ("interop/node.sh", "kafkajs.js"),
        };
        let mut command = Command::new(script(starter));
        command.arg(program);
        command
    }

    async fn run(self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command();
        command.args(arguments);
        let what = format!("{self:?} {}", arguments.join(" "));
        let output = run(&what, command, LIMIT).await?.success(&what)?;
        Ok(output.lines().last().unwrap_or_default().to_owned())
    }

    /// Sends a record that must be refused, then one to `other` with the same producer.
    pub async fn refused(self, bootstrap: &str, topic: &str, partition: i32, other: &str) -> Result<Refusal> {
        let line = self.run(&["refused", bootstrap, topic, &partition.to_string(), other]).await?;
        serde_json::from_str(&line).with_context(|| format!("{self:?} said {line:?}"))
    }

    /// Sends one record; its offset.
    pub async fn write(self, bootstrap: &str, topic: &str, partition: i32, value: &str) -> Result<i64> {
        let line = self.run(&["write", bootstrap, topic, &partition.to_string(), value]).await?;
        let written: Written =
            serde_json::from_str(&line).with_context(|| format!("{self:?} said {line:?}"))?;
        Ok(written.offset)
    }
}

/// How a client took a refusal.
#[derive(Debug, Deserialize)]
pub struct Refusal {
    /// `None`: the record was taken.
    pub error: Option<String>,
    pub refused_ms: u64,
    /// Where the next record went.
    pub other_offset: i64,
}

#[derive(Deserialize)]
struct Written {
    offset: i64,
}

/// One of Kafka's tools by its script name.
pub async fn kafka_tool(arguments: &[&str]) -> Result<Outcome> {
    let mut command = Command::new(script("kafka/kafka-tool.sh"));
    command.args(arguments).env("KAFKA_TOOL_HEAP", "-Xmx256M");
    run(&format!("kafka-tool.sh {}", arguments.join(" ")), command, LIMIT).await
}

/// A program of `scripts/interop` on Kafka's own clients; it must succeed.
pub async fn java(class: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(script("interop/java.sh"));
    command.arg(class).args(arguments);
    let what = format!("{class}.java");
    run(&what, command, LIMIT).await?.success(&what)
}

/// Kafka's own producer of many records.
#[derive(Clone, Copy, Debug)]
pub struct PerfProducer {
    pub compression: &'static str,
    pub idempotent: bool,
}

impl PerfProducer {
    /// Records of 100 bytes, spread over the partitions.
    pub async fn run(self, bootstrap: &str, topic: &str, records: u32) -> Result<()> {
        let records = records.to_string();
        let compression = format!("compression.type={}", self.compression);
        let idempotence = format!("enable.idempotence={}", self.idempotent);
        let mut arguments = vec!["producer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic];
        arguments.extend(["--num-records", &records, "--record-size", "100", "--throughput", "-1"]);
        arguments.extend(["--command-property", &compression, "acks=all", &idempotence]);
        let output = kafka_tool(&arguments).await?.success("producer-perf-test")?;
        ensure!(output.contains(&format!("{records} records sent")), "producer-perf-test said {output}");
        Ok(())
    }
}

/// The same in its usual form.
pub async fn produce_many(
    bootstrap: &str,
    topic: &str,
    records: u32,
    compression: &'static str,
) -> Result<()> {
    PerfProducer { compression, idempotent: true }.run(bootstrap, topic, records).await
}

/// Transactional producers of Kafka's Java client (see `scripts/interop/Transactions.java`).
pub fn transactions(bootstrap: &str, topic: &str) -> Result<Conversation> {
    let mut command = Command::new(script("interop/java.sh"));
    command.args(["Transactions", bootstrap, topic]);
    Conversation::start("Transactions.java", command)
}

/// What Java consumers read below `ends`, both isolation levels: a line for each and partition.
pub async fn digest(bootstrap: &str, topic: &str, ends: &[i64]) -> Result<String> {
    let ends: Vec<String> = ends.iter().map(i64::to_string).collect();
    let mut command = Command::new(script("interop/java.sh"));
    command.args(["Digest", bootstrap, topic, &ends.join(",")]);
    run("Digest.java", command, LIMIT).await?.success("Digest.java")
}

/// One record by kcat; its offset, or what kcat said instead.
pub async fn kcat_write(
    bootstrap: &str,
    topic: &str,
    partition: i32,
    value: &str,
) -> Result<Result<i64, String>> {
    let mut command = Command::new("bash");
    let line = r#"printf '%s' "$4" | kcat -b "$1" -P -t "$2" -p "$3" -X message.timeout.ms=30000 -vvv"#;
    command.args(["-c", line, "kcat", bootstrap, topic, &partition.to_string(), value]);
    let outcome = run("kcat", command, LIMIT).await?;
    let said = format!("{}{}", outcome.output, outcome.errors);
    let offset = said
        .split_once("(offset ")
        .and_then(|(_, rest)| rest.split(')').next())
        .and_then(|number| number.parse().ok());
    Ok(offset.ok_or_else(|| crate::process::last_lines(&said)))
}
