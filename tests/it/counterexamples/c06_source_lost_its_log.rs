//! Counterexample 6: The source loses its log (here: its disk is one of an earlier day) while it is
//! mirrored: the mirror must not follow it down. It has even grown past the mirror's end before the mirror
//! asks again.
//!
//! Guards decision 20: while MIRRORING nothing is cut for a source that lost records, and nothing of what
//! it wrote since is appended to what is here.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;

use super::*;
use crate::support::{MIRROR, Wanted, values_of};

#[tokio::test]
async fn counterexample_06_the_mirror_does_not_follow_a_source_that_lost_its_log() -> Result<()> {
    let mut pair = start(ClusterSpec::new(1, 3)).await?;
    let (data, backup) = {
        let data = pair.source.cluster.data_directory(1);
        (data.clone(), data.with_extension("backup"))
    };
    pair.source.stop(1)?;
    copy(&data, &backup)?;
    pair.source.restart(1)?;
    pair.source.await_start().await?;
    pair.mirror(TOPIC, 1).await?;
    pair.source.write(TOPIC, 0, batch(&values("lost", 20))).await?;
    let end = pair.caught_up(TOPIC, 0).await?;
    assert_eq!(end, 60);

    let fetching = format!("mirror.fetch@{MIRROR}");
    let leader = pair.here.leader(TOPIC, 0).await?;
    let faults = pair.here.faults(leader);
    faults.hold(&fetching)?;
    faults.reached(&fetching).await?;
    pair.source.stop(1)?;
    std::fs::remove_dir_all(&data)?;
    std::fs::rename(&backup, &data)?;
    pair.source.restart(1)?;
    pair.source.await_start().await?;
    pair.source.write(TOPIC, 0, batch(&values("other", 80))).await?;
    let there = pair.source.end(TOPIC, 0).await?;
    ensure!(there > end, "the source ends at {there}");

    faults.release(&fetching)?;
    let failed = pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("FAILED")).await?;
    let reason = failed[0].reason.clone().unwrap_or_default();
    ensure!(reason.contains("source"), "FAILED because {reason}");
    let kept = [values("source", AT_SOURCE), values("lost", 20)].concat();
    assert_eq!(values_of(&pair.here.equal_replicas(TOPIC, 0).await?)?, kept);
    // A retry finds the same: another leader tries at once.
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    pair.here.depose(TOPIC, 0).await?;
    pair.source.write(TOPIC, 0, batch(&values("other", 5))).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("FAILED")).await?;
    // The copy can still be failed over to.
    pair.here.remove(MIRROR, TOPIC).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    assert_eq!(pair.here.write(TOPIC, 0, batch(&["after"])).await?, end);
    assert_eq!(values_of(&pair.here.consume(TOPIC, 0).await?)?[..60], kept);
    Ok(())
}
