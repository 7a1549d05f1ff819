//! UnregisterBroker: a broker is taken out for good.

use protocol::messages::{UnregisterBrokerRequest, UnregisterBrokerResponse};

use super::failure;
use crate::api::ApiContext;
use crate::control::broker;

pub async fn handle(context: &ApiContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse {
    let broker_id = common::ids::BrokerId(request.broker_id.0);
    let outcome = context
        .controller
        .write("UnregisterBroker", move |op| broker::unregister(op.image, op.settings, broker_id))
        .await;
    let response = UnregisterBrokerResponse::default();
    match outcome {
        Ok(_) => response,
        Err(error) => {
            let (code, message) = failure(&error);
            response.with_error_code(code).with_error_message(message)
        }
    }
}
