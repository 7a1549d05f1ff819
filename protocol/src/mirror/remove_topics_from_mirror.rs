//! RemoveTopicsFromMirror: failover. The answer says that it is committed, not that it is done. The
//! KIP's response has one result for the whole call; one for each topic follows in a tagged field.

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

pub use super::add_topics_to_mirror::TopicResult;
use crate::wire::structure;

structure! {
    pub struct RemoveTopicsFromMirrorRequest {
        mirror_name: StrBytes,
        topics: Vec<TopicState>,
    }

    pub struct TopicState {
        /// Zero: not known.
        topic_id: Uuid,
        topic_name: TopicName,
    }

    pub struct RemoveTopicsFromMirrorResponse {
        throttle_time_ms: i32,
        topic_id: Uuid,
        error_code: i16,
        error_message: Option<StrBytes>,
    }
    tagged {
        /// In the order of the request.
        0 => topics: Vec<TopicResult>,
    }
}
