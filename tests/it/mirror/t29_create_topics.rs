//! Case 29: CreateTopics 8 with the id of a source's topic.

use anyhow::Result;
use kagami_tests::client::topic_name;
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;
use protocol::messages::BrokerId;
use protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic, MirrorInfo};
use uuid::Uuid;

use crate::support::{LIMIT, Side};

#[tokio::test]
async fn case_29_an_id_in_use_and_a_fenced_replica_are_refused() -> Result<()> {
    let mut here = Side::start(ClusterSpec::new(1, 2)).await?;
    let id = Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
    assert_eq!(here.create_with_id("one", 1, 1, id).await?.0, ErrorCode::None);
    here.client.await_leaders("one", 1).await?;
    assert_eq!(here.client.topic_id("one").await?, id);
    let (code, message) = here.create_with_id("two", 1, 1, id).await?;
    assert_eq!(code, ErrorCode::TopicAlreadyExists);
    assert!(message.as_ref().is_some_and(|message| message.contains("id")), "{message:?}");
    assert_eq!(here.create_with_id("one", 1, 1, Uuid::from_u128(77)).await?.0, ErrorCode::TopicAlreadyExists);

    here.kill(2)?;
    here.client.await_brokers(1, LIMIT).await?;
    let assignment = CreatableReplicaAssignment::default()
        .with_partition_index(0)
        .with_broker_ids(vec![BrokerId(1), BrokerId(2)]);
    let topic = CreatableTopic::default()
        .with_name(topic_name("fenced"))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_assignments(vec![assignment])
        .with_mirror_info(Some(MirrorInfo { topic_id: Uuid::from_u128(78) }));
    let (code, message) = here.create_topic_8(topic).await?;
    assert_eq!(code, ErrorCode::InvalidReplicationFactor, "{message:?}");
    assert!(here.client.topic("fenced").await.is_err());
    assert!(here.client.topic("two").await.is_err());
    Ok(())
}
