//! AddTopicsToMirror: topics begin to be mirrored, or begin again. The KIP's response has one result for
//! the whole call; one for each topic follows in a tagged field.

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::wire::structure;

structure! {
    pub struct AddTopicsToMirrorRequest {
        topics: Vec<TopicState>,
    }
    tagged {
        /// Also for partitions that wait uncut: cut to 0 and copy again (`mirror add --recopy`).
        0 => recopy: bool,
    }

    pub struct TopicState {
        /// Zero: not known.
        topic_id: Uuid,
        topic_name: TopicName,
        mirror_name: Option<StrBytes>,
    }

    pub struct AddTopicsToMirrorResponse {
        throttle_time_ms: i32,
        topic_id: Uuid,
        error_code: i16,
        error_message: Option<StrBytes>,
    }
    tagged {
        /// In the order of the request.
        0 => topics: Vec<TopicResult>,
    }

    pub struct TopicResult {
        topic_id: Uuid,
        topic_name: TopicName,
        error_code: i16,
        error_message: Option<StrBytes>,
    }
}
