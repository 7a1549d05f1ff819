//! DescribeConfigs of topics, of the brokers' dynamic configs, and of mirrors, from the committed image.
//! A broker's own file is known to that broker alone; a controller shows what the log holds.

use common::config::describe::{
    ConfigEntry, describe_broker, describe_cluster_default, describe_mirror, describe_topic,
};
use common::config::properties::Properties;
use common::config::topic::TopicConfigSources;
use common::metadata::MetadataImage;
use common::metadata::image::ConfigMap;
use common::metadata::record::ConfigResourceType;
use protocol::StrBytes;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::{refusal, text};
use crate::api::ApiContext;
use crate::control::ControlError;
use crate::control::config::resource_of;
use crate::control::settings::configs_of;

pub fn handle(context: &ApiContext, request: &DescribeConfigsRequest) -> DescribeConfigsResponse {
    let image = context.image();
    let results = request.resources.iter().map(|resource| {
        let mut result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match describe(context, &image, resource) {
            Ok(entries) => {
                result.configs = entries
                    .into_iter()
                    .map(|entry| shown(entry, request.include_synonyms, request.include_documentation))
                    .collect();
            }
            Err(error) => (result.error_code, result.error_message) = refusal(&error),
        }
        result
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn describe(
    context: &ApiContext,
    image: &MetadataImage,
    asked: &DescribeConfigsResource,
) -> Result<Vec<ConfigEntry>, ControlError> {
    let resource = resource_of(image, asked.resource_type, &asked.resource_name)?;
    let keys: Option<Vec<String>> = asked
        .configuration_keys
        .as_ref()
        .filter(|keys| !keys.is_empty())
        .map(|keys| keys.iter().map(|key| key.to_string()).collect());
    let keys = keys.as_deref();
    let values = |resource_type, name: &str| -> Option<&ConfigMap> {
        configs_of(image, resource_type, name).map(|map| &**map)
    };
    let own = values(resource.resource_type, &resource.name);
    let cluster = values(ConfigResourceType::Broker, "");
    Ok(match resource.resource_type {
        ConfigResourceType::Topic => {
            let file = &context.settings.properties;
            describe_topic(&TopicConfigSources { topic: own, broker: None, cluster, file }, keys)
        }
        ConfigResourceType::Broker if resource.name.is_empty() => describe_cluster_default(cluster, keys),
        ConfigResourceType::Broker => {
            let own_file = resource.name.parse() == Ok(context.node_id.0);
            let nothing = Properties::default();
            let file = if own_file { &*context.settings.properties } else { &nothing };
            describe_broker(own, cluster, file, keys)
        }
        ConfigResourceType::Mirror => describe_mirror(own, keys),
    })
}

fn shown(entry: ConfigEntry, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult {
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
