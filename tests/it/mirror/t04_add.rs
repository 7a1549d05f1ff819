//! Cases 4, 6, 7 and 28: AddTopicsToMirror and RemoveTopicsFromMirror.

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;
use uuid::Uuid;

use crate::support::{MIRROR, Pair, TOPIC_RESOURCE, Wanted, batch};

#[tokio::test]
async fn case_04_a_topic_that_is_only_at_the_source_is_created_and_mirrored() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 3)).await?;
    let configs = [("retention.ms", "86400001"), ("segment.bytes", "2000000"), ("min.insync.replicas", "1")];
    let id = pair.source.client.create_topic("orders", 3, 1, &configs).await?;
    pair.source.write("orders", 2, batch(&["a", "b"])).await?;
    pair.here.add(MIRROR, "orders").await?;
    let partitions = pair.here.await_partitions(MIRROR, "orders", 3, Wanted::State("MIRRORING")).await?;
    assert!(partitions.iter().all(|partition| !partition.writable));
    let topic = pair.here.client.topic("orders").await?;
    assert_eq!(topic.topic_id, id);
    // The source has one replica of each; here the controller's own default counts.
    assert!(topic.partitions.iter().all(|partition| partition.replica_nodes.len() == 3));
    let configs = pair.here.configs(TOPIC_RESOURCE, "orders", None).await?;
    assert_eq!(configs["retention.ms"].as_deref(), Some("86400001"));
    assert_eq!(configs["segment.bytes"].as_deref(), Some("2000000"));
    assert_eq!(configs["min.insync.replicas"].as_deref(), Some("2"), "never copied");
    pair.caught_up("orders", 2).await?;
    pair.equal_to_source("orders", 2).await?;
    Ok(())
}

#[tokio::test]
async fn case_06_a_mirroring_topic_is_not_added_again_and_case_07_who_is_not_mirrored_is_not_removed()
-> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 1)).await?;
    pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    pair.source.client.create_topic("later", 1, 1, &[]).await?;
    pair.source.write("orders", 0, batch(&["a"])).await?;
    pair.mirror("orders", 1).await?;

    assert_eq!(pair.here.try_add(MIRROR, "orders", Uuid::nil(), false).await?, ErrorCode::InvalidRequest);
    let shown = pair.here.configs(TOPIC_RESOURCE, "orders", Some(&["mirror.name"])).await?;
    assert_eq!(shown["mirror.name"].as_deref(), Some(MIRROR));
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;
    let other = Uuid::from_u128(7);
    assert_eq!(pair.here.try_add(MIRROR, "orders", other, false).await?, ErrorCode::InconsistentTopicId);
    assert_eq!(pair.here.try_add("none", "orders", Uuid::nil(), false).await?, ErrorCode::UnknownMirror);

    // Never added: not here, or ordinary.
    assert_eq!(pair.here.try_remove(MIRROR, "nowhere").await?, ErrorCode::UnknownTopicOrPartition);
    pair.here.client.create_topic("ordinary", 1, 1, &[]).await?;
    assert_eq!(pair.here.try_remove(MIRROR, "ordinary").await?, ErrorCode::InvalidRequest);
    // A pending association is cleared by Remove.
    pair.here.add(MIRROR, "unborn").await?;
    pair.here
        .await_described(MIRROR, "unborn is shown", |all| {
            all.iter().any(|partition| partition.topic == "unborn" && partition.state == "UNKNOWN")
        })
        .await?;
    let (code, _) = pair.here.client.try_create_topic("unborn", 1, 1, &[]).await?;
    assert_ne!(code, 0, "the name waits for the source's id");
    pair.here.remove(MIRROR, "unborn").await?;
    pair.here
        .await_described(MIRROR, "unborn is gone", |all| {
            all.iter().all(|partition| partition.topic != "unborn")
        })
        .await?;

    pair.here.remove(MIRROR, "orders").await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::Writable).await?;
    assert_eq!(pair.here.try_remove(MIRROR, "orders").await?, ErrorCode::InvalidRequest);

    // Stopped since the source deleted it: Remove is refused only because all is released already.
    pair.mirror("later", 1).await?;
    pair.source
        .kagami(&["topic", "delete", "--bootstrap-server", &pair.source.bootstrap(), "--topic", "later"])
        .await?;
    pair.here.await_partitions(MIRROR, "later", 1, Wanted::Writable).await?;
    Ok(())
}

#[tokio::test]
async fn case_28_a_topic_of_another_id_is_never_mirrored_and_does_not_disturb_others() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 1)).await?;
    for topic in ["same-name", "good"] {
        pair.source.client.create_topic(topic, 1, 1, &[]).await?;
        pair.source.write(topic, 0, batch(&["at the source"])).await?;
    }
    let source_id = pair.source.client.topic_id("same-name").await?;
    pair.here.client.create_topic("same-name", 1, 1, &[]).await?;
    pair.here.write("same-name", 0, batch(&["here"])).await?;
    let before = pair.here.equal_replicas("same-name", 0).await?;

    // The id of the source's topic is compared where it is given, and at the source where it is not.
    assert_eq!(
        pair.here.try_add(MIRROR, "same-name", source_id, false).await?,
        ErrorCode::InconsistentTopicId
    );
    pair.here.add(MIRROR, "same-name").await?;
    pair.mirror("good", 1).await?;
    pair.caught_up("good", 0).await?;
    // The source has no topic of this id, so there is nothing to copy; the log says why.
    pair.here.await_partitions(MIRROR, "same-name", 1, Wanted::Writable).await?;
    let log = pair.here.cluster.log(1);
    assert!(log.lines().any(|line| line.contains("topic=same-name") && line.contains("another id")), "{log}");
    assert!(
        !log.lines().any(|line| line.contains("topic=same-name") && line.contains("-> MIRRORING")),
        "{log}"
    );
    pair.source.write("good", 0, batch(&["more"])).await?;
    pair.caught_up("good", 0).await?;
    pair.equal_to_source("good", 0).await?;
    assert_eq!(pair.here.equal_replicas("same-name", 0).await?, before, "nothing is merged, nothing is cut");
    Ok(())
}
