//! Without a majority of controllers brokers go on, and whoever wants to change something is told so.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use protocol::messages::CreateTopicsRequest;
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::{ErrorCode, Request, Response};
use tokio::time::{Instant, timeout};

use crate::support::{LIMIT, Side, Writer};

fn create(name: &str) -> Request {
    let topic = CreatableTopic::default()
        .with_name(kagami_tests::client::topic_name(name))
        .with_num_partitions(1)
        .with_replication_factor(1);
    Request::CreateTopics(CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000))
}

#[tokio::test]
async fn q02_brokers_serve_and_requests_for_changes_end_with_a_retriable_error() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 2)).await?;
    side.client.create_topic("orders", 1, 2, &[("min.insync.replicas", "1")]).await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    writer.more(20).await?;
    let leader = side.active_controller().await?;
    let others: Vec<i32> = side.cluster.controllers().into_iter().filter(|id| *id != leader).collect();
    for other in &others {
        side.kill(*other)?;
    }
    writer.more(100).await?;
    // Of the leader that lost its majority, and through a broker.
    let addresses = [side.cluster.controller_address(leader), side.cluster.broker_address(1)];
    for address in addresses {
        let asked = Instant::now();
        let answer = timeout(LIMIT, side.client.call_at(&address, create("lost"), 7)).await;
        let Response::CreateTopics(answer) = answer.context("it hangs")?? else { unreachable!() };
        let code = answer.topics.first().context("one topic")?.error_code;
        let error = ErrorCode::from_code(code).context("a known code")?;
        ensure!(error.retriable(), "{address}: {}", error.name());
        ensure!(asked.elapsed() < Duration::from_secs(20), "{address} took {:?}", asked.elapsed());
    }
    writer.more(50).await?;
    for other in &others {
        side.restart(*other)?;
    }
    side.active_controller().await?;
    side.client.create_topic("after", 1, 2, &[]).await?;
    let acknowledged = writer.finish().await?;
    side.client.await_isr("orders", 2, LIMIT).await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}
