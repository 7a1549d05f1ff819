//! Partitions on disk: rolled by size, deleted by retention.

use anyhow::{Result, bail, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use kagami_tests::segments;
use protocol::ErrorCode;

use crate::support::{LIMIT, Side, TOPIC_RESOURCE, batch, values};

const SEGMENT_BYTES: u64 = 1 << 20;

#[tokio::test]
async fn segments_roll_by_size_and_retention_deletes_them() -> Result<()> {
    let spec = ClusterSpec::new(1, 1).with("log.retention.check.interval.ms", "200");
    let mut side = Side::start(spec).await?;
    let configs = [("segment.bytes", "1048576"), ("file.delete.delay.ms", "100")];
    side.client.create_topic("orders", 1, 1, &configs).await?;
    let text = "some text to fill a segment ".repeat(40);
    for _ in 0..60 {
        side.write("orders", 0, batch(&values(&text, 100))).await?;
    }
    let directory = segments::partition_directory(&side.cluster.data_directory(1), "orders", 0);
    let logs = segments::files(&directory, "log")?;
    ensure!(logs.len() >= 5, "segments: {logs:?}");
    for path in &logs {
        ensure!(std::fs::metadata(path)?.len() <= SEGMENT_BYTES, "{} is too large", path.display());
    }
    // The newest gets its indexes with its first entries.
    for path in &logs[..logs.len() - 1] {
        ensure!(path.with_extension("index").exists(), "{} has no index", path.display());
        ensure!(path.with_extension("timeindex").exists(), "{} has no time index", path.display());
    }
    // The newest stay, and the log's start moves.
    let (code, message) = side.set_config(TOPIC_RESOURCE, "orders", "retention.bytes", "2000000").await?;
    assert_eq!(code, ErrorCode::None, "{message:?}");
    eventually("old segments are deleted", LIMIT, || {
        let logs = segments::files(&directory, "log");
        async move {
            match logs?.len() {
                0..=3 => Ok(Some(())),
                left => bail!("{left} segments are left"),
            }
        }
    })
    .await?;
    ensure_start_has_moved(&mut side).await?;
    // A restart changes nothing in that.
    side.kill(1)?;
    side.restart(1)?;
    side.client.await_brokers(1, LIMIT).await?;
    ensure_start_has_moved(&mut side).await
}

async fn ensure_start_has_moved(side: &mut Side) -> Result<()> {
    assert_eq!(side.end("orders", 0).await?, 6_000);
    let fetched = side.client.fetch("orders", 0, 0, false).await?;
    assert_eq!(ErrorCode::from_code(fetched.error_code), Some(ErrorCode::OffsetOutOfRange));
    let fetched = side.client.fetch("orders", 0, 5_999, false).await?;
    assert_eq!(fetched.error_code, 0);
    Ok(())
}
