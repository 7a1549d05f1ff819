//! Kafka's dump tool reads our segments, indexes and producer snapshots without complaint.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::mirroring::{caught_up, mirror, start};
use super::note;
use crate::client::Client;
use crate::cluster::ClusterSpec;
use crate::foreign;
use crate::kafka::RealKafka;
use crate::process::last_lines;
use crate::segments;

const MIRRORED: &str = "mirrored";
const ORDINARY: &str = "ordinary";
const LIMIT: Duration = Duration::from_secs(40);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// What the tool prints where a file is not as it should be.
const COMPLAINTS: [&str; 11] = [
    "Mismatch",
    "mismatch",
    "out of order",
    "not valid",
    "isvalid: false",
    "Corrupt",
    "corrupt",
    "Exception",
    "Error",
    "Could not",
    "Index is not",
];

pub async fn run() -> Result<()> {
    let kafka = RealKafka::start("4.4.0", 1).await?;
    let mut source = Client::new(&kafka.bootstrap());
    source.create_topic(MIRRORED, 1, 1, &[("segment.bytes", "1048576")]).await?;
    let mut transactions = foreign::transactions(&kafka.bootstrap(), MIRRORED)?;
    for _ in 0..2 {
        foreign::produce_many(&kafka.bootstrap(), MIRRORED, 10_000, "none").await?;
        for line in ["begin a", "send a 0 40 x", "commit a", "begin b", "send b 0 40 x", "abort b"] {
            transactions.ask(line, ANSWER_LIMIT).await?;
        }
    }
    let (mut cluster, mut client) = start(ClusterSpec::new(1, 1)).await?;
    mirror(&cluster, &kafka.bootstrap(), MIRRORED).await?;
    caught_up(&mut source, &mut client, MIRRORED, 1, LIMIT).await?;
    client.create_topic(ORDINARY, 1, 1, &[("segment.bytes", "1048576")]).await?;
    for compression in ["none", "zstd"] {
        foreign::produce_many(&cluster.bootstrap(), ORDINARY, 15_000, compression).await?;
    }
    let broker = cluster.brokers()[0];
    let data = cluster.data_directory(broker);
    cluster.stop(broker)?;

    // What the tool says of Kafka's own files is the measure.
    let kafkas = segments::partition_directory(&kafka.data_directory(1), MIRRORED, 0);
    dump("Kafka's copy", "log", &segments::files(&kafkas, "log")?).await?;
    for topic in [MIRRORED, ORDINARY] {
        let directory = segments::partition_directory(&data, topic, 0);
        for extension in ["log", "index", "timeindex", "txnindex", "snapshot"] {
            let files = segments::files(&directory, extension)?;
            let wanted = match extension {
                "log" | "index" | "timeindex" => files.len() >= 2,
                // Only the mirrored topic has aborted transactions.
                "txnindex" => topic == ORDINARY || !files.is_empty(),
                _ => !files.is_empty(),
            };
            ensure!(wanted, "{topic} has {} .{extension} files", files.len());
            if !files.is_empty() {
                dump(topic, extension, &files).await?;
            }
        }
    }
    Ok(())
}

/// Every segment's first offset counts as a gap after -1 to the tool, in Kafka's own files too.
fn is_complaint(line: &str) -> bool {
    let gap = line.contains(" is followed by ") && !line.trim().starts_with("-1 ");
    gap || COMPLAINTS.iter().any(|complaint| line.contains(complaint))
}

async fn dump(topic: &str, extension: &str, files: &[PathBuf]) -> Result<()> {
    let list: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let list = list.join(",");
    let mut arguments = vec!["dump-log", "--files", &list];
    match extension {
        "log" => arguments.extend(["--deep-iteration", "--skip-record-metadata"]),
        // The whole index against its segment.
        "index" => arguments.push("--verify-index-only"),
        _ => {}
    }
    let outcome = foreign::kafka_tool(&arguments).await?;
    let said = format!("{}\n{}", outcome.output, outcome.errors);
    let complaint = said.lines().find(|line| is_complaint(line));
    ensure!(complaint.is_none(), "dump of {topic}'s .{extension}: {}", complaint.unwrap_or_default());
    ensure!(
        outcome.code == 0,
        "dump of {topic}'s .{extension}: exit code {}: {}",
        outcome.code,
        last_lines(&said)
    );
    let dumped = said.matches("Dumping").count();
    ensure!(dumped == files.len(), "dump of {topic}'s .{extension}: {dumped} of {} files", files.len());
    note(&format!("{topic}: {dumped} .{extension} files, {} lines", said.lines().count()));
    Ok(())
}
