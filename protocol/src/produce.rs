//! Produce requests, read so that the batches stay where they are: the log patches them in place.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest as KafkaProduceRequest, TopicName, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::api::ApiKey;
use crate::error::{DecodeError, EncodeError};
use crate::message::{Codec, Kafka};
use crate::wire::Reader;

/// From this version on a topic is named by its id.
const FIRST_VERSION_WITH_TOPIC_ID: i16 = 13;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceRequest {
    pub transactional_id: Option<StrBytes>,
    pub acks: i16,
    pub timeout_ms: i32,
    pub topics: Vec<ProduceTopic>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceTopic {
    /// `None` from version 13 on.
    pub name: Option<TopicName>,
    /// Zero before version 13.
    pub topic_id: Uuid,
    pub partitions: Vec<ProducePartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducePartition {
    pub index: i32,
    /// Where its batches lie in the body; empty where it has none.
    pub records: Range<usize>,
}

/// Reads a body. Nothing in the result is shared with it.
pub fn decode(body: &[u8], version: i16) -> Result<ProduceRequest, DecodeError> {
    let spec = ApiKey::Produce.spec();
    if !spec.supports(version) {
        return Err(DecodeError::UnsupportedVersion { key: ApiKey::Produce, version });
    }
    read(Reader::over_slice(body, version, spec.is_flexible(version)))
}

fn read(mut reader: Reader<'_>) -> Result<ProduceRequest, DecodeError> {
    let reader = &mut reader;
    let transactional_id = reader.nullable_string()?;
    let acks = reader.i16()?;
    let timeout_ms = reader.i32()?;
    // A name or an id, and a count.
    let topics = reader.array(2, read_topic)?;
    reader.skip_tags()?;
    reader.finish()?;
    Ok(ProduceRequest { transactional_id, acks, timeout_ms, topics })
}

fn read_topic(reader: &mut Reader<'_>) -> Result<ProduceTopic, DecodeError> {
    let by_id = reader.version >= FIRST_VERSION_WITH_TOPIC_ID;
    let name = if by_id { None } else { Some(TopicName(reader.string()?)) };
    let topic_id = if by_id { reader.uuid()? } else { Uuid::nil() };
    // An index and a length.
    let partitions = reader.array(5, read_partition)?;
    reader.skip_tags()?;
    Ok(ProduceTopic { name, topic_id, partitions })
}

fn read_partition(reader: &mut Reader<'_>) -> Result<ProducePartition, DecodeError> {
    let index = reader.i32()?;
    let records = reader.nullable_bytes_range()?.unwrap_or_default();
    reader.skip_tags()?;
    Ok(ProducePartition { index, records })
}

/// The same for those who want the message as a value.
pub(crate) struct RequestCodec;

impl Codec<KafkaProduceRequest> for RequestCodec {
    fn decode(bytes: Bytes, version: i16, flexible: bool) -> Result<KafkaProduceRequest, DecodeError> {
        let request = read(Reader::new(&bytes, version, flexible))?;
        let partition = |partition: ProducePartition| {
            PartitionProduceData::default()
                .with_index(partition.index)
                .with_records(Some(bytes.slice(partition.records)))
        };
        let topic = |topic: ProduceTopic| {
            TopicProduceData::default()
                .with_name(topic.name.unwrap_or_default())
                .with_topic_id(topic.topic_id)
                .with_partition_data(topic.partitions.into_iter().map(partition).collect())
        };
        Ok(KafkaProduceRequest::default()
            .with_transactional_id(request.transactional_id.map(TransactionalId))
            .with_acks(request.acks)
            .with_timeout_ms(request.timeout_ms)
            .with_topic_data(request.topics.into_iter().map(topic).collect()))
    }

    fn encode(
        message: &KafkaProduceRequest,
        out: &mut BytesMut,
        version: i16,
        flexible: bool,
    ) -> Result<(), EncodeError> {
        Kafka::encode(message, out, version, flexible)
    }
}

#[cfg(test)]
mod tests;
