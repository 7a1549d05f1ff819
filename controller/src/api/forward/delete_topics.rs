//! DeleteTopics. Version 5 has error messages, 6 names topics by id or name.

use common::ids::TopicId;
use protocol::error_code::ErrorCode;
use protocol::messages::delete_topics_response::DeletableTopicResult;
use protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};

use super::{failure, refusal, text};
use crate::api::ApiContext;
use crate::control::ControlError;
use crate::control::topic::{TopicRef, delete_topics};

pub async fn handle(context: &ApiContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let mut asked: Vec<Result<TopicRef, ControlError>> =
        request.topic_names.iter().map(|name| Ok(TopicRef::Name(name.0.to_string()))).collect();
    asked.extend(request.topics.iter().map(|topic| match (&topic.name, topic.topic_id.is_nil()) {
        (Some(name), true) => Ok(TopicRef::Name(name.0.to_string())),
        (None, false) => Ok(TopicRef::Id(TopicId(topic.topic_id))),
        (Some(_), false) => Err(ControlError::new(
            ErrorCode::InvalidRequest,
            "Topic name and topic id can not both be specified.",
        )),
        (None, true) => {
            Err(ControlError::new(ErrorCode::InvalidRequest, "Neither topic name nor id were specified."))
        }
    }));
    if !context.config.delete_topic_enable {
        let disabled =
            ControlError::new(ErrorCode::TopicDeletionDisabled, ErrorCode::TopicDeletionDisabled.message());
        asked.iter_mut().for_each(|topic| *topic = Err(disabled.clone()));
    }
    let topics: Vec<TopicRef> = asked.iter().filter_map(|topic| topic.as_ref().ok().cloned()).collect();
    let outcome =
        context.controller.write("DeleteTopics", move |op| Ok(delete_topics(op.image, &topics))).await;
    if outcome.is_ok() {
        context.reports.retain_existing(&context.image());
    }
    let mut answers = outcome.as_ref().map(|committed| committed.response.iter());
    let responses = asked
        .iter()
        .map(|topic| {
            let mut result = DeletableTopicResult::default();
            match topic {
                Ok(TopicRef::Name(name)) => result.name = Some(TopicName(text(name.clone()))),
                Ok(TopicRef::Id(id)) => result.topic_id = id.0,
                Err(error) => {
                    (result.error_code, result.error_message) = refusal(error);
                    return result;
                }
            }
            match &mut answers {
                Ok(answers) => match answers.next() {
                    Some(Ok((name, id))) => {
                        result.name = Some(TopicName(text(name.to_string())));
                        result.topic_id = id.0;
                    }
                    Some(Err(error)) => (result.error_code, result.error_message) = refusal(error),
                    None => {}
                },
                Err(error) => (result.error_code, result.error_message) = failure(error),
            }
            result
        })
        .collect();
    DeleteTopicsResponse::default().with_responses(responses)
}
