//! Case 5: ten thousand records, compressed ones, keys, headers and idempotent producers among them.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;
use protocol::record_batch::{BatchBuilder, Compression, RecordHeader};

use crate::support::{Pair, compressed, now_ms};

const RECORDS: usize = 10_000;
const RECORDS_PER_BATCH: usize = 125;

#[tokio::test]
async fn case_05_the_mirror_holds_the_sources_bytes() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(3, 3)).await?;
    pair.source.client.create_topic("orders", 1, 1, &[("segment.bytes", "1048576")]).await?;
    let first = write(&mut pair, RECORDS / 2).await?;
    pair.mirror("orders", 1).await?;
    let second = write(&mut pair, RECORDS / 2).await?;
    assert_eq!(pair.caught_up("orders", 0).await?, RECORDS as i64);
    let bytes = pair.equal_to_source("orders", 0).await?;

    let summary = segments::summarize(&bytes)?;
    assert_eq!(summary.records, RECORDS as i64);
    assert_eq!(summary.batches, RECORDS / RECORDS_PER_BATCH);
    assert_eq!(summary.compressions.into_iter().collect::<Vec<_>>(), [0, 3, 4], "none, lz4, zstd");
    assert!(summary.producer_ids.contains(&first) && summary.producer_ids.contains(&second));
    // A consumer gets the same from both.
    let there = pair.source.consume("orders", 0).await?;
    ensure!(there == pair.here.consume("orders", 0).await?, "a consumer reads other bytes here");
    ensure!(there == bytes, "a consumer reads other bytes than the log holds");
    Ok(())
}

/// One idempotent producer; its id.
async fn write(pair: &mut Pair, records: usize) -> Result<i64> {
    let identity = pair.source.client.init_producer_id().await?;
    for number in 0..records / RECORDS_PER_BATCH {
        let sequence = (number * RECORDS_PER_BATCH) as i32;
        let mut builder = BatchBuilder::new().producer(identity.id, identity.epoch, sequence);
        for index in 0..RECORDS_PER_BATCH {
            let (key, value) = (format!("key-{index}"), format!("value {} ", number * index).repeat(8));
            let headers = [RecordHeader { name: "trace", value: Some(key.as_bytes()) }];
            let timestamp = now_ms() + index as i64;
            builder.push(timestamp, Some(key.as_bytes()), Some(value.as_bytes()), &headers);
        }
        let plain = builder.build();
        let batch = match number % 3 {
            0 => plain,
            1 => compressed(&plain, Compression::Lz4)?,
            _ => compressed(&plain, Compression::Zstd)?,
        };
        pair.source.write("orders", 0, batch).await?;
    }
    Ok(identity.id)
}
