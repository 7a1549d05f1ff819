//! CreatePartitions.

use common::ids::BrokerId;
use protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::{failure, refusal};
use crate::api::ApiContext;
use crate::control::partition_count::{NewPartitions, create_partitions};

pub async fn handle(context: &ApiContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse {
    let validate_only = request.validate_only;
    let topics: Vec<NewPartitions> = request
        .topics
        .iter()
        .map(|topic| NewPartitions {
            topic: topic.name.0.to_string(),
            count: topic.count,
            assignments: topic.assignments.as_ref().map(|assignments| {
                assignments
                    .iter()
                    .map(|assignment| assignment.broker_ids.iter().map(|id| BrokerId(id.0)).collect())
                    .collect()
            }),
        })
        .collect();
    let outcome = context
        .controller
        .write("CreatePartitions", move |op| {
            Ok(create_partitions(op.image, &topics, validate_only, op.random))
        })
        .await;
    let results = request
        .topics
        .iter()
        .enumerate()
        .map(|(index, topic)| {
            let mut result = CreatePartitionsTopicResult::default().with_name(topic.name.clone());
            match &outcome {
                Ok(committed) => {
                    if let Some(Err(error)) = committed.response.get(index) {
                        (result.error_code, result.error_message) = refusal(error);
                    }
                }
                Err(error) => (result.error_code, result.error_message) = failure(error),
            }
            result
        })
        .collect();
    CreatePartitionsResponse::default().with_results(results)
}
