//! CreateTopics. Version 5 answers with the topic's configs, 7 with its id; 8 is ours and carries the
//! source's topic id of a mirror topic.

use common::config::describe::describe_topic;
use common::config::topic::TopicConfigSources;
use common::ids::{BrokerId, TopicId};
use common::metadata::MetadataImage;
use common::metadata::image::ConfigMap;
use common::metadata::record::ConfigResourceType;
use protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

use super::{failure, refusal, text};
use crate::api::ApiContext;
use crate::control::topic::{NewTopic, create_topics};

pub async fn handle(context: &ApiContext, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let validate_only = request.validate_only;
    let topics: Vec<NewTopic> = request
        .topics
        .iter()
        .map(|topic| NewTopic {
            name: topic.name.0.to_string(),
            partitions: topic.num_partitions,
            replication_factor: topic.replication_factor,
            assignments: topic
                .assignments
                .iter()
                .map(|assignment| {
                    let replicas = assignment.broker_ids.iter().map(|id| BrokerId(id.0)).collect();
                    (assignment.partition_index, replicas)
                })
                .collect(),
            configs: topic
                .configs
                .iter()
                .map(|config| (config.name.to_string(), config.value.as_ref().map(|value| value.to_string())))
                .collect(),
            mirror_topic_id: topic.mirror_info.as_ref().map(|info| TopicId(info.topic_id)),
        })
        .collect();
    let asked = topics.clone();
    let outcome = context
        .controller
        .write("CreateTopics", move |op| {
            Ok(create_topics(op.image, op.settings, &topics, validate_only, op.random))
        })
        .await;
    let image = context.image();
    let results = asked
        .iter()
        .enumerate()
        .map(|(index, topic)| {
            let mut result = CreatableTopicResult::default()
                .with_name(request.topics[index].name.clone())
                .with_num_partitions(-1)
                .with_replication_factor(-1)
                .with_configs(Some(Vec::new()));
            match &outcome {
                Ok(committed) => match committed.response.get(index) {
                    Some(Ok(created)) => {
                        // An id that only validation drew is no topic's.
                        if !validate_only {
                            result.topic_id = created.topic_id.0;
                        }
                        result.num_partitions = created.partitions;
                        result.replication_factor = created.replication_factor;
                        result.configs = Some(effective_configs(context, &image, topic));
                    }
                    Some(Err(error)) => (result.error_code, result.error_message) = refusal(error),
                    None => {}
                },
                Err(error) => (result.error_code, result.error_message) = failure(error),
            }
            result
        })
        .collect();
    CreateTopicsResponse::default().with_topics(results)
}

fn effective_configs(
    context: &ApiContext,
    image: &MetadataImage,
    topic: &NewTopic,
) -> Vec<CreatableTopicConfigs> {
    let own: ConfigMap =
        topic.configs.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
    let sources = TopicConfigSources {
        topic: Some(&own),
        broker: None,
        cluster: image.config(ConfigResourceType::Broker, "").map(|map| &**map),
        file: &context.settings.properties,
    };
    describe_topic(&sources, None)
        .into_iter()
        .map(|entry| {
            CreatableTopicConfigs::default()
                .with_name(text(entry.name))
                .with_value(entry.value.map(text))
                .with_read_only(entry.read_only)
                .with_config_source(entry.source.code())
                .with_is_sensitive(entry.sensitive)
        })
        .collect()
}
