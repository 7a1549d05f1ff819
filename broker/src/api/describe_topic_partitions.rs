//! DescribeTopicPartitions: topics page by page, with the eligible leader replicas (KIP-966).

use common::metadata::MetadataImage;
use common::metadata::image::TopicImage;
use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use protocol::messages::{
    BrokerId as WireBrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
};

use super::metadata::{View, partition_view};
use super::{authorized_operations, topic_names};

/// `max.request.partition.size.limit` of Kafka.
const MAX_PARTITIONS: usize = 2_000;

/// `Err`: the whole request is invalid, and a client of Kafka sees its connection closed.
pub fn handle(
    image: &MetadataImage,
    request: &DescribeTopicPartitionsRequest,
    listener_name: &str,
) -> Result<DescribeTopicPartitionsResponse, ErrorCode> {
    let view = View { listener_name, tells_missing_listeners: true, hides_unreachable_replicas: false };
    let start = match &request.cursor {
        Some(cursor) if cursor.partition_index < 0 => return Err(ErrorCode::InvalidRequest),
        Some(cursor) => Some((cursor.topic_name.0.as_str(), cursor.partition_index as usize)),
        None => None,
    };
    let asked_for_all = request.topics.is_empty();
    let mut names: Vec<&str> = if asked_for_all {
        image.topics.by_name.keys().map(|name| &**name).collect()
    } else {
        request.topics.iter().map(|topic| topic.name.0.as_str()).collect()
    };
    names.retain(|name| start.is_none_or(|(first, _)| *name >= first));
    names.sort_unstable();
    names.dedup();

    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, MAX_PARTITIONS);
    let mut remaining = limit;
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names {
        if remaining == 0 {
            response.next_cursor = Some(cursor(name, 0));
            break;
        }
        let Some(topic) = image.topic(name) else {
            response.topics.push(unknown(name));
            continue;
        };
        let first = start.filter(|(topic, _)| *topic == name).map_or(0, |(_, partition)| partition);
        let answer = known(image, topic, view, first, remaining);
        let next = first.saturating_add(answer.partitions.len());
        remaining -= answer.partitions.len();
        response.topics.push(answer);
        if next < topic.partitions.len() {
            response.next_cursor = Some(cursor(name, next));
            break;
        }
    }
    Ok(response)
}

fn cursor(name: &str, partition: usize) -> Cursor {
    let mut cursor = Cursor::default();
    cursor.topic_name = TopicName(StrBytes::from_string(name.to_owned()));
    cursor.partition_index = partition as i32;
    cursor
}

fn unknown(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let mut answer = DescribeTopicPartitionsResponseTopic::default();
    let valid = topic_names::is_valid(name);
    let error = if valid { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException };
    answer.error_code = error.code();
    answer.name = Some(TopicName(StrBytes::from_string(name.to_owned())));
    answer.is_internal = topic_names::is_internal(name);
    answer
}

fn known(
    image: &MetadataImage,
    topic: &TopicImage,
    view: View<'_>,
    first: usize,
    limit: usize,
) -> DescribeTopicPartitionsResponseTopic {
    let mut answer = DescribeTopicPartitionsResponseTopic::default();
    answer.name = Some(TopicName(StrBytes::from_string(topic.name.to_string())));
    answer.topic_id = topic.id.0;
    answer.is_internal = topic_names::is_internal(&topic.name);
    answer.topic_authorized_operations = authorized_operations::TOPIC;
    let page = topic.partitions.iter().enumerate().skip(first).take(limit);
    answer.partitions = page
        .map(|(index, partition)| {
            let seen = partition_view(image, partition, view);
            let ids = |ids: &[common::ids::BrokerId]| Some(ids.iter().map(|id| WireBrokerId(id.0)).collect());
            let mut answer = DescribeTopicPartitionsResponsePartition::default();
            answer.error_code = seen.error.code();
            answer.partition_index = index as i32;
            answer.leader_id = WireBrokerId(seen.leader_id);
            answer.leader_epoch = seen.leader_epoch;
            answer.replica_nodes = seen.replicas;
            answer.isr_nodes = seen.isr;
            answer.eligible_leader_replicas = ids(&partition.registration.elr);
            answer.last_known_elr = ids(&partition.registration.last_known_elr);
            answer.offline_replicas = seen.offline_replicas;
            answer
        })
        .collect();
    answer
}
