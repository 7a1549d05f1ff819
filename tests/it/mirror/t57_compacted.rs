//! Case 57: logs that are compacted, each at its own time. `kagami verify` tells what a cleaner has dropped from
//! what is missing.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;
use protocol::record_batch::batches;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::support::{LIMIT, MIRROR, Pair, keyed, records_of};

const TOPIC: &str = "orders";
const CONFIGS: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.ms", "50"),
    ("min.cleanable.dirty.ratio", "0.01"),
    ("delete.retention.ms", "100"),
];

fn cleans() -> ClusterSpec {
    ClusterSpec::new(1, 1).with("log.cleaner.backoff.ms", "50")
}

/// Exit code, and the row of partition 0.
async fn verify(pair: &Pair) -> Result<(i32, Value)> {
    let bootstrap = pair.here.bootstrap();
    let arguments = ["verify", "--bootstrap-server", &bootstrap, "--mirror", MIRROR, "--json"];
    let (code, output, errors) = pair.here.run_kagami(&arguments).await?;
    let rows: Value = serde_json::from_str(&output).with_context(|| format!("{output} {errors}"))?;
    Ok((code, rows[0].clone()))
}

/// Writes rounds of records, keys overlapping and deleted, until `is_met` of what both hold (source, here).
async fn write_until(pair: &mut Pair, what: &str, is_met: impl Fn(&[i64], &[i64]) -> bool) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    for round in 0.. {
        let value = format!("round-{round}");
        let key = |n: usize| format!("key-{}", (round + n) % 7);
        let records = [(key(0), Some(&*value)), (key(3), None), (format!("once-{round}"), Some(&*value))];
        pair.source.write(TOPIC, 0, keyed(&records)).await?;
        pair.caught_up(TOPIC, 0).await?;
        let offsets = |bytes: Vec<u8>| -> Result<Vec<i64>> {
            Ok(records_of(&bytes)?.into_iter().map(|(offset, ..)| offset).collect())
        };
        let there = offsets(pair.source.replica(1, TOPIC, 0)?)?;
        let here = offsets(pair.here.replica(1, TOPIC, 0)?)?;
        if is_met(&there, &here) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{what}: {there:?} there, {here:?} here");
        sleep(Duration::from_millis(60)).await;
    }
    Ok(())
}

fn only_in(some: &[i64], other: &[i64]) -> bool {
    some.iter().any(|offset| !other.contains(offset))
}

#[tokio::test]
async fn case_57_logs_that_are_compacted_each_at_its_own_time_are_equal() -> Result<()> {
    let mut pair = Pair::start(cleans(), cleans()).await?;
    pair.source.client.create_topic(TOPIC, 1, 1, &CONFIGS).await?;
    pair.mirror(TOPIC, 1).await?;
    let missing = |offsets: &[i64]| offsets.len() < offsets.last().map_or(0, |last| *last as usize + 1);
    write_until(&mut pair, "both are compacted", |there, here| missing(there) && missing(here)).await?;
    let (code, row) = verify(&pair).await?;
    ensure!(code == 0 && row["missing"] == 0 && row["differing"] == 0, "{row}");

    // The newest record of its key is lost here: no cleaner does that.
    pair.here.stop(1)?;
    let lost = drop_batch(&pair)?;
    pair.here.restart(1)?;
    pair.here.await_start().await?;
    pair.caught_up(TOPIC, 0).await?;
    let (code, row) = verify(&pair).await?;
    ensure!(code == 1 && row["missing"].as_i64() > Some(0), "lost at {lost}: {row}");
    ensure!(row["first_difference"].as_i64() <= Some(lost), "lost at {lost}: {row}");
    Ok(())
}

/// Compaction by the broker's default at the source; here nothing is compacted.
#[tokio::test]
async fn case_57_a_source_that_compacts_by_default() -> Result<()> {
    let source = cleans().with("log.cleanup.policy", "compact");
    let mut pair = Pair::start(source, cleans()).await?;
    pair.source.client.create_topic(TOPIC, 1, 1, &CONFIGS[1..]).await?;
    pair.mirror(TOPIC, 1).await?;
    write_until(&mut pair, "the source is compacted", |there, here| only_in(here, there)).await?;
    let (code, row) = verify(&pair).await?;
    ensure!(code == 0 && row["compacted"].as_i64() > Some(0), "{row}");
    Ok(())
}

/// Takes a batch with a key of its own out of the log here; the offset of that record.
fn drop_batch(pair: &Pair) -> Result<i64> {
    let directory = segments::partition_directory(&pair.here.cluster.data_directory(1), TOPIC, 0);
    for path in segments::files(&directory, "log")? {
        let bytes = std::fs::read(&path)?;
        // What comes after the last batch was allocated ahead.
        let held: Vec<_> = batches(&bytes).map_while(|batch| batch.ok()).collect();
        let once = |bytes: &[u8]| -> Result<Option<i64>> {
            Ok(records_of(bytes)?.into_iter().find(|(_, key, _)| key.starts_with("once-")).map(|(at, ..)| at))
        };
        // A segment keeps something.
        let Some(batch) = held.first().filter(|_| held.len() > 1) else { continue };
        let Some(lost) = once(batch.bytes)? else { continue };
        std::fs::write(&path, held[1..].iter().flat_map(|batch| batch.bytes).copied().collect::<Vec<u8>>())?;
        for ending in ["index", "timeindex"] {
            let _ = std::fs::remove_file(path.with_extension(ending));
        }
        return Ok(lost);
    }
    bail!("no segment here has two batches")
}
