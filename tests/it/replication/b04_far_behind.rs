//! B4: a broker comes back far behind the metadata log.

use anyhow::{Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::cluster::ClusterSpec;

use super::produce_at;
use crate::support::{LIMIT, Side, TOPIC_RESOURCE, Writer, batch};

/// Enough to make an incremental catch-up visible, few enough to be quick.
const CHANGES: usize = 150;

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
        let value = (100_000_000 + number).to_string();
        side.set_config(TOPIC_RESOURCE, "orders", "retention.ms", &value).await?;
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
    side.client.await_isr("orders", 3, LIMIT).await?;
    let mut own = Client::new(&address);
    own.await_leaders("while-away", 3).await?;
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
