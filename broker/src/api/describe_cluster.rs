//! DescribeCluster: the brokers of the cluster and its id.
//!
//! Version 1 says whether brokers or controllers are meant (KIP-919); 2 may list fenced brokers.

use common::metadata::MetadataImage;
use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::describe_cluster_response::DescribeClusterBroker;
use protocol::messages::{BrokerId as WireBrokerId, DescribeClusterRequest, DescribeClusterResponse};

use super::authorized_operations;
use super::error::ApiError;
use super::metadata::{Asker, administrator};

const ENDPOINT_TYPE_BROKER: i8 = 1;
const ENDPOINT_TYPE_CONTROLLER: i8 = 2;

pub fn handle(
    image: &MetadataImage,
    request: &DescribeClusterRequest,
    asker: &Asker<'_>,
) -> DescribeClusterResponse {
    let mut response = DescribeClusterResponse::default();
    response.endpoint_type = ENDPOINT_TYPE_BROKER;
    if let Err(error) = check_endpoint_type(request.endpoint_type) {
        response.error_code = error.code.code();
        response.error_message = error.message();
        return response;
    }
    response.cluster_id = StrBytes::from_string(asker.cluster_id.to_owned());
    response.controller_id = WireBrokerId(administrator(image, asker.broker_id));
    response.cluster_authorized_operations =
        authorized_operations::cluster(request.include_cluster_authorized_operations);
    response.brokers = image
        .brokers
        .iter()
        .filter(|(_, broker)| request.include_fenced_brokers || !broker.fenced)
        .filter_map(|(id, broker)| {
            let endpoint = broker.endpoint(asker.listener_name)?;
            let mut answer = DescribeClusterBroker::default();
            answer.broker_id = WireBrokerId(id.0);
            answer.host = StrBytes::from_string(endpoint.host.clone());
            answer.port = i32::from(endpoint.port);
            answer.rack = broker.rack.clone().map(StrBytes::from_string);
            answer.is_fenced = broker.fenced;
            Some(answer)
        })
        .collect();
    response
}

fn check_endpoint_type(endpoint_type: i8) -> Result<(), ApiError> {
    match endpoint_type {
        ENDPOINT_TYPE_BROKER => Ok(()),
        ENDPOINT_TYPE_CONTROLLER => Err(ApiError::new(
            ErrorCode::MismatchedEndpointType,
            "this listener belongs to a broker, controllers were asked for: use a controller's listener",
        )),
        other => Err(ApiError::new(
            ErrorCode::UnsupportedEndpointType,
            format!("endpoint type {other} is neither 1 (brokers) nor 2 (controllers)"),
        )),
    }
}
