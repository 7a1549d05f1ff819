//! DescribeConfigs: every key of a topic, of a node, of the cluster default or of a mirror, with where its
//! value comes from, from the image and the answering node's own file.
//!
//! Version 1 names sources and synonyms; 3 types and documentation. `mirror.name` shows only when it is
//! asked for by name, and no secret ever does.

use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::describe::{
    ConfigEntry, Requested, describe_broker, describe_cluster_default, describe_mirror, describe_topic,
};
use super::properties::Properties;
use super::topic::TopicConfigSources;
use crate::metadata::MetadataImage;
use crate::metadata::image::ConfigMap;
use crate::metadata::record::ConfigResourceType;
use crate::topic_name::is_valid_topic_name;

/// Kafka's log levels as a resource: there is nothing in it here, but tools ask for it.
const BROKER_LOGGER: i8 = 8;

/// Who answers. Only a node itself knows its file.
#[derive(Clone, Copy, Debug)]
pub enum Describer<'a> {
    /// Clients ask each broker for itself.
    Broker { id: i32, file: &'a Properties },
    /// Of a broker it shows what the metadata log holds.
    Controller { id: i32, file: &'a Properties },
}

impl<'a> Describer<'a> {
    fn file(self) -> &'a Properties {
        match self {
            Describer::Broker { file, .. } | Describer::Controller { file, .. } => file,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    code: ErrorCode,
    message: String,
}

fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { code, message: message.into() })
}

pub fn respond(
    image: &MetadataImage,
    describer: Describer<'_>,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let results = request.resources.iter().map(|resource| {
        let mut result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
            .with_error_message(None);
        match describe(image, describer, resource) {
            Ok(entries) => {
                let shown = |entry| shown(entry, request.include_synonyms, request.include_documentation);
                result.configs = entries.into_iter().map(shown).collect();
            }
            Err(Refused { code, message }) => {
                result.error_code = code.code();
                result.error_message = Some(StrBytes::from_string(message));
            }
        }
        result
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn describe(
    image: &MetadataImage,
    describer: Describer<'_>,
    resource: &DescribeConfigsResource,
) -> Result<Vec<ConfigEntry>, Refused> {
    let keys: Option<Vec<String>> = resource
        .configuration_keys
        .as_ref()
        // As in Kafka, an empty list asks for all.
        .filter(|keys| !keys.is_empty())
        .map(|keys| keys.iter().map(|key| key.to_string()).collect());
    let keys: Requested<'_> = keys.as_deref();
    let name = resource.resource_name.as_str();
    let values = |resource_type, name: &str| -> Option<&ConfigMap> {
        image.config(resource_type, name).map(|configs| &**configs)
    };
    let cluster = values(ConfigResourceType::Broker, "");
    match ConfigResourceType::from_code(resource.resource_type) {
        Some(ConfigResourceType::Topic) => {
            if image.topic(name).is_none() {
                let code = if is_valid_topic_name(name) {
                    ErrorCode::UnknownTopicOrPartition
                } else {
                    ErrorCode::InvalidTopicException
                };
                return refuse(code, code.message());
            }
            let broker = match describer {
                Describer::Broker { id, .. } => values(ConfigResourceType::Broker, &id.to_string()),
                Describer::Controller { .. } => None,
            };
            let topic = values(ConfigResourceType::Topic, name);
            Ok(describe_topic(&TopicConfigSources { topic, broker, cluster, file: describer.file() }, keys))
        }
        Some(ConfigResourceType::Broker) if name.is_empty() => Ok(describe_cluster_default(cluster, keys)),
        Some(ConfigResourceType::Broker) => {
            let nothing = Properties::default();
            let file = if is_of(describer, name)? { describer.file() } else { &nothing };
            Ok(describe_broker(values(ConfigResourceType::Broker, name), cluster, file, keys))
        }
        Some(ConfigResourceType::Mirror) => {
            if !image.mirrors.contains_key(name) {
                return refuse(ErrorCode::UnknownMirror, format!("there is no mirror '{name}'"));
            }
            Ok(describe_mirror(values(ConfigResourceType::Mirror, name), keys))
        }
        None if resource.resource_type == BROKER_LOGGER => is_of(describer, name).map(|_| Vec::new()),
        None => refuse(
            ErrorCode::InvalidRequest,
            format!("Unsupported resource type: {}", resource.resource_type),
        ),
    }
}

/// Whether a node's name is the describer's own; a broker refuses to speak for another.
fn is_of(describer: Describer<'_>, name: &str) -> Result<bool, Refused> {
    let Ok(asked) = name.parse::<i32>() else {
        return refuse(ErrorCode::InvalidRequest, format!("Broker id must be an integer, but it is: {name}"));
    };
    match describer {
        Describer::Broker { id, .. } if id != asked => refuse(
            ErrorCode::InvalidRequest,
            format!("Unexpected broker id, expected {id} or empty string, but received {name}"),
        ),
        Describer::Broker { id, .. } | Describer::Controller { id, .. } => Ok(id == asked),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TopicId;
    use crate::metadata::record::ConfigResource;
    use crate::metadata::{MetadataBatch, MetadataDelta, MetadataRecord};

    fn image() -> MetadataImage {
        let config = |resource_type, name: &str, key: &str, value: &str| MetadataRecord::Config {
            resource: ConfigResource { resource_type, name: name.into() },
            key: key.to_owned(),
            value: Some(value.to_owned()),
        };
        let mut image = MetadataImage::default();
        let batch = MetadataBatch {
            term: image.term,
            offset: image.offset.next(),
            predecessor_term: image.term,
            timestamp_ms: 0,
            records: vec![
                MetadataRecord::Topic { topic_id: TopicId::ZERO, name: "t".into() },
                config(ConfigResourceType::Topic, "t", "retention.ms", "1"),
                config(ConfigResourceType::Broker, "1", "log.retention.ms", "2"),
                config(ConfigResourceType::Broker, "", "log.retention.ms", "3"),
            ],
        };
        image.apply(&batch, &mut MetadataDelta::default()).unwrap();
        image
    }

    /// Code, and the sources of what is shown for one key.
    fn ask(describer: Describer<'_>, resource_type: i8, name: &str, key: &str) -> (i16, Vec<(String, i8)>) {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(resource_type)
            .with_resource_name(StrBytes::from_string(name.to_owned()))
            .with_configuration_keys(Some(vec![StrBytes::from_string(key.to_owned())]));
        let request =
            DescribeConfigsRequest::default().with_resources(vec![resource]).with_include_synonyms(true);
        let result = respond(&image(), describer, &request).results.remove(0);
        let synonyms = result.configs.into_iter().flat_map(|config| config.synonyms);
        let shown = synonyms.map(|s| (s.value.map_or(String::new(), |value| value.to_string()), s.source));
        (result.error_code, shown.collect())
    }

    #[test]
    fn brokers_and_controllers_see_the_same_but_for_their_own_levels() {
        let file: Properties = [("node.id", "1"), ("log.retention.ms", "4")].into_iter().collect();
        let broker = Describer::Broker { id: 1, file: &file };
        let controller = Describer::Controller { id: 101, file: &file };
        let levels = |numbers: &[(&str, i8)]| -> Vec<(String, i8)> {
            let hours = std::iter::once(("168".to_owned(), 5));
            numbers.iter().map(|(value, source)| ((*value).to_owned(), *source)).chain(hours).collect()
        };
        let (topic, node) = (2, 4);
        assert_eq!(
            ask(broker, topic, "t", "retention.ms"),
            (0, levels(&[("1", 1), ("2", 2), ("3", 3), ("4", 4)]))
        );
        assert_eq!(ask(controller, topic, "t", "retention.ms"), (0, levels(&[("1", 1), ("3", 3), ("4", 4)])));
        let pairs = |numbers: &[(&str, i8)]| -> Vec<(String, i8)> {
            numbers.iter().map(|(value, source)| ((*value).to_owned(), *source)).collect()
        };
        assert_eq!(ask(broker, node, "1", "log.retention.ms"), (0, pairs(&[("2", 2), ("3", 3), ("4", 4)])));
        // The file is another node's.
        assert_eq!(ask(controller, node, "1", "log.retention.ms"), (0, pairs(&[("2", 2), ("3", 3)])));
        assert_eq!(ask(broker, node, "", "log.retention.ms"), (0, vec![("3".to_owned(), 3)]));
        for (describer, kind, name, expected) in [
            (broker, topic, "u", ErrorCode::UnknownTopicOrPartition),
            (controller, topic, "u", ErrorCode::UnknownTopicOrPartition),
            (broker, topic, "a b", ErrorCode::InvalidTopicException),
            (broker, node, "2", ErrorCode::InvalidRequest),
            (controller, node, "x", ErrorCode::InvalidRequest),
            (broker, 64, "m", ErrorCode::UnknownMirror),
            (controller, 64, "m", ErrorCode::UnknownMirror),
            (broker, 8, "1", ErrorCode::None),
            (broker, 16, "g", ErrorCode::InvalidRequest),
        ] {
            assert_eq!(ask(describer, kind, name, "k"), (expected.code(), vec![]), "{kind} {name}");
        }
    }
}
