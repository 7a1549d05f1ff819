//! ListSourceTopics (ours): the topics of a mirror's source whose names match, asked by a broker with
//! the mirror's own credentials, so that an operator's command never needs the source.

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::wire::structure;

structure! {
    pub struct ListSourceTopicsRequest {
        mirror_name: StrBytes,
        /// Regular expressions over the whole name; a topic that matches one is listed.
        patterns: Vec<StrBytes>,
    }

    pub struct ListSourceTopicsResponse {
        throttle_time_ms: i32,
        error_code: i16,
        error_message: Option<StrBytes>,
        topics: Vec<SourceTopic>,
    }

    pub struct SourceTopic {
        name: TopicName,
        topic_id: Uuid,
        partitions: i32,
    }
}
