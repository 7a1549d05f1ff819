//! Scenarios against real Apache Kafka and stock clients. Each stands alone, starts what it needs and leaves
//! nothing behind.

mod bad_input;
mod chain;
mod dump_tool;
mod mirror_kafka;
mod mirror_kagami;
pub(crate) mod mirroring;
mod nearest_replica;
mod tools;
mod tools_quorum;
mod tools_replication;
mod transactions;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;

type Run = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    /// A scenario that takes longer has failed.
    pub limit: Duration,
    run: fn() -> Run,
}

impl Scenario {
    pub fn run(&self) -> Run {
        (self.run)()
    }
}

macro_rules! scenarios {
    ($($name:literal, $seconds:literal, $run:path, $about:literal;)*) => {
        vec![$(Scenario {
            name: $name,
            about: $about,
            limit: Duration::from_secs($seconds),
            run: || Box::pin($run()),
        },)*]
    };
}

/// All scenarios, in the order in which they run.
pub fn scenarios() -> Vec<Scenario> {
    scenarios! {
        "mirror-kafka-4.4", 420, mirror_kafka::kafka_4_4, "a topic of Kafka 4.4 mirrored, through kills, to a failover";
        "mirror-kafka-3.6.2", 240, mirror_kafka::kafka_3_6, "the same in small with a source that answers no CurrentLeader";
        "mirror-kafka-2.8.2", 180, mirror_kafka::kafka_2_8, "the same in small with a source whose Fetch knows no topic ids";
        "mirror-kagami", 120, mirror_kagami::run, "Kagami as the source";
        "transactions", 120, transactions::run, "open transactions of Kafka 4.4 while it is mirrored, and at a failover";
        "chain", 180, chain::run, "Kafka to Kagami to Kagami, transactions carried along";
        "tools-kcat", 240, tools::kcat, "kcat's round trips in every codec";
        "tools-java", 420, tools::case_30_java_clients_work_as_on_kafka, "Kafka's own tools";
        "tools-replication", 600, tools_replication::replication, "Kafka's tools move replicas, elect leaders, change configurations";
        "tools-quorum", 300, tools_quorum::run, "Kafka's tools for controllers, features and brokers";
        "nearest-replica", 180, nearest_replica::run_all, "kcat and Kafka's consumer read from the follower in their rack";
        "dump-tool", 180, dump_tool::run, "Kafka's dump tool reads our files";
        "kill-loop", 400, kill_loop, "kill -9 of every process in turn under acks=all load";
        "bad-input", 180, bad_input::run, "what no client should send";
    }
}

async fn kill_loop() -> Result<()> {
    let summary = crate::chaos::kill_loop(30, 10).await?;
    note(&summary.line());
    Ok(())
}

/// Where a scenario is, on standard error: a line for a person who waits.
#[allow(clippy::print_stderr)]
pub fn note(line: &str) {
    eprintln!("   {line}");
}
