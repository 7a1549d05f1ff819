//! Cases 16 and 17: PREPARING is done when the ISR is large enough and has made the cut.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;

use crate::support::{MIRROR, Pair, Wanted, batch, values_of};

/// Three of three have to be in sync.
fn strict() -> ClusterSpec {
    ClusterSpec::new(1, 3).with("min.insync.replicas", "3")
}

#[tokio::test]
async fn case_16_preparing_waits_for_a_stopped_follower() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), strict()).await?;
    pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    pair.source.write("orders", 0, batch(&["a", "b"])).await?;
    pair.create_here("orders", 1).await?;
    let follower = pair.here.follower("orders", 0).await?;
    pair.here.stop(follower)?;
    pair.here.add(MIRROR, "orders").await?;
    let shown = pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("PREPARING")).await?;
    // Another topic goes through its states meanwhile; this one does not move.
    pair.source.client.create_topic("sync-point", 1, 1, &[("min.insync.replicas", "1")]).await?;
    pair.source.write("sync-point", 0, batch(&["x"])).await?;
    pair.here.add(MIRROR, "sync-point").await?;
    pair.here
        .await_described(MIRROR, "sync-point is here", |all| {
            all.iter().any(|partition| partition.topic == "sync-point" && partition.index >= 0)
        })
        .await?;
    let now = pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("PREPARING")).await?;
    assert_eq!(shown[0].leader, now[0].leader);
    assert_eq!(pair.here.replica(now[0].leader, "orders", 0)?.len(), 0, "nothing is fetched before");

    pair.here.restart(follower)?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up("orders", 0).await?;
    pair.equal_to_source("orders", 0).await?;
    Ok(())
}

#[tokio::test]
async fn case_17_nothing_is_fetched_before_a_follower_with_more_records_has_cut_them() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), strict()).await?;
    pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    pair.source.write("orders", 0, batch(&["source-a", "source-b"])).await?;
    pair.create_here("orders", 1).await?;
    for value in ["own-1", "own-2", "own-3"] {
        pair.here.write("orders", 0, batch(&[value])).await?;
    }
    pair.here.equal_replicas("orders", 0).await?;
    let leader = pair.here.leader("orders", 0).await?;
    let follower = pair.here.follower("orders", 0).await?;
    pair.here.pause(follower)?;
    pair.here.add(MIRROR, "orders").await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("PREPARING")).await?;
    let others: Vec<i32> = pair.here.cluster.brokers().into_iter().filter(|id| *id != follower).collect();
    pair.here.await_isr_of("orders", 0, &others).await?;
    // The leader has cut; the paused follower still has all, and nothing comes from the source.
    kagami_tests::eventually::eventually("the cut", crate::support::LIMIT, || {
        let held = pair.here.replica(leader, "orders", 0);
        async move { Ok(held?.is_empty().then_some(())) }
    })
    .await?;
    let held = segments::summarize(&pair.here.replica(follower, "orders", 0)?)?;
    ensure!(held.records == 3, "the paused follower holds {held:?}");
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("PREPARING")).await?;

    pair.here.resume(follower)?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up("orders", 0).await?;
    let log = pair.equal_to_source("orders", 0).await?;
    assert_eq!(values_of(&log)?, ["source-a", "source-b"]);
    Ok(())
}
