//! Counterexample 2: r3 misses the PREPARING cut and keeps what was above it; the others go on mirroring
//! and die; r3 is elected uncleanly. It must cut before it leads.
//!
//! Guards decision 10 (d): a replica applies the cuts it has not applied before it fetches or leads, in an
//! unclean election too. Without that it would lead with records that are not the source's, under the
//! source's epoch.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;

use super::*;
use crate::support::{MIRROR, Wanted, values_of};

#[tokio::test]
async fn counterexample_02_a_replica_elected_uncleanly_applies_the_cut_it_missed() -> Result<()> {
    missed(start_with_own_records(unclean()).await?, &[]).await
}

/// The same with a cut that leaves something: to 50, which both share.
#[tokio::test]
async fn counterexample_02_a_replica_elected_uncleanly_applies_a_missed_cut_to_50() -> Result<()> {
    missed(start_with_shared_records(unclean()).await?, &values("shared", SHARED)).await
}

fn unclean() -> ClusterSpec {
    ClusterSpec::new(1, 3).with("unclean.leader.election.enable", "true")
}

async fn missed(mut pair: Pair, shared: &[String]) -> Result<()> {
    let leader = pair.here.leader(TOPIC, 0).await?;
    let r3 = pair.here.follower(TOPIC, 0).await?;
    let others: Vec<i32> = pair.here.cluster.brokers().into_iter().filter(|id| *id != r3).collect();

    // r3 lives and hears of the cut, but comes no further.
    let cutting = pair.here.place("replica.cut.apply", TOPIC, 0).await?;
    let faults = pair.here.faults(r3);
    let told_before = pair.here.lines(r3, &["partition=orders-0"]).len();
    faults.hold(&cutting)?;
    pair.here.ignore(r3);
    pair.mirror(TOPIC, 1).await?;
    faults.reached(&cutting).await?;
    pair.here.await_isr_of(TOPIC, 0, &others).await?;
    pair.source.write(TOPIC, 0, batch(&values("more", 40))).await?;
    pair.caught_up(TOPIC, 0).await?;

    for broker in [leader].into_iter().chain(others.iter().copied().filter(|id| *id != leader)) {
        pair.here.kill(broker)?;
    }
    pair.here.await_told(&format!("partition {TOPIC}-0 led by broker {r3}")).await?;
    let uncut = [shared, &values("own", OWN)].concat();
    assert_eq!(values_of(&pair.here.replica(r3, TOPIC, 0)?)?, uncut, "not cut yet");
    faults.release(&cutting)?;
    pair.here.heed(r3);
    pair.here.await_led_by(TOPIC, 0, r3).await?;
    // What it led before the cut was committed does not count.
    let log = pair.here.lines(r3, &["partition=orders-0"]);
    let log = log.get(told_before..).unwrap_or_default();
    let place = |what: &str| log.iter().position(|line| line.contains(what));
    ensure!(place("applies a cut").is_some() && place("applies a cut") < place(" leads"), "{log:?}");

    for broker in others {
        pair.here.restart(broker)?;
    }
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.equal_to_source(TOPIC, 0).await?;
    Ok(())
}
