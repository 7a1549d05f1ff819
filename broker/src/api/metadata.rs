//! Metadata: brokers, topics, partitions and their leaders, as one listener's clients see them.
//!
//! Version 1 tells "all" (null) from "none" (empty); 4 lets the client forbid auto-creation; 5 names
//! offline replicas; 7 the leader epoch; 8 authorized operations; 10 topic ids; 12 is asked by id.

use std::collections::BTreeSet;
use std::sync::Arc;

use common::ids::TopicId;
use common::metadata::MetadataImage;
use common::metadata::image::{PartitionImage, TopicImage};
use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use protocol::messages::{BrokerId as WireBrokerId, MetadataRequest, MetadataResponse, TopicName};

use super::{authorized_operations, topic_names};

/// How a listener's clients see partitions; versions differ in what counts as an error.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub listener_name: &'a str,
    /// From version 6 on, a leader without this listener is LISTENER_NOT_FOUND.
    pub tells_missing_listeners: bool,
    /// Version 0 lists only replicas that can be reached.
    pub hides_unreachable_replicas: bool,
}

impl<'a> View<'a> {
    pub fn new(listener_name: &'a str, version: i16) -> View<'a> {
        View {
            listener_name,
            tells_missing_listeners: version >= 6,
            hides_unreachable_replicas: version == 0,
        }
    }
}

/// A partition as Metadata and DescribeTopicPartitions tell of it.
pub struct PartitionView {
    pub error: ErrorCode,
    pub leader_id: i32,
    pub leader_epoch: i32,
    pub replicas: Vec<WireBrokerId>,
    pub isr: Vec<WireBrokerId>,
    pub offline_replicas: Vec<WireBrokerId>,
}

pub fn partition_view(image: &MetadataImage, partition: &PartitionImage, view: View<'_>) -> PartitionView {
    let registration = &partition.registration;
    let reachable = |id: &common::ids::BrokerId| {
        image
            .brokers
            .get(id)
            .is_some_and(|broker| !broker.fenced && broker.endpoint(view.listener_name).is_some())
    };
    let listed = |ids: &[common::ids::BrokerId]| -> Vec<WireBrokerId> {
        let shown = ids.iter().filter(|id| !view.hides_unreachable_replicas || reachable(id));
        shown.map(|id| WireBrokerId(id.0)).collect()
    };
    let replicas = listed(&registration.replicas);
    let isr = listed(&registration.isr);
    let is_offline =
        |id: &common::ids::BrokerId| !reachable(id) || !image.has_replica_directory(registration, *id);
    let offline_replicas =
        registration.replicas.iter().filter(|id| is_offline(id)).map(|id| WireBrokerId(id.0)).collect();
    let (error, leader_id) = match registration.leader {
        Some(leader) if reachable(&leader) => {
            let incomplete =
                replicas.len() < registration.replicas.len() || isr.len() < registration.isr.len();
            (if incomplete { ErrorCode::ReplicaNotAvailable } else { ErrorCode::None }, leader.0)
        }
        Some(leader) if image.brokers.get(&leader).is_some_and(|broker| !broker.fenced) => {
            let error = if view.tells_missing_listeners {
                ErrorCode::ListenerNotFound
            } else {
                ErrorCode::LeaderNotAvailable
            };
            (error, -1)
        }
        _ => (ErrorCode::LeaderNotAvailable, -1),
    };
    PartitionView {
        error,
        leader_id,
        leader_epoch: registration.leader_epoch.0,
        replicas,
        isr,
        offline_replicas,
    }
}

/// The topics a request names that are not there and that it would have created.
pub fn topics_to_create(image: &MetadataImage, request: &MetadataRequest, version: i16) -> Vec<Arc<str>> {
    // Before version 4 a client could not forbid it.
    if version >= 4 && !request.allow_auto_topic_creation {
        return Vec::new();
    }
    let mut names = BTreeSet::new();
    for topic in request.topics.iter().flatten() {
        let Some(name) = topic.name.as_ref().map(|name| name.0.as_str()) else { continue };
        // A name that waits for its mirror topic belongs to the mirror (decision 17).
        let ours = image.topic(name).is_some()
            || image.pending_mirror_topics.contains_key(name)
            || topic_names::is_internal(name);
        if topic.topic_id.is_nil() && !ours && topic_names::is_valid(name) {
            names.insert(Arc::from(name));
        }
    }
    names.into_iter().collect()
}

pub struct Asker<'a> {
    pub broker_id: i32,
    pub cluster_id: &'a str,
    pub listener_name: &'a str,
    pub version: i16,
}

pub fn handle(image: &MetadataImage, request: &MetadataRequest, asker: &Asker<'_>) -> MetadataResponse {
    let view = View::new(asker.listener_name, asker.version);
    let mut response = MetadataResponse::default();
    response.brokers = brokers(image, asker.listener_name);
    response.cluster_id = Some(StrBytes::from_string(asker.cluster_id.to_owned()));
    response.controller_id = WireBrokerId(administrator(image, asker.broker_id));
    response.cluster_authorized_operations =
        authorized_operations::cluster(request.include_cluster_authorized_operations);
    let operations = authorized_operations::topic(request.include_topic_authorized_operations);
    let known = |topic: &Arc<TopicImage>| {
        let mut answer = known_topic(image, topic, view);
        answer.topic_authorized_operations = operations;
        answer
    };
    response.topics = match &request.topics {
        None => all_topics(image).map(known).collect(),
        Some(topics) if topics.is_empty() && asker.version == 0 => all_topics(image).map(known).collect(),
        Some(topics) => topics
            .iter()
            .map(|topic| match find(image, topic, asker.version) {
                Ok(found) => known(found),
                Err(error) => unknown_topic(topic, error),
            })
            .collect(),
    };
    response
}

fn all_topics(image: &MetadataImage) -> impl Iterator<Item = &Arc<TopicImage>> {
    image.topics.by_name.values().filter_map(|id| image.topic_by_id(*id))
}

fn find<'a>(
    image: &'a MetadataImage,
    topic: &MetadataRequestTopic,
    version: i16,
) -> Result<&'a Arc<TopicImage>, ErrorCode> {
    if version < 12 && (topic.name.is_none() || !topic.topic_id.is_nil()) {
        return Err(ErrorCode::InvalidRequest);
    }
    if !topic.topic_id.is_nil() {
        return image.topic_by_id(TopicId(topic.topic_id)).ok_or(ErrorCode::UnknownTopicId);
    }
    let name = topic.name.as_ref().map_or("", |name| name.0.as_str());
    match image.topic(name) {
        Some(topic) => Ok(topic),
        None if topic_names::is_valid(name) => Err(ErrorCode::UnknownTopicOrPartition),
        None => Err(ErrorCode::InvalidTopicException),
    }
}

fn known_topic(image: &MetadataImage, topic: &TopicImage, view: View<'_>) -> MetadataResponseTopic {
    let mut answer = MetadataResponseTopic::default();
    answer.name = Some(TopicName(StrBytes::from_string(topic.name.to_string())));
    answer.topic_id = topic.id.0;
    answer.is_internal = topic_names::is_internal(&topic.name);
    answer.partitions = topic
        .partitions
        .iter()
        .enumerate()
        .map(|(index, partition)| {
            let seen = partition_view(image, partition, view);
            let mut partition = MetadataResponsePartition::default();
            partition.error_code = seen.error.code();
            partition.partition_index = index as i32;
            partition.leader_id = WireBrokerId(seen.leader_id);
            partition.leader_epoch = seen.leader_epoch;
            partition.replica_nodes = seen.replicas;
            partition.isr_nodes = seen.isr;
            partition.offline_replicas = seen.offline_replicas;
            partition
        })
        .collect();
    answer
}

fn unknown_topic(topic: &MetadataRequestTopic, error: ErrorCode) -> MetadataResponseTopic {
    let mut answer = MetadataResponseTopic::default();
    answer.error_code = error.code();
    answer.name = topic.name.clone();
    answer.topic_id = topic.topic_id;
    answer.is_internal = topic.name.as_ref().is_some_and(|name| topic_names::is_internal(&name.0));
    answer
}

fn brokers(image: &MetadataImage, listener_name: &str) -> Vec<MetadataResponseBroker> {
    let alive = image.brokers.iter().filter(|(_, broker)| !broker.fenced);
    alive
        .filter_map(|(id, broker)| {
            let endpoint = broker.endpoint(listener_name)?;
            let mut answer = MetadataResponseBroker::default();
            answer.node_id = WireBrokerId(id.0);
            answer.host = StrBytes::from_string(endpoint.host.clone());
            answer.port = i32::from(endpoint.port);
            answer.rack = broker.rack.clone().map(StrBytes::from_string);
            Some(answer)
        })
        .collect()
}

/// Where clients shall send what they think belongs to "the controller": any broker forwards it, so
/// the one they talk to is as good as another, unless it is fenced.
pub fn administrator(image: &MetadataImage, broker_id: i32) -> i32 {
    let alive =
        |id: &i32| image.brokers.get(&common::ids::BrokerId(*id)).is_some_and(|broker| !broker.fenced);
    if alive(&broker_id) {
        return broker_id;
    }
    image.brokers.iter().find(|(_, broker)| !broker.fenced).map_or(-1, |(id, _)| id.0)
}
