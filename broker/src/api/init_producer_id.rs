//! InitProducerId, for idempotent producers: ids come in blocks from the controller, out of a range of
//! this cluster's own (decision 6). Transactional ids are refused: there is no coordinator for them yet.
//!
//! Version 3 lets a producer hand in its old id and epoch (KIP-360); without a transactional id Kafka
//! answers with a new id all the same.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use protocol::error_code::ErrorCode;
use protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId as WireProducerId};
use tracing::{info, warn};

use super::error::ApiError;
use crate::metadata::ControllerChannel;

const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(10);

/// The block that ids are handed out from.
pub struct ProducerIds {
    controller: Arc<ControllerChannel>,
    /// Held while a block is fetched: those who wait share the one that comes.
    block: tokio::sync::Mutex<Range<i64>>,
}

impl ProducerIds {
    pub fn new(controller: Arc<ControllerChannel>) -> ProducerIds {
        ProducerIds { controller, block: tokio::sync::Mutex::new(0..0) }
    }

    async fn next(&self) -> Result<i64, ApiError> {
        let mut block = self.block.lock().await;
        if let Some(id) = block.next() {
            return Ok(id);
        }
        let response = self
            .controller
            .allocate_producer_ids(ALLOCATE_TIMEOUT)
            .await
            .map_err(|error| ApiError::from(&error))?;
        let code = ErrorCode::from_code(response.error_code as i16).unwrap_or(ErrorCode::UnknownServerError);
        if code != ErrorCode::None || response.count <= 0 {
            return Err(ApiError::from(code));
        }
        info!(first = response.first, count = response.count, "producer ids allocated");
        *block = response.first..response.first + i64::from(response.count);
        block.next().ok_or(ApiError::from(ErrorCode::UnknownServerError))
    }
}

pub async fn handle(producer_ids: &ProducerIds, request: &InitProducerIdRequest) -> InitProducerIdResponse {
    match &request.transactional_id {
        // Kafka's answer to an empty transactional id.
        Some(id) if id.0.is_empty() => return refused(ErrorCode::InvalidRequest),
        // Not retriable, so that the client stops at once instead of looking for a coordinator.
        Some(_) => return refused(ErrorCode::UnsupportedVersion),
        None => {}
    }
    match producer_ids.next().await {
        Ok(id) => {
            let mut response = InitProducerIdResponse::default();
            response.producer_id = WireProducerId(id);
            response.producer_epoch = 0;
            response
        }
        Err(error) => {
            warn!(error = error.code.name(), message = ?error.message, "no producer id to hand out");
            // The one error that clients answer by asking the same broker again.
            refused(ErrorCode::CoordinatorLoadInProgress)
        }
    }
}

fn refused(code: ErrorCode) -> InitProducerIdResponse {
    let mut response = InitProducerIdResponse::default();
    response.error_code = code.code();
    response.producer_id = WireProducerId(-1);
    response.producer_epoch = -1;
    response
}
