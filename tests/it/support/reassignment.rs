//! Replicas of a partition elsewhere.

use anyhow::{Context, Result, bail, ensure};
use kagami_tests::client::{Client, topic_name};
use kagami_tests::eventually::eventually;
use protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use protocol::messages::{AlterPartitionReassignmentsRequest, BrokerId};
use protocol::{Request, Response};

use super::LIMIT;
use super::side::Side;

impl Side {
    /// Partition 0 gets other replicas; does not wait for it.
    pub async fn reassign(&mut self, topic: &str, replicas: &[i32]) -> Result<()> {
        let replicas = replicas.iter().map(|id| BrokerId(*id)).collect();
        let partition =
            ReassignablePartition::default().with_partition_index(0).with_replicas(Some(replicas));
        let topic =
            ReassignableTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
        let request = AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]);
        let code_of = |response: &Response| match response {
            Response::AlterPartitionReassignments(response) => response.error_code,
            _ => 0,
        };
        match self.call(Request::AlterPartitionReassignments(request), code_of).await? {
            Response::AlterPartitionReassignments(response) => {
                let result = response.responses.first().and_then(|topic| topic.partitions.first());
                let result = result.context("an empty answer")?;
                ensure!(result.error_code == 0, "{result:?}");
                Ok(())
            }
            other => bail!("answered with {other:?}"),
        }
    }

    /// Waits until exactly these hold partition 0, in sync.
    pub async fn await_replicas(&mut self, topic: &str, replicas: &[i32]) -> Result<()> {
        let bootstrap = self.bootstrap();
        eventually("the reassignment is done", LIMIT, || {
            let mut client = Client::new(&bootstrap);
            async move {
                let found = client.topic(topic).await?;
                let partition = found.partitions.into_iter().next().context("no partition")?;
                let now: Vec<i32> = partition.replica_nodes.iter().map(|id| id.0).collect();
                let in_sync = partition.isr_nodes.len() == replicas.len();
                Ok((now == replicas && in_sync && partition.leader_id.0 >= 0).then_some(()))
            }
        })
        .await
    }
}
