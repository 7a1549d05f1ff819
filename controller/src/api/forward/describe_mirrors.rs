//! DescribeMirrors: what the image knows of each partition, and what its leader last reported to this
//! controller (decision 21). A partition that was not reported yet has an empty state with that reason,
//! unless the image alone tells it.

use std::sync::Arc;

use common::ids::TopicIdPartition;
use common::metadata::MetadataImage;
use common::metadata::image::{PartitionImage, TopicImage};
use common::metadata::record::{ConfigResourceType, TopicMirror};
use common::mirror_state::MirrorState;
use protocol::error_code::ErrorCode;
use protocol::messages::{BrokerId, TopicName};
use protocol::mirror::describe_mirrors::{DescribedMirror, PartitionDetail, TopicPartitions};
use protocol::mirror::{DescribeMirrorsRequest, DescribeMirrorsResponse};

use super::text;
use crate::api::ApiContext;
use crate::api::mirror_reports::MirrorReport;
use crate::control::mirror::create::BOOTSTRAP_SERVERS_CONFIG;
use crate::control::mirror::is_released;

/// Shown instead of a state.
const NOT_REPORTED: &str = "not reported yet";

pub fn handle(context: &ApiContext, request: &DescribeMirrorsRequest) -> DescribeMirrorsResponse {
    let image = context.image();
    let all = request.mirror_names.as_ref().is_none_or(Vec::is_empty);
    let names: Vec<String> = if all {
        image.mirrors.keys().map(|name| name.to_string()).collect()
    } else {
        request.mirror_names.iter().flatten().map(|name| name.to_string()).collect()
    };
    let active = context.controller.is_active();
    let mirrors = names
        .into_iter()
        .map(|name| {
            if !active {
                return refused(
                    name,
                    ErrorCode::NotController,
                    ErrorCode::NotController.message().to_owned(),
                );
            }
            if !image.mirrors.contains_key(name.as_str()) {
                let message = format!("there is no mirror '{name}'");
                return refused(name, ErrorCode::UnknownMirror, message);
            }
            describe(context, &image, &name)
        })
        .collect();
    DescribeMirrorsResponse { throttle_time_ms: 0, mirrors }
}

fn refused(name: String, code: ErrorCode, message: String) -> DescribedMirror {
    DescribedMirror {
        error_code: code.code(),
        mirror_name: text(name),
        error_message: Some(text(message)),
        ..Default::default()
    }
}

fn describe(context: &ApiContext, image: &MetadataImage, name: &str) -> DescribedMirror {
    let mut topics = Vec::new();
    for (topic_name, topic_id) in &image.topics.by_name {
        let Some(topic) = image.topic_by_id(*topic_id) else { continue };
        let Some(of) = topic.mirror.as_ref().filter(|of| &*of.mirror == name) else { continue };
        topics.push(TopicPartitions {
            topic_name: TopicName(text(topic_name.to_string())),
            topic_id: topic_id.0,
            partitions: topic
                .partitions
                .iter()
                .enumerate()
                .map(|(index, partition)| detail(context, topic, of, index as i32, partition))
                .collect(),
        });
    }
    let pending = image.pending_mirror_topics.iter().filter(|(_, mirror)| &***mirror == name);
    topics.extend(pending.map(|(topic, _)| {
        // Not here yet (decision 17): one line says so.
        let waits = PartitionDetail {
            state: text(MirrorState::Unknown.name()),
            reason: Some(text("waits to be created with the source's id")),
            ..Default::default()
        };
        TopicPartitions {
            topic_name: TopicName(text(topic.to_string())),
            partitions: vec![waits],
            ..Default::default()
        }
    }));
    DescribedMirror {
        mirror_name: text(name),
        topics,
        source_bootstrap: image
            .config(ConfigResourceType::Mirror, name)
            .and_then(|map| map.get(BOOTSTRAP_SERVERS_CONFIG))
            .map(|value| text(value.clone())),
        source_cluster_id: image
            .mirrors
            .get(name)
            .and_then(|mirror| mirror.source_cluster_id.clone())
            .map(text),
        ..Default::default()
    }
}

fn detail(
    context: &ApiContext,
    topic: &TopicImage,
    of: &TopicMirror,
    index: i32,
    partition: &PartitionImage,
) -> PartitionDetail {
    let mut detail = PartitionDetail {
        partition_index: index,
        leader_id: BrokerId(partition.registration.leader.map_or(-1, |leader| leader.0)),
        writable: topic.is_writable(index),
        ..Default::default()
    };
    let term = context.controller.status().borrow().term;
    let report = context.reports.of(term, TopicIdPartition::new(topic.id, index), of.association);
    // The release stands from its commit on; clients find the partition writable once its leader has
    // heard of it. What the leader has not told (yet, or to an earlier active controller) is no reason to
    // hide what the image says.
    let heard = |report: &Arc<MirrorReport>| {
        report.writable || partition.registration.leader != Some(report.broker_id)
    };
    detail.writable &= report.as_ref().is_none_or(heard);
    if let Some(report) = &report {
        detail.source_offset = report.source_offset;
        detail.destination_offset = report.destination_offset;
        if report.source_offset >= 0 && report.destination_offset >= 0 {
            detail.lag = (report.source_offset - report.destination_offset).max(0);
        }
        detail.state = text(report.state.name());
        detail.reason = Some(report.reason.clone()).filter(|reason| !reason.is_empty()).map(text);
        detail.since_ms = report.since_ms;
        detail.attempt = report.attempt;
        detail.next_retry_ms = report.next_retry_ms;
    } else {
        detail.reason = Some(text(NOT_REPORTED));
    }
    if is_released(partition, of) {
        // The image alone tells that it is writable, whatever the report still says.
        let release = partition.mirror.release.as_ref();
        detail.state = text(MirrorState::Stopped.name());
        detail.reason = None;
        detail.last_mirrored_offset =
            release.and_then(|release| release.offset).map_or(-1, |offset| offset.0);
    } else if report.as_ref().is_some_and(|report| report.state == MirrorState::Stopped) {
        detail.reason = Some(text("not writable yet: the release is not committed"));
    }
    detail
}
