//! ReadMirrorStates: what this broker's shards of the mirror coordinator have recorded.

use std::sync::Arc;

use common::ids::*;
use common::metadata::MetadataImage;
use protocol::ErrorCode;
use protocol::messages::TopicName;
use protocol::mirror::read_mirror_states::{ReadPartitionState, ReadTopicState};
use protocol::mirror::{ReadMirrorStatesRequest, ReadMirrorStatesResponse};

use crate::mirror::Mirroring;
use crate::mirror::coordinator::StateKey;
use crate::mirror::coordinator::service::read_result;

use super::text;

/// The id a partition is asked for by; zero means: not known, the name has to do.
pub(super) fn resolve(image: &MetadataImage, name: &str, topic_id: TopicId) -> Result<TopicId, ErrorCode> {
    let by_name = image.topic(name).map(|topic| topic.id);
    match (topic_id.is_zero(), by_name) {
        (true, Some(id)) => Ok(id),
        (true, None) => Err(ErrorCode::UnknownTopicOrPartition),
        (false, Some(id)) if !name.is_empty() && id != topic_id => Err(ErrorCode::InconsistentTopicId),
        (false, _) => Ok(topic_id),
    }
}

pub async fn handle(
    mirroring: &Arc<Mirroring>,
    request: ReadMirrorStatesRequest,
) -> ReadMirrorStatesResponse {
    let image = mirroring.cache.image();
    let mirror: Arc<str> = Arc::from(request.mirror_name.as_str());
    let mut response = ReadMirrorStatesResponse::default();
    if !image.mirrors.contains_key(&mirror) {
        response.error_code = ErrorCode::UnknownMirror.code();
        return response;
    }
    // All at once: each read may have to wait until what it could see is committed.
    let mut keys = Vec::new();
    let mut places = Vec::new();
    for topic in request.topics {
        let name = topic.name.0.to_string();
        let mut answered = Vec::new();
        for asked in topic.partitions {
            match resolve(&image, &name, TopicId(asked.topic_id)) {
                Ok(topic_id) => {
                    places.push(response.topics.len());
                    keys.push(StateKey {
                        mirror: mirror.clone(),
                        topic_id,
                        partition: asked.partition_index,
                    });
                }
                Err(code) => answered.push(ReadPartitionState {
                    partition_index: asked.partition_index,
                    error_code: code.code(),
                    topic_id: asked.topic_id,
                    ..Default::default()
                }),
            }
        }
        response.topics.push(ReadTopicState { name: TopicName(text(name)), partitions: answered });
    }
    let results = mirroring.states.read_here(keys.clone()).await;
    for ((place, key), result) in places.into_iter().zip(&keys).zip(results) {
        let (recorded_name, state) = read_result(key, result);
        let Some(topic) = response.topics.get_mut(place) else { continue };
        if let Some(recorded_name) = recorded_name.filter(|_| topic.name.0.is_empty()) {
            topic.name = TopicName(text(recorded_name.to_string()));
        }
        topic.partitions.push(state);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_zero_id_means_unknown_and_another_id_is_inconsistent() {
        let mut image = MetadataImage::default();
        let (here, other) = (TopicId(Uuid::from_bytes([1; 16])), TopicId(Uuid::from_bytes([2; 16])));
        let topic = common::metadata::image::TopicImage {
            id: here,
            name: "t".into(),
            created_at: MetadataOffset(1),
            partitions: Default::default(),
            mirror: None,
        };
        image.topics.by_name.insert("t".into(), here);
        image.topics.by_id.insert(here, Arc::new(topic));
        assert_eq!(resolve(&image, "t", TopicId::ZERO), Ok(here));
        assert_eq!(resolve(&image, "t", here), Ok(here));
        assert_eq!(resolve(&image, "t", other), Err(ErrorCode::InconsistentTopicId));
        assert_eq!(resolve(&image, "u", TopicId::ZERO), Err(ErrorCode::UnknownTopicOrPartition));
        assert_eq!(resolve(&image, "", other), Ok(other));
    }
}
