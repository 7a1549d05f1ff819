//! A real Apache Kafka, started by `scripts/kafka`, as a mirror's source or for comparison.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::foreign::script;
use crate::ports;
use crate::process::run;

const PORT: u16 = 19_092;
const UP_LIMIT: Duration = Duration::from_secs(150);
/// Small: the machine that runs this has servers of ours to carry as well.
const HEAP: &str = "-Xms256M -Xmx512M";
/// A dead broker is noticed soon.
const PROPERTIES: &str = "broker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500";

/// A cluster, killed and removed when dropped.
pub struct RealKafka {
    directory: TempDir,
    version: String,
    brokers: u16,
    host: String,
}

impl RealKafka {
    /// Every broker is a controller too.
    pub async fn start(version: &str, brokers: u16) -> Result<RealKafka> {
        let kafka = RealKafka {
            directory: TempDir::with_prefix("kafka-")?,
            version: version.to_owned(),
            brokers,
            host: ports::cluster_host(),
        };
        kafka.up().await?;
        Ok(kafka)
    }

    async fn up(&self) -> Result<()> {
        let mut command = tokio::process::Command::new(script("kafka/kafka-up.sh"));
        command
            .arg(self.directory.path())
            .arg(PORT.to_string())
            .arg(self.brokers.to_string())
            .env("KAFKA_VERSION", &self.version)
            .env("KAFKA_HOST", &self.host)
            .env("KAFKA_CONTROLLERS", "0")
            .env("KAFKA_HEAP", HEAP)
            .env("KAFKA_PROPS", PROPERTIES);
        let what = format!("Kafka {}", self.version);
        run(&what, command, UP_LIMIT).await?.success(&what)?;
        Ok(())
    }

    /// `kill -9` of all its nodes.
    pub fn kill(&self) -> Result<()> {
        self.nodes()?.iter().try_for_each(|node| self.kill_node(node))
    }

    /// `kill -9` of one broker.
    pub fn kill_broker(&self, broker: i32) -> Result<()> {
        self.kill_node(&broker_node(broker))
    }

    fn kill_node(&self, node: &str) -> Result<()> {
        let status = Command::new(script("kafka/kafka-node.sh"))
            .arg("kill")
            .arg(self.directory.path())
            .arg(node)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "kill {node} of Kafka {}: {status}", self.version);
        Ok(())
    }

    fn nodes(&self) -> Result<Vec<String>> {
        let nodes = std::fs::read_to_string(self.directory.path().join("nodes"))?;
        Ok(nodes.lines().map(str::to_owned).collect())
    }

    pub fn bootstrap(&self) -> String {
        let addresses: Vec<_> =
            (0..self.brokers).map(|index| format!("{}:{}", self.host, PORT + index)).collect();
        addresses.join(",")
    }

    /// A broker's one log directory.
    pub fn data_directory(&self, broker: i32) -> PathBuf {
        self.directory.path().join(broker_node(broker)).join("data")
    }
}

impl Drop for RealKafka {
    fn drop(&mut self) {
        // Each of them, whatever becomes of the others.
        for node in self.nodes().unwrap_or_default() {
            let _ = self.kill_node(&node);
        }
    }
}

fn broker_node(broker: i32) -> String {
    format!("node-{broker}")
}
