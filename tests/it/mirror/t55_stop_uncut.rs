//! Case 55: a stop before the cut of PREPARING, and then the other way round.

use anyhow::{Result, bail, ensure};
use kagami_tests::client::{text, topic_name};
use kagami_tests::cluster::ClusterSpec;
use protocol::mirror::last_mirrored_offsets::{
    LastMirroredOffsetsRequest, LastMirroredOffsetsResponse, PartitionState, TopicState,
};
use protocol::{ErrorCode, Request, Response};
use uuid::Uuid;

use crate::support::{MIRROR, Pair, Side, Wanted, batch, values_of};

const BACK: &str = "back";

async fn last_mirrored(side: &mut Side, asker: &str, id: Uuid) -> Result<LastMirroredOffsetsResponse> {
    let partition = PartitionState { partition_index: 0, last_seen_cut_id: -1 };
    let topic = TopicState { name: topic_name("orders"), partitions: vec![partition], topic_id: id };
    let request = LastMirroredOffsetsRequest {
        mirror_name: text(BACK),
        topics: vec![topic],
        cluster_id: Some(text(asker)),
    };
    match side.call(Request::LastMirroredOffsets(request), |_| 0).await? {
        Response::LastMirroredOffsets(response) => Ok(response),
        other => bail!("answered with {other:?}"),
    }
}

#[tokio::test]
async fn case_55_a_topic_stopped_uncut_gives_no_offset_and_empties_nobody() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 1)).await?;
    let id = pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    pair.source.write("orders", 0, batch(&["source-1", "source-2"])).await?;
    pair.create_here("orders", 1).await?;
    pair.here.write("orders", 0, batch(&["own-1", "own-2", "own-3"])).await?;
    // Known by its cluster id, but silent from now on: no cut can be asked for.
    pair.source.client.create_topic("contact", 1, 1, &[]).await?;
    pair.mirror("contact", 1).await?;
    pair.source.kill(1)?;
    pair.here.add(MIRROR, "orders").await?;
    pair.here
        .await_described(MIRROR, "orders waits", |all| {
            all.iter().any(|partition| {
                partition.topic == "orders" && matches!(&*partition.state, "PREPARING" | "FAILED")
            })
        })
        .await?;
    pair.here.remove(MIRROR, "orders").await?;
    let stopped = pair.here.await_partitions(MIRROR, "orders", 1, Wanted::Writable).await?;
    let orders = stopped.iter().find(|partition| partition.topic == "orders");
    assert_eq!(orders.map(|partition| partition.last_mirrored_offset), Some(-1));
    let own = pair.here.equal_replicas("orders", 0).await?;
    assert_eq!(values_of(&own)?, ["own-1", "own-2", "own-3"], "nothing was cut on a guess");
    let answer = last_mirrored(&mut pair.here, pair.source.cluster.cluster_id(), id).await?;
    let partition = &answer.topics[0].partitions[0];
    assert!(!partition.recorded, "{answer:?}");

    // The other way round: nothing tells what both have in common, so nothing is cut.
    pair.source.restart(1)?;
    pair.source.await_start().await?;
    let here = pair.here.bootstrap();
    pair.source.create_mirror(BACK, &here).await?;
    pair.source.add(BACK, "orders").await?;
    pair.source
        .await_described(BACK, "orders waits with a reason", |all| {
            all.iter().any(|partition| partition.topic == "orders" && partition.reason.is_some())
        })
        .await?;
    let kept = pair.source.equal_replicas("orders", 0).await?;
    assert_eq!(values_of(&kept)?, ["source-1", "source-2"]);
    assert_eq!(pair.source.refusal("orders", 0, batch(&["no"])).await?, ErrorCode::ReadOnlyTopic);

    // Only the operator's word makes it a copy.
    let code = pair.source.try_add(BACK, "orders", Uuid::nil(), true).await?;
    ensure!(code == ErrorCode::None, "add with recopy: {}", code.name());
    pair.source.await_partitions(BACK, "orders", 1, Wanted::State("MIRRORING")).await?;
    let deadline = tokio::time::Instant::now() + crate::support::LIMIT;
    while pair.source.equal_replicas("orders", 0).await? != own {
        ensure!(tokio::time::Instant::now() < deadline, "the copy is not complete");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    Ok(())
}
