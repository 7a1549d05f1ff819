//! B4: a broker comes back so far behind the metadata log that it gets a snapshot.

use anyhow::{Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;

use super::produce_at;
use crate::support::{LIMIT, Side, TOPIC_RESOURCE, Writer, batch};

/// Together more than a controller keeps of the log for brokers that are behind.
const CHANGES: usize = 20;
const CHANGE_BYTES: usize = 1_000_000;

#[tokio::test]
async fn a_broker_far_behind_catches_up_before_it_serves() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3)).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    let leader = side.leader("orders", 0).await?;
    let address = side.cluster.broker_address(leader);
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    writer.more(20).await?;
    side.kill(leader)?;
    writer.more(20).await?;
    for number in 0..CHANGES {
        // Few items with many bytes: it is the log that should be long.
        let pair = format!("{number:0>1000}:1,");
        let value = pair.repeat(CHANGE_BYTES / pair.len());
        let key = "leader.replication.throttled.replicas";
        let (code, message) = side.set_config(TOPIC_RESOURCE, "orders", key, &value).await?;
        ensure!(code == ErrorCode::None, "{} {message:?}", code.name());
    }
    side.client.create_topic("while-away", 3, 2, &[]).await?;
    side.restart(leader)?;
    // From its first answer on it knows that it does not lead.
    let mut client = Client::new(&address);
    let answer = loop {
        match produce_at(&mut client, &address, "orders", batch(&["stale"]), 500).await {
            Ok(produced) => break produced,
            Err(_) if side.cluster.is_running(leader) => {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            Err(error) => return Err(error),
        }
    };
    ensure!(answer.error_code != 0, "it acknowledged under an old leadership: {answer:?}");
    let said = side.cluster.log(leader);
    ensure!(said.contains("metadata snapshot loaded"), "it caught up without a snapshot");
    side.client.await_isr("orders", 3, LIMIT).await?;
    let mut own = Client::new(&address);
    own.await_leaders("while-away", 3).await?;
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
