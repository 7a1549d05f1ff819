//! WriteMirrorStates: records states in this broker's shards of the mirror coordinator; answered when
//! they are on all in-sync replicas. Fenced by leader epoch, association and state epoch (decision 16).

use std::sync::Arc;

use common::ids::*;
use protocol::ErrorCode;
use protocol::messages::TopicName;
use protocol::mirror::write_mirror_states::{WrittenPartition, WrittenTopic};
use protocol::mirror::{WriteMirrorStatesRequest, WriteMirrorStatesResponse};

use crate::mirror::Mirroring;
use crate::mirror::coordinator::StateKey;
use crate::mirror::coordinator::codec::{coordinator_code, from_write_state, refusal_code};
use crate::mirror::deps::StateWrite;

use super::read_mirror_states::resolve;
use super::text;

pub async fn handle(
    mirroring: &Arc<Mirroring>,
    request: WriteMirrorStatesRequest,
) -> WriteMirrorStatesResponse {
    let image = mirroring.cache.image();
    let mirror: Arc<str> = Arc::from(request.mirror_name.as_str());
    let mut response = WriteMirrorStatesResponse::default();
    if !image.mirrors.contains_key(&mirror) {
        response.error_code = ErrorCode::UnknownMirror.code();
        return response;
    }
    // What comes together is committed together: one by one, each would wait for its own replication.
    let mut writes = Vec::new();
    let mut places = Vec::new();
    for topic in request.topics_updated {
        let name: Arc<str> = Arc::from(topic.name.0.as_str());
        let mut answered = Vec::new();
        for asked in &topic.partitions {
            let refused = |code: ErrorCode| WrittenPartition {
                partition_index: asked.partition_index,
                error_code: code.code(),
                topic_id: asked.topic_id,
                ..Default::default()
            };
            match resolve(&image, &name, TopicId(asked.topic_id)) {
                Err(code) => answered.push(refused(code)),
                Ok(topic_id) => match from_write_state(name.clone(), asked) {
                    None => answered.push(refused(ErrorCode::InvalidRequest)),
                    Some((record, expected)) => {
                        let partition = asked.partition_index;
                        let key = StateKey { mirror: mirror.clone(), topic_id, partition };
                        places.push((response.topics.len(), key.clone()));
                        writes.push(StateWrite { key, record, expected });
                    }
                },
            }
        }
        response.topics.push(WrittenTopic { name: TopicName(text(&*name)), partitions: answered });
    }
    let results = mirroring.states.write_here(writes).await;
    for ((place, key), result) in places.into_iter().zip(results) {
        let mut written = WrittenPartition {
            partition_index: key.partition,
            topic_id: key.topic_id.0,
            ..Default::default()
        };
        match result {
            Ok(Ok(epoch)) => written.state_epoch = epoch.0,
            Ok(Err(refusal)) => written.error_code = refusal_code(&refusal).code(),
            Err(error) => written.error_code = coordinator_code(&error).code(),
        }
        if let Some(topic) = response.topics.get_mut(place) {
            topic.partitions.push(written);
        }
    }
    // Only what is gone is forgotten: a state that is taken from a living topic would be made anew.
    let gone: Vec<String> = request
        .removed_topics
        .iter()
        .map(|name| name.to_string())
        .filter(|name| image.topic(name).is_none())
        .collect();
    if !gone.is_empty()
        && let Err(error) = mirroring.states.remove_topics_here(&mirror, &gone).await
    {
        response.error_code = coordinator_code(&error).code();
    }
    response
}
