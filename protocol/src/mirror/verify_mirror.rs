//! VerifyMirror (ours): the leaders of mirror partitions compare their logs with the source's.

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;

use crate::wire::structure;

structure! {
    pub struct VerifyMirrorRequest {
        mirror_name: StrBytes,
        topics: Vec<VerifyTopic>,
    }

    pub struct VerifyTopic {
        name: TopicName,
        partitions: Vec<i32>,
    }

    pub struct VerifyMirrorResponse {
        throttle_time_ms: i32,
        error_code: i16,
        error_message: Option<StrBytes>,
        topics: Vec<VerifiedTopic>,
    }

    pub struct VerifiedTopic {
        name: TopicName,
        partitions: Vec<VerifiedPartition>,
    }

    /// Offsets in the compared range by outcome: only differing and missing ones are failures.
    pub struct VerifiedPartition {
        partition_index: i32,
        error_code: i16,
        error_message: Option<StrBytes>,
        /// The higher log start of the two.
        from: i64,
        /// The lower end of the two, exclusive.
        to: i64,
        equal: i64,
        /// Held by one side only, and shown to be what the other one's cleaner has dropped.
        compacted: i64,
        differing: i64,
        missing: i64,
        /// -1: none.
        first_difference: i64 = -1,
    }
}
