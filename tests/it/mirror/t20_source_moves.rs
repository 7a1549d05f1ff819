//! Cases 20 and 21: leaders and leader epochs at the source.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;

use crate::support::{LIMIT, MIRROR, Pair, Wanted, Writer};

#[tokio::test]
async fn case_20_the_source_leader_moves_and_dies_and_case_21_the_epoch_is_learned_first() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 3), ClusterSpec::new(1, 1)).await?;
    pair.source.client.create_topic("orders", 1, 3, &[("min.insync.replicas", "1")]).await?;
    let writer = Writer::start(&pair.source.bootstrap(), "orders", 0);
    // The epoch rises before anybody mirrors.
    for _ in 0..3 {
        move_leader(&mut pair, false, &writer).await?;
    }
    let leader_epoch = pair.source.partition("orders", 0).await?.leader_epoch;
    ensure!(leader_epoch >= 3, "the source's leader epoch is {leader_epoch}");
    pair.mirror("orders", 1).await?;
    let refused: Vec<_> =
        pair.here.cluster.brokers().into_iter().map(|id| pair.here.cluster.log(id)).collect();
    ensure!(!refused.iter().any(|log| log.contains("FAILED")), "a first fetch failed");

    move_leader(&mut pair, false, &writer).await?;
    move_leader(&mut pair, true, &writer).await?;
    let acknowledged = writer.finish().await?;
    pair.caught_up("orders", 0).await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;
    let log = pair.equal_to_source("orders", 0).await?;
    Writer::check(acknowledged, &log)?;
    let epochs = segments::summarize(&log)?.leader_epochs;
    ensure!(epochs.len() >= 4, "leader epochs in the mirror: {epochs:?}");
    let here = pair.here.partition("orders", 0).await?.leader_epoch;
    ensure!(Some(&here) >= epochs.last(), "leader epoch {here} under batches of {epochs:?}");
    for broker in pair.here.cluster.brokers() {
        ensure!(
            !pair.here.cluster.log(broker).contains("FAILED"),
            "a move of the source's leader is no failure"
        );
    }
    Ok(())
}

/// By a controlled shutdown or a kill; the load goes on under the new leader.
async fn move_leader(pair: &mut Pair, kill: bool, writer: &Writer) -> Result<()> {
    let leader = pair.source.leader("orders", 0).await?;
    if kill {
        pair.source.kill(leader)?
    } else {
        pair.source.stop(leader)?
    }
    writer.more(20).await?;
    pair.source.restart(leader)?;
    pair.source.client.await_isr("orders", 3, LIMIT).await?;
    writer.more(20).await
}
