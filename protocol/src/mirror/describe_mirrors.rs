//! DescribeMirrors: each partition's state, offsets and lag.

use kafka_protocol::messages::{BrokerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::wire::structure;

structure! {
    pub struct DescribeMirrorsRequest {
        /// Null or empty: all.
        mirror_names: Option<Vec<StrBytes>>,
        include_authorized_operations: bool,
    }
    tagged {
        /// A broker names the partitions that it does not lead as well, without state and offsets.
        0 => include_led_elsewhere: bool,
    }

    pub struct DescribeMirrorsResponse {
        throttle_time_ms: i32,
        mirrors: Vec<DescribedMirror>,
    }

    pub struct DescribedMirror {
        error_code: i16,
        mirror_name: StrBytes,
        topics: Vec<TopicPartitions>,
        /// A bit field; the lowest number where it was not asked for.
        authorized_operations: i32 = i32::MIN,
    }
    tagged {
        0 => error_message: Option<StrBytes>,
        1 => source_bootstrap: Option<StrBytes>,
        /// Null before the first contact.
        2 => source_cluster_id: Option<StrBytes>,
    }

    pub struct TopicPartitions {
        topic_name: TopicName,
        partitions: Vec<PartitionDetail>,
    }
    tagged {
        /// Zero while the topic is not here yet.
        0 => topic_id: Uuid,
    }

    pub struct PartitionDetail {
        partition_index: i32,
        source_offset: i64 = -1,
        destination_offset: i64 = -1,
        lag: i64 = -1,
        state: StrBytes,
    }
    tagged {
        /// Why it is FAILED, or what it waits for.
        0 => reason: Option<StrBytes>,
        1 => since_ms: i64 = -1,
        2 => attempt: i32,
        3 => next_retry_ms: i64 = -1,
        4 => last_mirrored_offset: i64 = -1,
        5 => leader_id: BrokerId = BrokerId(-1),
        /// Clients may write: the release of the newest association is in the metadata image.
        6 => writable: bool,
    }
}
