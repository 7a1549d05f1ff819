//! Topics that come by themselves, and topics that go.

use anyhow::{Result, bail, ensure};
use kagami_tests::client::topic_name;
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use protocol::messages::MetadataRequest;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::{ErrorCode, Request, Response};

use crate::support::{LIMIT, Side, batch, values_of};

async fn ask_for(side: &mut Side, topic: &str) -> Result<ErrorCode> {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
    let request =
        MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(true);
    match side.client.call_any(Request::Metadata(request), 12).await? {
        Response::Metadata(response) => {
            Ok(ErrorCode::from_code(response.topics[0].error_code).unwrap_or(ErrorCode::UnknownServerError))
        }
        other => bail!("answered with {other:?}"),
    }
}

#[tokio::test]
async fn a_topic_is_created_when_it_is_asked_for_unless_that_is_off() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3).with("num.partitions", "4")).await?;
    let code = ask_for(&mut side, "wanted").await?;
    ensure!(matches!(code, ErrorCode::None | ErrorCode::LeaderNotAvailable), "{}", code.name());
    side.client.await_leaders("wanted", 4).await?;
    assert_eq!(side.partition("wanted", 0).await?.replica_nodes.len(), 3);
    side.write("wanted", 3, batch(&["a"])).await?;
    drop(side);

    let mut side = Side::start(ClusterSpec::new(1, 1).with("auto.create.topics.enable", "false")).await?;
    assert_eq!(ask_for(&mut side, "wanted").await?, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(side.client.metadata(None).await?.topics.len(), 0);
    Ok(())
}

#[tokio::test]
async fn a_deleted_topic_is_gone_from_the_disks_even_of_a_broker_that_was_away() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3)).await?;
    let first = side.client.create_topic("orders", 2, 3, &[]).await?;
    side.client.create_topic("other", 1, 3, &[]).await?;
    side.write("orders", 0, batch(&["old"])).await?;
    side.equal_replicas("orders", 0).await?;
    side.kill(3)?;
    let controllers = side.cluster.bootstrap_controller();
    side.kagami(&["topic", "delete", "--bootstrap-controller", &controllers, "--topic", "orders"]).await?;
    side.client.await_brokers(2, LIMIT).await?;
    let second = side.client.create_topic("orders", 1, 2, &[("min.insync.replicas", "1")]).await?;
    ensure!(first != second, "the id came again");
    side.write("orders", 0, batch(&["new"])).await?;
    side.restart(3)?;
    side.client.await_isr("other", 3, LIMIT).await?;
    eventually("the second partition is gone from all disks", LIMIT, || {
        let data = side.cluster.brokers().into_iter().map(|id| side.cluster.data_directory(id));
        let left: Vec<_> = data.map(|data| data.join("orders-1")).filter(|path| path.exists()).collect();
        async move { if left.is_empty() { Ok(Some(())) } else { bail!("{left:?}") } }
    })
    .await?;
    assert_eq!(values_of(&side.consume("orders", 0).await?)?, ["new"]);
    Ok(())
}
