//! The listener for Kafka's protocol: frames to requests, responses to frames.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use common::network::{ConnectionInfo, Handler, Reply};
use parking_lot::Mutex;
use protocol::api::{ApiKey, served_by_controller};
use protocol::error_code::ErrorCode;
use protocol::frame::{RequestHeader, decode_request_header};
use protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::{Request, Response, StrBytes, decode_request, encode_response_frame};

use super::{ApiContext, forward};
use crate::control::feature::FEATURES;

pub struct KafkaHandler {
    pub context: Arc<ApiContext>,
}

/// One client.
pub struct Client {
    info: ConnectionInfo,
    /// As it introduced itself in ApiVersions.
    software_name: Mutex<Option<String>>,
}

impl Handler for KafkaHandler {
    type Connection = Client;

    fn connected(&self, info: ConnectionInfo) -> Client {
        Client { info, software_name: Mutex::new(None) }
    }

    fn handle(&self, client: &Arc<Client>, frame: BytesMut) -> impl Future<Output = Reply> + Send + 'static {
        let (context, client) = (self.context.clone(), client.clone());
        async move {
            match answer(&context, &client, frame.freeze()).await {
                Ok(response) => Reply::from(response),
                Err(reason) => {
                    tracing::info!(peer = %client.info.peer, "connection closed: {reason}");
                    Reply::Close
                }
            }
        }
    }
}

/// The response frame; an error closes the connection, as in Kafka.
async fn answer(context: &ApiContext, client: &Client, mut frame: Bytes) -> Result<Bytes, String> {
    let started = Instant::now();
    let header = decode_request_header(&mut frame).map_err(|error| error.to_string())?;
    let key =
        ApiKey::from_code(header.api_key).ok_or_else(|| format!("unknown API key {}", header.api_key))?;
    let spec = key.spec();
    if !spec.controller {
        return Err(format!("{} is not served by controllers", spec.name));
    }
    let response = if key == ApiKey::ApiVersions && !spec.supports(header.api_version) {
        // KIP-511: answered in version 0, which every client can read.
        let mut response = ApiVersionsResponse::default();
        response.error_code = ErrorCode::UnsupportedVersion.code();
        response.api_keys = ranges(None).into_iter().filter(|range| range.api_key == key.code()).collect();
        return encode(&response.into(), 0, &header);
    } else {
        let request = decode_request(key, header.api_version, frame)
            .map_err(|error| format!("{}: {error}", spec.name))?;
        match request {
            Request::ApiVersions(request) => {
                api_versions(context, client, &request, header.api_version).into()
            }
            request => forward::answer(context, request, header.api_version)
                .await
                .ok_or_else(|| format!("{} is not served by controllers", spec.name))?,
        }
    };
    let frame = encode(&response, header.api_version, &header)?;
    context.metrics.observe(spec.name, started.elapsed());
    Ok(frame)
}

fn encode(response: &Response, version: i16, header: &RequestHeader) -> Result<Bytes, String> {
    encode_response_frame(response, version, header.correlation_id).map_err(|error| error.to_string())
}

fn ranges(software_name: Option<&str>) -> Vec<ApiVersion> {
    served_by_controller()
        .map(|spec| {
            ApiVersion::default()
                .with_api_key(spec.key.code())
                .with_min_version(spec.min_version)
                .with_max_version(spec.advertised_max_version(software_name))
        })
        .collect()
}

/// KIP-511: names and versions that logs may show.
fn is_valid_software(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
}

fn api_versions(
    context: &ApiContext,
    client: &Client,
    request: &ApiVersionsRequest,
    version: i16,
) -> ApiVersionsResponse {
    let mut response = ApiVersionsResponse::default();
    if version >= 3 {
        let name = request.client_software_name.as_str();
        if !is_valid_software(name) || !is_valid_software(&request.client_software_version) {
            response.error_code = ErrorCode::InvalidRequest.code();
            return response;
        }
        *client.software_name.lock() = Some(name.to_owned());
    }
    let image = context.image();
    response.api_keys = ranges(client.software_name.lock().as_deref());
    response.supported_features = FEATURES
        .iter()
        .map(|(name, lowest, highest)| {
            SupportedFeatureKey::default()
                .with_name(StrBytes::from_static_str(name))
                .with_min_version(*lowest)
                .with_max_version(*highest)
        })
        .collect();
    response.finalized_features_epoch = image.offset.0;
    response.finalized_features = image
        .features
        .iter()
        .map(|(name, level)| {
            FinalizedFeatureKey::default()
                .with_name(StrBytes::from_string(name.clone()))
                .with_min_version_level(*level)
                .with_max_version_level(*level)
        })
        .collect();
    response
}
