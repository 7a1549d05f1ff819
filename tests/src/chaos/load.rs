//! What clients do while things break: an idempotent producer for each partition, a reader of all, and
//! someone who creates topics. All notes go into the history.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use protocol::ErrorCode;
use protocol::record_batch::{BatchBuilder, batches};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::{Client, ProducerIdentity, error_name};
use crate::history::{History, Outcome, Poll, Send};

pub const TOPIC: &str = "load";
pub const PARTITIONS: i32 = 6;
const RECORDS_PER_BATCH: u64 = 5;
const READER: u32 = 1_000;
const LAST_READER: u32 = 1_001;
const RETRY: Duration = Duration::from_millis(20);
/// Load enough to meet every fault, and no more than two cores bear.
const WRITE_PAUSE: Duration = Duration::from_millis(4);
const TOPIC_PAUSE: Duration = Duration::from_millis(300);
/// Nobody waits for an answer longer than this: then something is stuck.
const STUCK: Duration = Duration::from_secs(60);
pub const PROGRESS_LIMIT: Duration = Duration::from_secs(30);

/// What the load's tasks share.
pub struct Load {
    bootstrap: String,
    begin: Instant,
    stop: AtomicBool,
    /// Batches acknowledged, by partition.
    acknowledged: Vec<AtomicI64>,
    topics: AtomicI64,
}

enum Done {
    Written(Vec<Send>),
    Read(Vec<Poll>),
    Created(BTreeSet<String>),
}

pub struct Running {
    pub load: Arc<Load>,
    tasks: JoinSet<Result<Done>>,
}

/// What the clients brought home.
pub struct Outcomes {
    pub history: History,
    /// Topics whose creation was acknowledged.
    pub created: BTreeSet<String>,
}

impl Load {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// Topics acknowledged so far.
    pub fn topics(&self) -> i64 {
        self.topics.load(Ordering::Relaxed)
    }

    /// Waits until every partition has taken another batch.
    pub async fn await_progress(&self) -> Result<()> {
        let before: Vec<i64> = self.acknowledged.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let deadline = Instant::now() + PROGRESS_LIMIT;
        loop {
            let moved = |(partition, before): (usize, &i64)| {
                self.acknowledged[partition].load(Ordering::Relaxed) > *before
            };
            let stuck: Vec<usize> =
                before.iter().enumerate().filter(|entry| !moved(*entry)).map(|(index, _)| index).collect();
            if stuck.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "partitions {stuck:?} take no write for {PROGRESS_LIMIT:?}");
            sleep(RETRY).await;
        }
    }

    pub async fn await_topics(&self, count: i64) -> Result<()> {
        let wanted = self.topics() + count;
        let deadline = Instant::now() + PROGRESS_LIMIT;
        while self.topics() < wanted {
            ensure!(Instant::now() < deadline, "no topic can be created for {PROGRESS_LIMIT:?}");
            sleep(RETRY).await;
        }
        Ok(())
    }
}

impl Running {
    pub fn start(bootstrap: &str) -> Running {
        let load = Arc::new(Load {
            bootstrap: bootstrap.to_owned(),
            begin: Instant::now(),
            stop: AtomicBool::new(false),
            acknowledged: (0..PARTITIONS).map(|_| AtomicI64::new(0)).collect(),
            topics: AtomicI64::new(0),
        });
        let mut tasks = JoinSet::new();
        for partition in 0..PARTITIONS {
            tasks.spawn(write(load.clone(), partition));
        }
        tasks.spawn(read(load.clone()));
        tasks.spawn(create_topics(load.clone()));
        Running { load, tasks }
    }

    /// A task of the load ends early only with an error.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.tasks.try_join_next() {
            None => Ok(()),
            Some(done) => {
                done??;
                bail!("a task of the load ended by itself")
            }
        }
    }

    pub async fn finish(mut self) -> Result<Outcomes> {
        self.load.stop.store(true, Ordering::Relaxed);
        let mut outcomes = Outcomes { history: History::default(), created: BTreeSet::new() };
        while let Some(done) = self.tasks.join_next().await {
            match done?? {
                Done::Written(sends) => outcomes.history.sends.extend(sends),
                Done::Read(polls) => outcomes.history.polls.extend(polls),
                Done::Created(topics) => outcomes.created = topics,
            }
        }
        let mut client = Client::new(&self.load.bootstrap);
        for partition in 0..PARTITIONS {
            read_everything(&mut client, &self.load, partition, &mut outcomes.history.polls).await?;
        }
        Ok(outcomes)
    }
}

/// Record numbers are sequence numbers, and name topic and partition: a record that strays is noticed.
fn batch(partition: i32, first: u64, identity: ProducerIdentity) -> Bytes {
    let mut builder = BatchBuilder::new().producer(identity.id, identity.epoch, first as i32);
    for number in first..first + RECORDS_PER_BATCH {
        let value = format!("{TOPIC}/{partition}/{number}");
        builder.push(1_700_000_000_000, None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

fn records(partition: i32, bytes: &[u8]) -> Result<Vec<(i64, u64)>> {
    let mut found = Vec::new();
    for batch in batches(bytes) {
        // The last one may be cut off by the answer's limit.
        let Ok(batch) = batch else { break };
        protocol::record_batch::check_crc(batch.bytes).context("a batch as read")?;
        for record in batch.records() {
            let record = record?;
            let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
            let number = value.strip_prefix(&format!("{TOPIC}/{partition}/")).map(str::parse);
            let Some(Ok(number)) = number else { bail!("{TOPIC}-{partition} holds {value}") };
            found.push((batch.header.base_offset + i64::from(record.offset_delta), number));
        }
    }
    Ok(found)
}

/// An idempotent producer of one partition: a batch is sent until it is acknowledged.
async fn write(load: Arc<Load>, partition: i32) -> Result<Done> {
    let mut client = Client::new(&load.bootstrap);
    let identity = client.init_producer_id().await?;
    let mut sends = Vec::new();
    let mut first = 0;
    while !load.is_over() {
        let batch = batch(partition, first, identity);
        let (begin, begin_ms) = (Instant::now(), load.now_ms());
        let base_offset = loop {
            match client.produce(TOPIC, partition, batch.clone()).await {
                Ok(produced) if produced.error_code == 0 => break Some(produced.base_offset),
                Ok(produced) => match ErrorCode::from_code(produced.error_code) {
                    Some(ErrorCode::DuplicateSequenceNumber) => break None,
                    Some(error) if error.retriable() => client.forget_leaders(),
                    _ => bail!(
                        "writer {partition}, record {first}: {} {:?}",
                        error_name(produced.error_code),
                        produced.message
                    ),
                },
                Err(_) => client.forget_leaders(),
            }
            ensure!(begin.elapsed() < STUCK, "writer {partition} gets no answer");
            sleep(RETRY).await;
        };
        let end_ms = load.now_ms();
        sends.extend((0..RECORDS_PER_BATCH).map(|index| Send {
            process: partition as u32,
            partition,
            value: first + index,
            offset: base_offset.filter(|base| *base >= 0).map(|base| base + index as i64),
            outcome: Outcome::Acknowledged,
            begin_ms,
            end_ms,
        }));
        first += RECORDS_PER_BATCH;
        load.acknowledged[partition as usize].fetch_add(1, Ordering::Relaxed);
        sleep(WRITE_PAUSE).await;
    }
    Ok(Done::Written(sends))
}

/// Reads along: what was read once must never be another record.
async fn read(load: Arc<Load>) -> Result<Done> {
    let mut client = Client::new(&load.bootstrap);
    let mut positions = vec![0_i64; PARTITIONS as usize];
    let mut polls = Vec::new();
    while !load.is_over() {
        for partition in 0..PARTITIONS {
            let position = &mut positions[partition as usize];
            let begin_ms = load.now_ms();
            match client.fetch(TOPIC, partition, *position, false).await {
                Ok(fetched) if fetched.error_code == 0 => {
                    let records = records(partition, &fetched.records)?;
                    *position = records.last().map_or(*position, |last| last.0 + 1);
                    let end_ms = load.now_ms();
                    let (process, seek, last) = (READER, false, false);
                    polls.push(Poll { process, partition, begin_ms, end_ms, seek, last, records });
                }
                _ => client.forget_leaders(),
            }
        }
        sleep(RETRY).await;
    }
    Ok(Done::Read(polls))
}

/// A fresh consumer from the beginning to the end.
async fn read_everything(
    client: &mut Client,
    load: &Load,
    partition: i32,
    polls: &mut Vec<Poll>,
) -> Result<()> {
    let end = client.end_offset(TOPIC, partition, false).await?;
    let (mut position, mut seek) = (0, true);
    while position < end {
        let begin_ms = load.now_ms();
        let fetched = client.fetch(TOPIC, partition, position, false).await?;
        ensure!(fetched.error_code == 0, "final read: {}", error_name(fetched.error_code));
        let records = records(partition, &fetched.records)?;
        ensure!(!records.is_empty(), "{TOPIC}-{partition} gives nothing at {position}, its end is {end}");
        position = records.last().map_or(position, |last| last.0 + 1);
        let (process, last, end_ms) = (LAST_READER, true, load.now_ms());
        polls.push(Poll { process, partition, begin_ms, end_ms, seek, last, records });
        seek = false;
    }
    Ok(())
}

/// Creates topics one after the other, each until it is acknowledged.
async fn create_topics(load: Arc<Load>) -> Result<Done> {
    let mut client = Client::new(&load.bootstrap);
    let mut created = BTreeSet::new();
    while !load.is_over() {
        let name = format!("meta-{}", created.len());
        let begin = Instant::now();
        loop {
            match client.try_create_topic(&name, 1, 1, &[]).await {
                Ok((code, _)) if code == 0 || code == ErrorCode::TopicAlreadyExists.code() => break,
                Ok((code, message)) => {
                    let error = ErrorCode::from_code(code);
                    ensure!(
                        error.is_some_and(|error| error.retriable())
                            || code == ErrorCode::InvalidReplicationFactor.code(),
                        "create {name}: {} {message:?}",
                        error_name(code)
                    );
                }
                Err(_) => {}
            }
            ensure!(begin.elapsed() < STUCK, "{name} cannot be created");
            sleep(RETRY).await;
        }
        created.insert(name);
        load.topics.fetch_add(1, Ordering::Relaxed);
        sleep(TOPIC_PAUSE).await;
    }
    Ok(Done::Created(created))
}
