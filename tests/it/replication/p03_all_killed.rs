//! P3: kill -9 of all brokers at once; they come back in another order each time.

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;

use crate::support::{LIMIT, Side, Writer};

#[tokio::test]
async fn all_replicas_are_killed_together_and_nothing_is_lost() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3)).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    for order in [[2, 3, 1], [3, 1, 2]] {
        writer.more(50).await?;
        for broker in [1, 2, 3] {
            side.kill(broker)?;
        }
        for broker in order {
            side.restart(broker)?;
        }
        writer.more(50).await?;
        side.client.await_isr("orders", 3, LIMIT).await?;
    }
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
