//! DescribeCluster on a controller's listener (KIP-919): the controllers, and which one is active. A
//! client that asks for brokers here (as version 0 does) is told so.

use protocol::error_code::ErrorCode;
use protocol::messages::describe_cluster_response::DescribeClusterBroker;
use protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};

use super::text;
use crate::api::ApiContext;

const ENDPOINT_TYPE_BROKER: i8 = 1;
const ENDPOINT_TYPE_CONTROLLER: i8 = 2;

pub async fn handle(context: &ApiContext, request: &DescribeClusterRequest) -> DescribeClusterResponse {
    // Version 0 has no endpoint type: a refusal keeps the default.
    let mut response = DescribeClusterResponse::default();
    let refused = match request.endpoint_type {
        ENDPOINT_TYPE_CONTROLLER => None,
        ENDPOINT_TYPE_BROKER => Some((
            ErrorCode::MismatchedEndpointType,
            "this listener belongs to a controller, brokers were asked for: use a broker's listener"
                .to_owned(),
        )),
        other => Some((
            ErrorCode::UnsupportedEndpointType,
            format!("endpoint type {other} is neither 1 (brokers) nor 2 (controllers)"),
        )),
    };
    if let Some((code, message)) = refused {
        return response.with_error_code(code.code()).with_error_message(Some(text(message)));
    }
    let mut controllers = context.peers.endpoints(&context.members()).await;
    controllers.insert(context.node_id.0, context.endpoints.clone());
    let leader = context.controller.status().borrow().leader;
    response.endpoint_type = ENDPOINT_TYPE_CONTROLLER;
    response.cluster_id = text(context.cluster_id.clone());
    response.controller_id = BrokerId(leader.and_then(|leader| i32::try_from(leader).ok()).unwrap_or(-1));
    response.brokers = controllers
        .into_iter()
        .filter_map(|(id, endpoints)| {
            let endpoint = endpoints.into_iter().next()?;
            Some(
                DescribeClusterBroker::default()
                    .with_broker_id(BrokerId(id))
                    .with_host(text(endpoint.host))
                    .with_port(i32::from(endpoint.port)),
            )
        })
        .collect();
    response
}
