//! Counterexample 3: A cut with r3 away; later another one, above; r3 returns with records of the old
//! lineage under the same epoch. It must cut to the lower, not to the later one. Here r3 had even made the
//! first cut, and a power cut brought back what it had removed.
//!
//! Guards decision 10 (d): the lowest offset of all cuts not applied counts, and a cut is noted only when
//! the truncation is durable.

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;

use super::*;
use crate::support::{MIRROR, Wanted, values_of};

#[tokio::test]
async fn counterexample_03_a_replica_that_missed_two_cuts_cuts_to_the_lower_one() -> Result<()> {
    two_missed(start_with_own_records(ClusterSpec::new(1, 3)).await?, &[]).await
}

/// The same with a first cut to 50, which both share.
#[tokio::test]
async fn counterexample_03_a_replica_that_missed_two_cuts_cuts_to_50() -> Result<()> {
    let pair = start_with_shared_records(ClusterSpec::new(1, 3)).await?;
    two_missed(pair, &values("shared", SHARED)).await
}

/// The replica was moved away while its broker was down, which kept the directory, and moved back.
#[tokio::test]
async fn counterexample_03_a_replica_that_comes_back_to_its_old_directory() -> Result<()> {
    let mut pair = start_with_own_records(ClusterSpec::new(1, 3)).await?;
    let here = &mut pair.here;
    let leader = here.leader(TOPIC, 0).await?;
    let r3 = here.follower(TOPIC, 0).await?;
    let other = 6 - leader - r3;
    let directory = segments::partition_directory(&here.cluster.data_directory(r3), TOPIC, 0);
    here.kill(r3)?;
    here.reassign(TOPIC, &[leader, other]).await?;
    here.await_replicas(TOPIC, &[leader, other]).await?;
    pair.mirror(TOPIC, 1).await?;
    pair.source.write(TOPIC, 0, batch(&values("more", 160))).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.remove(MIRROR, TOPIC).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    pair.here.write(TOPIC, 0, batch(&values("after", 5))).await?;
    assert_eq!(values_of(&segments::read(&directory)?)?, values("own", OWN), "its old directory");

    pair.here.reassign(TOPIC, &[leader, other, r3]).await?;
    pair.here.restart(r3)?;
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    let log = pair.here.equal_replicas(TOPIC, 0).await?;
    let expected = [values("source", AT_SOURCE), values("more", 160), values("after", 5)].concat();
    assert_eq!(values_of(&log)?, expected);
    let applied = pair.here.lines(r3, &["applies a cut"]);
    assert_eq!(applied.len(), 1, "{applied:?}");
    Ok(())
}

async fn two_missed(mut pair: Pair, shared: &[String]) -> Result<()> {
    let r3 = pair.here.follower(TOPIC, 0).await?;
    let others: Vec<i32> = pair.here.cluster.brokers().into_iter().filter(|id| *id != r3).collect();
    let directory = segments::partition_directory(&pair.here.cluster.data_directory(r3), TOPIC, 0);
    let before = directory.with_extension("before");
    copy(&directory, &before)?;

    // It dies with the log cut and before the cut is noted.
    let noting = pair.here.place("log.cut.note", TOPIC, 0).await?;
    let faults = pair.here.faults(r3);
    faults.crash(&noting)?;
    pair.mirror(TOPIC, 1).await?;
    faults.crashed(&noting).await?;
    pair.here.cluster.await_exit(r3).await?;
    pair.here.await_isr_of(TOPIC, 0, &others).await?;
    pair.source.write(TOPIC, 0, batch(&values("more", 160))).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.remove(MIRROR, TOPIC).await?;
    let stopped = pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    assert_eq!(stopped[0].last_mirrored_offset, shared.len() as i64 + 200);
    pair.here.write(TOPIC, 0, batch(&values("after", 5))).await?;

    std::fs::remove_dir_all(&directory)?;
    std::fs::rename(&before, &directory)?;
    pair.here.restart(r3)?;
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    let log = pair.here.equal_replicas(TOPIC, 0).await?;
    let expected = [shared, &values("source", AT_SOURCE), &values("more", 160), &values("after", 5)].concat();
    assert_eq!(values_of(&log)?, expected);
    Ok(())
}
