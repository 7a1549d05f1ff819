//! Cases 24 and 27: more partitions at the source; another topic under the same name.

use anyhow::{Result, bail, ensure};
use kagami_tests::client::topic_name;
use kagami_tests::cluster::ClusterSpec;
use protocol::messages::CreatePartitionsRequest;
use protocol::messages::create_partitions_request::CreatePartitionsTopic;
use protocol::{Request, Response};

use crate::support::{LIMIT, MIRROR, Pair, Side, Wanted, batch, values_of};

async fn grow(side: &mut Side, topic: &str, partitions: i32) -> Result<i16> {
    let topic = CreatePartitionsTopic::default().with_name(topic_name(topic)).with_count(partitions);
    let topic = topic.with_assignments(None);
    let request = CreatePartitionsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
    let code_of = |response: &Response| match response {
        Response::CreatePartitions(response) => response.results[0].error_code,
        _ => 0,
    };
    match side.call(Request::CreatePartitions(request), code_of).await? {
        Response::CreatePartitions(response) => Ok(response.results[0].error_code),
        other => bail!("answered with {other:?}"),
    }
}

#[tokio::test]
async fn case_24_three_partitions_become_six() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 3)).await?;
    pair.source.client.create_topic("orders", 3, 1, &[]).await?;
    pair.mirror("orders", 3).await?;
    ensure!(grow(&mut pair.here, "orders", 6).await? != 0, "a mirror topic grows by its source alone");
    assert_eq!(grow(&mut pair.source, "orders", 6).await?, 0);
    pair.source.client.await_leaders("orders", 6).await?;
    pair.source.write("orders", 5, batch(&["in the last"])).await?;
    pair.here.await_partitions(MIRROR, "orders", 6, Wanted::State("MIRRORING")).await?;
    pair.caught_up("orders", 5).await?;
    pair.equal_to_source("orders", 5).await?;
    Ok(())
}

#[tokio::test]
async fn case_27_a_topic_recreated_at_the_source_is_not_merged() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 1)).await?;
    for topic in ["orders", "other"] {
        pair.source.client.create_topic(topic, 1, 1, &[]).await?;
    }
    pair.source.write("orders", 0, batch(&["old-1", "old-2"])).await?;
    pair.mirror("orders", 1).await?;
    pair.mirror("other", 1).await?;
    pair.caught_up("orders", 0).await?;
    let old_id = pair.here.client.topic_id("orders").await?;
    let server = pair.source.bootstrap();
    pair.source.kagami(&["topic", "delete", "--bootstrap-server", &server, "--topic", "orders"]).await?;
    let new_id = pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    ensure!(new_id != old_id, "the same id came again");
    pair.source.write("orders", 0, batch(&["new-1", "new-2", "new-3"])).await?;

    // Whatever it is shown as, it is no more MIRRORING, and a reason says why until it is released.
    pair.here
        .await_described(MIRROR, "the recreated topic is noticed", |all| {
            all.iter().any(|partition| {
                partition.topic == "orders"
                    && (partition.state == "STOPPED"
                        || partition.state == "FAILED" && partition.reason.is_some())
            })
        })
        .await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::Writable).await?;
    assert_eq!(pair.here.client.topic_id("orders").await?, old_id);
    let log = pair.here.equal_replicas("orders", 0).await?;
    assert_eq!(values_of(&log)?, ["old-1", "old-2"]);
    // An operator can read why: in the log of the broker that noticed.
    let broker = pair.here.cluster.brokers()[0];
    kagami_tests::eventually::eventually("a line about the topic that is gone", LIMIT, || {
        let log = pair.here.cluster.log(broker);
        let is_it = |line: &str| {
            line.contains("the topic is gone at the source") && line.contains("topic=\"orders\"")
        };
        async move { Ok(log.lines().any(is_it).then_some(())) }
    })
    .await?;
    pair.source.write("other", 0, batch(&["goes on"])).await?;
    pair.caught_up("other", 0).await?;
    Ok(())
}
