//! ListOffsets: offsets by time. 4 checks leader epochs, 5 knows OFFSET_NOT_AVAILABLE, 7 the offset with
//! the largest timestamp, 8, 9 and 11 positions of tiered logs, which do not exist here.

use std::collections::HashSet;

use common::ids::*;
use protocol::ErrorCode;
use protocol::messages::list_offsets_request::ListOffsetsPartition;
use protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use crate::log::TimestampedOffset;
use crate::replica::ReplicaManager;
use crate::replica::error::ReadFailure;
use crate::replica::fetch_session::PartitionKey;
use crate::replica::read::{Isolation, OffsetQuery};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

const READ_COMMITTED: i8 = 1;
const FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE: i16 = 5;
const FIRST_VERSION_WITH_LEADER_EPOCH: i16 = 4;
const NOT_FOUND: i64 = -1;

pub fn handle(replicas: &ReplicaManager, request: &ListOffsetsRequest, version: i16) -> ListOffsetsResponse {
    let isolation = if request.isolation_level == READ_COMMITTED {
        Isolation::ReadCommitted
    } else {
        Isolation::ReadUncommitted
    };
    let mut seen = HashSet::new();
    let mut twice = HashSet::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let named = (&topic.name, partition.partition_index);
            if !seen.insert(named) {
                twice.insert(named);
            }
        }
    }
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|wanted| {
            if twice.contains(&(&topic.name, wanted.partition_index)) {
                return refused(wanted.partition_index, ErrorCode::InvalidRequest);
            }
            let key = PartitionKey {
                topic_id: TopicId::ZERO,
                topic: Some(topic.name.clone()),
                partition: wanted.partition_index,
            };
            let mut answer = match look_up(replicas, &key, wanted, isolation, version) {
                Ok(found) => answered(wanted.partition_index, found),
                Err(code) => refused(wanted.partition_index, code),
            };
            if version < FIRST_VERSION_WITH_LEADER_EPOCH {
                answer.leader_epoch = LeaderEpoch::UNKNOWN.0;
            }
            answer
        });
        ListOffsetsTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

fn look_up(
    replicas: &ReplicaManager,
    key: &PartitionKey,
    wanted: &ListOffsetsPartition,
    isolation: Isolation,
    version: i16,
) -> Result<Option<TimestampedOffset>, ErrorCode> {
    let query = match wanted.timestamp {
        LATEST => OffsetQuery::Latest,
        EARLIEST | EARLIEST_LOCAL => OffsetQuery::Earliest,
        MAX_TIMESTAMP => OffsetQuery::MaxTimestamp,
        // Nothing is ever tiered, nor waits for it.
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => return Ok(None),
        timestamp if timestamp >= 0 => OffsetQuery::Timestamp(timestamp),
        _ => return Err(ErrorCode::UnsupportedVersion),
    };
    let leader_epoch = (wanted.current_leader_epoch >= 0).then_some(LeaderEpoch(wanted.current_leader_epoch));
    let partition = replicas.resolve(key).map_err(|error| error.code())?;
    partition.list_offset(leader_epoch, query, isolation).map_err(|failure| match failure {
        ReadFailure::OffsetNotAvailable if version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE => {
            ErrorCode::LeaderNotAvailable
        }
        failure => failure.code(),
    })
}

fn answered(partition: i32, found: Option<TimestampedOffset>) -> ListOffsetsPartitionResponse {
    let (timestamp, offset, epoch) = found.map_or((NOT_FOUND, NOT_FOUND, -1), |found| {
        (found.timestamp_ms, found.offset.0, found.leader_epoch.0)
    });
    ListOffsetsPartitionResponse::default()
        .with_partition_index(partition)
        .with_timestamp(timestamp)
        .with_offset(offset)
        .with_leader_epoch(epoch)
}

fn refused(partition: i32, code: ErrorCode) -> ListOffsetsPartitionResponse {
    answered(partition, None).with_error_code(code.code())
}
