//! The interleavings that broke earlier drafts of the mirror protocol, by their numbers, with real
//! processes: a fault is placed exactly where it hurts (see `common::fault`). The pure machines have tests
//! of the same numbers, and of those that need no process.

mod c01_cut_applied_once;
mod c02_cut_missed;
mod c03_lowest_cut;
mod c04_late_cut;
mod c06_source_lost_its_log;
mod c07_retry;
mod c10_late_release;
mod c13_compacted;
mod c15_waiting_produce;
mod c16_late_reports;
mod c17_recopy;
mod c20_another_source;

use std::path::Path;

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;

use crate::support::{LIMIT, Pair, Wanted, batch, values};

/// In every test here.
const TOPIC: &str = "orders";
/// What the source and this side hold of their own before anything is mirrored, both under leader epoch 0: the
/// epochs alone cannot tell the two apart.
const AT_SOURCE: usize = 40;
const OWN: usize = 30;
/// What both hold where the source was a copy of this side before.
const SHARED: usize = 50;
/// The mirror that made it one.
const BACK: &str = "back";

/// One broker at the source, three here.
async fn start(here: ClusterSpec) -> Result<Pair> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), here).await?;
    pair.source.client.create_topic(TOPIC, 1, 1, &[]).await?;
    pair.source.write(TOPIC, 0, batch(&values("source", AT_SOURCE))).await?;
    Ok(pair)
}

/// The same with records here that the source does not have. "Nothing recorded" there cuts them all.
async fn start_with_own_records(here: ClusterSpec) -> Result<Pair> {
    let mut pair = start(here).await?;
    pair.create_here(TOPIC, 1).await?;
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    pair.here.write(TOPIC, 0, batch(&values("own", OWN))).await?;
    pair.here.equal_replicas(TOPIC, 0).await?;
    let leader_epoch = pair.here.partition(TOPIC, 0).await?.leader_epoch;
    ensure!(leader_epoch == 0, "the own records are of epoch {leader_epoch}");
    Ok(pair)
}

/// Both sides share the first records: the source was a copy of this side, and was released. After them each has
/// records of its own, under one leader epoch. "Recorded" there cuts what is own here, and no more.
async fn start_with_shared_records(here: ClusterSpec) -> Result<Pair> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), here).await?;
    let (source, here) = (&mut pair.source, &mut pair.here);
    here.client.create_topic(TOPIC, 1, 3, &[]).await?;
    here.client.await_isr(TOPIC, 3, LIMIT).await?;
    here.write(TOPIC, 0, batch(&values("shared", SHARED))).await?;
    source.create_mirror(BACK, &here.bootstrap()).await?;
    source.add(BACK, TOPIC).await?;
    source.await_partitions(BACK, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    source.await_end(TOPIC, 0, SHARED as i64).await?;
    source.remove(BACK, TOPIC).await?;
    let stopped = source.await_partitions(BACK, TOPIC, 1, Wanted::Writable).await?;
    ensure!(stopped[0].last_mirrored_offset == SHARED as i64, "{stopped:?}");
    source.write(TOPIC, 0, batch(&values("source", AT_SOURCE))).await?;
    let wanted = source.partition(TOPIC, 0).await?.leader_epoch;
    while here.partition(TOPIC, 0).await?.leader_epoch < wanted {
        let leader = here.leader(TOPIC, 0).await?;
        here.stop(leader)?;
        here.restart(leader)?;
        here.client.await_isr(TOPIC, 3, LIMIT).await?;
    }
    here.write(TOPIC, 0, batch(&values("own", OWN))).await?;
    here.equal_replicas(TOPIC, 0).await?;
    let found = here.partition(TOPIC, 0).await?.leader_epoch;
    ensure!(found == wanted, "the own records are of epoch {found}, those at the source of {wanted}");
    Ok(pair)
}

/// A directory with all in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
