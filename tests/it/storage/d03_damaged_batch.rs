//! One batch of a closed segment has rotted: whoever reads it gets CORRUPT_MESSAGE, or bytes that fail their
//! CRC; all others are served.

use std::fs;

use anyhow::{Context, Result, ensure};
use kagami_tests::client::error_name;
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;
use protocol::ErrorCode;
use protocol::record_batch::{BatchBuilder, batches, check_crc};

use crate::support::{Side, now_ms, values};

const BATCHES: i64 = 12;
const IN_HEADER: usize = 3;
const IN_BODY: usize = 5;
/// Of the magic byte.
const MAGIC: usize = 16;

#[tokio::test]
async fn d03_a_damaged_batch_is_answered_with_corrupt_message_and_the_others_are_served() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 1)).await?;
    side.client.create_topic("orders", 1, 1, &[("segment.bytes", "1048576")]).await?;
    for number in 0..BATCHES {
        let filler = vec![b'x'; 150 * 1024];
        let value = format!("value-{number}");
        let batch = BatchBuilder::new().record(now_ms(), Some(value.as_bytes()), Some(&filler)).build();
        ensure!(side.write("orders", 0, batch).await? == number);
    }
    side.stop(1)?;
    let directory = segments::partition_directory(&side.cluster.data_directory(1), "orders", 0);
    let files = segments::files(&directory, "log")?;
    ensure!(files.len() > 1, "the damage is to be in a closed segment");
    let first = files.first().context("a segment")?;
    let mut bytes = fs::read(first)?;
    let places: Vec<usize> = batches(&bytes).map(|batch| Ok(batch?.position)).collect::<Result<_>>()?;
    bytes[places[IN_HEADER] + MAGIC] ^= 0x40;
    bytes[places[IN_BODY] + 1000] ^= 1;
    fs::write(first, bytes)?;
    side.restart(1)?;
    side.client.await_leaders("orders", 1).await?;

    let corrupt = error_name(ErrorCode::CorruptMessage.code());
    for offset in 0..BATCHES {
        let fetched = side.client.fetch("orders", 0, offset, false).await?;
        if offset == IN_HEADER as i64 {
            ensure!(error_name(fetched.error_code) == corrupt, "{fetched:?}");
            continue;
        }
        ensure!(fetched.error_code == 0, "offset {offset}: {}", error_name(fetched.error_code));
        let found = batches(&fetched.records).next().context("a batch")??;
        ensure!(found.header.base_offset == offset);
        ensure!(check_crc(found.bytes).is_ok() == (offset != IN_BODY as i64), "offset {offset}");
    }
    ensure!(!side.cluster.log(1).contains("directory failed"), "one batch is no disk");
    ensure!(!side.lines(1, &["cannot be read", "00000000000000000000.log", "at byte"]).is_empty());
    ensure!(side.write("orders", 0, crate::support::batch(&values("after", 2))).await? == BATCHES);
    Ok(())
}
