//! Case 56: a stop with replicas of different ends; the leader dies between the truncation and the write of
//! the last mirrored offset.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;

use crate::support::{LIMIT, MIRROR, Pair, Wanted, Writer};

#[tokio::test]
async fn case_56_the_leader_dies_between_the_cut_and_the_last_mirrored_offset() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(3, 3)).await?;
    pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    pair.mirror("orders", 1).await?;
    let writer = Writer::start(&pair.source.bootstrap(), "orders", 0);
    writer.more(100).await?;
    pair.caught_up_at_least("orders", 0, 50).await?;
    // One follower falls behind while the copy goes on.
    let follower = pair.here.follower("orders", 0).await?;
    pair.here.pause(follower)?;
    writer.more(100).await?;
    let leader = pair.here.leader("orders", 0).await?;
    let writing = format!("{}@STOPPED", pair.here.place("mirror.state.write", "orders", 0).await?);
    let faults = pair.here.faults(leader);
    faults.crash(&writing)?;
    pair.here.remove(MIRROR, "orders").await?;
    faults.crashed(&writing).await?;
    pair.here.cluster.await_exit(leader).await?;
    pair.here.client.forget_leaders();
    assert_eq!(pair.here.told("partition orders-0 cut to"), 2, "PREPARING and STOPPING");
    pair.here.resume(follower)?;
    pair.here.restart(leader)?;
    let acknowledged = writer.finish().await?;

    let stopped = pair.here.await_partitions(MIRROR, "orders", 1, Wanted::Writable).await?;
    pair.here.client.await_isr("orders", 3, LIMIT).await?;
    assert_eq!(pair.here.told("partition orders-0 cut to"), 2, "the new leader finds the cut");
    let log = pair.here.equal_replicas("orders", 0).await?;
    let summary = segments::summarize(&log)?;
    assert_eq!(summary.end_offset, stopped[0].last_mirrored_offset);
    Writer::check(summary.records as usize, &log)?;
    ensure!(summary.records as usize <= acknowledged + 5, "{summary:?}, {acknowledged} acknowledged");
    let source = pair.source.leader("orders", 0).await?;
    let there = pair.source.replica(source, "orders", 0)?;
    segments::ensure_equal("orders-0 here", segments::below(&there, summary.end_offset)?, &log)?;
    assert_eq!(pair.here.write("orders", 0, crate::support::batch(&["own"])).await?, summary.end_offset);
    Ok(())
}
