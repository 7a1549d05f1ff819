//! Q11: the disk of one controller takes seconds for a sync. Nobody stands for election because of it, and the
//! other two go on.

use std::time::Duration;

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use tokio::time::sleep;

use crate::support::Side;

const SYNC: &str = "quorum.sync";
const SYNC_TIME: Duration = Duration::from_secs(2);

#[tokio::test]
async fn q11_a_slow_disk_moves_no_leader_and_holds_up_nobody_else() -> Result<()> {
    // A busy machine must not move the leader either.
    let spec = ClusterSpec::new(3, 1).with("quorum.election.timeout.ms", "1000");
    let mut side = Side::start(spec).await?;
    side.client.create_topic("before", 1, 1, &[]).await?;
    let leader = side.active_controller().await?;
    let term = side.quorum_at(leader).await?.leader_epoch;
    let slow = side.controllers_but(leader)[0];
    side.faults(slow).hold(SYNC)?;
    for number in 0..5 {
        side.client.create_topic(&format!("while-one-is-slow-{number}"), 1, 1, &[]).await?;
    }
    side.faults(slow).reached(SYNC).await?;
    sleep(SYNC_TIME).await;
    side.client.create_topic("while-one-is-slow", 1, 1, &[]).await?;
    ensure!(side.quorum_at(slow).await?.leader_id.0 == leader, "the slow one follows another leader");
    side.faults(slow).release(SYNC)?;
    side.await_same_metadata(&side.cluster.controllers()).await?;

    // The leader's own: its heartbeats go on.
    side.faults(leader).hold(SYNC)?;
    let (bootstrap, faults) = (side.bootstrap(), side.faults(leader));
    let created = tokio::spawn(async move {
        kagami_tests::client::Client::new(&bootstrap).create_topic("of-a-slow-leader", 1, 1, &[]).await
    });
    faults.reached(SYNC).await?;
    sleep(SYNC_TIME).await;
    faults.release(SYNC)?;
    created.await??;
    let quorum = side.quorum_at(leader).await?;
    ensure!(quorum.leader_id.0 == leader && quorum.leader_epoch == term, "elections: {quorum:?}");
    Ok(())
}
