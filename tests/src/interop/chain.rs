//! Kafka to Kagami to Kagami: the last copy has the first log's bytes, transactions and all.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::mirroring::{caught_up, ensure_replicas_hold, mirror, read_below, start};
use super::note;
use crate::client::Client;
use crate::cluster::ClusterSpec;
use crate::foreign;
use crate::kafka::RealKafka;
use crate::segments;

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 3;
const LIMIT: Duration = Duration::from_secs(40);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

pub async fn run() -> Result<()> {
    let kafka = RealKafka::start("4.4.0", 1).await?;
    let mut source = Client::new(&kafka.bootstrap());
    source.create_topic(TOPIC, PARTITIONS, 1, &[("segment.bytes", "1048576")]).await?;
    foreign::produce_many(&kafka.bootstrap(), TOPIC, 20_000, "snappy").await?;
    let mut transactions = foreign::transactions(&kafka.bootstrap(), TOPIC)?;
    let (middle, mut first) = start(ClusterSpec::new(1, 1)).await?;
    let (last, mut second) = start(ClusterSpec::new(1, 1)).await?;
    mirror(&middle, &kafka.bootstrap(), TOPIC).await?;
    mirror(&last, &middle.bootstrap(), TOPIC).await?;
    // While both links run.
    for line in [
        "begin a",
        "send a 0 40 committed",
        "send a 1 40 committed",
        "commit a",
        "begin b",
        "send b 0 40 aborted",
        "send b 1 40 aborted",
        "abort b",
        "plain 0 10 plain",
        "begin open",
        "send open 1 20 open",
        "plain 1 10 above",
    ] {
        transactions.ask(line, ANSWER_LIMIT).await?;
    }
    source.await_open_transactions(TOPIC, &[0, 1, 0]).await?;
    let ends = caught_up(&mut source, &mut first, TOPIC, PARTITIONS, LIMIT).await.context("first link")?;
    let last_ends =
        caught_up(&mut first, &mut second, TOPIC, PARTITIONS, LIMIT).await.context("second link")?;
    ensure!(ends == last_ends, "ends {ends:?} in the middle, {last_ends:?} at the end of the chain");
    let expected = read_below(&kafka.data_directory(1), TOPIC, &ends)?;
    let control: usize = expected
        .iter()
        .map(|bytes| segments::summarize(bytes).map(|summary| summary.control_batches))
        .sum::<Result<usize>>()?;
    ensure!(control >= 4, "only {control} transaction markers in the log");
    ensure_replicas_hold(&middle, TOPIC, &expected, true).await.context("middle")?;
    ensure_replicas_hold(&last, TOPIC, &expected, true).await.context("last")?;
    note(&format!("equal to {ends:?} over both links, {control} markers"));

    // What was open is decided: it arrives at the end of the chain too.
    transactions.ask("commit open", ANSWER_LIMIT).await?;
    source.await_open_transactions(TOPIC, &[0; PARTITIONS as usize]).await?;
    let ends = caught_up(&mut source, &mut first, TOPIC, PARTITIONS, LIMIT).await.context("first link")?;
    caught_up(&mut first, &mut second, TOPIC, PARTITIONS, LIMIT).await.context("second link")?;
    let there = foreign::digest(&kafka.bootstrap(), TOPIC, &ends).await?;
    let here = foreign::digest(&last.bootstrap(), TOPIC, &ends).await?;
    ensure!(there == here, "consumers read differently: at the source\n{there}\nat the end\n{here}");
    let expected = read_below(&kafka.data_directory(1), TOPIC, &ends)?;
    ensure_replicas_hold(&last, TOPIC, &expected, true).await
}
