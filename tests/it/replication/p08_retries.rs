//! P8: time-outs while a batch is in flight, retries on other connections, gaps in the sequence.

use anyhow::{Result, ensure};
use bytes::Bytes;
use kagami_tests::client::{Client, ProducerIdentity};
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;
use protocol::record_batch::BatchBuilder;

use super::produce_at;
use crate::support::{LIMIT, Side, now_ms, values_of};

fn numbered(identity: ProducerIdentity, first: i32, count: i32) -> Bytes {
    let mut builder = BatchBuilder::new().producer(identity.id, identity.epoch, first);
    for number in first..first + count {
        builder.push(now_ms(), None, Some(format!("{number}").as_bytes()), &[]);
    }
    builder.build()
}

#[tokio::test]
async fn a_batch_is_written_once_however_often_it_is_sent() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 2)).await?;
    side.client.create_topic("orders", 1, 2, &[("min.insync.replicas", "1")]).await?;
    let identity = side.client.init_producer_id().await?;
    let leader = side.leader("orders", 0).await?;
    let follower = side.follower("orders", 0).await?;
    let address = side.cluster.broker_address(leader);
    let (mut one, mut other) = (Client::new(&address), Client::new(&address));

    // Twice at the same time on two connections.
    let (left, right) = tokio::join!(
        produce_at(&mut one, &address, "orders", numbered(identity, 0, 5), 5_000),
        produce_at(&mut other, &address, "orders", numbered(identity, 0, 5), 5_000)
    );
    let offsets = [left?, right?].map(|produced| (produced.error_code, produced.base_offset));
    ensure!(offsets == [(0, 0), (0, 0)], "{offsets:?}");

    // The follower sleeps, so it is not acknowledged in time; it is there all the same.
    side.cluster.pause(follower)?;
    let slow = produce_at(&mut one, &address, "orders", numbered(identity, 5, 5), 200).await?;
    ensure!(slow.error_code == ErrorCode::RequestTimedOut.code(), "{slow:?}");
    let again = produce_at(&mut other, &address, "orders", numbered(identity, 5, 5), 20_000).await?;
    ensure!((again.error_code, again.base_offset) == (0, 5), "{again:?}");
    side.cluster.resume(follower)?;

    let gap = produce_at(&mut one, &address, "orders", numbered(identity, 15, 5), 5_000).await?;
    ensure!(gap.error_code == ErrorCode::OutOfOrderSequenceNumber.code(), "{gap:?}");
    let next = produce_at(&mut one, &address, "orders", numbered(identity, 10, 5), 5_000).await?;
    ensure!((next.error_code, next.base_offset) == (0, 10), "{next:?}");

    side.client.await_isr("orders", 2, LIMIT).await?;
    let expected: Vec<String> = (0..15).map(|number| number.to_string()).collect();
    let found = values_of(&side.equal_replicas("orders", 0).await?)?;
    ensure!(found == expected, "{found:?}");
    Ok(())
}
