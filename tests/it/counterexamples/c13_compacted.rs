//! Counterexample 13: In a compacted topic, k stands at 50 and, not mirrored, at 120. A's cleaner drops 50, and a
//! failback cuts A to 100. What A has left lacks both: it must copy everything anew, 50 included. A dies with
//! the log cut and before the cut is noted, too.
//!
//! Guards decision 10 (d): a log is dropped as a whole where its cleaner has passed the offset of a cut.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use tokio::time::{Instant, sleep};

use super::*;
use crate::support::{MIRROR, Side, Wanted, keyed, records_of};

const CONFIGS: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("segment.ms", "50"), ("min.cleanable.dirty.ratio", "0.01")];

#[tokio::test]
async fn counterexample_13_a_cut_below_what_was_compacted_copies_everything_anew() -> Result<()> {
    let cleans = || ClusterSpec::new(1, 1).with("log.cleaner.backoff.ms", "50");
    let mut pair = Pair::start(cleans(), cleans()).await?;
    pair.source.client.create_topic(TOPIC, 1, 1, &CONFIGS).await?;
    let others = |from: usize, to: usize| (from..to).map(|at| (format!("other-{at}"), Some("v")));
    let k = |value: &'static str| std::iter::once(("k".to_owned(), Some(value)));
    let first: Vec<_> = others(0, 50).chain(k("old")).chain(others(51, 100)).collect();
    pair.source.write(TOPIC, 0, keyed(&first)).await?;
    pair.mirror(TOPIC, 1).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.remove(MIRROR, TOPIC).await?;
    let stopped = pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    assert_eq!(stopped[0].last_mirrored_offset, 100);
    let second: Vec<_> = others(100, 120).chain(k("new")).collect();
    pair.source.write(TOPIC, 0, keyed(&second)).await?;
    await_dropped(&mut pair.source, 50).await?;

    pair.source.create_mirror(BACK, &pair.here.bootstrap()).await?;
    let noting = pair.source.place("log.cut.note", TOPIC, 0).await?;
    let faults = pair.source.faults(1);
    faults.crash(&noting)?;
    pair.source.add(BACK, TOPIC).await?;
    faults.crashed(&noting).await?;
    pair.source.cluster.await_exit(1).await?;
    pair.source.restart(1)?;
    pair.source.await_partitions(BACK, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    pair.source.await_end(TOPIC, 0, 100).await?;
    assert_eq!(pair.source.told("partition orders-0 cut to 100 (PREPARING)"), 1);
    let found = records_of(&pair.source.replica(1, TOPIC, 0)?)?;
    let expected = (0..).zip(first).map(|(at, (key, value))| (at, key, value.map(str::to_owned)));
    assert_eq!(found, expected.collect::<Vec<_>>());
    pair.source.kagami(&["verify", "--bootstrap-server", &pair.source.bootstrap(), "--mirror", BACK]).await?;
    Ok(())
}

/// Waits until the cleaner has taken a record. It leaves the newest segment alone, so that has to change.
async fn await_dropped(side: &mut Side, offset: i64) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let records = records_of(&side.replica(1, TOPIC, 0)?)?;
        if !records.iter().any(|(at, ..)| *at == offset) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the record at {offset} is still there");
        side.write(TOPIC, 0, keyed(&[("filler", Some("v"))])).await?;
        sleep(std::time::Duration::from_millis(60)).await;
    }
}
