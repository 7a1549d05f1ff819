//! LastMirroredOffsets: where the asker's partitions are to be cut before they copy from the answerer.
//! Asked by a partition's leader in the mirroring cluster, answered by the source's active controller
//! (decision 12).

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::wire::structure;

structure! {
    pub struct LastMirroredOffsetsRequest {
        mirror_name: StrBytes,
        topics: Vec<TopicState>,
    }
    tagged {
        /// Of the asker. Null: asked by mirror name, as in the KIP.
        0 => cluster_id: Option<StrBytes>,
    }

    pub struct TopicState {
        name: TopicName,
        partitions: Vec<PartitionState>,
    }
    tagged {
        /// Zero: not known.
        0 => topic_id: Uuid,
    }

    pub struct PartitionState {
        partition_index: i32,
    }
    tagged {
        /// The last of the answerer's cut ids that the asker has seen; -1: none.
        0 => last_seen_cut_id: i64 = -1,
    }

    pub struct LastMirroredOffsetsResponse {
        throttle_time_ms: i32,
        error_code: i16,
        topics: Vec<OffsetResponseTopic>,
    }
    tagged {
        0 => error_message: Option<StrBytes>,
    }

    pub struct OffsetResponseTopic {
        name: TopicName,
        partitions: Vec<OffsetResponsePartition>,
    }
    tagged {
        0 => topic_id: Uuid,
    }

    pub struct OffsetResponsePartition {
        partition_index: i32,
        /// The next offset to be written when the copy was released; 0 where nothing is recorded.
        last_mirrored_offset: i64,
        error_code: i16,
    }
    tagged {
        // The cut ids hold with an error too.
        /// The answerer's newest cut id; -1: none.
        0 => newest_cut_id: i64 = -1,
        /// The lowest offset that the answerer cut to since the id that was sent; -1: none.
        1 => lowest_cut_offset: i64 = -1,
        /// The newest of the asker's cut ids that the answerer's association had checked; -1: none.
        2 => checked_cut_id: i64 = -1,
        /// Tells an offset of 0 from nothing recorded.
        3 => recorded: bool,
        4 => error_message: Option<StrBytes>,
        /// Of the partition, as the answerer's controllers have it; -1: not told.
        5 => leader_epoch: i32 = -1,
    }
}
