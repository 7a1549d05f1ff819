//! What operators do to topics and replicas.

use anyhow::{Context, Result, bail, ensure};
use kagami_tests::client::topic_name;
use kagami_tests::eventually::eventually;
use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::{DeleteRecordsRequest, DeleteTopicsRequest};
use protocol::{Request, Response};

use super::LIMIT;
use super::side::Side;

impl Side {
    /// Records below the offset go; the leader answers once every replica has heard.
    pub async fn delete_records(&mut self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        let asked = DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset);
        let named = DeleteRecordsTopic::default().with_name(topic_name(topic)).with_partitions(vec![asked]);
        let request = DeleteRecordsRequest::default().with_topics(vec![named]).with_timeout_ms(10_000);
        let leader = self.leader(topic, partition).await?;
        let address = self.cluster.broker_address(leader);
        match self.client.call_at(&address, Request::DeleteRecords(request), i16::MAX).await? {
            Response::DeleteRecords(response) => {
                let result = response.topics.first().and_then(|topic| topic.partitions.first());
                let result = result.context("an empty answer")?;
                ensure!(result.error_code == 0 && result.low_watermark == offset, "{result:?}");
                Ok(())
            }
            other => bail!("answered with {other:?}"),
        }
    }

    /// Waits until no broker that answers knows the topic.
    pub async fn delete_topic(&mut self, topic: &str) -> Result<()> {
        let named = DeleteTopicState::default().with_name(Some(topic_name(topic)));
        let request = DeleteTopicsRequest::default().with_topics(vec![named]).with_timeout_ms(10_000);
        let code_of = |response: &Response| match response {
            Response::DeleteTopics(response) => {
                response.responses.first().map_or(0, |topic| topic.error_code)
            }
            _ => 0,
        };
        let response = self.call(Request::DeleteTopics(request), code_of).await?;
        ensure!(code_of(&response) == 0, "{response:?}");
        for broker in self.awake_brokers() {
            let address = self.cluster.broker_address(broker);
            eventually("the topic is gone", LIMIT, || {
                let mut client = kagami_tests::client::Client::new(&address);
                async move {
                    let topics = client.metadata(None).await?.topics;
                    let there =
                        topics.iter().any(|found| found.name.as_ref().is_some_and(|n| *n.0 == *topic));
                    Ok((!there).then_some(()))
                }
            })
            .await?;
        }
        Ok(())
    }
}
