//! Real Kafka as the source: byte for byte, through kills of controller, broker and source, to the failover.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use protocol::record_batch::BatchBuilder;

use super::mirroring::{
    MIRROR, active_controller, caught_up, ensure_replicas_hold, equal_replicas, kagami, leader_of, mirror,
    read_below, requests, start,
};
use super::note;
use crate::client::Client;
use crate::cluster::{Cluster, ClusterSpec};
use crate::foreign::{self, Client as Foreign, PerfProducer};
use crate::kafka::RealKafka;
use crate::process::Conversation;
use crate::segments;

const TOPIC: &str = "orders";
/// Of the destination alone: what a refused producer writes to next.
const ORDINARY: &str = "ordinary";
const COMPRESSIONS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
/// Small, so that segments roll: Kafka's lowest.
const SEGMENT_BYTES: &str = "1048576";
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const CATCH_UP_LIMIT: Duration = Duration::from_secs(60);
const ISR_LIMIT: Duration = Duration::from_secs(60);

/// How large a run is.
struct Plan {
    version: &'static str,
    source_brokers: u16,
    partitions: i32,
    /// For each compression setting.
    records: u32,
    /// 2.8's KRaft preview hands out no producer ids.
    transactions: bool,
    clients: bool,
}

pub async fn kafka_4_4() -> Result<()> {
    Plan {
        version: "4.4.0",
        source_brokers: 1,
        partitions: 6,
        records: 40_000,
        transactions: true,
        clients: true,
    }
    .run()
    .await
}

pub async fn kafka_3_6() -> Result<()> {
    Plan {
        version: "3.6.2",
        source_brokers: 3,
        partitions: 3,
        records: 4_000,
        transactions: true,
        clients: false,
    }
    .run()
    .await
}

/// Its KRaft preview runs with one node alone.
pub async fn kafka_2_8() -> Result<()> {
    Plan {
        version: "2.8.2",
        source_brokers: 1,
        partitions: 3,
        records: 4_000,
        transactions: false,
        clients: false,
    }
    .run()
    .await
}

/// Everything that a run holds.
struct Stage {
    plan: Plan,
    kafka: RealKafka,
    /// The broker of the source that lives to the end.
    source_broker: i32,
    source: Client,
    cluster: Cluster,
    client: Client,
    /// Keeps transactions open at the source.
    _transactions: Option<Conversation>,
}

impl Plan {
    async fn run(self) -> Result<()> {
        let kafka = RealKafka::start(self.version, self.source_brokers).await?;
        let mut source = Client::new(&kafka.bootstrap());
        source
            .create_topic(
                TOPIC,
                self.partitions,
                self.source_brokers as i16,
                &[("segment.bytes", SEGMENT_BYTES)],
            )
            .await?;
        for compression in COMPRESSIONS {
            let producer = PerfProducer { idempotent: self.transactions, compression };
            producer.run(&kafka.bootstrap(), TOPIC, self.records).await?;
        }
        note("the source holds its records");
        let transactions = match self.transactions {
            true => Some(run_transactions(&kafka.bootstrap(), &mut source, self.partitions).await?),
            false => None,
        };
        let (cluster, mut client) = start(ClusterSpec::new(3, 3)).await?;
        client.create_topic(ORDINARY, 1, 3, &[]).await?;
        let mut stage = Stage {
            plan: self,
            kafka,
            source_broker: 1,
            source,
            cluster,
            client,
            _transactions: transactions,
        };

        let begin = Instant::now();
        mirror(&stage.cluster, &stage.kafka.bootstrap(), TOPIC).await?;
        let ends = stage.caught_up().await.context("first copy")?;
        note(&format!("caught up at {ends:?} after {:.1} s", begin.elapsed().as_secs_f64()));
        stage.same_topic_id().await?;
        stage.compare_bytes(&ends).await?;
        if stage.plan.clients {
            stage.compare_consumers().await?;
            stage.refuse_producers(&ends).await?;
        }
        if stage.plan.source_brokers > 1 {
            stage.move_source_leaders().await?;
        }
        stage.survive_kills().await?;
        stage.fail_over().await
    }
}

/// Committed, aborted and open transactions, and one whose marker lies above the last stable offset.
async fn run_transactions(bootstrap: &str, source: &mut Client, partitions: i32) -> Result<Conversation> {
    let mut transactions = foreign::transactions(bootstrap, TOPIC)?;
    let lines = [
        "begin a",
        "send a 0 40 committed",
        "send a 1 40 committed",
        "commit a",
        "begin b",
        "send b 0 40 aborted",
        "send b 2 40 aborted",
        "abort b",
        "begin a",
        "send a 2 40 committed",
        "begin b",
        "send b 2 40 interleaved",
        "commit a",
        "abort b",
        // Open from here on, with plain records above it.
        "begin open",
        "send open 1 20 open",
        "plain 1 30 above",
        // Partition 2: the first commits while the second is open, so the copy ends below its marker.
        "begin first",
        "send first 2 1 first",
        "begin second",
        "send second 2 1 second",
        "commit first",
    ];
    for line in lines {
        transactions.ask(line, ANSWER_LIMIT).await?;
    }
    let mut open = vec![0; partitions as usize];
    open[1] = 1;
    open[2] = 1;
    source.await_open_transactions(TOPIC, &open).await?;
    Ok(transactions)
}

impl Stage {
    async fn caught_up(&mut self) -> Result<Vec<i64>> {
        let partitions = self.plan.partitions;
        caught_up(&mut self.source, &mut self.client, TOPIC, partitions, CATCH_UP_LIMIT).await
    }

    async fn same_topic_id(&mut self) -> Result<()> {
        let (there, here) = (self.source.topic_id(TOPIC).await?, self.client.topic_id(TOPIC).await?);
        ensure!(there == here && !here.is_nil(), "topic id {here}, at the source {there}");
        Ok(())
    }

    /// The source's bytes below the ends are those of every replica here.
    async fn compare_bytes(&mut self, ends: &[i64]) -> Result<()> {
        let expected = read_below(&self.source_data(), TOPIC, ends)?;
        ensure_replicas_hold(&self.cluster, TOPIC, &expected, true).await?;
        let (mut compressions, mut transactional, mut control, mut batches) = (BTreeSet::new(), 0, 0, 0);
        for bytes in &expected {
            let summary = segments::summarize(bytes)?;
            compressions.extend(summary.compressions);
            transactional += summary.transactional_batches;
            control += summary.control_batches;
            batches += summary.batches;
        }
        ensure!(compressions.len() == COMPRESSIONS.len(), "codecs in the log: {compressions:?}");
        let transactions = transactional > 0 && control > 0;
        ensure!(transactions || !self.plan.transactions, "no transactions among {batches} batches");
        note(&format!("{batches} batches equal on all replicas, {control} markers among them"));
        Ok(())
    }

    /// Java consumers of both isolation levels read the same on both sides.
    async fn compare_consumers(&mut self) -> Result<()> {
        let decided = self.client.end_offsets(TOPIC, self.plan.partitions, true).await?;
        let there = foreign::digest(&self.kafka.bootstrap(), TOPIC, &decided).await?;
        let here = foreign::digest(&self.cluster.bootstrap(), TOPIC, &decided).await?;
        ensure!(there == here, "consumers read differently: at the source\n{there}\nhere\n{here}");
        ensure!(here.lines().count() == 2 * decided.len(), "digest said {here}");
        note("consumers of both isolation levels read the same on both sides");
        Ok(())
    }

    /// Every client is refused at once, asks no more than it must, and goes on with another topic.
    async fn refuse_producers(&mut self, ends: &[i64]) -> Result<()> {
        let bootstrap = self.cluster.bootstrap();
        for client in Foreign::ALL {
            let before = requests(&mut self.cluster, "Produce").await?;
            let refusal = client.refused(&bootstrap, TOPIC, 0, ORDINARY).await?;
            let asked = requests(&mut self.cluster, "Produce").await? - before;
            note(&format!("{client:?}: {refusal:?}, {asked} Produce requests"));
            let error = refusal.error.with_context(|| format!("{client:?} was not refused"))?;
            // Where a client knows no such code and drops the message, its own words for that remain.
            let (limit_ms, words): (u64, &[&str]) = match client {
                Foreign::Java => (5_000, &["read-only", "READ_ONLY"]),
                Foreign::Librdkafka => (5_000, &["12790"]),
                Foreign::KafkaPython => (5_000, &["12790", "read-only", "READ_ONLY", "UnknownError"]),
                // It takes unknown codes for retriable: five more tries, by its own pauses.
                Foreign::Kafkajs => (30_000, &["12790"]),
            };
            ensure!(words.iter().any(|word| error.contains(word)), "{client:?} was refused with {error}");
            ensure!(refusal.refused_ms < limit_ms, "{client:?} was refused after {} ms", refusal.refused_ms);
            ensure!((2..=10).contains(&asked), "{client:?} sent {asked} Produce requests");
            ensure!(refusal.other_offset >= 0, "{client:?} could not write to another topic");
        }
        let said = foreign::kcat_write(&bootstrap, TOPIC, 0, "must be refused").await?;
        ensure!(said.as_ref().is_err_and(|said| said.contains("12790")), "kcat: {said:?}");
        let now = self.client.end_offsets(TOPIC, self.plan.partitions, false).await?;
        ensure!(now == ends, "the log's ends moved from {ends:?} to {now:?}");
        Ok(())
    }

    fn source_data(&self) -> PathBuf {
        self.kafka.data_directory(self.source_broker)
    }

    /// The leader at the source dies: another one leads under a new epoch.
    async fn move_source_leaders(&mut self) -> Result<()> {
        let leader = leader_of(&mut self.source, TOPIC, 0).await?;
        self.source.await_isr(TOPIC, self.plan.source_brokers.into(), ISR_LIMIT).await?;
        self.kafka.kill_broker(leader)?;
        self.source_broker = if leader == 1 { 2 } else { 1 };
        let left = self.plan.source_brokers - 1;
        self.source.forget_leaders();
        self.source.await_brokers(left.into(), ISR_LIMIT).await?;
        self.source.await_leaders(TOPIC, self.plan.partitions).await?;
        self.produce_at_source().await?;
        let ends = self.caught_up().await.context("after the kill of the source's leader")?;
        self.compare_bytes(&ends).await?;
        let bytes = read_below(&self.source_data(), TOPIC, &ends)?;
        let epochs = segments::summarize(&bytes[0])?.leader_epochs;
        ensure!(epochs.len() > 1, "the kill at the source gave no new leader epoch: {epochs:?}");
        note(&format!("killed the source's leader, its epochs are {epochs:?}"));
        Ok(())
    }

    /// Some records for partitions that the producer chooses, and one for partition 0, whose end is free to move.
    async fn produce_at_source(&mut self) -> Result<()> {
        let producer = PerfProducer { idempotent: self.plan.transactions, compression: "lz4" };
        producer.run(&self.kafka.bootstrap(), TOPIC, 1_000).await?;
        let batch = BatchBuilder::new().record(1, Some(b"k"), Some(b"v")).build();
        let produced = self.source.produce(TOPIC, 0, batch).await?;
        ensure!(produced.error_code == 0, "produce at the source: {produced:?}");
        Ok(())
    }

    /// Mirroring goes on without the active controller, then without a broker too.
    async fn survive_kills(&mut self) -> Result<()> {
        let controller = active_controller(&self.cluster).await?;
        self.cluster.kill(controller)?;
        self.produce_at_source().await?;
        self.caught_up().await.with_context(|| format!("after kill -9 of controller {controller}"))?;
        let broker = leader_of(&mut self.client, TOPIC, 0).await?;
        self.cluster.kill(broker)?;
        self.produce_at_source().await?;
        self.client.forget_leaders();
        let ends = self.caught_up().await.with_context(|| format!("after kill -9 of broker {broker}"))?;
        self.cluster.start_node(controller)?;
        self.cluster.start_node(broker)?;
        self.client.await_isr(TOPIC, 3, ISR_LIMIT).await?;
        self.compare_bytes(&ends).await?;
        note(&format!("killed and restarted controller {controller} and broker {broker}"));
        Ok(())
    }

    async fn fail_over(&mut self) -> Result<()> {
        let (server, controllers) = (self.cluster.bootstrap(), self.cluster.bootstrap_controller());
        let ends = self.caught_up().await?;
        kagami(&["verify", "--bootstrap-server", &server, "--mirror", MIRROR]).await?;
        let copied = read_below(&self.source_data(), TOPIC, &ends)?;
        let last_mirrored: Vec<i64> =
            copied.iter().map(|bytes| segments::decided_end(bytes)).collect::<Result<_>>()?;
        let undecided = last_mirrored != ends;
        ensure!(
            undecided || !self.plan.transactions,
            "the last mirrored offsets {ends:?} lie below no open transaction"
        );
        self.kafka.kill()?;

        let controller = active_controller(&self.cluster).await?;
        self.cluster.kill(controller)?;
        let begin = Instant::now();
        let remove = [
            "mirror",
            "remove",
            "--bootstrap-controller",
            &controllers,
            "--mirror",
            MIRROR,
            "--all",
            "--wait",
        ];
        kagami(&remove).await?;
        note(&format!(
            "failed over in {:.2} s, right after kill -9 of controller {controller}",
            begin.elapsed().as_secs_f64()
        ));
        self.cluster.start_node(controller)?;

        // Every partition gets its first write, each by another client.
        for partition in 0..self.plan.partitions {
            let expected = last_mirrored[partition as usize];
            let (who, offset) = self.write(partition).await?;
            ensure!(
                offset == expected,
                "{who} wrote to {TOPIC}-{partition} at {offset}, expected {expected}"
            );
        }
        let kept: Vec<Vec<u8>> = copied
            .iter()
            .zip(&last_mirrored)
            .map(|(bytes, end)| Ok(segments::below(bytes, *end)?.to_vec()))
            .collect::<Result<_>>()?;
        ensure_replicas_hold(&self.cluster, TOPIC, &kept, false).await?;
        for bytes in equal_replicas(&self.cluster, TOPIC, self.plan.partitions).await? {
            segments::summarize(&bytes)?;
        }
        // Nothing copied is undecided: a reader of committed records sees the new ones.
        let committed = self.client.end_offsets(TOPIC, self.plan.partitions, true).await?;
        let expected: Vec<i64> = last_mirrored.iter().map(|offset| offset + 1).collect();
        ensure!(committed == expected, "last stable offsets {committed:?}, expected {expected:?}");
        // Removed again: done already.
        kagami(&remove).await?;
        Ok(())
    }

    async fn write(&mut self, partition: i32) -> Result<(String, i64)> {
        let bootstrap = self.cluster.bootstrap();
        let value = format!("first-after-failover-{partition}");
        if self.plan.clients {
            if let Some(client) = Foreign::ALL.get(partition as usize) {
                let offset = client.write(&bootstrap, TOPIC, partition, &value).await?;
                return Ok((format!("{client:?}"), offset));
            }
            if partition == 4 {
                let written = foreign::kcat_write(&bootstrap, TOPIC, partition, &value).await?;
                return Ok(("kcat".to_owned(), written.map_err(anyhow::Error::msg)?));
            }
        }
        let batch = BatchBuilder::new().record(1, None, Some(value.as_bytes())).build();
        self.client.forget_leaders();
        let produced = self.client.produce(TOPIC, partition, batch).await?;
        ensure!(produced.error_code == 0, "{produced:?}");
        Ok(("a client of ours".to_owned(), produced.base_offset))
    }
}
