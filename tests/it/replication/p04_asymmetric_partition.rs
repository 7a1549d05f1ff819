//! P4: the leader reaches the controller and not its followers, and the other way round.

use anyhow::{Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::proxy::Link;
use protocol::ErrorCode;

use super::links::Linked;
use super::produce_at;
use crate::support::{LIMIT, Writer, batch, values_of};

#[tokio::test]
async fn a_leader_without_followers_shrinks_its_isr_and_refuses() -> Result<()> {
    let mut linked = Linked::start(3).await?;
    linked.side.client.create_topic("orders", 1, 3, &[]).await?;
    let writer = Writer::start(&linked.side.bootstrap(), "orders", 0);
    writer.more(20).await?;
    let leader = linked.side.leader("orders", 0).await?;
    linked.set_replication(leader, Link::Silent);
    linked.side.await_isr_of("orders", 0, &[leader]).await?;
    // An error, never an acknowledgement.
    let mut client = Client::new(&linked.side.bootstrap());
    let address = linked.side.cluster.broker_address(leader);
    let refused = produce_at(&mut client, &address, "orders", batch(&["too few"]), 1_000).await?;
    ensure!(refused.error_code == ErrorCode::NotEnoughReplicas.code(), "{refused:?}");
    linked.set_replication(leader, Link::Open);
    linked.side.client.await_isr("orders", 3, LIMIT).await?;
    writer.more(20).await?;
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &linked.side.equal_replicas("orders", 0).await?)
}

#[tokio::test]
async fn a_leader_without_the_controller_is_replaced_and_acknowledges_nothing() -> Result<()> {
    let mut linked = Linked::start(3).await?;
    linked.side.client.create_topic("orders", 1, 3, &[]).await?;
    linked.side.write("orders", 0, batch(&["before"])).await?;
    let leader = linked.side.leader("orders", 0).await?;
    linked.set_control(leader, Link::Silent);
    linked.ask_others(leader);
    let others: Vec<i32> = linked.side.cluster.brokers().into_iter().filter(|id| *id != leader).collect();
    linked.side.await_isr_of("orders", 0, &others).await?;
    let mut client = Client::new(&linked.side.bootstrap());
    let address = linked.side.cluster.broker_address(leader);
    let stale = produce_at(&mut client, &address, "orders", batch(&["stale"]), 1_000).await?;
    ensure!(stale.error_code != 0, "a deposed leader acknowledged {stale:?}");
    linked.side.write("orders", 0, batch(&["after"])).await?;
    linked.set_control(leader, Link::Open);
    linked.side.client.await_isr("orders", 3, LIMIT).await?;
    let values = values_of(&linked.side.equal_replicas("orders", 0).await?)?;
    ensure!(values == ["before", "after"], "{values:?}");
    Ok(())
}
