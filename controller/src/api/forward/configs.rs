//! IncrementalAlterConfigs, and AlterConfigs, which replaces all configs of a resource.

use protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs_response, incremental_alter_configs_response,
};

use super::{failure, refusal};
use crate::api::ApiContext;
use crate::control::config::{AlterResource, AlterResults, Change, incremental_alter, legacy_alter};
use crate::quorum::{Committed, WriteError};

pub async fn incremental(
    context: &ApiContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let validate_only = request.validate_only;
    let resources: Vec<AlterResource<Change>> = request
        .resources
        .iter()
        .map(|resource| AlterResource {
            resource_type: resource.resource_type,
            name: resource.resource_name.to_string(),
            changes: resource
                .configs
                .iter()
                .map(|config| Change {
                    key: config.name.to_string(),
                    operation: config.config_operation,
                    value: config.value.as_ref().map(|value| value.to_string()),
                })
                .collect(),
        })
        .collect();
    let outcome = context
        .controller
        .write("IncrementalAlterConfigs", move |op| {
            Ok(incremental_alter(op.image, op.settings, &resources, validate_only))
        })
        .await;
    let responses = request
        .resources
        .into_iter()
        .enumerate()
        .map(|(index, resource)| {
            let (code, message) = result_of(&outcome, index);
            incremental_alter_configs_response::AlterConfigsResourceResponse::default()
                .with_error_code(code)
                .with_error_message(message)
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name)
        })
        .collect();
    IncrementalAlterConfigsResponse::default().with_responses(responses)
}

pub async fn legacy(context: &ApiContext, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let validate_only = request.validate_only;
    let resources: Vec<AlterResource<(String, Option<String>)>> = request
        .resources
        .iter()
        .map(|resource| AlterResource {
            resource_type: resource.resource_type,
            name: resource.resource_name.to_string(),
            changes: resource
                .configs
                .iter()
                .map(|config| (config.name.to_string(), config.value.as_ref().map(|value| value.to_string())))
                .collect(),
        })
        .collect();
    let outcome = context
        .controller
        .write("AlterConfigs", move |op| Ok(legacy_alter(op.image, op.settings, &resources, validate_only)))
        .await;
    let responses = request
        .resources
        .into_iter()
        .enumerate()
        .map(|(index, resource)| {
            let (code, message) = result_of(&outcome, index);
            alter_configs_response::AlterConfigsResourceResponse::default()
                .with_error_code(code)
                .with_error_message(message)
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name)
        })
        .collect();
    AlterConfigsResponse::default().with_responses(responses)
}

fn result_of(
    outcome: &Result<Committed<AlterResults>, WriteError>,
    index: usize,
) -> (i16, Option<protocol::StrBytes>) {
    match outcome {
        Ok(committed) => match committed.response.get(index) {
            Some(Err(error)) => refusal(error),
            _ => (0, None),
        },
        Err(error) => failure(error),
    }
}
