//! Counterexample 7: A bad batch: FAILED, retry. The retry must not pass through a new PREPARING cut, nor
//! must a new leader that finds FAILED recorded, nor one that finds nothing since `__mirror_state` is lost.
//!
//! Guards decisions 11 and 18: PREPARING cuts once per association, which the image alone says, and a retry
//! returns to the state that failed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;

use super::*;
use crate::support::{MIRROR, Wanted};

#[tokio::test]
async fn counterexample_07_no_retry_and_no_lost_state_cuts_again() -> Result<()> {
    // The own records are cut once, so that there is a cut to come back to.
    let here = ClusterSpec::new(1, 3).with("mirror.failed.retry.initial.backoff.ms", "200");
    let mut pair = start_with_own_records(here).await?;
    pair.mirror(TOPIC, 1).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    assert_eq!(pair.here.told("partition orders-0 cut to"), 1);

    // The next batch is damaged on the source's disk before it is fetched.
    let fetching = format!("mirror.fetch@{MIRROR}");
    let leader = pair.here.leader(TOPIC, 0).await?;
    let faults = pair.here.faults(leader);
    faults.hold(&fetching)?;
    faults.reached(&fetching).await?;
    pair.source.write(TOPIC, 0, batch(&values("damaged", 10))).await?;
    let source = pair.source.cluster.data_directory(1);
    flip_last_byte(&source)?;
    // The leader dies when FAILED is durable, and before it has tried again.
    let failed = format!("{}@FAILED", pair.here.place("mirror.state.written", TOPIC, 0).await?);
    faults.crash(&failed)?;
    faults.release(&fetching)?;
    faults.crashed(&failed).await?;
    pair.here.cluster.await_exit(leader).await?;
    pair.here.client.forget_leaders();
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("FAILED")).await?;
    pair.here.restart(leader)?;
    flip_last_byte(&source)?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    assert_eq!(pair.here.told("partition orders-0 cut to"), 1, "a retry made a cut");

    with_other_states(&mut pair, lose_states).await
}

/// The coordinators have lost their newest records, and answer PREPARING where MIRRORING was recorded.
#[tokio::test]
async fn counterexample_07_a_stale_coordinators_answer_cuts_nothing() -> Result<()> {
    let mut pair = start_with_own_records(ClusterSpec::new(1, 3)).await?;
    let mirroring = format!("{}@MIRRORING", pair.here.place("mirror.state.write", TOPIC, 0).await?);
    let leader = pair.here.leader(TOPIC, 0).await?;
    let faults = pair.here.faults(leader);
    faults.hold(&mirroring)?;
    pair.here.add(MIRROR, TOPIC).await?;
    faults.reached(&mirroring).await?;
    // PREPARING is recorded, on every replica, and the cut is made.
    for broker in pair.here.cluster.brokers() {
        each_state(&pair.here.cluster.data_directory(broker), |path| copy(path, &kept(path)))?;
    }
    faults.release(&mirroring)?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up(TOPIC, 0).await?;
    assert_eq!(pair.here.told("partition orders-0 cut to"), 1);

    with_other_states(&mut pair, |data| {
        each_state(data, |path| {
            std::fs::remove_dir_all(path)?;
            Ok(std::fs::rename(kept(path), path)?)
        })?;
        forget_states(&data.join("recovery-point-offset-checkpoint"))
    })
    .await
}

/// A broker whose logs are shorter than it noted no longer counts as in sync, and all of its partitions would be
/// led anew with losses.
fn forget_states(checkpoint: &Path) -> Result<()> {
    let text = std::fs::read_to_string(checkpoint)?;
    let others: Vec<_> = text.lines().skip(2).filter(|line| !line.starts_with("__mirror_state ")).collect();
    Ok(std::fs::write(checkpoint, format!("0\n{}\n{}\n", others.len(), others.join("\n")))?)
}

/// Every broker stops and comes back with other states: the copy goes on, and nothing is cut again.
async fn with_other_states(pair: &mut Pair, change: impl Fn(&Path) -> Result<()>) -> Result<()> {
    for broker in pair.here.cluster.brokers() {
        pair.here.stop(broker)?;
        change(&pair.here.cluster.data_directory(broker))?;
    }
    for broker in pair.here.cluster.brokers() {
        pair.here.restart(broker)?;
    }
    pair.here.await_start().await?;
    pair.source.write(TOPIC, 0, batch(&values("more", 10))).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    assert_eq!(pair.here.told("partition orders-0 cut to"), 1, "a state made a cut");
    pair.equal_to_source(TOPIC, 0).await?;
    Ok(())
}

/// Beside the data directory, where no broker looks.
fn kept(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let data = path.parent().unwrap_or(path);
    data.with_extension(format!("kept-{name}"))
}

/// Of the newest segment: it belongs to the value of the last record.
fn flip_last_byte(data: &Path) -> Result<()> {
    let files = segments::files(&segments::partition_directory(data, TOPIC, 0), "log")?;
    let path = files.last().context("no segment")?;
    let end = segments::read(path.parent().context("a directory")?)?.len() as u64;
    let file = File::options().read(true).write(true).open(path)?;
    // The last byte of a batch is the number of the last record's headers.
    let mut byte = [0];
    file.read_exact_at(&mut byte, end - 2)?;
    file.write_all_at(&[byte[0] ^ 1], end - 2)?;
    Ok(())
}

fn lose_states(data: &Path) -> Result<()> {
    each_state(data, |path| Ok(std::fs::remove_dir_all(path)?))
}

fn each_state(data: &Path, mut change: impl FnMut(&Path) -> Result<()>) -> Result<()> {
    let mut found = 0;
    for entry in std::fs::read_dir(data)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("__mirror_state-") {
            change(&path)?;
            found += 1;
        }
    }
    ensure!(found > 0, "no states in {}", data.display());
    Ok(())
}
