//! Counterexample 20: The source's name is re-pointed to another cluster with the same topic id under a
//! running mirror. Nothing is spliced.
//!
//! Guards decision 19: the source's cluster id is checked on every new connection, a fetcher's included.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;

use super::*;
use crate::support::{MIRROR, Side, Wanted, values_of};

#[tokio::test]
async fn counterexample_20_nothing_of_another_cluster_at_the_same_address_is_copied() -> Result<()> {
    let mut pair = start(ClusterSpec::new(1, 3)).await?;
    pair.mirror(TOPIC, 1).await?;
    let end = pair.caught_up(TOPIC, 0).await?;
    let id = pair.source.client.topic_id(TOPIC).await?;
    let fetching = format!("mirror.fetch@{MIRROR}");
    let leader = pair.here.leader(TOPIC, 0).await?;
    let faults = pair.here.faults(leader);
    faults.hold(&fetching)?;
    faults.reached(&fetching).await?;

    // Between two fetches the other cluster takes the address, and has more than is here.
    let nodes = [pair.source.cluster.controllers(), pair.source.cluster.brokers()].concat();
    for node in &nodes {
        pair.source.kill(*node)?;
    }
    let host = pair.source.cluster.host().to_owned();
    let mut other = Side::launch(ClusterSpec::new(1, 1).at(&host))?;
    other.await_start().await?;
    let (code, message) = other.create_with_id(TOPIC, 1, 1, id).await?;
    ensure!(code == ErrorCode::None, "create at the other cluster: {} {message:?}", code.name());
    other.client.await_leaders(TOPIC, 1).await?;
    other.write(TOPIC, 0, batch(&values("other", 100))).await?;
    faults.release(&fetching)?;
    let failed = pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("FAILED")).await?;
    let reason = failed[0].reason.clone().unwrap_or_default();
    ensure!(reason.contains("cluster"), "FAILED because {reason}");
    assert_eq!(values_of(&pair.here.equal_replicas(TOPIC, 0).await?)?, values("source", AT_SOURCE));

    // The right one is back: it goes on where it was.
    drop(other);
    for node in &nodes {
        pair.source.restart(*node)?;
    }
    pair.source.await_start().await?;
    pair.source.write(TOPIC, 0, batch(&values("more", 10))).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    assert_eq!(pair.caught_up(TOPIC, 0).await?, end + 10);
    pair.equal_to_source(TOPIC, 0).await?;
    Ok(())
}
