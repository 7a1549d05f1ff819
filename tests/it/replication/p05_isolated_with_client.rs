//! P5: leader and client see each other and nobody else.

use anyhow::{Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::proxy::Link;

use super::links::Linked;
use super::produce_at;
use crate::support::{LIMIT, Writer, batch};

#[tokio::test]
async fn an_isolated_leader_acknowledges_nothing_and_the_rest_goes_on() -> Result<()> {
    let mut linked = Linked::start(3).await?;
    linked.side.client.create_topic("orders", 1, 3, &[]).await?;
    let leader = linked.side.leader("orders", 0).await?;
    let address = linked.side.cluster.broker_address(leader);
    let writer = Writer::start(&linked.others(leader), "orders", 0);
    writer.more(20).await?;
    let mut isolated = Client::new(&address);
    isolated.connection(&address).await?;
    linked.set_replication(leader, Link::Silent);
    linked.set_control(leader, Link::Silent);
    linked.ask_others(leader);
    let others: Vec<i32> = linked.side.cluster.brokers().into_iter().filter(|id| *id != leader).collect();
    // Before and after it is fenced.
    let early = produce_at(&mut isolated, &address, "orders", batch(&["early"]), 500).await?;
    ensure!(early.error_code != 0, "{early:?}");
    linked.side.await_isr_of("orders", 0, &others).await?;
    let late = produce_at(&mut isolated, &address, "orders", batch(&["late"]), 500).await?;
    ensure!(late.error_code != 0, "{late:?}");
    writer.more(50).await?;
    linked.set_replication(leader, Link::Open);
    linked.set_control(leader, Link::Open);
    linked.side.client.await_isr("orders", 3, LIMIT).await?;
    let acknowledged = writer.finish().await?;
    // What the isolated one took is cut away again.
    Writer::check(acknowledged, &linked.side.equal_replicas("orders", 0).await?)
}
