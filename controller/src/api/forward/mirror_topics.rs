//! AddTopicsToMirror and RemoveTopicsFromMirror. The head tells the first refusal, since the call is
//! refused as a whole; the results of the topics follow in a tagged field.

use common::ids::TopicId;
use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::TopicName;
use protocol::mirror::add_topics_to_mirror::TopicResult;
use protocol::mirror::{
    AddTopicsToMirrorRequest, AddTopicsToMirrorResponse, RemoveTopicsFromMirrorRequest,
    RemoveTopicsFromMirrorResponse,
};
use uuid::Uuid;

use super::{failure, refusal};
use crate::api::ApiContext;
use crate::control::mirror::topics::{TopicResults, TopicState, add_topics, remove_topics};
use crate::quorum::{Committed, WriteError};

pub async fn add(context: &ApiContext, request: AddTopicsToMirrorRequest) -> AddTopicsToMirrorResponse {
    let recopy = request.recopy;
    let names: Vec<(Uuid, TopicName)> =
        request.topics.iter().map(|topic| (topic.topic_id, topic.topic_name.clone())).collect();
    let topics: Vec<TopicState> = request
        .topics
        .into_iter()
        .map(|topic| TopicState {
            topic_id: TopicId(topic.topic_id),
            name: topic.topic_name.0.to_string(),
            mirror: topic.mirror_name.map(|name| name.to_string()),
        })
        .collect();
    let outcome = context
        .controller
        .write("AddTopicsToMirror", move |op| Ok(add_topics(op.image, &topics, recopy)))
        .await;
    let head = head(&outcome, &names);
    AddTopicsToMirrorResponse {
        throttle_time_ms: 0,
        topic_id: head.topic_id,
        error_code: head.error_code,
        error_message: head.error_message,
        topics: results(&outcome, &names),
    }
}

pub async fn remove(
    context: &ApiContext,
    request: RemoveTopicsFromMirrorRequest,
) -> RemoveTopicsFromMirrorResponse {
    let mirror = request.mirror_name.to_string();
    let names: Vec<(Uuid, TopicName)> =
        request.topics.iter().map(|topic| (topic.topic_id, topic.topic_name.clone())).collect();
    let topics: Vec<TopicState> = request
        .topics
        .into_iter()
        .map(|topic| TopicState {
            topic_id: TopicId(topic.topic_id),
            name: topic.topic_name.0.to_string(),
            mirror: None,
        })
        .collect();
    let outcome = context
        .controller
        .write("RemoveTopicsFromMirror", move |op| remove_topics(op.image, &mirror, &topics))
        .await;
    let head = head(&outcome, &names);
    RemoveTopicsFromMirrorResponse {
        throttle_time_ms: 0,
        topic_id: head.topic_id,
        error_code: head.error_code,
        error_message: head.error_message,
        topics: results(&outcome, &names),
    }
}

type Outcome = Result<Committed<TopicResults>, WriteError>;

fn result(id: Uuid, name: TopicName, error_code: i16, error_message: Option<StrBytes>) -> TopicResult {
    TopicResult { topic_id: id, topic_name: name, error_code, error_message }
}

fn results(outcome: &Outcome, names: &[(Uuid, TopicName)]) -> Vec<TopicResult> {
    names
        .iter()
        .enumerate()
        .map(|(index, (id, name))| match outcome {
            Ok(committed) => match committed.response.get(index) {
                Some(Ok(known)) => result(known.0, name.clone(), 0, None),
                Some(Err(error)) => {
                    let (code, message) = refusal(error);
                    result(*id, name.clone(), code, message)
                }
                None => result(*id, name.clone(), 0, None),
            },
            Err(error) => {
                let (code, message) = failure(error);
                result(*id, name.clone(), code, message)
            }
        })
        .collect()
}

/// The first topic that was refused for a reason of its own; the first topic where none was.
fn head(outcome: &Outcome, names: &[(Uuid, TopicName)]) -> TopicResult {
    if let Err(error) = outcome {
        let (code, message) = failure(error);
        return result(Uuid::nil(), TopicName::default(), code, message);
    }
    let all = results(outcome, names);
    let first = all.iter().position(|topic| {
        topic.error_code != 0 && topic.error_code != ErrorCode::OperationNotAttempted.code()
    });
    all.into_iter().nth(first.unwrap_or(0)).unwrap_or_default()
}
