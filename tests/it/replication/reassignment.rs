//! A partition moves under load, mirrors included, and comes back to a broker that has its old directory.

use anyhow::{Context, Result, bail, ensure};
use kagami_tests::client::topic_name;
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use protocol::messages::{AlterPartitionReassignmentsRequest, BrokerId};
use protocol::{Request, Response};

use crate::support::{LIMIT, MIRROR, Pair, Side, Wanted, Writer, batch};

async fn reassign(side: &mut Side, topic: &str, replicas: &[i32]) -> Result<()> {
    let replicas = replicas.iter().map(|id| BrokerId(*id)).collect();
    let partition = ReassignablePartition::default().with_partition_index(0).with_replicas(Some(replicas));
    let topic = ReassignableTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
    let request = AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]);
    let code_of = |response: &Response| match response {
        Response::AlterPartitionReassignments(response) => response.error_code,
        _ => 0,
    };
    match side.call(Request::AlterPartitionReassignments(request), code_of).await? {
        Response::AlterPartitionReassignments(response) => {
            let result = response.responses.first().and_then(|topic| topic.partitions.first());
            let result = result.context("an empty answer")?;
            ensure!(result.error_code == 0, "{result:?}");
            Ok(())
        }
        other => bail!("answered with {other:?}"),
    }
}

async fn await_replicas(side: &mut Side, topic: &str, replicas: &[i32]) -> Result<()> {
    let bootstrap = side.bootstrap();
    eventually("the reassignment is done", LIMIT, || {
        let mut client = kagami_tests::client::Client::new(&bootstrap);
        async move {
            let found = client.topic(topic).await?;
            let partition = found.partitions.into_iter().next().context("no partition")?;
            let now: Vec<i32> = partition.replica_nodes.iter().map(|id| id.0).collect();
            let in_sync = partition.isr_nodes.len() == replicas.len();
            Ok((now == replicas && in_sync && partition.leader_id.0 >= 0).then_some(()))
        }
    })
    .await
}

#[tokio::test]
async fn a_partition_moves_away_from_its_leader_and_back_under_load() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3)).await?;
    side.client.create_topic("orders", 1, 2, &[("min.insync.replicas", "1")]).await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    writer.more(50).await?;
    let leader = side.leader("orders", 0).await?;
    let follower = side.follower("orders", 0).await?;
    let third = 6 - leader - follower;
    let directory = |side: &Side, broker: i32| side.cluster.data_directory(broker).join("orders-0");

    reassign(&mut side, "orders", &[third, follower]).await?;
    await_replicas(&mut side, "orders", &[third, follower]).await?;
    writer.more(50).await?;
    let left = directory(&side, leader);
    eventually("the old directory goes", LIMIT, || {
        let gone = !left.exists();
        async move { Ok(gone.then_some(())) }
    })
    .await?;

    // Away from a broker that is down, and back before it returns: its old directory is caught up, or
    // set aside; whatever it holds is compared by epoch.
    side.kill(follower)?;
    reassign(&mut side, "orders", &[third, leader]).await?;
    await_replicas(&mut side, "orders", &[third, leader]).await?;
    writer.more(50).await?;
    reassign(&mut side, "orders", &[third, follower]).await?;
    side.restart(follower)?;
    await_replicas(&mut side, "orders", &[third, follower]).await?;
    writer.more(50).await?;
    let acknowledged = writer.finish().await?;
    let (one, other) = (side.replica(third, "orders", 0)?, side.replica(follower, "orders", 0)?);
    Writer::check(acknowledged, &one)?;
    ensure!(one == other, "replicas differ after the move");
    Ok(())
}

#[tokio::test]
async fn a_mirror_partition_moves_while_it_is_copied() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 3)).await?;
    pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    let writer = Writer::start(&pair.source.bootstrap(), "orders", 0);
    writer.more(50).await?;
    pair.mirror("orders", 1).await?;
    let leader = pair.here.leader("orders", 0).await?;
    let others: Vec<i32> = pair.here.cluster.brokers().into_iter().filter(|id| *id != leader).collect();
    // Without its leader, whose successor copies on; and to a broker that begins with nothing.
    for replicas in [others.clone(), vec![leader, others[0]]] {
        reassign(&mut pair.here, "orders", &replicas).await?;
        await_replicas(&mut pair.here, "orders", &replicas).await?;
        writer.more(50).await?;
        pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;
    }
    let acknowledged = writer.finish().await?;
    let end = pair.caught_up("orders", 0).await?;
    pair.here.remove(MIRROR, "orders").await?;
    let stopped = pair.here.await_partitions(MIRROR, "orders", 1, Wanted::Writable).await?;
    assert_eq!(stopped[0].last_mirrored_offset, end);
    assert_eq!(pair.here.write("orders", 0, batch(&["after"])).await?, end);
    let source = pair.source.replica(1, "orders", 0)?;
    Writer::check(acknowledged, &source)?;
    for broker in [leader, others[0]] {
        let copy = pair.here.replica(broker, "orders", 0)?;
        ensure!(copy.starts_with(&source), "broker {broker} does not hold what the source does");
    }
    Ok(())
}

#[tokio::test]
async fn leaders_come_back_to_the_first_replicas_by_themselves() -> Result<()> {
    let spec = ClusterSpec::new(1, 3).with("leader.imbalance.check.interval.seconds", "1");
    let mut side = Side::start(spec).await?;
    side.client.create_topic("orders", 6, 3, &[]).await?;
    let leader = side.leader("orders", 0).await?;
    side.stop(leader)?;
    side.restart(leader)?;
    side.client.await_isr("orders", 3, LIMIT).await?;
    let bootstrap = side.bootstrap();
    eventually("the leaders are balanced", LIMIT, || {
        let mut client = kagami_tests::client::Client::new(&bootstrap);
        async move {
            let found = client.topic("orders").await?;
            let preferred = |p: &protocol::messages::metadata_response::MetadataResponsePartition| {
                p.replica_nodes.first() == Some(&p.leader_id)
            };
            Ok(found.partitions.iter().all(preferred).then_some(()))
        }
    })
    .await
}
