//! Fetch. 7 brings sessions, 9 leader epochs, 11 racks, 12 diverging epochs (flexible), 13 topic ids,
//! 15 the follower's epoch, 16 the address of a new leader.
//!
//! The answer is a few header bytes and ranges of segment files: batches are neither decoded nor copied.

use std::sync::Arc;
use std::time::Duration;

use common::ids::*;
use common::metadata::MetadataImage;
use common::network::{Chunk, Reply};
use protocol::fetch::{Piece, RecordsPlaceholder, encode_fetch_response_frame};
use protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use protocol::messages::{
    BrokerId as WireBrokerId, FetchRequest, FetchResponse, ProducerId as WireProducerId, TopicName,
};
use tracing::error;

use super::context::RequestContext;
use super::current_leader::{CurrentLeaders, leads_elsewhere};
use crate::log::LogSlice;
use crate::replica::ReplicaManager;
use crate::replica::error::ReadFailure;
use crate::replica::fetch::{FetchParams, SessionMetadata};
use crate::replica::fetch_session::{FetchPartition, FetchReader, FetchedPartition, PartitionKey};
use crate::replica::read::{Isolation, ReadResult};

const FIRST_VERSION_WITH_SESSION: i16 = 7;
const FIRST_VERSION_WITH_RACK: i16 = 11;
const FIRST_VERSION_WITH_TOPIC_ID: i16 = 13;
const FIRST_VERSION_WITH_REPLICA_STATE: i16 = 15;
const READ_COMMITTED: i8 = 1;

pub async fn handle(
    replicas: &Arc<ReplicaManager>,
    context: &RequestContext,
    request: FetchRequest,
) -> Reply {
    let version = context.version();
    let params = params(&request, version);
    let session = if version >= FIRST_VERSION_WITH_SESSION {
        SessionMetadata { session_id: request.session_id, session_epoch: request.session_epoch }
    } else {
        SessionMetadata::NONE
    };
    let (partitions, forgotten) = asked(request, version);
    let is_follower = matches!(params.reader, FetchReader::Follower { .. });
    let answer = replicas.fetch(params, session, partitions, forgotten).await;

    let image = replicas.image();
    let mut encoder = Encoder {
        image: &image,
        listener_name: context.listener_name(),
        is_follower,
        leaders: CurrentLeaders::default(),
        topics: Vec::new(),
        slices: Vec::new(),
    };
    answer.partitions.into_iter().for_each(|fetched| encoder.partition(fetched));
    let Encoder { leaders, topics, slices, .. } = encoder;
    let response = FetchResponse::default()
        .with_error_code(answer.error.code())
        .with_session_id(answer.session_id)
        .with_responses(topics)
        .with_node_endpoints(leaders.endpoints(|id, host, port, rack| {
            NodeEndpoint::default().with_node_id(id).with_host(host).with_port(port).with_rack(rack)
        }));
    splice(&response, version, context.header.correlation_id, slices)
}

fn params(request: &FetchRequest, version: i16) -> FetchParams {
    let (replica_id, replica_epoch) = if version >= FIRST_VERSION_WITH_REPLICA_STATE {
        (request.replica_state.replica_id.0, request.replica_state.replica_epoch)
    } else {
        (request.replica_id.0, -1)
    };
    let isolation = if request.isolation_level == READ_COMMITTED {
        Isolation::ReadCommitted
    } else {
        Isolation::ReadUncommitted
    };
    FetchParams {
        reader: if replica_id >= 0 {
            FetchReader::Follower {
                broker_id: BrokerId(replica_id),
                broker_epoch: BrokerEpoch(replica_epoch),
            }
        } else {
            FetchReader::Consumer(isolation)
        },
        // Before racks were known a consumer would not understand that a follower answers.
        rack: (replica_id < 0 && version >= FIRST_VERSION_WITH_RACK).then(|| request.rack_id.clone()),
        min_bytes: usize::try_from(request.min_bytes).unwrap_or(0),
        max_bytes: usize::try_from(request.max_bytes).unwrap_or(0),
        max_wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
    }
}

fn asked(request: FetchRequest, version: i16) -> (Vec<FetchPartition>, Vec<PartitionKey>) {
    let by_id = version >= FIRST_VERSION_WITH_TOPIC_ID;
    let key = |topic_id: uuid::Uuid, topic: &TopicName, partition: i32| PartitionKey {
        topic_id: TopicId(topic_id),
        topic: (!by_id).then(|| topic.clone()),
        partition,
    };
    let epoch = |epoch: i32| (epoch >= 0).then_some(LeaderEpoch(epoch));
    let mut partitions = Vec::new();
    for topic in request.topics {
        for wanted in topic.partitions {
            partitions.push(FetchPartition {
                key: key(topic.topic_id, &topic.topic, wanted.partition),
                fetch_offset: Offset(wanted.fetch_offset),
                log_start_offset: Offset(wanted.log_start_offset),
                leader_epoch: epoch(wanted.current_leader_epoch),
                last_fetched_epoch: epoch(wanted.last_fetched_epoch),
                max_bytes: usize::try_from(wanted.partition_max_bytes).unwrap_or(0),
            });
        }
    }
    let mut forgotten = Vec::new();
    for topic in request.forgotten_topics_data {
        forgotten
            .extend(topic.partitions.iter().map(|partition| key(topic.topic_id, &topic.topic, *partition)));
    }
    (partitions, forgotten)
}

struct Encoder<'a> {
    image: &'a MetadataImage,
    listener_name: &'a str,
    is_follower: bool,
    leaders: CurrentLeaders,
    topics: Vec<FetchableTopicResponse>,
    slices: Vec<Option<LogSlice>>,
}

impl Encoder<'_> {
    fn partition(&mut self, fetched: FetchedPartition) {
        let FetchedPartition { key, result } = fetched;
        let (data, slice) = match result {
            Ok(read) => found(key.partition, read),
            Err(failure) => (self.refused(&key, &failure), None),
        };
        self.slices.push(slice);
        let name = key.topic.clone().unwrap_or_default();
        let is_same =
            |topic: &FetchableTopicResponse| topic.topic_id == key.topic_id.0 && topic.topic == name;
        match self.topics.last_mut() {
            Some(topic) if is_same(topic) => topic.partitions.push(data),
            _ => self.topics.push(
                FetchableTopicResponse::default()
                    .with_topic(name)
                    .with_topic_id(key.topic_id.0)
                    .with_partitions(vec![data]),
            ),
        }
    }

    fn refused(&mut self, key: &PartitionKey, failure: &ReadFailure) -> PartitionData {
        let code = failure.code();
        let mut data = partition_data(key.partition).with_error_code(code.code());
        if let ReadFailure::OutOfRange { log_start_offset, .. } = failure
            && self.is_follower
        {
            // Where the follower has to start instead.
            data.log_start_offset = log_start_offset.0;
        }
        if leads_elsewhere(code) {
            let topic_id = match &key.topic {
                Some(name) => self.image.topic(&name.0).map(|topic| topic.id),
                None => Some(key.topic_id),
            };
            let id = topic_id.map(|topic_id| TopicIdPartition::new(topic_id, key.partition));
            if let Some((leader, epoch)) =
                id.and_then(|id| self.leaders.of(self.image, id, self.listener_name))
            {
                data.current_leader =
                    LeaderIdAndEpoch::default().with_leader_id(leader).with_leader_epoch(epoch);
            }
        }
        data
    }
}

fn partition_data(partition: i32) -> PartitionData {
    PartitionData::default()
        .with_partition_index(partition)
        .with_high_watermark(-1)
        .with_last_stable_offset(-1)
        .with_log_start_offset(-1)
        .with_aborted_transactions(None)
}

fn found(partition: i32, read: ReadResult) -> (PartitionData, Option<LogSlice>) {
    let mut data = partition_data(partition)
        .with_high_watermark(read.high_watermark.0)
        .with_last_stable_offset(read.last_stable_offset.0)
        .with_log_start_offset(read.log_start_offset.0);
    if let Some(replica) = read.preferred_read_replica {
        data.preferred_read_replica = WireBrokerId(replica.0);
    }
    if let Some(diverging) = read.diverging {
        data.diverging_epoch =
            EpochEndOffset::default().with_epoch(diverging.epoch.0).with_end_offset(diverging.end_offset.0);
    }
    data.aborted_transactions = read.aborted.map(|aborted| {
        let transaction = |transaction: crate::log::AbortedTransaction| {
            AbortedTransaction::default()
                .with_producer_id(WireProducerId(transaction.producer_id.0))
                .with_first_offset(transaction.first_offset.0)
        };
        aborted.into_iter().map(transaction).collect()
    });
    (data, read.records)
}

fn splice(
    response: &FetchResponse,
    version: i16,
    correlation_id: i32,
    mut slices: Vec<Option<LogSlice>>,
) -> Reply {
    let placeholders: Vec<RecordsPlaceholder> = slices
        .iter()
        .map(|slice| RecordsPlaceholder { len: slice.as_ref().map_or(0, |slice| slice.length) })
        .collect();
    let pieces = match encode_fetch_response_frame(response, version, correlation_id, &placeholders) {
        Ok(pieces) => pieces,
        Err(reason) => {
            error!(%reason, "Fetch response cannot be written, connection closed");
            return Reply::Close;
        }
    };
    let chunk = |piece: Piece| match piece {
        Piece::Bytes(bytes) => Some(Chunk::Bytes(bytes)),
        Piece::Records(place) => slices.get_mut(place).and_then(Option::take).map(|slice| Chunk::File {
            file: slice.file,
            position: slice.position,
            length: slice.length,
        }),
    };
    Reply::Send(pieces.into_iter().filter_map(chunk).collect())
}

#[cfg(test)]
mod tests {
    use protocol::ErrorCode;

    use super::*;

    #[test]
    fn a_follower_is_told_where_the_log_starts_and_a_consumer_is_not() {
        let image = MetadataImage::default();
        let failure = ReadFailure::OutOfRange {
            offset: Offset(3),
            log_start_offset: Offset(10),
            log_end_offset: Offset(20),
        };
        let key = PartitionKey { topic_id: TopicId::ZERO, topic: None, partition: 1 };
        for (is_follower, expected) in [(true, 10), (false, -1)] {
            let mut encoder = Encoder {
                image: &image,
                listener_name: "PLAINTEXT",
                is_follower,
                leaders: CurrentLeaders::default(),
                topics: Vec::new(),
                slices: Vec::new(),
            };
            let data = encoder.refused(&key, &failure);
            assert_eq!(data.error_code, ErrorCode::OffsetOutOfRange.code());
            assert_eq!(data.log_start_offset, expected);
        }
    }
}
