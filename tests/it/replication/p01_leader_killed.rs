//! P1: kill -9 of the leader under acks=all load, again and again.

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;

use crate::support::{LIMIT, Side, Writer};

#[tokio::test]
async fn leaders_are_killed_and_nothing_is_lost_or_twice_there() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3)).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    for _ in 0..4 {
        writer.more(50).await?;
        let leader = side.leader("orders", 0).await?;
        side.kill(leader)?;
        writer.more(50).await?;
        side.restart(leader)?;
        side.client.await_isr("orders", 3, LIMIT).await?;
    }
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
