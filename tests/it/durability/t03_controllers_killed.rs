//! The metadata log outlives its voters.

use std::collections::BTreeSet;

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;

use crate::support::{LIMIT, Side, Writer};

#[tokio::test]
async fn acknowledged_topics_are_there_after_all_controllers_were_killed_at_once() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 2)).await?;
    side.client.create_topic("load", 1, 2, &[("min.insync.replicas", "1")]).await?;
    let writer = Writer::start(&side.bootstrap(), "load", 0);
    writer.more(20).await?;
    let mut acknowledged: BTreeSet<String> = BTreeSet::new();
    for round in 0..3 {
        for number in 0..3 {
            let name = format!("round-{round}-{number}");
            // Refusals are retried within; an acknowledgement is what counts.
            side.client.create_topic(&name, 1, 1, &[]).await?;
            acknowledged.insert(name);
        }
        for controller in side.cluster.controllers() {
            side.kill(controller)?;
        }
        // Brokers go on without them.
        writer.more(20).await?;
        for controller in side.cluster.controllers() {
            side.restart(controller)?;
        }
        side.active_controller().await?;
    }
    side.client.create_topic("last", 1, 2, &[]).await?;
    side.client.await_brokers(2, LIMIT).await?;
    let topics = side.client.metadata(None).await?.topics;
    let there: BTreeSet<String> =
        topics.into_iter().filter_map(|topic| Some(topic.name?.to_string())).collect();
    let missing: Vec<_> = acknowledged.difference(&there).collect();
    assert_eq!(missing, Vec::<&String>::new());
    let written = writer.finish().await?;
    Writer::check(written, &side.equal_replicas("load", 0).await?)
}
