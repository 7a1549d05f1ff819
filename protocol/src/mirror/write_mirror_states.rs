//! WriteMirrorStates: a partition's leader has the mirror coordinator record a state. Answered once it
//! is replicated. Fenced by leader epoch, state epoch and association (decision 16).

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::wire::structure;

structure! {
    pub struct WriteMirrorStatesRequest {
        mirror_name: StrBytes,
        topics_updated: Vec<TopicState>,
        removed_topics: Vec<StrBytes>,
    }

    pub struct TopicState {
        name: TopicName,
        partitions: Vec<PartitionState>,
    }

    pub struct PartitionState {
        partition_index: i32,
        last_mirrored_offset: i64 = -1,
        /// `MirrorState::code`.
        state: i8,
    }
    // The same numbers as in ReadMirrorStates.
    tagged {
        0 => topic_id: Uuid,
        1 => leader_epoch: i32 = -1,
        /// Expected, as returned by the last read or write.
        2 => state_epoch: i32 = -1,
        3 => association: i64 = -1,
        4 => reason: Option<StrBytes>,
        5 => since_ms: i64 = -1,
        6 => attempt: i32,
        7 => next_retry_ms: i64 = -1,
        /// The newest of the source's cut ids that the association has checked (decision 20).
        8 => checked_cut_id: i64 = -1,
        /// Only with FAILED: the state that failed, to which a retry returns.
        9 => failed_state: i8 = 16,
    }

    pub struct WriteMirrorStatesResponse {
        throttle_time_ms: i32,
        error_code: i16,
        topics: Vec<WrittenTopic>,
    }

    pub struct WrittenTopic {
        name: TopicName,
        partitions: Vec<WrittenPartition>,
    }

    pub struct WrittenPartition {
        partition_index: i32,
        error_code: i16,
    }
    tagged {
        0 => topic_id: Uuid,
        /// To be sent with the next write; with an error, what is recorded.
        2 => state_epoch: i32 = -1,
    }
}
