//! What tests of the controllers ask them.

use anyhow::{Context, Result, bail, ensure};
use kagami_tests::client::{Client, text, topic_name};
use kagami_tests::eventually::eventually;
use kagami_tests::http;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use protocol::messages::describe_quorum_response;
use protocol::messages::{CreateTopicsRequest, DescribeQuorumRequest};
use protocol::{Request, Response};

use crate::support::{LIMIT, Side};

pub const PARTITIONS: i32 = 5;
pub const RETENTION_MS: &str = "7654321";

/// A request that makes several records of each topic.
pub fn create(names: &[&str]) -> Request {
    let topics = names.iter().map(|name| {
        let config = CreatableTopicConfig::default()
            .with_name(text("retention.ms"))
            .with_value(Some(text(RETENTION_MS)));
        CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(PARTITIONS)
            .with_replication_factor(1)
            .with_configs(vec![config])
    });
    let request = CreateTopicsRequest::default().with_topics(topics.collect()).with_timeout_ms(10_000);
    Request::CreateTopics(request)
}

/// The error code for each topic.
pub fn codes(response: Response) -> Result<Vec<i16>> {
    let Response::CreateTopics(response) = response else { bail!("another answer: {response:?}") };
    Ok(response.topics.iter().map(|topic| topic.error_code).collect())
}

pub fn describe_quorum(topics: &[&str], partition: i32) -> DescribeQuorumRequest {
    let topic = |name: &&str| {
        TopicData::default()
            .with_topic_name(topic_name(name))
            .with_partitions(vec![PartitionData::default().with_partition_index(partition)])
    };
    DescribeQuorumRequest::default().with_topics(topics.iter().map(topic).collect())
}

impl Side {
    pub fn controllers_but(&self, one: i32) -> Vec<i32> {
        self.cluster.controllers().into_iter().filter(|id| *id != one).collect()
    }

    /// The quorum as this controller sees it.
    pub async fn quorum_at(&self, controller: i32) -> Result<describe_quorum_response::PartitionData> {
        let request = Request::DescribeQuorum(describe_quorum(&["__cluster_metadata"], 0));
        let address = self.cluster.controller_address(controller);
        let answer = Client::new(&address).call_at(&address, request, 2).await?;
        let Response::DescribeQuorum(answer) = answer else { bail!("another answer: {answer:?}") };
        answer.topics.into_iter().flat_map(|topic| topic.partitions).next().context("no partition")
    }

    /// Which of these leads, as it says itself.
    pub async fn active_of(&self, controllers: &[i32]) -> Result<i32> {
        eventually("one of them leads", LIMIT, || async {
            for controller in controllers {
                if let Ok(quorum) = self.quorum_at(*controller).await
                    && quorum.error_code == 0
                    && quorum.leader_id.0 == *controller
                {
                    return Ok(Some(*controller));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Offset and digest of the image.
    pub async fn metadata_at(&self, node: i32) -> Result<String> {
        Ok(http::get(&self.cluster.metrics_address(node), "/metadata").await?.body)
    }

    /// Waits until these nodes have replayed the same.
    pub async fn await_same_metadata(&self, nodes: &[i32]) -> Result<()> {
        eventually("the same metadata", LIMIT, || async {
            let mut shown = Vec::new();
            for node in nodes {
                shown.push(self.metadata_at(*node).await?);
            }
            shown.dedup();
            Ok((shown.len() == 1).then_some(()))
        })
        .await
    }

    /// All nodes agree, and these topics are whole.
    pub async fn check_topics(&mut self, names: &[&str]) -> Result<()> {
        let nodes = [self.cluster.controllers(), self.cluster.brokers()].concat();
        self.await_same_metadata(&nodes).await?;
        for name in names {
            let partitions = self.client.await_leaders(name, PARTITIONS).await.map(drop);
            partitions.with_context(|| format!("topic {name}"))?;
            let configs = self.configs(crate::support::TOPIC_RESOURCE, name, Some(&["retention.ms"])).await?;
            let found = configs.get("retention.ms").cloned().flatten();
            ensure!(found.as_deref() == Some(RETENTION_MS), "retention.ms of {name} is {found:?}");
        }
        Ok(())
    }
}
