//! A real Apache Kafka, started by `scripts/kafka`, as a mirror's source or for comparison.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tokio::process::Command;

use crate::foreign::script;
use crate::ports;
use crate::process::run;

const PORT: u16 = 19_092;
const UP_LIMIT: Duration = Duration::from_secs(150);
/// Small: the machine that runs this has servers of ours to carry as well.
const HEAP: &str = "-Xms256M -Xmx512M";
const NODE: &str = "node-1";

/// A one-node cluster, killed and removed when dropped.
pub struct RealKafka {
    directory: TempDir,
    version: String,
    host: String,
    properties: String,
}

impl RealKafka {
    /// `properties`: further lines of its configuration.
    pub async fn start(version: &str, properties: &str) -> Result<RealKafka> {
        let kafka = RealKafka {
            directory: TempDir::with_prefix("kafka-")?,
            version: version.to_owned(),
            host: ports::cluster_host(),
            properties: properties.to_owned(),
        };
        kafka.up().await?;
        Ok(kafka)
    }

    /// Starts it, again with its data where it was killed.
    pub async fn up(&self) -> Result<()> {
        let mut command = Command::new(script("kafka/kafka-up.sh"));
        command
            .arg(self.directory.path())
            .arg(PORT.to_string())
            .env("KAFKA_VERSION", &self.version)
            .env("KAFKA_HOST", &self.host)
            .env("KAFKA_HEAP", HEAP)
            .env("KAFKA_PROPS", &self.properties);
        let what = format!("Kafka {}", self.version);
        run(&what, command, UP_LIMIT).await?.success(&what)?;
        Ok(())
    }

    /// `kill -9`.
    pub async fn kill(&self) -> Result<()> {
        let mut command = Command::new(script("kafka/kafka-node.sh"));
        command.arg("kill").arg(self.directory.path()).arg(NODE);
        run("kill Kafka", command, Duration::from_secs(60)).await?.success("kill Kafka")?;
        Ok(())
    }

    pub fn bootstrap(&self) -> String {
        format!("{}:{PORT}", self.host)
    }

    /// Its one log directory.
    pub fn data_directory(&self) -> PathBuf {
        self.directory.path().join(NODE).join("data")
    }

    /// Its cluster id.
    pub fn cluster_id(&self) -> Result<String> {
        let path = self.directory.path().join("cluster.id");
        Ok(std::fs::read_to_string(path).context("cluster.id")?.trim().to_owned())
    }
}

impl Drop for RealKafka {
    fn drop(&mut self) {
        let _ = std::process::Command::new(script("kafka/kafka-node.sh"))
            .arg("kill")
            .arg(self.directory.path())
            .arg(NODE)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}
