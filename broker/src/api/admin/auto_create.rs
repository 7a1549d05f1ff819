//! Topics that come into being because a client asked for their metadata.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::StrBytes;
use protocol::api::ApiKey;
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::{CreateTopicsRequest, TopicName};
use protocol::{Request, Response};
use tracing::{debug, info};

use super::{Forwarded, forward};
use crate::api::context::RequestContext;
use crate::metadata::{ControllerChannel, MetadataCache};

const VERSION: i16 = 7;
/// How long the answer waits for the topic to appear: then the client needs no second request.
const APPEAR_TIMEOUT: Duration = Duration::from_millis(500);

/// Names whose creation is under way, so that a storm of Metadata requests asks once.
#[derive(Debug, Default)]
pub struct InFlight {
    names: Mutex<HashSet<Arc<str>>>,
}

impl InFlight {
    fn begin(&self, wanted: &[Arc<str>]) -> Creating<'_> {
        let mut names = self.names.lock();
        let begun = wanted.iter().filter(|name| names.insert(Arc::clone(name))).cloned().collect();
        Creating { in_flight: self, names: begun }
    }
}

/// Gives the names back however the creation ends: its future is dropped where a client disconnects.
struct Creating<'a> {
    in_flight: &'a InFlight,
    names: Vec<Arc<str>>,
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        let mut names = self.in_flight.names.lock();
        for name in &self.names {
            names.remove(name);
        }
    }
}

/// Asks the controller to create the topics with its own defaults, and waits a little for them. What
/// comes of it shows in the image; a name that is refused stays unknown.
pub async fn create_topics(
    in_flight: &InFlight,
    controller: &ControllerChannel,
    cache: &MetadataCache,
    context: &RequestContext,
    wanted: Vec<Arc<str>>,
) {
    let creating = in_flight.begin(&wanted);
    if !creating.names.is_empty() {
        request(controller, context, &creating.names).await;
    }
    drop(creating);
    let mut images = cache.watch();
    let all_here = images.wait_for(|image| wanted.iter().all(|name| image.topic(name).is_some()));
    // Neither outcome matters: the caller answers from the image as it then is.
    let _ = tokio::time::timeout(APPEAR_TIMEOUT, all_here).await;
}

async fn request(controller: &ControllerChannel, context: &RequestContext, names: &[Arc<str>]) {
    let topics = names.iter().map(|name| CreatableTopic {
        name: TopicName(StrBytes::from_string(name.to_string())),
        // The controller's own defaults.
        num_partitions: -1,
        replication_factor: -1,
        ..CreatableTopic::default()
    });
    let request = CreateTopicsRequest {
        topics: topics.collect(),
        timeout_ms: 30_000,
        ..CreateTopicsRequest::default()
    };
    let body = match protocol::message::encode_request_body(&Request::CreateTopics(request), VERSION) {
        Ok(body) => body,
        Err(error) => {
            debug!(%error, "auto-creation not written");
            return;
        }
    };
    let mut context = context.clone();
    context.header.api_version = VERSION;
    let Forwarded::Answer(answer) = forward(controller, &context, ApiKey::CreateTopics, body).await else {
        return;
    };
    let Ok(Response::CreateTopics(response)) =
        protocol::message::decode_response_body(ApiKey::CreateTopics, VERSION, answer)
    else {
        return;
    };
    for topic in response.topics {
        let name = topic.name.0;
        match topic.error_code {
            0 => {
                info!(topic = %name.as_str(), client = %context.client_address(), "topic created on first use")
            }
            error_code => {
                debug!(topic = %name.as_str(), error_code, message = ?topic.error_message, "topic not created on first use")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_asked_for_once_at_a_time_and_given_back() {
        let in_flight = InFlight::default();
        let wanted: Vec<Arc<str>> = vec!["a".into(), "b".into()];
        let first = in_flight.begin(&wanted[..1]);
        assert_eq!(first.names, ["a".into()]);
        assert_eq!(in_flight.begin(&wanted).names, ["b".into()]);
        drop(first);
        assert_eq!(in_flight.begin(&wanted).names, wanted);
    }
}
