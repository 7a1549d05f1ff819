//! Counterexample 15: A produce with acks=all waits; add; cut; mirrored data lifts the high watermark above
//! it: it must not be acknowledged, for its records are gone.
//!
//! Guards decision 10 (a): produces that wait are answered before the cut; and that one which begins to
//! wait only afterwards is told the same (the leader epoch since which offsets kept their meaning).

use anyhow::{Context, Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;
use protocol::ErrorCode::{NotLeaderOrFollower, ReadOnlyTopic};

use super::*;
use crate::support::{MIRROR, Wanted};

#[tokio::test]
async fn counterexample_15_a_produce_that_waits_is_not_acknowledged_by_mirrored_data() -> Result<()> {
    let here = ClusterSpec::new(1, 3).with("replica.lag.time.max.ms", "60000");
    let mut pair = start_with_own_records(here).await?;
    let replicating = pair.here.place("replica.fetched.apply", TOPIC, 0).await?;
    let leader = pair.here.leader(TOPIC, 0).await?;
    let followers: Vec<i32> = pair.here.cluster.brokers().into_iter().filter(|id| *id != leader).collect();
    for follower in &followers {
        pair.here.faults(*follower).hold(&replicating)?;
    }
    let waiting = produce(&pair, "waits").await?;
    for follower in &followers {
        pair.here.faults(*follower).reached(&replicating).await?;
    }
    pair.here.add(MIRROR, TOPIC).await?;
    let code = waiting.await??;
    assert_eq!(code, ReadOnlyTopic, "answered before any follower is heard of again");
    for follower in &followers {
        pair.here.faults(*follower).release(&replicating)?;
    }
    copied(&mut pair).await
}

#[tokio::test]
async fn counterexample_15_a_produce_that_begins_to_wait_after_the_cut_is_not_acknowledged() -> Result<()> {
    let mut pair = start_with_own_records(ClusterSpec::new(1, 3)).await?;
    let before_waiting = pair.here.place("produce.wait", TOPIC, 0).await?;
    let leader = pair.here.leader(TOPIC, 0).await?;
    let faults = pair.here.faults(leader);
    faults.hold(&before_waiting)?;
    let waiting = produce(&pair, "appended").await?;
    faults.reached(&before_waiting).await?;
    pair.mirror(TOPIC, 1).await?;
    let end = pair.caught_up(TOPIC, 0).await?;
    ensure!(end > OWN as i64 + 5, "the high watermark is {end}");
    faults.release(&before_waiting)?;
    let code = waiting.await??;
    ensure!([ReadOnlyTopic, NotLeaderOrFollower].contains(&code), "answered with {}", code.name());
    copied(&mut pair).await
}

/// Five records to the leader; the answer comes when it comes.
async fn produce(pair: &Pair, prefix: &str) -> Result<tokio::task::JoinHandle<Result<ErrorCode>>> {
    let (mut client, records) = (Client::new(&pair.here.bootstrap()), batch(&values(prefix, 5)));
    client.topic(TOPIC).await?;
    Ok(tokio::spawn(async move {
        let produced = client.produce(TOPIC, 0, records).await?;
        ErrorCode::from_code(produced.error_code).context("an unknown error code")
    }))
}

async fn copied(pair: &mut Pair) -> Result<()> {
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.equal_to_source(TOPIC, 0).await?;
    Ok(())
}
