//! AllocateProducerIds: a block of ids for one broker.

use protocol::proto::controller as wire;
use tonic::Status;

use super::{ApiContext, sender};
use crate::control::producer_id;

pub async fn allocate(
    context: &ApiContext,
    request: wire::AllocateProducerIdsRequest,
) -> Result<wire::AllocateProducerIdsResponse, Status> {
    let sender = sender(request.broker_id, request.broker_epoch);
    let outcome = context
        .controller
        .write("producer ids", move |op| producer_id::allocate(op.image, op.settings, sender))
        .await;
    match outcome {
        Ok(committed) => Ok(wire::AllocateProducerIdsResponse {
            error_code: 0,
            first: committed.response.first.0,
            count: committed.response.count,
        }),
        Err(error) => {
            let (error_code, _) = context.refused(error)?;
            Ok(wire::AllocateProducerIdsResponse { error_code, first: -1, count: 0 })
        }
    }
}
