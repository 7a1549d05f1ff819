//! DescribeProducers: who writes to a partition idempotently or in transactions (KIP-664).

use common::ids::*;
use protocol::StrBytes;
use protocol::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId as WireProducerId};

use crate::log::ActiveProducer;
use crate::replica::ReplicaManager;
use crate::replica::fetch_session::PartitionKey;

pub fn handle(replicas: &ReplicaManager, request: &DescribeProducersRequest) -> DescribeProducersResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            let key =
                PartitionKey { topic_id: TopicId::ZERO, topic: Some(topic.name.clone()), partition: *index };
            let answer = PartitionResponse::default().with_partition_index(*index);
            match replicas.resolve(&key).and_then(|partition| partition.active_producers()) {
                Ok(producers) => answer.with_active_producers(producers.iter().map(producer).collect()),
                Err(error) => answer
                    .with_error_code(error.code().code())
                    .with_error_message(Some(StrBytes::from_string(error.to_string()))),
            }
        });
        TopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

fn producer(producer: &ActiveProducer) -> ProducerState {
    ProducerState::default()
        .with_producer_id(WireProducerId(producer.producer_id.0))
        .with_producer_epoch(i32::from(producer.producer_epoch.0))
        .with_last_sequence(producer.last_sequence)
        .with_last_timestamp(producer.last_timestamp_ms)
        .with_coordinator_epoch(producer.coordinator_epoch)
        .with_current_txn_start_offset(
            producer.current_transaction_first_offset.map_or(-1, |offset| offset.0),
        )
}
