//! The log start moves at a mirror's source: the copy follows, and readers below get OFFSET_OUT_OF_RANGE.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;

use crate::support::{LIMIT, Pair, Side, batch, values_of};

const TOPIC: &str = "orders";

/// Waits until the record at `start` is served and the one below it is out of range.
async fn begins_at(side: &mut Side, start: i64, value: &str) -> Result<()> {
    let out_of_range = ErrorCode::OffsetOutOfRange.code();
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let above = side.client.fetch(TOPIC, 0, start, false).await;
        let below = side.client.fetch(TOPIC, 0, start - 1, false).await;
        if let (Ok(above), Ok(below)) = (&above, &below)
            && (above.error_code, below.error_code) == (0, out_of_range)
        {
            // None: it begins there, and what follows is not copied or committed yet.
            if let Some(found) = values_of(&above.records)?.first() {
                ensure!(found == value, "{found:?}");
                return Ok(());
            }
        }
        side.client.forget_leaders();
        ensure!(tokio::time::Instant::now() < deadline, "at {start}: {above:?}, below: {below:?}");
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
}

#[tokio::test]
async fn d11_a_copy_follows_the_log_start_of_its_source() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 2)).await?;
    pair.source.client.create_topic(TOPIC, 1, 1, &[]).await?;
    for number in 0..20 {
        pair.source.write(TOPIC, 0, batch(&[format!("value-{number}")])).await?;
    }
    pair.mirror(TOPIC, 1).await?;
    pair.caught_up(TOPIC, 0).await?;
    // Inside of what the copy holds: its own start follows, with the follower's.
    pair.source.delete_records(TOPIC, 0, 7).await?;
    pair.source.write(TOPIC, 0, batch(&["value-20"])).await?;
    begins_at(&mut pair.here, 7, "value-7").await?;
    let (leader, follower) = (pair.here.leader(TOPIC, 0).await?, pair.here.follower(TOPIC, 0).await?);
    pair.caught_up(TOPIC, 0).await?;
    pair.here.client.await_isr(TOPIC, 2, LIMIT).await?;
    pair.here.stop(leader)?;
    pair.here.await_led_by(TOPIC, 0, follower).await?;
    begins_at(&mut pair.here, 7, "value-7").await?;
    pair.here.restart(leader)?;
    pair.here.client.await_isr(TOPIC, 2, LIMIT).await?;

    // Above all that the copy holds: what it lacks is gone, and it goes on from the source's start.
    for broker in [1, 2] {
        pair.here.kill(broker)?;
    }
    for number in 21..40 {
        pair.source.write(TOPIC, 0, batch(&[format!("value-{number}")])).await?;
    }
    pair.source.delete_records(TOPIC, 0, 30).await?;
    for broker in [1, 2] {
        pair.here.restart(broker)?;
    }
    pair.here.client.await_isr(TOPIC, 2, LIMIT).await?;
    begins_at(&mut pair.here, 30, "value-30").await?;
    ensure!(pair.caught_up(TOPIC, 0).await? == 40);
    pair.here.equal_replicas(TOPIC, 0).await?;
    Ok(())
}
