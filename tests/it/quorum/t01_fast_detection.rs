//! A killed broker is noticed by its refused connections, a paused one only by its session.

use std::time::Duration;

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use tokio::time::{Instant, sleep};

use crate::support::{Side, batch};

const PARTITIONS: i32 = 6;

async fn led_by(side: &mut Side, broker: i32) -> Result<Vec<i32>> {
    let mut led = Vec::new();
    for partition in 0..PARTITIONS {
        if side.leader("orders", partition).await? == broker {
            led.push(partition);
        }
    }
    ensure!(!led.is_empty(), "broker {broker} leads nothing");
    Ok(led)
}

#[tokio::test]
async fn a_killed_broker_is_replaced_long_before_its_session_ends() -> Result<()> {
    let spec = ClusterSpec::new(1, 3)
        .with("broker.session.timeout.ms", "9000")
        .with("broker.heartbeat.interval.ms", "2000");
    let mut side = Side::start(spec).await?;
    let started = Instant::now();
    side.client.create_topic("orders", PARTITIONS, 3, &[]).await?;
    for partition in 0..PARTITIONS {
        side.write("orders", partition, batch(&["before"])).await?;
    }
    let broker = side.leader("orders", 0).await?;
    let led = led_by(&mut side, broker).await?;
    // Within one session of becoming active nobody is fenced for a refused connection.
    sleep(Duration::from_secs(9).saturating_sub(started.elapsed())).await;
    side.kill(broker)?;
    let killed = Instant::now();
    for partition in led {
        side.write("orders", partition, batch(&["after"])).await?;
    }
    let took = killed.elapsed();
    // Below two seconds on a free machine; a busy one is still far from the session's nine.
    ensure!(took < Duration::from_secs(5), "writable {took:?} after the kill");
    let said = side.cluster.log(101);
    ensure!(said.contains("connection refused"), "fenced for another reason");
    Ok(())
}

#[tokio::test]
async fn a_paused_broker_keeps_its_session() -> Result<()> {
    let session = Duration::from_secs(3);
    let spec = ClusterSpec::new(1, 3).with("broker.session.timeout.ms", "3000");
    let mut side = Side::start(spec).await?;
    let started = Instant::now();
    side.client.create_topic("orders", 1, 3, &[]).await?;
    let broker = side.leader("orders", 0).await?;
    sleep(session.saturating_sub(started.elapsed())).await;
    let paused = Instant::now();
    side.pause(broker)?;
    while side.leader("orders", 0).await? == broker {
        ensure!(paused.elapsed() < Duration::from_secs(30), "a paused broker stays leader");
        sleep(Duration::from_millis(20)).await;
    }
    // The last heartbeat came at most an interval (and what a busy machine adds) before the pause.
    let kept = paused.elapsed();
    ensure!(kept >= session - Duration::from_secs(1), "replaced after {kept:?}, its session is {session:?}");
    ensure!(!side.cluster.log(101).contains("connection refused"), "a paused broker refuses nothing");
    side.resume(broker)
}
