//! One of two log directories fails: its partitions move their leaders, the daemon lives; with the last
//! one it ends.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use kagami_tests::client::error_name;
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use protocol::messages::DescribeLogDirsRequest;
use protocol::{ErrorCode, Request, Response};

use crate::support::{LIMIT, Side, batch};

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 6;

/// The topic's partitions that lie in a directory.
fn partitions_in(directory: &Path) -> Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if let Some((topic, partition)) = name.to_str().and_then(|name| name.rsplit_once('-'))
            && topic == TOPIC
        {
            found.insert(partition.parse()?);
        }
    }
    Ok(found)
}

/// What a broker says of its directories: the path's end and the error.
async fn described(side: &mut Side, broker: i32) -> Result<Vec<(String, String)>> {
    let address = side.cluster.broker_address(broker);
    let request = Request::DescribeLogDirs(DescribeLogDirsRequest::default().with_topics(None));
    let Response::DescribeLogDirs(response) = side.client.call_at(&address, request, 4).await? else {
        bail!("another answer")
    };
    let mut found: Vec<_> = response
        .results
        .iter()
        .map(|result| {
            let name = result.log_dir.rsplit('/').next().unwrap_or_default().to_owned();
            (name, error_name(result.error_code))
        })
        .collect();
    found.sort();
    Ok(found)
}

async fn leaders(side: &mut Side) -> Result<Vec<i32>> {
    Ok(side.client.topic(TOPIC).await?.partitions.iter().map(|partition| partition.leader_id.0).collect())
}

#[tokio::test]
async fn d06_a_failed_directory_takes_its_partitions_along_and_nothing_else() -> Result<()> {
    let spec = ClusterSpec::new(1, 2)
        .with_broker_directories(2)
        .with("min.insync.replicas", "1")
        .with("replica.high.watermark.checkpoint.interval.ms", "200");
    let mut side = Side::start(spec).await?;
    side.client.create_topic(TOPIC, PARTITIONS, 2, &[]).await?;
    side.client.await_isr(TOPIC, 2, LIMIT).await?;
    for partition in 0..PARTITIONS {
        side.write(TOPIC, partition, batch(&["a", "b", "c"])).await?;
    }
    let (kept, lost) = (side.cluster.data_directory(1), side.cluster.further_directory(1, 2));
    let gone = partitions_in(&lost)?;
    let stays = partitions_in(&kept)?;
    ensure!(gone.len() == 3 && stays.len() == 3, "they are spread: {gone:?} {stays:?}");

    // The disk is gone: the next checkpoint cannot be written.
    fs::rename(&lost, lost.with_extension("unplugged"))?;
    for partition in 0..PARTITIONS {
        side.write(TOPIC, partition, batch(&["a", "b", "c"])).await?;
    }
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let topic = side.client.topic(TOPIC).await?;
        let moved = topic.partitions.iter().all(|partition| {
            let isr: Vec<i32> = partition.isr_nodes.iter().map(|node| node.0).collect();
            let offline: Vec<i32> = partition.offline_replicas.iter().map(|node| node.0).collect();
            if gone.contains(&partition.partition_index) {
                partition.leader_id.0 == 2 && isr == [2] && offline == [1]
            } else {
                isr.len() == 2 && offline.is_empty()
            }
        });
        if moved {
            break;
        }
        ensure!(tokio::time::Instant::now() < deadline, "not moved: {:?}", topic.partitions);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    ensure!(leaders(&mut side).await?.contains(&1), "what lies in the other directory is still led there");
    for partition in 0..PARTITIONS {
        side.write(TOPIC, partition, batch(&["a", "b", "c"])).await?;
        ensure!(side.end(TOPIC, partition).await? == 9, "partition {partition}");
    }
    let storage_error = error_name(ErrorCode::KafkaStorageError.code());
    let said = described(&mut side, 1).await?;
    ensure!(said == [("data".to_owned(), error_name(0)), ("data-2".to_owned(), storage_error)], "{said:?}");
    // New partitions go where there is a disk.
    side.client.create_topic("later", 4, 2, &[]).await?;
    side.client.await_isr("later", 2, LIMIT).await?;
    ensure!(side.cluster.is_running(1), "the daemon lives");

    // It starts without the disk, too; what lay there stays offline.
    side.stop(1)?;
    fs::create_dir(&lost)?;
    fs::create_dir(lost.join("meta.properties"))?;
    // A directory in the place of a file gives an I/O error.
    side.restart(1)?;
    side.client.await_isr("later", 2, LIMIT).await?;
    let topic = side.client.topic(TOPIC).await?;
    for partition in topic.partitions.iter().filter(|partition| gone.contains(&partition.partition_index)) {
        ensure!(partition.isr_nodes.len() == 1, "{partition:?}");
    }

    // Without the last one the daemon ends, with a line that says why.
    fs::rename(&kept, kept.with_extension("unplugged"))?;
    side.write("later", 0, batch(&["x"])).await?;
    let cluster = &mut side.cluster;
    let deadline = tokio::time::Instant::now() + LIMIT;
    while cluster.is_running(1) {
        ensure!(tokio::time::Instant::now() < deadline, "the daemon runs on without a disk");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let log = cluster.log(1);
    ensure!(log.contains("no log directory is left"), "{log}");
    eventually("everything is led by the other broker", LIMIT, || {
        let bootstrap = side.bootstrap();
        async move {
            let mut client = kagami_tests::client::Client::new(&bootstrap);
            let topic = client.topic(TOPIC).await?;
            Ok(topic.partitions.iter().all(|partition| partition.leader_id.0 == 2).then_some(()))
        }
    })
    .await
}
