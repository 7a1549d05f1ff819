//! AlterReplicaLogDirs: a replica moves to another directory of its broker while it is written, through crashes.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use kagami_tests::client::{error_name, text, topic_name};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;
use protocol::messages::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::{AlterReplicaLogDirsRequest, DescribeConfigsRequest, DescribeLogDirsRequest};
use protocol::{ErrorCode, Request, Response};
use tokio::time::{Duration, Instant, sleep};

use crate::support::{LIMIT, Side, Writer};

const BROKER_RESOURCE: i8 = 4;
const RATE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";

/// Of one broker, the error of each partition.
async fn alter(
    side: &mut Side,
    broker: i32,
    path: &str,
    topic: &str,
    partitions: &[i32],
) -> Result<Vec<String>> {
    let named =
        AlterReplicaLogDirTopic::default().with_name(topic_name(topic)).with_partitions(partitions.to_vec());
    let directory = AlterReplicaLogDir::default().with_path(text(path)).with_topics(vec![named]);
    let request = AlterReplicaLogDirsRequest::default().with_dirs(vec![directory]);
    let address = side.cluster.broker_address(broker);
    match side.client.call_at(&address, Request::AlterReplicaLogDirs(request), 2).await? {
        Response::AlterReplicaLogDirs(response) => {
            let topic = response.results.first().context("an empty answer")?;
            Ok(topic.partitions.iter().map(|partition| error_name(partition.error_code)).collect())
        }
        other => bail!("answered with {other:?}"),
    }
}

/// The directories in which a broker says a topic's partitions lie: directory, partition, whether on its way.
async fn described(side: &mut Side, broker: i32, topic: &str) -> Result<Vec<(String, i32, bool)>> {
    let address = side.cluster.broker_address(broker);
    let request = Request::DescribeLogDirs(DescribeLogDirsRequest::default().with_topics(None));
    let Response::DescribeLogDirs(response) = side.client.call_at(&address, request, 4).await? else {
        bail!("another answer")
    };
    let mut found = Vec::new();
    for result in &response.results {
        let name = result.log_dir.rsplit('/').next().unwrap_or_default();
        for described in result.topics.iter().filter(|described| *described.name.0 == *topic) {
            for partition in &described.partitions {
                found.push((name.to_owned(), partition.partition_index, partition.is_future_key));
            }
        }
    }
    found.sort();
    Ok(found)
}

async fn await_in(side: &mut Side, broker: i32, topic: &str, wanted: &[(&str, i32, bool)]) -> Result<()> {
    let wanted: Vec<_> =
        wanted.iter().map(|(name, partition, future)| ((*name).to_owned(), *partition, *future)).collect();
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = described(side, broker, topic).await;
        if matches!(&found, Ok(found) if *found == wanted) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not {wanted:?} but {found:?}");
        sleep(Duration::from_millis(25)).await;
    }
}

/// Bytes a second of moves within the broker; waits until it heeds them.
async fn throttle(side: &mut Side, broker: i32, rate: &str) -> Result<()> {
    let name = broker.to_string();
    let (code, message) = side.set_config(BROKER_RESOURCE, &name, RATE, rate).await?;
    ensure!(code == ErrorCode::None, "{} {message:?}", code.name());
    let resource = DescribeConfigsResource::default()
        .with_resource_type(BROKER_RESOURCE)
        .with_resource_name(text(&name))
        .with_configuration_keys(Some(vec![text(RATE)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let address = side.cluster.broker_address(broker);
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = side.client.call_at(&address, Request::DescribeConfigs(request.clone()), 4).await?;
        let Response::DescribeConfigs(response) = answer else { bail!("another answer") };
        let configs = response.results.into_iter().flat_map(|result| result.configs);
        let value = configs.into_iter().find(|config| *config.name == *RATE).and_then(|config| config.value);
        if value.as_deref() == Some(rate) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "broker {broker} has {value:?}");
        sleep(Duration::from_millis(25)).await;
    }
}

fn holds(directory: &Path, topic: &str, partition: i32) -> bool {
    segments::partition_directory(directory, topic, partition).exists()
}

#[tokio::test]
async fn a_replica_moves_between_directories_while_it_is_written_and_through_crashes() -> Result<()> {
    let spec = ClusterSpec::new(1, 2)
        .with_broker_directories(2)
        .with("min.insync.replicas", "1")
        .with("replica.high.watermark.checkpoint.interval.ms", "200")
        .with("log.retention.check.interval.ms", "500");
    let mut side = Side::start(spec).await?;
    side.client.create_topic("orders", 1, 2, &[]).await?;
    side.client.await_isr("orders", 2, LIMIT).await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    writer.more(200).await?;
    let leader = side.leader("orders", 0).await?;
    let (one, two) = (side.cluster.data_directory(leader), side.cluster.further_directory(leader, 2));
    let (from, to) = if holds(&one, "orders", 0) { (&one, &two) } else { (&two, &one) };
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let (from_name, to_name) = (name(from), name(to));
    let to_path = to.display().to_string();

    let code = |error: ErrorCode| error_name(error.code());
    ensure!(alter(&mut side, leader, "/nowhere", "orders", &[0]).await? == [code(ErrorCode::LogDirNotFound)]);
    let unknown = alter(&mut side, leader, &to_path, "nothing", &[0]).await?;
    ensure!(unknown == [code(ErrorCode::UnknownTopicOrPartition)], "{unknown:?}");

    // Held back by a throttle it is shown as on its way; given up, nothing is left of it.
    throttle(&mut side, leader, "1").await?;
    ensure!(alter(&mut side, leader, &to_path, "orders", &[0]).await? == [code(ErrorCode::None)]);
    await_in(&mut side, leader, "orders", &sorted([(&from_name, false), (&to_name, true)])).await?;
    let from_path = from.display().to_string();
    ensure!(alter(&mut side, leader, &from_path, "orders", &[0]).await? == [code(ErrorCode::None)]);
    await_in(&mut side, leader, "orders", &[(&from_name, 0, false)]).await?;

    // On its way through a crash: the start goes on with it.
    ensure!(alter(&mut side, leader, &to_path, "orders", &[0]).await? == [code(ErrorCode::None)]);
    writer.more(50).await?;
    side.kill(leader)?;
    let other = 3 - leader;
    side.await_led_by("orders", 0, other).await?;
    side.restart(leader)?;
    side.client.await_isr("orders", 2, LIMIT).await?;
    await_in(&mut side, leader, "orders", &sorted([(&from_name, false), (&to_name, true)])).await?;
    throttle(&mut side, leader, "9223372036854775807").await?;
    await_in(&mut side, leader, "orders", &[(&to_name, 0, false)]).await?;
    ensure!(holds(to, "orders", 0) && !holds(from, "orders", 0));
    writer.more(50).await?;

    // It leads from there, and another crash finds it there.
    side.client.await_isr("orders", 2, LIMIT).await?;
    side.stop(other)?;
    side.await_led_by("orders", 0, leader).await?;
    writer.more(50).await?;
    side.kill(leader)?;
    side.restart(leader)?;
    side.restart(other)?;
    side.client.await_isr("orders", 2, LIMIT).await?;
    await_in(&mut side, leader, "orders", &[(&to_name, 0, false)]).await?;
    let acknowledged = writer.finish().await?;
    let moved = segments::read(&segments::partition_directory(to, "orders", 0))?;
    Writer::check(acknowledged, &moved)?;
    Ok(())
}

/// One partition's entries in the order in which they are described.
fn sorted(entries: [(&String, bool); 2]) -> Vec<(&str, i32, bool)> {
    let mut entries: Vec<_> = entries.iter().map(|(name, future)| (name.as_str(), 0, *future)).collect();
    entries.sort();
    entries
}
