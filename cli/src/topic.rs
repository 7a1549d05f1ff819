//! `kagami topic`: create, list, describe, delete.

use clap::Subcommand;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::metadata_response::MetadataResponseBroker;
use protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, MetadataRequest, MetadataResponse,
    TopicName,
};
use protocol::{Request, Response, StrBytes};
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use crate::target::{AnyTarget, ServerTarget};

const TOPIC_RESOURCE: i8 = 2;

#[derive(Subcommand)]
pub enum TopicCommand {
    /// Create a topic.
    Create {
        #[command(flatten)]
        target: AnyTarget,
        #[arg(long)]
        topic: String,
        /// -1: num.partitions of the active controller.
        #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
        partitions: i32,
        /// -1: default.replication.factor of the active controller.
        #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
        replication_factor: i16,
        /// A topic config; may be repeated.
        #[arg(long = "config", value_name = "KEY=VALUE")]
        configs: Vec<String>,
    },
    /// List the topics.
    List {
        #[command(flatten)]
        target: ServerTarget,
    },
    /// Partitions, replicas and mirror of topics.
    Describe {
        #[command(flatten)]
        target: ServerTarget,
        /// All topics when absent.
        #[arg(long)]
        topic: Option<String>,
    },
    /// Delete a topic.
    Delete {
        #[command(flatten)]
        target: AnyTarget,
        #[arg(long)]
        topic: String,
    },
}

pub async fn run(command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create { target, topic, partitions, replication_factor, configs } => {
            create(target, topic, partitions, replication_factor, configs).await
        }
        TopicCommand::List { target } => list(target).await,
        TopicCommand::Describe { target, topic } => describe(target, topic).await,
        TopicCommand::Delete { target, topic } => delete(target, topic).await,
    }
}

fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// `KEY=VALUE` arguments.
pub fn key_values(arguments: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pair = |argument: &String| {
        let (key, value) = argument
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--config {argument:?} is not KEY=VALUE")))?;
        Ok((key.trim().to_owned(), value.to_owned()))
    };
    arguments.iter().map(pair).collect()
}

async fn create(
    target: AnyTarget,
    topic: String,
    partitions: i32,
    replication_factor: i16,
    configs: Vec<String>,
) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let configs = key_values(&configs)?.into_iter().map(|(key, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_string(key))
            .with_value(Some(StrBytes::from_string(value)))
    });
    let creatable = CreatableTopic::default()
        .with_name(topic_name(&topic))
        .with_num_partitions(partitions)
        .with_replication_factor(replication_factor)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default()
        .with_topics(vec![creatable])
        .with_timeout_ms(target.common.timeout().as_millis().min(i32::MAX as u128) as i32);
    let what = format!("topic {topic}");
    let outcome = |response: &Response| match response {
        Response::CreateTopics(response) => {
            response.topics.first().map_or((0, None), |topic| (topic.error_code, topic.error_message.clone()))
        }
        _ => (0, None),
    };
    let response = session.change(&what, Request::CreateTopics(request), outcome).await?;
    let Response::CreateTopics(response) = response else { return Err(unexpected()) };
    let result = response.topics.first().ok_or_else(unexpected)?;
    if result.error_code != 0 {
        return Err(Failure::code(&what, result.error_code, result.error_message.as_deref()));
    }
    if target.common.json {
        let id = common::ids::TopicId(result.topic_id).to_string();
        return output::print_json(
            &json!({ "topic": topic, "topic_id": id, "partitions": result.num_partitions }),
        );
    }
    println!("Created topic {topic}.");
    Ok(())
}

async fn delete(target: AnyTarget, topic: String) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    // Both the newer and the older field, as the version in use may be either.
    let request = DeleteTopicsRequest::default()
        .with_topics(vec![DeleteTopicState::default().with_name(Some(topic_name(&topic)))])
        .with_topic_names(vec![])
        .with_timeout_ms(target.common.timeout().as_millis().min(i32::MAX as u128) as i32);
    let what = format!("topic {topic}");
    let outcome = |response: &Response| match response {
        Response::DeleteTopics(response) => response
            .responses
            .first()
            .map_or((0, None), |topic| (topic.error_code, topic.error_message.clone())),
        _ => (0, None),
    };
    let response = session.change(&what, Request::DeleteTopics(request), outcome).await?;
    let Response::DeleteTopics(response) = response else { return Err(unexpected()) };
    let result = response.responses.first().ok_or_else(unexpected)?;
    if result.error_code != 0 {
        return Err(Failure::code(&what, result.error_code, result.error_message.as_deref()));
    }
    if target.common.json {
        return output::print_json(&json!({ "topic": topic, "deleted": true }));
    }
    println!("Deleted topic {topic}.");
    Ok(())
}

/// A topic, or with `None` all of them.
pub async fn metadata(session: &mut Session, topic: Option<&str>) -> Result<MetadataResponse, Failure> {
    let topics = topic.map(|topic| vec![MetadataRequestTopic::default().with_name(Some(topic_name(topic)))]);
    metadata_of(session, topics).await
}

/// The brokers that are up.
pub async fn brokers(session: &mut Session) -> Result<Vec<MetadataResponseBroker>, Failure> {
    Ok(metadata_of(session, Some(Vec::new())).await?.brokers)
}

async fn metadata_of(
    session: &mut Session,
    topics: Option<Vec<MetadataRequestTopic>>,
) -> Result<MetadataResponse, Failure> {
    let request = MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false);
    match session.call(Request::Metadata(request), |_| 0).await? {
        Response::Metadata(response) => Ok(response),
        _ => Err(unexpected()),
    }
}

async fn list(target: ServerTarget) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let response = metadata(&mut session, None).await?;
    let mut names: Vec<String> =
        response.topics.iter().filter_map(|topic| topic.name.as_ref().map(|name| name.to_string())).collect();
    names.sort();
    if target.common.json {
        return output::print_json(&json!(names));
    }
    for name in names {
        println!("{name}");
    }
    Ok(())
}

async fn describe(target: ServerTarget, topic: Option<String>) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let response = metadata(&mut session, topic.as_deref()).await?;
    let mut topics = response.topics;
    topics.sort_by_key(|topic| topic.name.as_ref().map(|name| name.to_string()));
    let mut printed = Vec::new();
    for described in &topics {
        let name = described.name.as_ref().map(|name| name.to_string()).unwrap_or_default();
        if described.error_code != 0 {
            return Err(Failure::code(&format!("topic {name}"), described.error_code, None));
        }
        let mirror = mirror_name(&mut session, &name).await?;
        let mut partitions: Vec<_> = described.partitions.iter().collect();
        partitions.sort_by_key(|partition| partition.partition_index);
        let ids = |ids: &[protocol::messages::BrokerId]| ids.iter().map(|id| id.0).collect::<Vec<i32>>();
        let rows: Vec<_> = partitions
            .iter()
            .map(|partition| {
                json!({
                    "partition": partition.partition_index,
                    "leader": partition.leader_id.0,
                    "leader_epoch": partition.leader_epoch,
                    "replicas": ids(&partition.replica_nodes),
                    "isr": ids(&partition.isr_nodes),
                })
            })
            .collect();
        let topic_id = common::ids::TopicId(described.topic_id).to_string();
        printed
            .push(json!({ "topic": name, "topic_id": topic_id, "mirror_name": mirror, "partitions": rows }));
    }
    if target.common.json {
        return output::print_json(&json!(printed));
    }
    for topic in &printed {
        let mirror = topic["mirror_name"].as_str().map(|name| format!("  mirror.name: {name}"));
        println!(
            "Topic: {}  TopicId: {}  PartitionCount: {}{}",
            topic["topic"].as_str().unwrap_or_default(),
            topic["topic_id"].as_str().unwrap_or_default(),
            topic["partitions"].as_array().map_or(0, Vec::len),
            mirror.unwrap_or_default()
        );
        let list = |value: &serde_json::Value| {
            let ids = value.as_array().into_iter().flatten().map(|id| id.to_string());
            ids.collect::<Vec<_>>().join(",")
        };
        for partition in topic["partitions"].as_array().into_iter().flatten() {
            println!(
                "  Partition: {}  Leader: {}  LeaderEpoch: {}  Replicas: {}  Isr: {}",
                partition["partition"],
                partition["leader"],
                partition["leader_epoch"],
                list(&partition["replicas"]),
                list(&partition["isr"])
            );
        }
    }
    Ok(())
}

/// `mirror.name`, which DescribeConfigs shows only when asked for by name.
async fn mirror_name(session: &mut Session, topic: &str) -> Result<Option<String>, Failure> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC_RESOURCE)
        .with_resource_name(StrBytes::from_string(topic.to_owned()))
        .with_configuration_keys(Some(vec![StrBytes::from_static_str(
            common::mirror_state::MIRROR_NAME_CONFIG,
        )]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let Response::DescribeConfigs(response) = session.call(Request::DescribeConfigs(request), |_| 0).await?
    else {
        return Err(unexpected());
    };
    let configs = response.results.into_iter().flat_map(|result| result.configs);
    Ok(configs
        .filter(|config| &*config.name == common::mirror_state::MIRROR_NAME_CONFIG)
        .filter_map(|config| config.value)
        .map(|value| value.to_string())
        .find(|value| !value.is_empty()))
}

pub fn unexpected() -> Failure {
    Failure::refused("the answer is not of the kind that was asked for")
}
