//! Kafka's dump tool reads our segments, indexes and producer snapshots without complaint, whatever was done to
//! them.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use protocol::record_batch::BatchBuilder;

use super::mirroring::{caught_up, mirror, start};
use super::note;
use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec};
use crate::eventually::eventually;
use crate::foreign;
use crate::kafka::RealKafka;
use crate::process::last_lines;
use crate::segments;

const MIRRORED: &str = "mirrored";
const MIRRORED_COMPACTED: &str = "mirrored-compacted";
const ORDINARY: &str = "ordinary";
const COMPACTED: &str = "compacted";
/// Segments close by their age, and what is closed is cleaned.
const COMPACT: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("segment.ms", "200"), ("min.cleanable.dirty.ratio", "0.01")];
const SEGMENT_AGE: Duration = Duration::from_millis(250);
const DEEP: [&str; 2] = ["--deep-iteration", "--skip-record-metadata"];
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

/// Kafka's copies are the measure; ours hold everything that a broker does to a log: mirrored transactions, a
/// compacted topic with and without them, and a crash with a torn tail.
pub async fn run() -> Result<()> {
    let kafka = RealKafka::start("4.4.0", 1).await?;
    let mut source = Client::new(&kafka.bootstrap());
    source.create_topic(MIRRORED, 1, 1, &[("segment.bytes", "1048576")]).await?;
    source.create_topic(MIRRORED_COMPACTED, 1, 1, &COMPACT).await?;
    let mut transactions = foreign::transactions(&kafka.bootstrap(), MIRRORED)?;
    let mut compacted = foreign::transactions(&kafka.bootstrap(), MIRRORED_COMPACTED)?;
    for _ in 0..2 {
        foreign::produce_many(&kafka.bootstrap(), MIRRORED, 10_000, "none").await?;
        for (producers, committed, aborted) in [(&mut transactions, "a", "b"), (&mut compacted, "c", "d")] {
            for (id, end) in [(committed, "commit"), (aborted, "abort")] {
                for line in [format!("begin {id}"), format!("send {id} 0 40 x"), format!("{end} {id}")] {
                    producers.ask(&line, ANSWER_LIMIT).await?;
                }
            }
        }
    }
    let spec = ClusterSpec::new(1, 1)
        .with("log.cleaner.backoff.ms", "100")
        .with("log.retention.check.interval.ms", "200");
    let (mut cluster, mut client) = start(spec).await?;
    mirror(&cluster, &kafka.bootstrap(), "mirrored.*").await?;
    for topic in [MIRRORED, MIRRORED_COMPACTED] {
        caught_up(&mut source, &mut client, topic, 1, LIMIT).await?;
    }
    client.create_topic(ORDINARY, 1, 1, &[("segment.bytes", "1048576")]).await?;
    for compression in ["none", "zstd"] {
        foreign::produce_many(&cluster.bootstrap(), ORDINARY, 15_000, compression).await?;
    }
    client.create_topic(COMPACTED, 1, 1, &COMPACT).await?;
    for round in 0..5 {
        let produced = client.produce(COMPACTED, 0, keyed(round)).await?;
        ensure!(produced.error_code == 0, "{produced:?}");
        tokio::time::sleep(SEGMENT_AGE).await;
    }
    let broker = cluster.brokers()[0];
    for topic in [COMPACTED, MIRRORED_COMPACTED] {
        cleaned(&cluster, broker, topic).await?;
    }

    // A crash in the middle of a write.
    let data = cluster.data_directory(broker);
    cluster.kill(broker)?;
    for topic in [ORDINARY, MIRRORED] {
        tear(&segments::partition_directory(&data, topic, 0))?;
    }
    cluster.start_node(broker)?;
    client.forget_leaders();
    client.await_leaders(ORDINARY, 1).await?;
    ensure!(cluster.log(broker).matches("log recovered").count() >= 2, "the torn tails were not cut");
    cluster.stop(broker)?;

    // What the tool says of Kafka's own files is the measure.
    let kafkas = segments::partition_directory(&kafka.data_directory(1), MIRRORED, 0);
    let files = |topics: &[&str], extension: &str| -> Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for topic in topics {
            let directory = segments::partition_directory(&data, topic, 0);
            let found = segments::files(&directory, extension)?;
            // Only mirrored topics have aborted transactions.
            let wanted = extension != "txnindex" || *topic == MIRRORED;
            ensure!(!wanted || !found.is_empty(), "{topic} has no .{extension} files");
            all.extend(found.into_iter().filter(|path| path.metadata().is_ok_and(|meta| meta.len() > 0)));
        }
        Ok(all)
    };
    let whole = [ORDINARY, MIRRORED];
    let cleaned = [COMPACTED, MIRRORED_COMPACTED];
    let all = [ORDINARY, MIRRORED, COMPACTED, MIRRORED_COMPACTED];
    let logs = [segments::files(&kafkas, "log")?, files(&whole, "log")?].concat();
    ensure!(logs.len() > 4, "{} segments", logs.len());
    dump("whole logs", &DEEP, &logs, true).await?;
    dump("cleaned logs", &DEEP, &files(&cleaned, "log")?, false).await?;
    let (offsets, times) = (files(&all, "index")?, files(&all, "timeindex")?);
    dump("offset indexes", &["--verify-index-only"], &offsets, true).await?;
    dump("time indexes", &[], &times, true).await?;
    dump("all indexes", &["--index-sanity-check"], &[offsets, times].concat(), true).await?;
    dump("transaction indexes", &[], &files(&all, "txnindex")?, true).await?;
    dump("producer snapshots", &[], &files(&all, "snapshot")?, true).await
}

/// Forty keys, each of them anew in every round.
fn keyed(round: usize) -> Bytes {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let mut builder = BatchBuilder::new();
    for key in 0..40 {
        let (key, value) = (format!("key-{key}"), format!("value of round {round}"));
        builder.push(now_ms, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    }
    builder.build()
}

/// Waits until the cleaner has dropped something of the topic.
async fn cleaned(cluster: &Cluster, broker: i32, topic: &str) -> Result<()> {
    eventually(&format!("{topic} is cleaned"), LIMIT, || {
        let log = cluster.log(broker);
        let of_topic =
            |line: &&str| line.contains("log cleaned") && line.contains(&format!("topic={topic} "));
        let dropped = log.lines().filter(of_topic).any(|line| !line.contains("records_dropped=0"));
        async move { Ok(dropped.then_some(())) }
    })
    .await
}

/// Half a batch behind the last one.
fn tear(directory: &Path) -> Result<()> {
    let path = segments::files(directory, "log")?.pop().context("a segment")?;
    let bytes = std::fs::read(&path)?;
    let batch = protocol::record_batch::batches(&bytes).last().context("a batch")??;
    let torn = [&bytes[..], &batch.bytes[..batch.bytes.len() / 2]].concat();
    Ok(std::fs::write(path, torn)?)
}

/// Every segment's first offset counts as a gap after -1 to the tool, in Kafka's own files too.
fn is_complaint(line: &str, gapless: bool) -> bool {
    let gap = gapless && line.contains(" is followed by ") && !line.trim().starts_with("-1 ");
    gap || COMPLAINTS.iter().any(|complaint| line.contains(complaint))
}

async fn dump(what: &str, options: &[&str], files: &[PathBuf], gapless: bool) -> Result<()> {
    ensure!(!files.is_empty(), "{what}: there are none");
    let list: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let list = list.join(",");
    let arguments = [&["dump-log", "--files", &list][..], options].concat();
    let outcome = foreign::kafka_tool(&arguments).await?;
    let said = format!("{}\n{}", outcome.output, outcome.errors);
    let complaint = said.lines().find(|line| is_complaint(line, gapless));
    ensure!(complaint.is_none(), "dump of {what}: {}", complaint.unwrap_or_default());
    ensure!(outcome.code == 0, "dump of {what}: exit code {}: {}", outcome.code, last_lines(&said));
    let dumped = said.matches("Dumping").count();
    ensure!(dumped == files.len(), "dump of {what}: {dumped} of {} files", files.len());
    note(&format!("{what}: {dumped} files, {} lines", said.lines().count()));
    Ok(())
}
