//! LastMirroredOffsets (decision 12): from the committed image, after the quorum has confirmed that no
//! other controller is active.

use common::ids::TopicId;
use protocol::error_code::ErrorCode;
use protocol::mirror::last_mirrored_offsets::{OffsetResponsePartition, OffsetResponseTopic};
use protocol::mirror::{LastMirroredOffsetsRequest, LastMirroredOffsetsResponse};

use super::text;
use crate::api::ApiContext;
use crate::control::mirror::last_mirrored::{Answer, Asker, Question, last_mirrored_offset};

pub async fn handle(
    context: &ApiContext,
    request: LastMirroredOffsetsRequest,
) -> LastMirroredOffsetsResponse {
    let mut response = LastMirroredOffsetsResponse::default();
    // A deposed controller must not answer from an old image (counterexample 29).
    if !context.controller.is_active() || context.raft.read_index().await.is_err() {
        let code = ErrorCode::NotController;
        response.error_code = code.code();
        response.error_message = Some(text(code.message()));
        return response;
    }
    let image = context.image();
    let asker = match request.cluster_id {
        Some(id) => Asker::Cluster(id.to_string()),
        None => Asker::MirrorName(request.mirror_name.to_string()),
    };
    response.topics = request
        .topics
        .into_iter()
        .map(|topic| {
            let mut answered = OffsetResponseTopic::default();
            let name = topic.name.0.to_string();
            answered.topic_id = image.topic(&name).map_or(topic.topic_id, |topic| topic.id.0);
            answered.name = topic.name;
            answered.partitions = topic
                .partitions
                .iter()
                .map(|asked| {
                    let question = Question {
                        topic: name.clone(),
                        topic_id: TopicId(topic.topic_id),
                        partition: asked.partition_index,
                        last_seen_cut_id: asked.last_seen_cut_id,
                    };
                    let answer = last_mirrored_offset(&image, &asker, &question);
                    partition_answer(asked.partition_index, answer)
                })
                .collect();
            answered
        })
        .collect();
    response
}

/// The answer for one partition, as it goes over the wire.
pub fn partition_answer(partition_index: i32, answer: Answer) -> OffsetResponsePartition {
    let mut partition = OffsetResponsePartition {
        partition_index,
        newest_cut_id: answer.newest_cut_id.map_or(-1, |id| id.0),
        lowest_cut_offset: answer.lowest_cut_since.map_or(-1, |offset| offset.0),
        checked_cut_id: answer.checked_cut_id.unwrap_or(-1),
        leader_epoch: answer.leader_epoch.map_or(-1, |epoch| epoch.0),
        ..Default::default()
    };
    match (answer.error, answer.offset) {
        (Some(error), _) => {
            partition.last_mirrored_offset = -1;
            partition.error_code = error.code.code();
            partition.error_message = Some(text(error.message));
        }
        (None, Some(offset)) => {
            partition.last_mirrored_offset = offset.0;
            partition.recorded = true;
        }
        // On the wire "nothing recorded" is 0 (decision 9).
        (None, None) => partition.last_mirrored_offset = 0,
    }
    partition
}
