//! P13: the clock of one broker is wrong, or jumps. Sessions, lag and ISR are reckoned by another one.

use std::time::Duration;

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use tokio::time::sleep;

use crate::support::{LIMIT, Side, Writer};

const HOUR_MS: i64 = 3_600_000;
const STROBES: i64 = 12;
const STROBE: Duration = Duration::from_millis(100);

#[tokio::test]
async fn p13_a_wrong_clock_moves_no_isr_deletes_nothing_and_loses_nothing() -> Result<()> {
    // Retention looks all the time; a slow machine is no wrong clock.
    let spec = ClusterSpec::new(1, 3)
        .with("log.retention.check.interval.ms", "200")
        .with("broker.session.timeout.ms", "60000")
        .with("replica.lag.time.max.ms", "60000");
    let mut side = Side::start(spec).await?;
    // A record of now is far in the future where the clock is two days behind.
    let any_time = [("message.timestamp.after.max.ms", "9223372036854775807")];
    side.client.create_topic("orders", 1, 3, &any_time).await?;
    side.client.await_isr("orders", 3, LIMIT).await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    writer.more(50).await?;
    let (leader, follower) = (side.leader("orders", 0).await?, side.follower("orders", 0).await?);
    let isr_changes = |side: &Side| -> usize {
        [1, 2, 3].iter().map(|broker| side.lines(*broker, &["proposes an ISR"]).len()).sum()
    };
    let before = isr_changes(&side);
    for hours in [1, -1, 48, -48] {
        side.faults(leader).skew_clock(hours * HOUR_MS)?;
        writer.more(30).await?;
        side.faults(follower).skew_clock(-hours * HOUR_MS)?;
        writer.more(30).await?;
    }
    for strobe in 0..STROBES {
        side.faults(leader).skew_clock(if strobe % 2 == 0 { 48 * HOUR_MS } else { -48 * HOUR_MS })?;
        sleep(STROBE).await;
    }
    writer.more(30).await?;
    ensure!(isr_changes(&side) == before, "a clock has moved the ISR");
    ensure!(side.leader("orders", 0).await? == leader, "or the leader");

    // A start with a wrong clock is like any other.
    side.kill(follower)?;
    side.restart(follower)?;
    side.client.await_isr("orders", 3, LIMIT).await?;
    for broker in [leader, follower] {
        side.faults(broker).skew_clock(0)?;
    }
    writer.more(30).await?;
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
