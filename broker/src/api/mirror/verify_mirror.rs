//! VerifyMirror: compares the partitions that this broker leads with the source. A client asks the
//! leader of each; partitions led elsewhere are answered NOT_LEADER_OR_FOLLOWER.

use std::sync::Arc;

use common::ids::*;
use common::metadata::MetadataImage;
use common::metadata::image::TopicImage;
use futures::{StreamExt as _, stream};
use protocol::ErrorCode;
use protocol::mirror::verify_mirror::{VerifiedPartition, VerifiedTopic};
use protocol::mirror::{VerifyMirrorRequest, VerifyMirrorResponse};

use crate::mirror::Mirroring;
use crate::mirror::deps::LocalPartition;
use crate::mirror::source::SourceClient;
use crate::mirror::verify::policy::{self, CleaningPolicy};
use crate::mirror::verify::run::{Verified, VerifyTarget, verify_partition};

use super::text;

/// Partitions of a topic compared at a time: enough to hide the way to the source, and no more than a
/// few chunks of memory.
const AT_ONCE: usize = 4;

pub async fn handle(mirroring: &Arc<Mirroring>, request: VerifyMirrorRequest) -> VerifyMirrorResponse {
    let image = mirroring.cache.image();
    let mirror = request.mirror_name.to_string();
    let Some(client) = mirroring.manager.source(&mirror, &image) else {
        return VerifyMirrorResponse {
            error_code: ErrorCode::UnknownMirror.code(),
            error_message: Some(text(format!("there is no mirror '{mirror}'"))),
            ..Default::default()
        };
    };
    let mut response = VerifyMirrorResponse::default();
    for asked in request.topics {
        let topic = image.topic(asked.name.0.as_str());
        let of_mirror = topic.filter(|topic| topic.mirror.as_ref().is_some_and(|of| *of.mirror == *mirror));
        let source = match of_mirror {
            Some(topic) => source_policy(mirroring, &client, topic).await,
            None => CleaningPolicy::default(),
        };
        let (client, image) = (&client, &image);
        let compare = async |index| match of_mirror {
            Some(topic) => verify(mirroring, client, image, (topic, source), index).await,
            None => {
                let message = "not a topic of this mirror".to_owned();
                refused(index, ErrorCode::UnknownTopicOrPartition, message)
            }
        };
        let partitions = stream::iter(asked.partitions).map(compare).buffered(AT_ONCE).collect().await;
        response.topics.push(VerifiedTopic { name: asked.name, partitions });
    }
    response
}

/// Asked once for all of a topic's partitions.
async fn source_policy(
    mirroring: &Mirroring,
    client: &Arc<SourceClient>,
    topic: &TopicImage,
) -> CleaningPolicy {
    let (client, name) = (client.clone(), topic.name.clone());
    let asked = mirroring.runtime.spawn(async move { policy::of_source(&client, &name).await });
    asked.await.unwrap_or_default()
}

async fn verify(
    mirroring: &Arc<Mirroring>,
    client: &Arc<SourceClient>,
    image: &MetadataImage,
    (topic, source): (&TopicImage, CleaningPolicy),
    index: i32,
) -> VerifiedPartition {
    let id = TopicIdPartition::new(topic.id, index);
    let Some(known) = image.partition(id) else {
        return refused(index, ErrorCode::UnknownTopicOrPartition, "no such partition".to_owned());
    };
    let local = mirroring.replicas.partition(id).filter(|partition| partition.status().is_leader());
    let Some(local) = local else {
        return refused(index, ErrorCode::NotLeaderOrFollower, "another broker leads it".to_owned());
    };
    let release = known.mirror.release.as_ref().filter(|_| topic.is_writable(index));
    let (config, was_compacted) = local.cleaning();
    let here = CleaningPolicy {
        compacts: config.compact || was_compacted,
        delete_retention_ms: Some(config.delete_retention_ms),
    };
    let target = VerifyTarget {
        id,
        topic: topic.name.clone(),
        compaction: policy::rules(here, source, mirroring.clock.now_ms()),
        // A copy that recorded nothing shares nothing that could be told.
        until: release.map(|release| release.offset.unwrap_or(Offset::ZERO)),
    };
    let client = client.clone();
    let local: Arc<dyn LocalPartition> = local;
    let verified =
        mirroring.runtime.spawn(async move { verify_partition(&client, local, target).await }).await;
    match verified {
        Ok(Ok(verified)) => answer(index, &verified),
        Ok(Err(message)) => refused(index, ErrorCode::NetworkException, message),
        Err(_) => refused(index, ErrorCode::UnknownServerError, "the comparison was given up".to_owned()),
    }
}

fn refused(index: i32, code: ErrorCode, message: String) -> VerifiedPartition {
    VerifiedPartition {
        partition_index: index,
        error_code: code.code(),
        error_message: Some(text(message)),
        ..Default::default()
    }
}

fn answer(index: i32, verified: &Verified) -> VerifiedPartition {
    VerifiedPartition {
        partition_index: index,
        from: verified.from.0,
        to: verified.to.0,
        equal: verified.tally.equal,
        compacted: verified.tally.compacted,
        differing: verified.tally.differing,
        missing: verified.tally.missing,
        first_difference: verified.tally.first_difference.unwrap_or(-1),
        ..Default::default()
    }
}
