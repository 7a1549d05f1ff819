//! AlterPartitionReassignments and ListPartitionReassignments (KIP-455). Version 1 of the former says
//! whether the number of replicas may change (KIP-860).

use common::ids::BrokerId;
use protocol::error_code::ErrorCode;
use protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use protocol::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, BrokerId as WireBrokerId,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, TopicName,
};

use super::{failure, refusal, text};
use crate::api::ApiContext;
use crate::control::ControlError;
use crate::control::reassignment::{self, Ongoing, Reassignment};

pub async fn alter(
    context: &ApiContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let may_change_factor = request.allow_replication_factor_change;
    let topics: Vec<Reassignment> = request
        .topics
        .iter()
        .map(|topic| Reassignment {
            topic: topic.name.0.to_string(),
            partitions: topic
                .partitions
                .iter()
                .map(|partition| {
                    let ids =
                        |replicas: &Vec<WireBrokerId>| replicas.iter().map(|id| BrokerId(id.0)).collect();
                    (partition.partition_index, partition.replicas.as_ref().map(ids))
                })
                .collect(),
        })
        .collect();
    let outcome = context
        .controller
        .write("AlterPartitionReassignments", move |op| {
            Ok(reassignment::alter(op.image, op.settings, &topics, may_change_factor))
        })
        .await;
    let response = AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(may_change_factor);
    match outcome {
        Ok(committed) => {
            let topics = request.topics.into_iter().zip(committed.response).map(|(topic, results)| {
                let partitions = topic.partitions.iter().zip(results);
                ReassignableTopicResponse::default().with_name(topic.name).with_partitions(
                    partitions.map(|(asked, result)| altered(asked.partition_index, &result)).collect(),
                )
            });
            response.with_responses(topics.collect())
        }
        Err(error) => {
            let (code, message) = failure(&error);
            response.with_error_code(code).with_error_message(message)
        }
    }
}

fn altered(partition: i32, result: &Result<(), ControlError>) -> ReassignablePartitionResponse {
    let (code, message) = result.as_ref().err().map_or((0, None), refusal);
    ReassignablePartitionResponse::default()
        .with_partition_index(partition)
        .with_error_code(code)
        .with_error_message(message)
}

/// From the committed image of the active controller; another one may be behind.
pub async fn list(
    context: &ApiContext,
    request: &ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    if !context.controller.is_active() {
        let code = ErrorCode::NotController;
        return ListPartitionReassignmentsResponse::default()
            .with_error_code(code.code())
            .with_error_message(Some(text(code.message())));
    }
    let asked: Option<Vec<(String, Vec<i32>)>> = request.topics.as_ref().map(|topics| {
        topics.iter().map(|topic| (topic.name.0.to_string(), topic.partition_indexes.clone())).collect()
    });
    let topics = reassignment::ongoing(&context.image(), asked.as_deref());
    let topic = |(name, partitions): (String, Vec<Ongoing>)| {
        OngoingTopicReassignment::default()
            .with_name(TopicName(text(name)))
            .with_partitions(partitions.into_iter().map(moving).collect())
    };
    ListPartitionReassignmentsResponse::default()
        .with_error_message(None)
        .with_topics(topics.into_iter().map(topic).collect())
}

fn moving(ongoing: Ongoing) -> OngoingPartitionReassignment {
    let ids = |list: Vec<BrokerId>| list.into_iter().map(|id| WireBrokerId(id.0)).collect();
    OngoingPartitionReassignment::default()
        .with_partition_index(ongoing.partition)
        .with_replicas(ids(ongoing.replicas))
        .with_adding_replicas(ids(ongoing.adding))
        .with_removing_replicas(ids(ongoing.removing))
}
