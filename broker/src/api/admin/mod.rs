//! Requests that only the active controller can answer: the bytes go there as they came, and its
//! answer comes back as it is.

mod auto_create;
mod error_response;

use std::time::Duration;

use bytes::Bytes;
use common::ids::MetadataOffset;
use protocol::api::ApiKey;
use protocol::error_code::ErrorCode;
use protocol::proto::controller::{ForwardRequest, ForwardResponse};
use tracing::{info, warn};

pub use auto_create::{InFlight, create_topics};
pub use error_response::error_response;

use super::context::RequestContext;
use super::error::ApiError;
use crate::metadata::{ChannelError, ControllerChannel, MetadataCache};

/// Kafka's brokers give a forwarded request `request.timeout.ms`, 30 s.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an answer waits for this broker to see what was done. Not longer: it is done either way.
const APPLY_TIMEOUT: Duration = Duration::from_millis(500);
/// Until the security of a later step: everybody is the one whom nobody asked for a name.
const ANONYMOUS: &str = "User:ANONYMOUS";

/// What became of a forwarded request.
pub enum Forwarded {
    /// The controller's response body, encoded in the version of the request.
    Answer(Bytes),
    /// No controller answered: the response is ours to make.
    Failed(ApiError),
    /// The bytes are no such request: the connection is closed, as Kafka does.
    Invalid,
}

/// What a client has been told is done it finds at the broker that told it.
pub async fn forward_and_apply(
    controller: &ControllerChannel,
    applied: &MetadataCache,
    context: &RequestContext,
    key: ApiKey,
    body: Bytes,
) -> Forwarded {
    match ask(controller, context, key, body).await {
        Ok(response) => {
            applied.wait_for(MetadataOffset(response.metadata_offset), APPLY_TIMEOUT).await;
            Forwarded::Answer(response.body)
        }
        Err(failed) => failed,
    }
}

pub async fn forward(
    controller: &ControllerChannel,
    context: &RequestContext,
    key: ApiKey,
    body: Bytes,
) -> Forwarded {
    match ask(controller, context, key, body).await {
        Ok(response) => Forwarded::Answer(response.body),
        Err(failed) => failed,
    }
}

async fn ask(
    controller: &ControllerChannel,
    context: &RequestContext,
    key: ApiKey,
    body: Bytes,
) -> Result<ForwardResponse, Forwarded> {
    let request = ForwardRequest {
        api_key: i32::from(key.code()),
        api_version: i32::from(context.version()),
        client_id: context.client_id().to_owned(),
        client_software_name: context.connection.software_name().unwrap_or_default().to_owned(),
        principal: ANONYMOUS.to_owned(),
        client_host: context.client_address().ip().to_string(),
        body: body.clone(),
        // The channel fills in who we are.
        ..ForwardRequest::default()
    };
    controller.forward(request, FORWARD_TIMEOUT).await.map_err(|error| {
        if let ChannelError::Refused(reason) = &error
            && let Err(malformed) = protocol::decode_request(key, context.version(), body)
        {
            info!(api = key.name(), client = %context.client_address(), %reason, %malformed, "malformed request");
            return Forwarded::Invalid;
        }
        warn!(api = key.name(), client = %context.client_address(), %error, "not forwarded");
        Forwarded::Failed(ApiError::from(&error))
    })
}

/// As a code that a response's error field carries.
pub(super) fn code_of(error: &ApiError) -> i16 {
    match error.code {
        // "No error" would tell the client that it was done.
        ErrorCode::None => ErrorCode::UnknownServerError.code(),
        code => code.code(),
    }
}
