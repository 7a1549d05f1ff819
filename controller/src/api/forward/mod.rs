//! Requests of Kafka's protocol that the controller answers: one `match` on the API key, one file for
//! each API. A broker forwards them, or a client sends them to the controller's own listener; the
//! answer is the same (decision 21).

mod configs;
mod create_mirror;
mod create_partitions;
mod create_topics;
mod delete_topics;
mod describe_cluster;
mod describe_mirrors;
mod describe_quorum;
mod elect_leaders;
pub mod last_mirrored_offsets;
mod list_mirrors;
mod mirror_states;
mod mirror_topics;
mod raft_voters;
mod reassignments;
mod unregister_broker;
mod update_features;

use bytes::Bytes;
use common::config::describe_response::{Describer, respond};
use protocol::api::ApiKey;
use protocol::error_code::ErrorCode;
use protocol::proto::controller as wire;
use protocol::{Request, Response, StrBytes, decode_request, encode_response};
use tonic::Status;

use super::ApiContext;
use crate::control::ControlError;
use crate::quorum::WriteError;

/// Answers a request that came in `version`; `None` for one that no controller serves.
pub async fn answer(context: &ApiContext, request: Request, version: i16) -> Option<Response> {
    Some(match request {
        Request::CreateTopics(request) => create_topics::handle(context, request).await.into(),
        Request::DeleteTopics(request) => delete_topics::handle(context, request).await.into(),
        Request::CreatePartitions(request) => create_partitions::handle(context, request).await.into(),
        Request::IncrementalAlterConfigs(request) => configs::incremental(context, request).await.into(),
        Request::AlterConfigs(request) => configs::legacy(context, request).await.into(),
        Request::ElectLeaders(request) => elect_leaders::handle(context, request).await.into(),
        Request::AlterPartitionReassignments(request) => reassignments::alter(context, request).await.into(),
        Request::ListPartitionReassignments(request) => reassignments::list(context, &request).await.into(),
        Request::DescribeConfigs(request) => {
            let file = &context.settings.properties;
            let describer = Describer::Controller { id: context.node_id.0, file };
            respond(&context.image(), describer, &request).into()
        }
        Request::DescribeCluster(request) => describe_cluster::handle(context, &request).await.into(),
        Request::DescribeQuorum(request) => describe_quorum::handle(context, &request, version).await.into(),
        Request::AddRaftVoter(request) => raft_voters::add(context, request).await.into(),
        Request::RemoveRaftVoter(request) => raft_voters::remove(context, request).await.into(),
        Request::UpdateRaftVoter(request) => raft_voters::update(context, request).await.into(),
        Request::TransferQuorumLeader(request) => raft_voters::transfer(context, request).await.into(),
        Request::UnregisterBroker(request) => unregister_broker::handle(context, request).await.into(),
        Request::UpdateFeatures(request) => update_features::handle(context, request, version).await.into(),
        Request::CreateMirror(request) => create_mirror::handle(context, request).await.into(),
        Request::AddTopicsToMirror(request) => mirror_topics::add(context, request).await.into(),
        Request::RemoveTopicsFromMirror(request) => mirror_topics::remove(context, request).await.into(),
        Request::LastMirroredOffsets(request) => last_mirrored_offsets::handle(context, request).await.into(),
        Request::ListMirrors(_) => list_mirrors::handle(context).into(),
        Request::DescribeMirrors(request) => describe_mirrors::handle(context, &request).into(),
        Request::ReadMirrorStates(request) => mirror_states::read(&request).into(),
        Request::WriteMirrorStates(request) => mirror_states::write(&request).into(),
        _ => return None,
    })
}

/// A request that a broker sends on, as its client sent it.
pub async fn forwarded(
    context: &ApiContext,
    request: wire::ForwardRequest,
) -> Result<wire::ForwardResponse, Status> {
    context.check_active()?;
    let unknown = || Status::invalid_argument(format!("API {} is not served here", request.api_key));
    let key = i16::try_from(request.api_key).ok().and_then(ApiKey::from_code).ok_or_else(unknown)?;
    if !key.spec().controller {
        return Err(unknown());
    }
    let version = i16::try_from(request.api_version)
        .map_err(|_| Status::invalid_argument("an API version that is none"))?;
    let decoded = decode_request(key, version, request.body.clone())
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    let response = answer(context, decoded, version).await.ok_or_else(unknown)?;
    let body: Bytes =
        encode_response(&response, key, version).map_err(|error| Status::internal(error.to_string()))?;
    Ok(wire::ForwardResponse { body, metadata_offset: context.image().offset.0 })
}

fn text(value: impl Into<String>) -> StrBytes {
    StrBytes::from_string(value.into())
}

/// Code and message of a refusal.
fn failure(error: &WriteError) -> (i16, Option<StrBytes>) {
    match error {
        WriteError::NotController => {
            let code = ErrorCode::NotController;
            (code.code(), Some(text(code.message())))
        }
        WriteError::Refused(error) => refusal(error),
    }
}

fn refusal(error: &ControlError) -> (i16, Option<StrBytes>) {
    (error.code.code(), Some(text(error.message.clone())))
}
