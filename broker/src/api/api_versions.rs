//! ApiVersions: which APIs and versions this broker serves, and the levels of its features.
//!
//! Version 3 carries the client's software name; 4 may show features whose lowest version is 0; 5 lets
//! a client say whom it meant to reach (KIP-1242).

use common::metadata::MetadataImage;
use protocol::StrBytes;
use protocol::api;
use protocol::error_code::ErrorCode;
use protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::context::ClientSoftware;

/// Feature, lowest and highest level that this program can work at (decisions §2).
const SUPPORTED_FEATURES: [(&str, i16, i16); 2] =
    [("metadata.version", 33, 33), ("kagami.metadata.version", 1, 1)];

/// KIP-511: names and versions that logs and metrics may show.
fn is_valid_software(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.bytes().all(inner) && edge(text.bytes().next()) && edge(text.bytes().next_back())
}

/// What the client says of itself; an error where Kafka refuses it.
pub fn software(request: &ApiVersionsRequest, version: i16) -> Result<Option<ClientSoftware>, ErrorCode> {
    if version < 3 {
        return Ok(None);
    }
    if !is_valid_software(&request.client_software_name)
        || !is_valid_software(&request.client_software_version)
    {
        return Err(ErrorCode::InvalidRequest);
    }
    Ok(Some(ClientSoftware {
        name: request.client_software_name.clone(),
        version: request.client_software_version.clone(),
    }))
}

/// The ranges alone: also the answer to a version that we do not know, in version 0.
pub fn ranges(software_name: Option<&str>) -> Vec<ApiVersion> {
    api::served_by_broker()
        .map(|spec| {
            let mut range = ApiVersion::default();
            range.api_key = spec.key.code();
            range.min_version = spec.min_version;
            range.max_version = spec.advertised_max_version(software_name);
            range
        })
        .collect()
}

pub fn unsupported_version() -> ApiVersionsResponse {
    let mut response = ApiVersionsResponse::default();
    response.error_code = ErrorCode::UnsupportedVersion.code();
    // Kafka names only ApiVersions itself here: all that the client needs to ask again.
    response.api_keys =
        ranges(None).into_iter().filter(|range| range.api_key == api::ApiKey::ApiVersions.code()).collect();
    response
}

pub fn error(code: ErrorCode) -> ApiVersionsResponse {
    let mut response = ApiVersionsResponse::default();
    response.error_code = code.code();
    response
}

pub fn handle(image: &MetadataImage, software_name: Option<&str>) -> ApiVersionsResponse {
    let mut response = ApiVersionsResponse::default();
    response.api_keys = ranges(software_name);
    response.supported_features = SUPPORTED_FEATURES
        .iter()
        .map(|(name, min, max)| {
            let mut feature = SupportedFeatureKey::default();
            feature.name = StrBytes::from_static_str(name);
            feature.min_version = *min;
            feature.max_version = *max;
            feature
        })
        .collect();
    response.finalized_features_epoch = image.offset.0;
    response.finalized_features = image
        .features
        .iter()
        .map(|(name, level)| {
            let mut feature = FinalizedFeatureKey::default();
            feature.name = StrBytes::from_string(name.clone());
            feature.max_version_level = *level;
            feature.min_version_level = *level;
            feature
        })
        .collect();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_8_of_create_topics_is_for_our_own_clients() {
        let max = |software| {
            let range = ranges(software).into_iter().find(|range| range.api_key == 19);
            range.expect("CreateTopics").max_version
        };
        assert_eq!(max(Some("apache-kafka-java")), 7);
        assert_eq!(max(Some("kagami")), 8);
    }

    #[test]
    fn what_is_not_implemented_is_not_advertised() {
        let keys: Vec<i16> = ranges(None).iter().map(|range| range.api_key).collect();
        assert!(keys.contains(&0) && keys.contains(&12790));
        assert!(!keys.contains(&11), "JoinGroup");
    }

    #[test]
    fn software_names_are_checked() {
        let mut request = ApiVersionsRequest {
            client_software_name: StrBytes::from_static_str("apache-kafka-java"),
            client_software_version: StrBytes::from_static_str("4.4.0"),
            ..ApiVersionsRequest::default()
        };
        assert!(software(&request, 3).expect("valid").is_some());
        request.client_software_name = StrBytes::from_static_str("-x");
        assert_eq!(software(&request, 3).expect_err("invalid"), ErrorCode::InvalidRequest);
        assert!(software(&request, 2).expect("absent").is_none());
    }
}
