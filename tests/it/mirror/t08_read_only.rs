//! Case 8: nobody but the mirror writes, from Add to the release.

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;

use crate::support::{MIRROR, MIRROR_RESOURCE, Pair, Wanted, batch};

async fn refuses(pair: &mut Pair, end: i64, state: &'static str) -> Result<()> {
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State(state)).await?;
    for _ in 0..2 {
        let error = pair.here.refusal("orders", 0, batch(&["no"])).await?;
        assert_eq!(error, ErrorCode::ReadOnlyTopic, "in {state}");
        assert!(!error.retriable());
    }
    let leader = pair.here.leader("orders", 0).await?;
    let found = kagami_tests::segments::summarize(&pair.here.replica(leader, "orders", 0)?)?;
    assert_eq!(found.end_offset, end, "log end in {state}");
    Ok(())
}

#[tokio::test]
async fn case_08_produce_is_refused_in_every_state_before_the_release() -> Result<()> {
    // With three of three in sync wanted, one dead follower holds PREPARING and STOPPING.
    let here = ClusterSpec::new(1, 3).with("min.insync.replicas", "3");
    let mut pair = Pair::start(ClusterSpec::new(1, 1), here).await?;
    pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    pair.source.write("orders", 0, batch(&["a", "b"])).await?;
    pair.create_here("orders", 1).await?;
    let follower = pair.here.follower("orders", 0).await?;
    pair.here.kill(follower)?;
    pair.here.add(MIRROR, "orders").await?;
    refuses(&mut pair, 0, "PREPARING").await?;

    pair.here.restart(follower)?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up("orders", 0).await?;
    refuses(&mut pair, 2, "MIRRORING").await?;

    // Not a source: this cluster itself (decision 19).
    let (own, there) = (pair.here.bootstrap(), pair.source.bootstrap());
    pair.here.set_config(MIRROR_RESOURCE, MIRROR, "bootstrap.servers", &own).await?;
    refuses(&mut pair, 2, "FAILED").await?;
    pair.here.set_config(MIRROR_RESOURCE, MIRROR, "bootstrap.servers", &there).await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;

    let follower = pair.here.follower("orders", 0).await?;
    pair.here.kill(follower)?;
    pair.here.remove(MIRROR, "orders").await?;
    refuses(&mut pair, 2, "STOPPING").await?;
    pair.here.restart(follower)?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::Writable).await?;
    assert_eq!(pair.here.write("orders", 0, batch(&["yes"])).await?, 2);
    Ok(())
}
