//! ElectLeaders. Version 0 knows preferred leaders only; 1 brings the type of the election.

use protocol::error_code::ErrorCode;
use protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use protocol::messages::{ElectLeadersRequest, ElectLeadersResponse, TopicName};

use super::{failure, refusal, text};
use crate::api::ApiContext;
use crate::control::election::{ElectedTopic, ElectionType, elect_leaders};

pub async fn handle(context: &ApiContext, request: ElectLeadersRequest) -> ElectLeadersResponse {
    // Version 0 carries no type, which reads as 0: preferred.
    let Some(election) = ElectionType::from_code(request.election_type) else {
        return ElectLeadersResponse::default().with_error_code(ErrorCode::InvalidRequest.code());
    };
    let asked: Option<Vec<(String, Vec<i32>)>> = request.topic_partitions.map(|topics| {
        topics.into_iter().map(|topic| (topic.topic.0.to_string(), topic.partitions)).collect()
    });
    let outcome = context
        .controller
        .write("ElectLeaders", move |op| Ok(elect_leaders(op.image, op.settings, election, asked.as_deref())))
        .await;
    match outcome {
        Ok(committed) => ElectLeadersResponse::default()
            .with_replica_election_results(committed.response.iter().map(elected).collect()),
        Err(error) => ElectLeadersResponse::default().with_error_code(failure(&error).0),
    }
}

fn elected(topic: &ElectedTopic) -> ReplicaElectionResult {
    let result = |(partition, outcome): &(i32, Result<(), crate::control::ControlError>)| {
        let (code, message) = outcome.as_ref().err().map_or((0, None), refusal);
        PartitionResult::default()
            .with_partition_id(*partition)
            .with_error_code(code)
            .with_error_message(message)
    };
    ReplicaElectionResult::default()
        .with_topic(TopicName(text(topic.topic.as_str())))
        .with_partition_result(topic.partitions.iter().map(result).collect())
}
