//! Counterexample 1: A cut; r2 was in the ISR at that moment; release; many acknowledged writes; r1 dies;
//! r2 leads. It must not cut again what it has cut already.
//!
//! Guards decision 10 (d): each replica notes durably which cut it applied last, and an election or a
//! restart changes nothing in that.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;

use super::*;
use crate::support::{MIRROR, Wanted, values_of};

#[tokio::test]
async fn counterexample_01_a_replica_that_applied_the_cut_does_not_apply_it_again() -> Result<()> {
    let mut pair = start_with_own_records(ClusterSpec::new(1, 3)).await?;
    pair.mirror(TOPIC, 1).await?;
    pair.caught_up(TOPIC, 0).await?;
    let here = &mut pair.here;
    here.client.await_isr(TOPIC, 3, LIMIT).await?;
    here.remove(MIRROR, TOPIC).await?;
    let stopped = here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    assert_eq!(stopped[0].last_mirrored_offset, AT_SOURCE as i64);
    here.client.await_isr(TOPIC, 3, LIMIT).await?;

    // What r2 knows of the cut has to outlive its process too.
    let r1 = here.leader(TOPIC, 0).await?;
    let r2 = here.follower(TOPIC, 0).await?;
    let r3 = here.cluster.brokers().into_iter().find(|id| ![r1, r2].contains(id)).unwrap_or_default();
    let mut expected = values("source", AT_SOURCE);
    let mut write = |round: usize| {
        let written = values(&format!("after-{round}"), 10);
        expected.extend(written.clone());
        (batch(&written), expected.clone())
    };
    for round in 0..5 {
        here.write(TOPIC, 0, write(round).0).await?;
    }
    here.kill(r2)?;
    here.restart(r2)?;
    here.client.await_isr(TOPIC, 3, LIMIT).await?;
    for round in 5..10 {
        here.write(TOPIC, 0, write(round).0).await?;
    }
    // It must be r2 who leads next.
    here.stop(r3)?;
    here.await_isr_of(TOPIC, 0, &[r1, r2]).await?;

    // r1 dies when all have the last batch and the producer does not know yet.
    here.faults(r1).crash("produce.answer")?;
    let (last, expected) = write(10);
    let answer = here.client.produce(TOPIC, 0, last).await;
    ensure!(answer.is_err(), "answered with {answer:?}");
    here.cluster.await_exit(r1).await?;
    here.client.forget_leaders();
    here.restart(r3)?;
    here.await_isr_of(TOPIC, 0, &[r2, r3]).await?;
    assert_eq!(here.leader(TOPIC, 0).await?, r2);
    assert_eq!(values_of(&here.consume(TOPIC, 0).await?)?, expected);
    here.restart(r1)?;
    here.client.await_isr(TOPIC, 3, LIMIT).await?;
    assert_eq!(values_of(&here.equal_replicas(TOPIC, 0).await?)?, expected);
    Ok(())
}
