//! Cases 49 and 57: brokers restart, all of them or after the release.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;

use crate::support::{LIMIT, MIRROR, Pair, Wanted, Writer, batch, values_of};

#[tokio::test]
async fn case_49_a_full_restart_under_load() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(3, 3)).await?;
    pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    pair.source.client.create_topic("stopped", 1, 1, &[]).await?;
    pair.source.write("stopped", 0, batch(&["a"])).await?;
    pair.mirror("orders", 1).await?;
    pair.mirror("stopped", 1).await?;
    pair.caught_up("stopped", 0).await?;
    pair.here.remove(MIRROR, "stopped").await?;
    pair.here.await_partitions(MIRROR, "stopped", 1, Wanted::Writable).await?;
    let writer = Writer::start(&pair.source.bootstrap(), "orders", 0);
    writer.more(50).await?;
    let nodes = [pair.here.cluster.controllers(), pair.here.cluster.brokers()].concat();
    for node in &nodes {
        pair.here.kill(*node)?;
    }
    writer.more(50).await?;
    for node in &nodes {
        pair.here.restart(*node)?;
    }
    pair.here.client.await_brokers(3, LIMIT).await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;
    writer.more(50).await?;
    let acknowledged = writer.finish().await?;
    pair.caught_up("orders", 0).await?;
    pair.here
        .await_described(MIRROR, "lag 0", |all| {
            all.iter().any(|partition| partition.topic == "orders" && partition.lag == 0)
        })
        .await?;
    Writer::check(acknowledged, &pair.equal_to_source("orders", 0).await?)?;
    // What was stopped stays so and is not copied again.
    pair.here.await_partitions(MIRROR, "stopped", 1, Wanted::Writable).await?;
    assert_eq!(pair.here.write("stopped", 0, batch(&["own"])).await?, 1);
    Ok(())
}

#[tokio::test]
async fn case_57_after_stopped_a_restarted_broker_serves_writes_and_loses_none() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 1)).await?;
    pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    pair.source.write("orders", 0, batch(&["a", "b"])).await?;
    pair.mirror("orders", 1).await?;
    pair.caught_up("orders", 0).await?;
    pair.here.remove(MIRROR, "orders").await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::Writable).await?;
    let mut expected = vec!["a".to_owned(), "b".to_owned()];
    for round in 0..4 {
        let value = format!("own-{round}");
        // From the first moment on: refused, or kept.
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            match pair.here.client.produce("orders", 0, batch(&[&value])).await {
                Ok(produced) if produced.error_code == 0 => {
                    assert_eq!(produced.base_offset, expected.len() as i64);
                    break;
                }
                Ok(produced) => {
                    let error = ErrorCode::from_code(produced.error_code);
                    ensure!(
                        error.is_some_and(|error| error.retriable() || error == ErrorCode::ReadOnlyTopic),
                        "{produced:?}"
                    );
                }
                Err(_) => {}
            }
            pair.here.client.forget_leaders();
            ensure!(tokio::time::Instant::now() < deadline, "orders is not writable after a restart");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        expected.push(value);
        if round % 2 == 0 {
            pair.here.kill(1)?
        } else {
            pair.here.stop(1)?
        }
        pair.here.restart(1)?;
    }
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::Writable).await?;
    assert_eq!(pair.here.end("orders", 0).await?, expected.len() as i64);
    assert_eq!(values_of(&pair.here.consume("orders", 0).await?)?, expected);
    Ok(())
}
