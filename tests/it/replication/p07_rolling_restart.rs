//! P7: every node is stopped in order and started again, under load.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;

use crate::support::{LIMIT, Side, Writer};

/// With leaders moved and everything on disk; below 300 ms on a free machine.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_rolling_restart_of_all_nodes_loses_nothing() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 3)).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    // It fails by itself at the first error that is not retriable.
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    let mut longest = Duration::ZERO;
    for broker in side.cluster.brokers() {
        writer.more(20).await?;
        let began = Instant::now();
        side.stop(broker)?;
        longest = longest.max(began.elapsed());
        writer.more(20).await?;
        side.restart(broker)?;
        side.client.await_isr("orders", 3, LIMIT).await?;
    }
    for controller in side.cluster.controllers() {
        side.stop(controller)?;
        writer.more(20).await?;
        side.restart(controller)?;
        side.active_controller().await?;
    }
    ensure!(longest < SHUTDOWN_LIMIT, "a controlled shutdown took {longest:?}");
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
