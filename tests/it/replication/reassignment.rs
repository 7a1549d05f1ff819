//! A partition moves under load, mirrors included, and comes back to a broker that has its old directory.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;

use crate::support::{LIMIT, MIRROR, Pair, Side, Wanted, Writer, batch};

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

    side.reassign("orders", &[third, follower]).await?;
    side.await_replicas("orders", &[third, follower]).await?;
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
    side.reassign("orders", &[third, leader]).await?;
    side.await_replicas("orders", &[third, leader]).await?;
    writer.more(50).await?;
    side.reassign("orders", &[third, follower]).await?;
    side.restart(follower)?;
    side.await_replicas("orders", &[third, follower]).await?;
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
        pair.here.reassign("orders", &replicas).await?;
        pair.here.await_replicas("orders", &replicas).await?;
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
