//! One error for everything a forwarded request names, in the shape of its response.

use protocol::messages::alter_configs_response::AlterConfigsResourceResponse as AlterResult;
use protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use protocol::messages::create_topics_response::CreatableTopicResult;
use protocol::messages::delete_topics_response::DeletableTopicResult;
use protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as IncrementalResult;
use protocol::messages::*;
use protocol::mirror::*;
use protocol::quorum::*;
use protocol::{Request, Response};

use super::code_of;
use crate::api::error::ApiError;

/// `None`: the request is not one that is forwarded.
pub fn error_response(request: &Request, error: &ApiError) -> Option<Response> {
    let code = code_of(error);
    let message = || error.message();
    Some(match request {
        Request::CreateTopics(request) => {
            let topics = request.topics.iter().map(|topic| {
                CreatableTopicResult::default()
                    .with_name(topic.name.clone())
                    .with_error_code(code)
                    .with_error_message(message())
            });
            Response::CreateTopics(CreateTopicsResponse::default().with_topics(topics.collect()))
        }
        Request::DeleteTopics(request) => {
            let by_name = request.topic_names.iter().map(|name| (Some(name.clone()), uuid::Uuid::nil()));
            let by_state = request.topics.iter().map(|topic| (topic.name.clone(), topic.topic_id));
            let responses = by_name.chain(by_state).map(|(name, topic_id)| {
                DeletableTopicResult::default()
                    .with_name(name)
                    .with_topic_id(topic_id)
                    .with_error_code(code)
                    .with_error_message(message())
            });
            Response::DeleteTopics(DeleteTopicsResponse::default().with_responses(responses.collect()))
        }
        Request::CreatePartitions(request) => {
            let results = request.topics.iter().map(|topic| {
                CreatePartitionsTopicResult::default()
                    .with_name(topic.name.clone())
                    .with_error_code(code)
                    .with_error_message(message())
            });
            Response::CreatePartitions(CreatePartitionsResponse::default().with_results(results.collect()))
        }
        Request::IncrementalAlterConfigs(request) => {
            let responses = request.resources.iter().map(|resource| {
                IncrementalResult::default()
                    .with_resource_type(resource.resource_type)
                    .with_resource_name(resource.resource_name.clone())
                    .with_error_code(code)
                    .with_error_message(message())
            });
            let response = IncrementalAlterConfigsResponse::default().with_responses(responses.collect());
            Response::IncrementalAlterConfigs(response)
        }
        Request::AlterConfigs(request) => {
            let responses = request.resources.iter().map(|resource| {
                AlterResult::default()
                    .with_resource_type(resource.resource_type)
                    .with_resource_name(resource.resource_name.clone())
                    .with_error_code(code)
                    .with_error_message(message())
            });
            Response::AlterConfigs(AlterConfigsResponse::default().with_responses(responses.collect()))
        }
        Request::ElectLeaders(_) => {
            Response::ElectLeaders(ElectLeadersResponse::default().with_error_code(code))
        }
        Request::AlterPartitionReassignments(_) => Response::AlterPartitionReassignments(
            AlterPartitionReassignmentsResponse::default()
                .with_error_code(code)
                .with_error_message(message()),
        ),
        Request::ListPartitionReassignments(_) => Response::ListPartitionReassignments(
            ListPartitionReassignmentsResponse::default().with_error_code(code).with_error_message(message()),
        ),
        Request::DescribeQuorum(_) => {
            let response =
                DescribeQuorumResponse::default().with_error_code(code).with_error_message(message());
            Response::DescribeQuorum(response)
        }
        Request::AddRaftVoter(_) => Response::AddRaftVoter(
            AddRaftVoterResponse::default().with_error_code(code).with_error_message(message()),
        ),
        Request::RemoveRaftVoter(_) => Response::RemoveRaftVoter(
            RemoveRaftVoterResponse::default().with_error_code(code).with_error_message(message()),
        ),
        Request::TransferQuorumLeader(_) => Response::TransferQuorumLeader(TransferQuorumLeaderResponse {
            error_code: code,
            error_message: message(),
            ..TransferQuorumLeaderResponse::default()
        }),
        Request::UnregisterBroker(_) => Response::UnregisterBroker(
            UnregisterBrokerResponse::default().with_error_code(code).with_error_message(message()),
        ),
        Request::UpdateFeatures(_) => Response::UpdateFeatures(
            UpdateFeaturesResponse::default().with_error_code(code).with_error_message(message()),
        ),
        Request::CreateMirror(_) => Response::CreateMirror(CreateMirrorResponse {
            error_code: code,
            error_message: message(),
            ..CreateMirrorResponse::default()
        }),
        Request::AddTopicsToMirror(_) => Response::AddTopicsToMirror(AddTopicsToMirrorResponse {
            error_code: code,
            error_message: message(),
            ..AddTopicsToMirrorResponse::default()
        }),
        Request::RemoveTopicsFromMirror(_) => {
            Response::RemoveTopicsFromMirror(RemoveTopicsFromMirrorResponse {
                error_code: code,
                error_message: message(),
                ..RemoveTopicsFromMirrorResponse::default()
            })
        }
        Request::LastMirroredOffsets(_) => Response::LastMirroredOffsets(LastMirroredOffsetsResponse {
            error_code: code,
            error_message: message(),
            ..LastMirroredOffsetsResponse::default()
        }),
        _ => return None,
    })
}
