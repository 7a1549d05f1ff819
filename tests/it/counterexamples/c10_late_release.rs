//! Counterexample 10: STOPPED is durable, the release request delayed; a second add; the old release
//! commits. The partition must not become writable in PREPARING.
//!
//! Guards decision 14: a release names its association and leader epoch and is refused unless both are
//! current; and decision 18: no second add before every partition is released.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;
use uuid::Uuid;

use super::*;
use crate::support::{MIRROR, Wanted};

#[tokio::test]
async fn counterexample_10_an_old_release_does_not_open_a_new_association() -> Result<()> {
    let mut pair = start(ClusterSpec::new(1, 3)).await?;
    pair.mirror(TOPIC, 1).await?;
    pair.caught_up(TOPIC, 0).await?;
    let here = &mut pair.here;
    here.client.await_isr(TOPIC, 3, LIMIT).await?;
    let sending = here.place("mirror.release.send", TOPIC, 0).await?;
    let answered = here.place("mirror.proposal.answered", TOPIC, 0).await?;
    let cutting = here.place("mirror.cut.send", TOPIC, 0).await?;
    let leader = here.leader(TOPIC, 0).await?;
    let faults = here.faults(leader);
    faults.hold(&sending)?;
    here.remove(MIRROR, TOPIC).await?;
    faults.reached(&sending).await?;
    let stopped = here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("STOPPED")).await?;
    ensure!(!stopped[0].writable, "{stopped:?}");
    assert_eq!(here.try_add(MIRROR, TOPIC, Uuid::nil(), false).await?, ErrorCode::InvalidRequest);
    assert_eq!(here.refusal(TOPIC, 0, batch(&["no"])).await?, ErrorCode::ReadOnlyTopic);

    // A successor releases; then the topic is added again, and stays uncut.
    let (old, new) = here.depose(TOPIC, 0).await?;
    assert_eq!(old, leader);
    here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    here.readmit(old)?;
    here.client.await_isr(TOPIC, 3, LIMIT).await?;
    let successor = here.faults(new);
    successor.hold(&cutting)?;
    here.add(MIRROR, TOPIC).await?;
    successor.reached(&cutting).await?;
    here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("PREPARING")).await?;

    faults.hold(&answered)?;
    faults.release(&sending)?;
    faults.reached(&answered).await?;
    faults.release(&answered)?;
    assert_eq!(here.told("partition orders-0 released"), 1, "the late one is refused");
    assert_eq!(here.refusal(TOPIC, 0, batch(&["no"])).await?, ErrorCode::ReadOnlyTopic);
    let waiting = here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("PREPARING")).await?;
    ensure!(!waiting[0].writable, "{waiting:?}");

    successor.release(&cutting)?;
    here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.equal_to_source(TOPIC, 0).await?;
    Ok(())
}
