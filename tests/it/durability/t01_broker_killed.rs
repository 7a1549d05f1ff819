//! acks=all load while brokers are killed or paused and come back.

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;

use crate::support::{LIMIT, Side, Writer};

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_brokers_are_killed() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 3)).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    writer.more(100).await?;
    // The leader, the next leader, a follower.
    for round in 0..3 {
        let broker = match round {
            2 => side.follower("orders", 0).await?,
            _ => side.leader("orders", 0).await?,
        };
        side.kill(broker)?;
        writer.more(100).await?;
        side.restart(broker)?;
        side.client.await_isr("orders", 3, LIMIT).await?;
        writer.more(100).await?;
    }
    let acknowledged = writer.finish().await?;
    let log = side.equal_replicas("orders", 0).await?;
    Writer::check(acknowledged, &log)
}

#[tokio::test]
async fn a_paused_leader_is_replaced_and_follows_when_it_wakes() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3)).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    let leader = side.leader("orders", 0).await?;
    side.pause(leader)?;
    // Others write while it believes that it leads.
    let others: Vec<i32> = side.cluster.brokers().into_iter().filter(|id| *id != leader).collect();
    side.await_isr_of("orders", 0, &others).await?;
    let addresses: Vec<String> = others.iter().map(|id| side.cluster.broker_address(*id)).collect();
    let writer = Writer::start(&addresses.join(","), "orders", 0);
    writer.more(50).await?;
    side.resume(leader)?;
    side.client.await_isr("orders", 3, LIMIT).await?;
    writer.more(50).await?;
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
