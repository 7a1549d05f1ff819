//! B3: an eligible replica comes back with an empty disk.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use kagami_tests::http;

use crate::support::{LIMIT, Side, batch, values_of};

#[tokio::test]
async fn an_emptied_replica_is_not_elected_before_it_has_caught_up() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 2)).await?;
    side.client.create_topic("orders", 1, 2, &[("min.insync.replicas", "2")]).await?;
    side.write("orders", 0, batch(&["acknowledged by both"])).await?;
    let leader = side.leader("orders", 0).await?;
    let follower = side.follower("orders", 0).await?;
    // Below min.insync.replicas the follower that leaves stays eligible.
    side.stop(follower)?;
    side.await_isr_of("orders", 0, &[leader]).await?;
    side.kill(leader)?;

    let data = side.cluster.data_directory(follower);
    std::fs::remove_dir_all(&data)?;
    std::fs::create_dir(&data)?;
    let properties = side.cluster.properties(follower).display().to_string();
    let cluster_id = side.cluster.cluster_id().to_owned();
    side.kagami(&["storage", "format", "--config", &properties, "--cluster-id", &cluster_id]).await?;
    side.restart(follower)?;
    let metrics = side.cluster.metrics_address(follower);
    eventually("the emptied broker serves", LIMIT, || {
        let metrics = metrics.clone();
        async move { Ok(http::get(&metrics, "/readyz").await?.is_ok().then_some(())) }
    })
    .await?;
    // The controller gives the killed one up, and makes nobody else leader.
    let deadline = Instant::now() + LIMIT;
    loop {
        let now = side.partition("orders", 0).await?;
        ensure!(now.leader_id.0 != follower, "an empty log leads: {now:?}");
        if now.leader_id.0 == -1 {
            break;
        }
        ensure!(Instant::now() < deadline, "broker {leader} is not given up: {now:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    side.restart(leader)?;
    assert_eq!(side.leader("orders", 0).await?, leader);
    side.client.await_isr("orders", 2, LIMIT).await?;
    side.write("orders", 0, batch(&["next"])).await?;
    let values = values_of(&side.equal_replicas("orders", 0).await?)?;
    ensure!(values == ["acknowledged by both", "next"], "{values:?}");
    let first = values.first().context("nothing left")?;
    assert_eq!(first, "acknowledged by both");
    Ok(())
}
