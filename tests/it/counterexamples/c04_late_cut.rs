//! Counterexample 4: An old leader's cut request arrives after its successor's release, or its task wakes
//! up as a follower in the ISR: nothing may be truncated, and nothing appended.
//!
//! Guards decision 10: the controller refuses a cut of anybody who does not lead under the current epochs;
//! and decision 8 with 16: every append of the mirror names the leader epoch it was decided under.

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;

use super::*;
use crate::support::{MIRROR, Wanted, values_of};

#[tokio::test]
async fn counterexample_04_an_old_leaders_cut_arrives_after_its_successors_release() -> Result<()> {
    let mut pair = start_with_own_records(ClusterSpec::new(1, 3)).await?;
    let sending = pair.here.place("mirror.cut.send", TOPIC, 0).await?;
    let answered = pair.here.place("mirror.proposal.answered", TOPIC, 0).await?;
    let leader = pair.here.leader(TOPIC, 0).await?;
    let faults = pair.here.faults(leader);
    faults.hold(&sending)?;
    pair.here.add(MIRROR, TOPIC).await?;
    faults.reached(&sending).await?;

    let (old, _) = pair.here.depose(TOPIC, 0).await?;
    assert_eq!(old, leader);
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.remove(MIRROR, TOPIC).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    pair.here.write(TOPIC, 0, batch(&values("after", 10))).await?;
    pair.here.readmit(old)?;
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    let cuts = pair.here.told("partition orders-0 cut to");
    assert_eq!(cuts, 2, "PREPARING and STOPPING of the successor");

    faults.hold(&answered)?;
    faults.release(&sending)?;
    faults.reached(&answered).await?;
    faults.release(&answered)?;
    pair.here.write(TOPIC, 0, batch(&values("later", 10))).await?;
    assert_eq!(pair.here.told("partition orders-0 cut to"), cuts, "the late one is refused");
    let expected = [values("source", AT_SOURCE), values("after", 10), values("later", 10)].concat();
    assert_eq!(values_of(&pair.here.equal_replicas(TOPIC, 0).await?)?, expected);
    Ok(())
}

#[tokio::test]
async fn counterexample_04_an_old_leaders_copy_wakes_up_as_a_follower_in_the_isr() -> Result<()> {
    let mut pair = start(ClusterSpec::new(1, 3)).await?;
    pair.mirror(TOPIC, 1).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    let appending = pair.here.place("mirror.append", TOPIC, 0).await?;
    let leader = pair.here.leader(TOPIC, 0).await?;
    let faults = pair.here.faults(leader);
    faults.hold(&appending)?;
    pair.source.write(TOPIC, 0, batch(&values("more", 10))).await?;
    faults.reached(&appending).await?;

    let (old, _) = pair.here.depose(TOPIC, 0).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.readmit(old)?;
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    // Both are over: the answer that waits in the old leader, and the association.
    pair.here.remove(MIRROR, TOPIC).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    faults.release(&appending)?;
    for round in 0..3 {
        pair.here.write(TOPIC, 0, batch(&values(&format!("after-{round}"), 10))).await?;
    }
    let log = values_of(&pair.here.equal_replicas(TOPIC, 0).await?)?;
    assert_eq!(log.len(), AT_SOURCE + 10 + 30);
    assert_eq!(pair.here.lines(old, &["log failed"]), [""; 0]);
    assert_eq!(pair.here.try_remove(MIRROR, TOPIC).await?, ErrorCode::InvalidRequest);
    Ok(())
}
