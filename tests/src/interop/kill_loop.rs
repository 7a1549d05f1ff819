//! `kill -9` of every process in turn under acks=all load, then of all controllers at once; afterwards every
//! acknowledged record is there once and in order, replicas are equal, no acknowledged topic is missing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::ErrorCode;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::mirroring::{active_controller, equal_replicas, http_get, start};
use super::note;
use crate::client::{Client, error_name};
use crate::cluster::{Cluster, ClusterSpec};
use crate::eventually::eventually;

mod history;

use history::{Acknowledged, Seen};

const TOPIC: &str = "load";
const PARTITIONS: i32 = 6;
const ROUNDS: usize = 30;
const ALL_CONTROLLERS_ROUNDS: usize = 10;
const ISR_LIMIT: Duration = Duration::from_secs(40);
const PROGRESS_LIMIT: Duration = Duration::from_secs(30);
/// The load meets the dead node for this long at least.
const DOWN: Duration = Duration::from_millis(250);
const RETRY: Duration = Duration::from_millis(20);
const TOPIC_PAUSE: Duration = Duration::from_millis(200);

/// What the load's tasks share.
struct Load {
    bootstrap: String,
    stop: AtomicBool,
    /// Batches acknowledged, by partition.
    acknowledged: Vec<AtomicI64>,
    topics: AtomicI64,
}

impl Load {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until every partition has taken another batch.
    async fn await_progress(&self) -> Result<()> {
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
}

enum Done {
    Written(i32, Vec<Acknowledged>),
    Read(Vec<Seen>),
    Created(BTreeSet<String>),
}

pub async fn run() -> Result<()> {
    let (mut cluster, mut client) = start(ClusterSpec::new(3, 3)).await?;
    client.create_topic(TOPIC, PARTITIONS, 3, &[]).await?;
    client.await_isr(TOPIC, 3, ISR_LIMIT).await?;
    let load = Arc::new(Load {
        bootstrap: cluster.bootstrap(),
        stop: AtomicBool::new(false),
        acknowledged: (0..PARTITIONS).map(|_| AtomicI64::new(0)).collect(),
        topics: AtomicI64::new(0),
    });
    let mut tasks: JoinSet<Result<Done>> = JoinSet::new();
    for partition in 0..PARTITIONS {
        tasks.spawn(write(load.clone(), partition));
    }
    tasks.spawn(read(load.clone()));
    tasks.spawn(create_topics(load.clone()));
    load.await_progress().await?;

    let begin = Instant::now();
    for round in 0..ROUNDS {
        kill_one(&mut cluster, &mut client, &load, round).await.with_context(|| format!("round {round}"))?;
        ensure_running(&mut tasks)?;
    }
    note(&format!("{ROUNDS} rounds of kill -9 in {:.0} s", begin.elapsed().as_secs_f64()));
    let begin = Instant::now();
    for round in 0..ALL_CONTROLLERS_ROUNDS {
        kill_all_controllers(&mut cluster, &load)
            .await
            .with_context(|| format!("all controllers, round {round}"))?;
        ensure_running(&mut tasks)?;
    }
    note(&format!(
        "{ALL_CONTROLLERS_ROUNDS} times all controllers in {:.0} s",
        begin.elapsed().as_secs_f64()
    ));

    load.stop.store(true, Ordering::Relaxed);
    let (mut written, mut seen, mut created) = (Vec::new(), Vec::new(), BTreeSet::new());
    while let Some(done) = tasks.join_next().await {
        match done?? {
            Done::Written(partition, acknowledged) => written.push((partition, acknowledged)),
            Done::Read(batches) => seen = batches,
            Done::Created(topics) => created = topics,
        }
    }
    client.forget_leaders();
    client.await_isr(TOPIC, 3, ISR_LIMIT).await?;
    let logs = equal_replicas(&cluster, TOPIC, PARTITIONS).await?;
    let mut records = 0;
    for (partition, acknowledged) in &written {
        let log = &logs[*partition as usize];
        records +=
            history::check(*partition, acknowledged, log).with_context(|| format!("{TOPIC}-{partition}"))?;
    }
    history::check_seen(&seen, &logs)?;
    let there: BTreeSet<String> = client
        .metadata(None)
        .await?
        .topics
        .into_iter()
        .filter_map(|topic| Some(topic.name?.to_string()))
        .collect();
    let missing: Vec<&String> = created.difference(&there).collect();
    ensure!(missing.is_empty(), "topics acknowledged and gone: {missing:?}");
    note(&format!(
        "{records} acknowledged records, {} batches read meanwhile, {} topics: all there",
        seen.len(),
        created.len()
    ));
    Ok(())
}

/// A task of the load ends early only with an error.
fn ensure_running(tasks: &mut JoinSet<Result<Done>>) -> Result<()> {
    match tasks.try_join_next() {
        None => Ok(()),
        Some(done) => {
            done??;
            bail!("a task of the load ended by itself")
        }
    }
}

/// Controllers in even rounds, every other time the active one; brokers in odd ones.
async fn kill_one(cluster: &mut Cluster, client: &mut Client, load: &Load, round: usize) -> Result<()> {
    if round.is_multiple_of(2) {
        let controllers = cluster.controllers();
        let target = match round % 4 {
            0 => active_controller(cluster).await?,
            _ => controllers[round / 2 % controllers.len()],
        };
        cluster.kill(target)?;
        sleep(DOWN).await;
        cluster.start_node(target)?;
        load.await_progress().await.with_context(|| format!("after kill -9 of controller {target}"))
    } else {
        let brokers = cluster.brokers();
        let target = brokers[round / 2 % brokers.len()];
        cluster.kill(target)?;
        sleep(DOWN).await;
        cluster.start_node(target)?;
        client.forget_leaders();
        // Another broker dies only once this one is back, as an operator would do it: ready first, since
        // the metadata may still be from before the kill.
        await_ready(cluster, target).await?;
        client
            .await_isr(TOPIC, 3, ISR_LIMIT)
            .await
            .with_context(|| format!("after kill -9 of broker {target}"))?;
        load.await_progress().await.with_context(|| format!("after kill -9 of broker {target}"))
    }
}

async fn await_ready(cluster: &Cluster, broker: i32) -> Result<()> {
    let address = cluster.metrics_address(broker);
    eventually(&format!("broker {broker} ready"), ISR_LIMIT, || {
        let address = address.clone();
        async move { http_get(&address, "/readyz").await.map(Some) }
    })
    .await?;
    Ok(())
}

async fn kill_all_controllers(cluster: &mut Cluster, load: &Load) -> Result<()> {
    let topics = load.topics.load(Ordering::Relaxed);
    for controller in cluster.controllers() {
        cluster.kill(controller)?;
    }
    for controller in cluster.controllers() {
        cluster.start_node(controller)?;
    }
    let deadline = Instant::now() + PROGRESS_LIMIT;
    while load.topics.load(Ordering::Relaxed) < topics + 2 {
        ensure!(Instant::now() < deadline, "no topic can be created for {PROGRESS_LIMIT:?}");
        sleep(RETRY).await;
    }
    Ok(())
}

/// An idempotent producer of one partition: a batch is sent until it is acknowledged.
async fn write(load: Arc<Load>, partition: i32) -> Result<Done> {
    let mut client = Client::new(&load.bootstrap);
    let identity = client.init_producer_id().await?;
    let mut acknowledged = Vec::new();
    while !load.is_over() {
        let first = acknowledged.len() as i32 * history::RECORDS_PER_BATCH;
        let batch = history::batch(partition, first, identity);
        let begin = Instant::now();
        loop {
            match client.produce(TOPIC, partition, batch.clone()).await {
                Ok(produced) if produced.error_code == 0 => {
                    acknowledged.push(Acknowledged { first, base_offset: Some(produced.base_offset) });
                    break;
                }
                Ok(produced) => match ErrorCode::from_code(produced.error_code) {
                    Some(ErrorCode::DuplicateSequenceNumber) => {
                        acknowledged.push(Acknowledged { first, base_offset: None });
                        break;
                    }
                    Some(error) if error.retriable() => client.forget_leaders(),
                    _ => bail!(
                        "writer {partition}, record {first}: {} {:?}",
                        error_name(produced.error_code),
                        produced.message
                    ),
                },
                Err(_) => client.forget_leaders(),
            }
            ensure!(begin.elapsed() < 2 * PROGRESS_LIMIT, "writer {partition} gets no answer");
            sleep(RETRY).await;
        }
        load.acknowledged[partition as usize].fetch_add(1, Ordering::Relaxed);
        // Load enough to meet every fault, and no more than two cores bear.
        sleep(Duration::from_millis(2)).await;
    }
    Ok(Done::Written(partition, acknowledged))
}

/// Reads along: what was read once must never be another record.
async fn read(load: Arc<Load>) -> Result<Done> {
    let mut client = Client::new(&load.bootstrap);
    let mut positions = vec![0_i64; PARTITIONS as usize];
    let mut seen = Vec::new();
    while !load.is_over() {
        for partition in 0..PARTITIONS {
            let position = &mut positions[partition as usize];
            match client.fetch(TOPIC, partition, *position, false).await {
                Ok(fetched) if fetched.error_code == 0 => {
                    for batch in history::seen(partition, &fetched.records) {
                        *position = (*position).max(batch.next_offset);
                        seen.push(batch);
                    }
                }
                _ => client.forget_leaders(),
            }
        }
        sleep(RETRY).await;
    }
    Ok(Done::Read(seen))
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
            ensure!(begin.elapsed() < 2 * PROGRESS_LIMIT, "{name} cannot be created");
            sleep(RETRY).await;
        }
        created.insert(name);
        load.topics.fetch_add(1, Ordering::Relaxed);
        sleep(TOPIC_PAUSE).await;
    }
    Ok(Done::Created(created))
}
