//! Cases 9 and 10: transactions that are open at a real Kafka while it is mirrored.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use protocol::record_batch::BatchBuilder;

use super::mirroring::{MIRROR, caught_up, ensure_replicas_hold, equal_replicas, kagami, read_below};
use super::note;
use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec};
use crate::foreign;
use crate::kafka::RealKafka;
use crate::segments;

const LIMIT: Duration = Duration::from_secs(60);

pub async fn run() -> Result<()> {
    let kafka = RealKafka::start("4.4.0", 1).await?;
    let source = Client::new(&kafka.bootstrap());
    let (cluster, client) = super::mirroring::start(ClusterSpec::new(1, 3)).await?;
    let server = cluster.bootstrap();
    let create = ["mirror", "create", "--bootstrap-server", &server, "--mirror", MIRROR, "--source"];
    kagami(&[&create[..], &[&*kafka.bootstrap()]].concat()).await?;
    let mut stage = Stage { kafka, source, cluster, client };
    stage.case_09_a_transaction_left_open("commit", 13).await?;
    stage.case_09_a_transaction_left_open("abort", 8).await?;
    stage.case_10_a_stop_cuts_what_its_own_cut_would_undecide().await
}

struct Stage {
    kafka: RealKafka,
    source: Client,
    cluster: Cluster,
    client: Client,
}

impl Stage {
    /// After 3 plain records a transaction with 5 is left open, with 5 plain ones above it: the copy ends at the
    /// transaction's first offset until it is decided, and then has all of it, the marker included.
    async fn case_09_a_transaction_left_open(&mut self, decide: &str, readable: i64) -> Result<()> {
        let topic = format!("case-9-{decide}");
        self.source.create_topic(&topic, 1, 1, &[]).await?;
        let mut transactions = foreign::transactions(&self.kafka.bootstrap(), &topic)?;
        for line in ["plain 0 3 below", "begin a", "send a 0 5 inside", "plain 0 5 above"] {
            transactions.ask(line, LIMIT).await?;
        }
        self.source.await_open_transactions(&topic, &[1]).await?;
        self.add(&topic).await?;
        ensure!(self.caught_up(&topic).await? == [3], "it ends at the first offset of the transaction");
        ensure!(self.source.end_offset(&topic, 0, false).await? == 13, "the source's own end");

        transactions.ask(&format!("{decide} a"), LIMIT).await?;
        self.source.await_open_transactions(&topic, &[0]).await?;
        let ends = self.caught_up(&topic).await?;
        ensure!(ends == [14], "the marker is part of the copy: {ends:?}");
        let expected = read_below(&self.kafka.data_directory(1), &topic, &ends)?;
        ensure!(segments::summarize(&expected[0])?.control_batches == 1, "one marker");
        ensure_replicas_hold(&self.cluster, &topic, &expected, true).await?;
        let here = foreign::digest(&self.cluster.bootstrap(), &topic, &ends).await?;
        let there = foreign::digest(&self.kafka.bootstrap(), &topic, &ends).await?;
        ensure!(here == there, "consumers read differently: at the source\n{there}\nhere\n{here}");
        let committed = format!("read_committed 0 {readable} ");
        ensure!(here.contains(&committed), "wanted {committed}: {here}");
        note(&format!("case 9, {decide}: held at 3 while undecided, then equal to 14"));
        Ok(())
    }

    /// T1 writes offset 0, T2 offset 1, T1 commits, T2 stays open: the copy ends at 1, and a stop cuts it to 0, since
    /// T1's marker never came.
    async fn case_10_a_stop_cuts_what_its_own_cut_would_undecide(&mut self) -> Result<()> {
        let topic = "case-10";
        self.source.create_topic(topic, 1, 1, &[]).await?;
        let mut transactions = foreign::transactions(&self.kafka.bootstrap(), topic)?;
        for line in ["begin t1", "send t1 0 1 first", "begin t2", "send t2 0 1 second", "commit t1"] {
            transactions.ask(line, LIMIT).await?;
        }
        self.source.await_open_transactions(topic, &[1]).await?;
        self.add(topic).await?;
        ensure!(self.caught_up(topic).await? == [1], "the copy has T1's record alone");
        let readable = self.client.end_offset(topic, 0, true).await?;
        ensure!(readable == 0, "a reader of committed records comes to {readable}");

        let server = self.cluster.bootstrap();
        let remove =
            ["mirror", "remove", "--bootstrap-server", &server, "--mirror", MIRROR, "--topic", topic];
        kagami(&[&remove[..], &["--wait"]].concat()).await?;
        let replicas = equal_replicas(&self.cluster, topic, 1).await?;
        ensure!(replicas.iter().all(Vec::is_empty), "leader and followers end at 0");
        let describe = ["mirror", "describe", "--bootstrap-server", &server, "--mirror", MIRROR, "--json"];
        let described: serde_json::Value = serde_json::from_str(&kagami(&describe).await?)?;
        let partition = described
            .as_array()
            .and_then(|all| all.iter().find(|partition| partition["topic"] == topic))
            .with_context(|| format!("{topic} in {described}"))?;
        ensure!(partition["state"] == "STOPPED", "STOPPED: {partition}");
        let logs = self.cluster.controllers().into_iter().map(|id| self.cluster.log(id));
        let told = logs.filter(|log| log.contains("partition case-10-0 released at 0,")).count();
        ensure!(told == 1, "the last mirrored offset is not 0");
        let batch = BatchBuilder::new().record(1, None, Some(b"new")).build();
        self.client.forget_leaders();
        let produced = self.client.produce(topic, 0, batch).await?;
        ensure!(produced.error_code == 0 && produced.base_offset == 0, "{produced:?}");
        let readable = self.client.end_offset(topic, 0, true).await?;
        ensure!(readable == 1, "the new record is not held back: {readable}");
        note("case 10: cut to 0 on every replica, the next record is readable at once");
        Ok(())
    }

    async fn add(&mut self, topic: &str) -> Result<()> {
        let server = self.cluster.bootstrap();
        let add = ["mirror", "add", "--bootstrap-server", &server, "--mirror", MIRROR, "--topic", topic];
        kagami(&[&add[..], &["--wait"]].concat()).await?;
        Ok(())
    }

    async fn caught_up(&mut self, topic: &str) -> Result<Vec<i64>> {
        caught_up(&mut self.source, &mut self.client, topic, 1, LIMIT).await
    }
}
