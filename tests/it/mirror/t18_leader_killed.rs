//! Cases 18 and 19: leaders die at a bad moment.

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;

use crate::support::{MIRROR, Pair, Wanted, batch, values, values_of};

#[tokio::test]
async fn case_18_the_leader_is_killed_in_preparing_mirroring_and_stopping() -> Result<()> {
    // With three of three in sync wanted, one dead follower holds PREPARING and STOPPING.
    let here = ClusterSpec::new(3, 3).with("min.insync.replicas", "3");
    let mut pair = Pair::start(ClusterSpec::new(1, 1), here).await?;
    pair.source.client.create_topic("orders", 1, 1, &[]).await?;
    let mut expected = values("first", 20);
    pair.source.write("orders", 0, batch(&expected)).await?;
    pair.create_here("orders", 1).await?;
    pair.here.write("orders", 0, batch(&["own"])).await?;

    let follower = pair.here.follower("orders", 0).await?;
    pair.here.kill(follower)?;
    pair.here.add(MIRROR, "orders").await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("PREPARING")).await?;
    kill_leader_and_bring_back(&mut pair, Some(follower)).await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up("orders", 0).await?;

    kill_leader_and_bring_back(&mut pair, None).await?;
    expected.extend(values("second", 20));
    pair.source.write("orders", 0, batch(&expected[20..])).await?;
    assert_eq!(pair.caught_up("orders", 0).await?, 40);
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("MIRRORING")).await?;
    pair.here.client.await_isr("orders", 3, crate::support::LIMIT).await?;

    let follower = pair.here.follower("orders", 0).await?;
    pair.here.kill(follower)?;
    pair.here.remove(MIRROR, "orders").await?;
    pair.here.await_partitions(MIRROR, "orders", 1, Wanted::State("STOPPING")).await?;
    kill_leader_and_bring_back(&mut pair, Some(follower)).await?;
    let stopped = pair.here.await_partitions(MIRROR, "orders", 1, Wanted::Writable).await?;
    assert_eq!(stopped[0].last_mirrored_offset, 40);
    let log = pair.equal_to_source("orders", 0).await?;
    assert_eq!(values_of(&log)?, expected);
    assert_eq!(pair.here.write("orders", 0, batch(&["after"])).await?, 40);
    Ok(())
}

/// The leader dies, another leads, then it comes back, and with it who was dead already.
async fn kill_leader_and_bring_back(pair: &mut Pair, dead: Option<i32>) -> Result<()> {
    let leader = pair.here.leader("orders", 0).await?;
    pair.here.kill(leader)?;
    let deadline = tokio::time::Instant::now() + crate::support::LIMIT;
    while pair.here.leader("orders", 0).await? == leader {
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "broker {leader} is dead and leads");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for broker in dead.into_iter().chain([leader]) {
        pair.here.restart(broker)?;
    }
    Ok(())
}

#[tokio::test]
async fn case_19_the_leader_of_the_state_topic_is_killed_during_a_state_write() -> Result<()> {
    let here = ClusterSpec::new(3, 3).with("mirror.state.topic.num.partitions", "1");
    let mut pair = Pair::start(ClusterSpec::new(1, 1), here).await?;
    pair.here.client.await_leaders("__mirror_state", 1).await?;
    for topic in ["one", "two", "three"] {
        pair.source.client.create_topic(topic, 1, 1, &[]).await?;
        pair.source.write(topic, 0, batch(&[topic])).await?;
        pair.create_here(topic, 1).await?;
    }
    for topic in ["one", "two", "three"] {
        // From here on states are written.
        pair.here.add(MIRROR, topic).await?;
        let coordinator = pair.here.leader("__mirror_state", 0).await?;
        pair.here.kill(coordinator)?;
        pair.here.await_partitions(MIRROR, topic, 1, Wanted::State("MIRRORING")).await?;
        pair.here.restart(coordinator)?;
        pair.here.client.await_isr("__mirror_state", 3, crate::support::LIMIT).await?;
    }
    for topic in ["one", "two"] {
        pair.caught_up(topic, 0).await?;
        pair.here.client.await_isr(topic, 3, crate::support::LIMIT).await?;
        pair.here.remove(MIRROR, topic).await?;
        let coordinator = pair.here.leader("__mirror_state", 0).await?;
        pair.here.kill(coordinator)?;
        pair.here.await_partitions(MIRROR, topic, 1, Wanted::Writable).await?;
        pair.here.restart(coordinator)?;
        pair.here.client.await_isr("__mirror_state", 3, crate::support::LIMIT).await?;
        assert_eq!(pair.here.write(topic, 0, batch(&["own"])).await?, 1);
    }
    pair.here.await_partitions(MIRROR, "three", 1, Wanted::State("MIRRORING")).await?;
    pair.equal_to_source("three", 0).await?;
    Ok(())
}
