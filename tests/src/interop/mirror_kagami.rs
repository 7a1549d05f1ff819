//! Kagami as the source: bytes, kills, failover; no transactions.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use protocol::record_batch::BatchBuilder;

use super::mirroring::{
    MIRROR, active_controller, caught_up, ensure_replicas_hold, equal_replicas, kagami, leader_of, mirror,
    read_below, start,
};
use super::note;
use crate::cluster::ClusterSpec;
use crate::foreign;
use crate::segments;

const TOPIC: &str = "orders";
const PARTITIONS: i32 = 3;
const LIMIT: Duration = Duration::from_secs(40);

pub async fn run() -> Result<()> {
    let (mut there, mut source) = start(ClusterSpec::new(1, 3)).await?;
    let (mut here, mut client) = start(ClusterSpec::new(3, 3)).await?;
    source.create_topic(TOPIC, PARTITIONS, 3, &[("segment.bytes", "1048576")]).await?;
    for compression in ["none", "zstd", "lz4"] {
        foreign::produce_many(&there.bootstrap(), TOPIC, 10_000, compression).await?;
    }
    mirror(&here, &there.bootstrap(), TOPIC).await?;
    let ends = caught_up(&mut source, &mut client, TOPIC, PARTITIONS, LIMIT).await?;
    let ids = (source.topic_id(TOPIC).await?, client.topic_id(TOPIC).await?);
    ensure!(ids.0 == ids.1, "topic id {} at the source, {} here", ids.0, ids.1);
    let source_broker = leader_of(&mut source, TOPIC, 0).await?;
    let other_broker = there.brokers().into_iter().find(|broker| *broker != source_broker);
    let source_data = there.data_directory(other_broker.context("a broker that lives on")?);
    let expected = read_below(&source_data, TOPIC, &ends)?;
    ensure_replicas_hold(&here, TOPIC, &expected, true).await?;
    note(&format!("copied to {ends:?}"));

    // At the source another broker leads under a new epoch; here a controller and a leader die too.
    there.kill(source_broker)?;
    let controller = active_controller(&here).await?;
    let leader = leader_of(&mut client, TOPIC, 0).await?;
    here.kill(controller)?;
    here.kill(leader)?;
    source.forget_leaders();
    source.await_brokers(2, LIMIT).await?;
    source.await_leaders(TOPIC, PARTITIONS).await?;
    foreign::produce_many(&there.bootstrap(), TOPIC, 3_000, "gzip").await?;
    for partition in 0..PARTITIONS {
        let batch = BatchBuilder::new().record(1, None, Some(b"after the kill")).build();
        let produced = source.produce(TOPIC, partition, batch).await?;
        ensure!(produced.error_code == 0, "produce at the source: {produced:?}");
    }
    client.forget_leaders();
    let ends =
        caught_up(&mut source, &mut client, TOPIC, PARTITIONS, LIMIT).await.context("after the kills")?;
    here.start_node(controller)?;
    here.start_node(leader)?;
    client.await_isr(TOPIC, 3, LIMIT).await?;
    let expected = read_below(&source_data, TOPIC, &ends)?;
    ensure_replicas_hold(&here, TOPIC, &expected, true).await?;
    let epochs = segments::summarize(&expected[0])?.leader_epochs;
    ensure!(epochs.len() > 1, "the kill at the source gave no new leader epoch: {epochs:?}");
    kagami(&["verify", "--bootstrap-server", &here.bootstrap(), "--mirror", MIRROR]).await?;
    note("verified after kills on both sides");

    drop(there);
    let controllers = here.bootstrap_controller();
    kagami(&[
        "mirror",
        "remove",
        "--bootstrap-controller",
        &controllers,
        "--mirror",
        MIRROR,
        "--all",
        "--wait",
    ])
    .await?;
    for (partition, end) in ends.iter().enumerate() {
        let batch = BatchBuilder::new().record(1, None, Some(b"first after the failover")).build();
        client.forget_leaders();
        let produced = client.produce(TOPIC, partition as i32, batch).await?;
        ensure!(
            produced.error_code == 0 && produced.base_offset == *end,
            "{produced:?}, expected offset {end}"
        );
    }
    ensure_replicas_hold(&here, TOPIC, &expected, false).await?;
    equal_replicas(&here, TOPIC, PARTITIONS).await?;
    Ok(())
}
