//! One broker that stops in order, or is killed, and starts again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use kagami_tests::http;
use kagami_tests::segments;

use crate::support::{LIMIT, Side, Writer, batch, values};

const TOPICS: usize = 20;

#[tokio::test]
async fn after_a_clean_stop_nothing_is_scanned_and_after_a_kill_the_tail_is() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 1)).await?;
    for topic in 0..TOPICS {
        let name = format!("topic-{topic}");
        side.client.create_topic(&name, 1, 1, &[]).await?;
        side.write(&name, 0, batch(&values("v", 50))).await?;
    }
    let data = side.cluster.data_directory(1);
    let marker = data.join(".kafka_cleanshutdown");
    side.stop(1)?;
    ensure!(marker.exists(), "a clean stop leaves its mark");
    // Whoever scans a segment would notice that it is damaged, and cut it.
    let segment = |topic: &str| {
        let directory = segments::partition_directory(&data, topic, 0);
        anyhow::Ok(segments::files(&directory, "log")?.remove(0))
    };
    let first = segment("topic-0")?;
    let good = std::fs::read(&first)?;
    let mut bad = good.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    std::fs::write(&first, &bad)?;
    side.restart(1)?;
    side.client.await_brokers(1, LIMIT).await?;
    ensure!(!marker.exists(), "the mark is of one stop");
    assert_eq!(side.end("topic-0", 0).await?, 50, "a clean start takes what the checkpoints say");
    std::fs::write(&first, &good)?;

    // After a kill the tail is scanned, and what is torn is cut.
    side.write("topic-1", 0, batch(&values("w", 50))).await?;
    side.kill(1)?;
    let torn = segment("topic-1")?;
    let whole = std::fs::read(&torn)?;
    std::fs::write(&torn, [&whole[..], &whole[..40]].concat())?;
    side.restart(1)?;
    side.client.await_brokers(1, LIMIT).await?;
    assert_eq!(side.end("topic-1", 0).await?, 100, "half a batch behind the last is cut");
    for topic in 2..TOPICS {
        assert_eq!(side.end(&format!("topic-{topic}"), 0).await?, 50);
    }
    assert_eq!(side.write("topic-1", 0, batch(&["next"])).await?, 100);
    segments::summarize(&side.replica(1, "topic-1", 0)?)?;
    Ok(())
}

#[tokio::test]
async fn a_stop_moves_leaders_first_and_a_restarted_broker_is_back_quickly() -> Result<()> {
    let session = Duration::from_secs(20);
    let spec = ClusterSpec::new(3, 3).with("broker.session.timeout.ms", &session.as_millis().to_string());
    let mut side = Side::start(spec).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    writer.more(20).await?;
    let leader = side.leader("orders", 0).await?;
    let began = Instant::now();
    side.stop(leader)?;
    writer.more(20).await?;
    ensure!(began.elapsed() < session / 2, "the leadership was not given away: {:?}", began.elapsed());
    ensure!(side.leader("orders", 0).await? != leader, "broker {leader} has stopped and leads");
    side.restart(leader)?;
    side.client.await_isr("orders", 3, LIMIT).await?;

    // Killed, it is believed to be its own new self long before the session ends.
    side.kill(leader)?;
    let began = Instant::now();
    side.restart(leader)?;
    let metrics = side.cluster.metrics_address(leader);
    eventually("ready again", LIMIT, || {
        let metrics = metrics.clone();
        async move { Ok(http::get(&metrics, "/readyz").await?.is_ok().then_some(())) }
    })
    .await?;
    let back = began.elapsed();
    ensure!(back < session / 2, "registered again after {back:?}");
    side.client.await_isr("orders", 3, LIMIT).await?;
    writer.more(20).await?;
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
