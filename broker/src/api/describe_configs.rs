//! DescribeConfigs: every key of a topic, of this broker, of the cluster default or of a mirror, with
//! where its value comes from.
//!
//! Version 1 names sources and synonyms; 3 types and documentation. `mirror.name` shows only when it is
//! asked for by name, and no secret ever does.

use common::config::BrokerConfig;
use common::config::describe::{
    ConfigEntry, describe_broker, describe_cluster_default, describe_mirror, describe_topic,
};
use common::metadata::MetadataImage;
use common::metadata::record::ConfigResourceType;
use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::error::ApiError;
use super::topic_names;
use crate::server::topic_settings::sources;

/// Kafka's log levels as a resource: there is nothing in it here, but tools ask for it.
const BROKER_LOGGER: i8 = 8;

pub fn handle(
    image: &MetadataImage,
    config: &BrokerConfig,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let results = request.resources.iter().map(|resource| {
        let mut result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
            .with_error_message(None);
        match describe(image, config, resource) {
            Ok(entries) => {
                let shown = |entry| shown(entry, request.include_synonyms, request.include_documentation);
                result.configs = entries.into_iter().map(shown).collect();
            }
            Err(error) => {
                result.error_code = error.code.code();
                result.error_message = error.message();
            }
        }
        result
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn describe(
    image: &MetadataImage,
    config: &BrokerConfig,
    resource: &DescribeConfigsResource,
) -> Result<Vec<ConfigEntry>, ApiError> {
    let keys: Option<Vec<String>> = resource
        .configuration_keys
        .as_ref()
        // As in Kafka, an empty list asks for all.
        .filter(|keys| !keys.is_empty())
        .map(|keys| keys.iter().map(|key| key.to_string()).collect());
    let keys = keys.as_deref();
    let name = resource.resource_name.as_str();
    let values = |resource_type, name: &str| image.config(resource_type, name).map(|configs| &**configs);
    match ConfigResourceType::from_code(resource.resource_type) {
        Some(ConfigResourceType::Topic) => {
            if image.topic(name).is_none() {
                let known = topic_names::is_valid(name);
                let code =
                    if known { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException };
                return Err(ApiError::from(code));
            }
            Ok(describe_topic(&sources(image, config.node_id, config, name), keys))
        }
        Some(ConfigResourceType::Broker) => {
            let cluster = values(ConfigResourceType::Broker, "");
            if name.is_empty() {
                return Ok(describe_cluster_default(cluster, keys));
            }
            check_is_this_broker(name, config)?;
            let own = values(ConfigResourceType::Broker, name);
            Ok(describe_broker(own, cluster, &config.properties, keys))
        }
        Some(ConfigResourceType::Mirror) => {
            if !image.mirrors.contains_key(name) {
                return Err(ApiError::new(ErrorCode::UnknownMirror, format!("there is no mirror {name:?}")));
            }
            Ok(describe_mirror(values(ConfigResourceType::Mirror, name), keys))
        }
        None if resource.resource_type == BROKER_LOGGER => {
            check_is_this_broker(name, config)?;
            Ok(Vec::new())
        }
        None => Err(ApiError::new(
            ErrorCode::InvalidRequest,
            format!("Unsupported resource type: {}", resource.resource_type),
        )),
    }
}

/// A broker knows only its own file; clients ask each one for itself.
fn check_is_this_broker(name: &str, config: &BrokerConfig) -> Result<(), ApiError> {
    let Ok(id) = name.parse::<i32>() else {
        let message = format!("Broker id must be an integer, but it is: {name}");
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    };
    if id != config.node_id.0 {
        let expected = config.node_id;
        let message =
            format!("Unexpected broker id, expected {expected} or empty string, but received {name}");
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    }
    Ok(())
}

fn shown(entry: ConfigEntry, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult {
    let text = StrBytes::from_string;
    let synonyms = if synonyms { entry.synonyms } else { Vec::new() };
    DescribeConfigsResourceResult::default()
        .with_name(text(entry.name))
        .with_value(entry.value.map(text))
        .with_read_only(entry.read_only)
        .with_config_source(entry.source.code())
        .with_is_sensitive(entry.sensitive)
        .with_synonyms(
            synonyms
                .into_iter()
                .map(|synonym| {
                    DescribeConfigsSynonym::default()
                        .with_name(text(synonym.name))
                        .with_value(synonym.value.map(text))
                        .with_source(synonym.source.code())
                })
                .collect(),
        )
        .with_config_type(entry.config_type)
        .with_documentation(documentation.then(|| StrBytes::from_static_str(entry.documentation)))
}
