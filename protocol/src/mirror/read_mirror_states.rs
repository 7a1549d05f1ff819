//! ReadMirrorStates: what a mirror coordinator has recorded, asked by a partition's leader.

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::wire::structure;

structure! {
    pub struct ReadMirrorStatesRequest {
        mirror_name: StrBytes,
        topics: Vec<TopicState>,
        need_partition_states: bool = true,
    }

    pub struct TopicState {
        name: TopicName,
        partitions: Vec<PartitionState>,
    }

    pub struct PartitionState {
        partition_index: i32,
    }
    tagged {
        /// Zero: not known.
        0 => topic_id: Uuid,
        /// Of the asking leader; -1: asked by somebody else.
        1 => leader_epoch: i32 = -1,
    }

    pub struct ReadMirrorStatesResponse {
        throttle_time_ms: i32,
        error_code: i16,
        topics: Vec<ReadTopicState>,
    }

    pub struct ReadTopicState {
        name: TopicName,
        partitions: Vec<ReadPartitionState>,
    }

    pub struct ReadPartitionState {
        partition_index: i32,
        last_mirrored_offset: i64 = -1,
        /// `MirrorState::code`: UNKNOWN where nothing is recorded.
        state: i8 = 16,
        error_code: i16,
    }
    // The same numbers as in WriteMirrorStates.
    tagged {
        0 => topic_id: Uuid,
        /// Under which the state was written.
        1 => leader_epoch: i32 = -1,
        /// To be sent as expected with the next write.
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
}
