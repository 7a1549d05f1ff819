//! DescribeMirrors: the partitions that this broker leads. A client that wants all asks every broker and
//! merges, so that each partition comes once, from the one that knows its offsets. Partitions without a
//! leader are told by their coordinator, from what is recorded. A client that must miss none, though a broker
//! does not answer, asks for those that are led elsewhere as well.

use std::collections::HashMap;
use std::sync::Arc;

use common::ids::*;
use common::metadata::MetadataImage;
use common::metadata::image::{PartitionImage, TopicImage};
use common::mirror_state::MirrorState;
use protocol::ErrorCode;
use protocol::messages::{BrokerId as WireBroker, TopicName};
use protocol::mirror::describe_mirrors::{DescribedMirror, PartitionDetail, TopicPartitions};
use protocol::mirror::{DescribeMirrorsRequest, DescribeMirrorsResponse};

use crate::mirror::Mirroring;
use crate::mirror::coordinator::StateRecord;
use crate::mirror::view::ViewEntry;

use super::{bootstrap_of, text};

pub async fn handle(mirroring: &Arc<Mirroring>, request: &DescribeMirrorsRequest) -> DescribeMirrorsResponse {
    let image = mirroring.cache.image();
    let asked: Vec<String> = match &request.mirror_names {
        Some(names) if !names.is_empty() => names.iter().map(|name| name.to_string()).collect(),
        _ => image.mirrors.keys().map(|name| name.to_string()).collect(),
    };
    let mut response = DescribeMirrorsResponse::default();
    for name in asked {
        response.mirrors.push(describe(mirroring, &image, &name, request.include_led_elsewhere).await);
    }
    response
}

async fn describe(
    mirroring: &Arc<Mirroring>,
    image: &MetadataImage,
    name: &str,
    include_led_elsewhere: bool,
) -> DescribedMirror {
    let mut described = DescribedMirror { mirror_name: text(name), ..Default::default() };
    let Some(mirror) = image.mirrors.get(name) else {
        described.error_code = ErrorCode::UnknownMirror.code();
        described.error_message = Some(text(format!("there is no mirror '{name}'")));
        return described;
    };
    described.source_bootstrap = bootstrap_of(image, name).map(text);
    described.source_cluster_id = mirror.source_cluster_id.clone().map(text);
    let recorded: HashMap<TopicIdPartition, StateRecord> = if leaderless(image, name) {
        mirroring
            .states
            .recorded_here(name)
            .await
            .into_iter()
            .map(|(key, record)| (key.id(), record))
            .collect()
    } else {
        HashMap::new()
    };
    for topic_id in image.topics.by_name.values() {
        let Some(topic) = image.topic_by_id(*topic_id) else { continue };
        if topic.mirror.as_ref().is_none_or(|mirror| &*mirror.mirror != name) {
            continue;
        }
        let mut partitions = Vec::new();
        for (index, partition) in (0..).zip(topic.partitions.iter()) {
            let id = TopicIdPartition::new(topic.id, index);
            match partition.registration.leader {
                Some(leader) if leader == mirroring.broker => {
                    let entry = mirroring.manager.view().get(id);
                    partitions.push(led(topic, index, partition, entry.as_ref(), leader));
                }
                leader => match recorded.get(&id).filter(|_| leader.is_none()) {
                    Some(record) => partitions.push(leaderless_detail(topic, index, record)),
                    None if include_led_elsewhere => partitions.push(elsewhere_detail(topic, index, leader)),
                    None => {}
                },
            }
        }
        if !partitions.is_empty() {
            described.topics.push(TopicPartitions {
                topic_name: TopicName(text(&*topic.name)),
                partitions,
                topic_id: topic.id.0,
            });
        }
    }
    described.topics.extend(pending(image, name));
    described
}

fn leaderless(image: &MetadataImage, mirror: &str) -> bool {
    let of_mirror =
        |topic: &&Arc<TopicImage>| topic.mirror.as_ref().is_some_and(|topic| &*topic.mirror == mirror);
    image
        .topics
        .by_id
        .values()
        .filter(of_mirror)
        .any(|topic| topic.partitions.iter().any(|partition| partition.registration.leader.is_none()))
}

/// Not here yet (decision 17): one line says so, the same from every broker.
fn pending<'a>(image: &'a MetadataImage, mirror: &'a str) -> impl Iterator<Item = TopicPartitions> + 'a {
    let of_mirror = image.pending_mirror_topics.iter().filter(move |(_, pending)| &***pending == mirror);
    of_mirror.map(|(topic, _)| TopicPartitions {
        topic_name: TopicName(text(&**topic)),
        partitions: vec![PartitionDetail {
            state: text(MirrorState::Unknown.name()),
            reason: Some(text("waits to be created with the source's id")),
            ..Default::default()
        }],
        ..Default::default()
    })
}

fn led(
    topic: &TopicImage,
    index: i32,
    partition: &PartitionImage,
    entry: Option<&ViewEntry>,
    leader: BrokerId,
) -> PartitionDetail {
    let mut detail = PartitionDetail {
        partition_index: index,
        state: text(MirrorState::Unknown.name()),
        leader_id: WireBroker(leader.0),
        writable: topic.is_writable(index),
        ..Default::default()
    };
    if let Some(entry) = entry {
        let reading = entry.reading();
        detail.source_offset = reading.source.map_or(-1, |offset| offset.0);
        detail.destination_offset = reading.destination.map_or(-1, |offset| offset.0);
        detail.lag = reading.lag().unwrap_or(-1);
        detail.state = text(entry.report.state.name());
        detail.reason = (!entry.report.reason.is_empty()).then(|| text(entry.report.reason.clone()));
        detail.since_ms = entry.report.since_ms;
        detail.attempt = i32::try_from(entry.report.attempt).unwrap_or(i32::MAX);
        detail.next_retry_ms = entry.report.next_retry_ms;
        if entry.report.state == MirrorState::Stopped && !topic.is_writable(index) {
            detail.reason = Some(text("not writable yet: the release is not committed"));
        }
    }
    if topic.is_writable(index) {
        // The image alone tells that it is writable.
        detail.state = text(MirrorState::Stopped.name());
        detail.reason = None;
        let release = partition.mirror.release.as_ref();
        detail.last_mirrored_offset =
            release.and_then(|release| release.offset).map_or(-1, |offset| offset.0);
    }
    detail
}

/// What the image alone tells.
fn elsewhere_detail(topic: &TopicImage, index: i32, leader: Option<BrokerId>) -> PartitionDetail {
    let reason = leader.map_or_else(|| "no leader".to_owned(), |leader| format!("broker {leader} leads it"));
    let writable = topic.is_writable(index);
    let state = if writable { MirrorState::Stopped } else { MirrorState::Unknown };
    PartitionDetail {
        partition_index: index,
        state: text(state.name()),
        reason: Some(text(reason)),
        leader_id: WireBroker(leader.map_or(-1, |leader| leader.0)),
        writable,
        ..Default::default()
    }
}

fn leaderless_detail(topic: &TopicImage, index: i32, record: &StateRecord) -> PartitionDetail {
    PartitionDetail {
        partition_index: index,
        writable: topic.is_writable(index),
        state: text(record.state.name()),
        reason: Some(text("no leader; as last recorded")),
        since_ms: record.since_ms,
        attempt: i32::try_from(record.attempt).unwrap_or(i32::MAX),
        next_retry_ms: record.next_retry_ms,
        last_mirrored_offset: record.last_mirrored_offset.map_or(-1, |offset| offset.0),
        ..Default::default()
    }
}
