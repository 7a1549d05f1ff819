//! P2: a leader sleeps past its session and wakes with requests in its sockets.

use anyhow::{Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::cluster::ClusterSpec;

use super::produce_at;
use crate::support::{LIMIT, Side, Writer, batch};

#[tokio::test]
async fn what_a_stale_leader_is_sent_is_not_acknowledged() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3)).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    for _ in 0..2 {
        let leader = side.leader("orders", 0).await?;
        let address = side.cluster.broker_address(leader);
        let mut stale = Client::new(&address);
        stale.connection(&address).await?;
        side.pause(leader)?;
        // It lies in the socket of a process that believes that it leads.
        let waiting = tokio::spawn(async move {
            let batch = batch(&["sent to one who sleeps"]);
            produce_at(&mut stale, &address, "orders", batch, 5_000).await
        });
        let others: Vec<i32> = side.cluster.brokers().into_iter().filter(|id| *id != leader).collect();
        side.await_isr_of("orders", 0, &others).await?;
        side.write("orders", 0, batch(&["in between"])).await?;
        side.resume(leader)?;
        if let Ok(produced) = waiting.await? {
            ensure!(produced.error_code != 0, "broker {leader} acknowledged {produced:?}");
        }
        side.client.await_isr("orders", 3, LIMIT).await?;
        side.client = Client::new(&side.bootstrap());
    }
    let log = side.equal_replicas("orders", 0).await?;
    let values = crate::support::values_of(&log)?;
    ensure!(values == ["in between", "in between"], "{values:?}");
    Ok(())
}

#[tokio::test]
async fn a_pause_under_load_loses_nothing() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3)).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    let leader = side.leader("orders", 0).await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    writer.more(50).await?;
    side.pause(leader)?;
    let others: Vec<i32> = side.cluster.brokers().into_iter().filter(|id| *id != leader).collect();
    side.await_isr_of("orders", 0, &others).await?;
    side.resume(leader)?;
    writer.more(50).await?;
    side.client.await_isr("orders", 3, LIMIT).await?;
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
