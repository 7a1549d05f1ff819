//! Fetch responses with the records left out: what is sent is a few header bytes, then batches straight
//! from a file. And their reader, which bounds what a source can make us allocate; its records are
//! slices of the frame.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
    PartitionData, SnapshotId,
};
use kafka_protocol::messages::{BrokerId, FetchResponse, ProducerId, TopicName};

use crate::api::ApiKey;
use crate::error::{DecodeError, EncodeError};
use crate::frame::encode_response_header;
use crate::message::{Codec, Kafka};
use crate::wire::{Reader, Writer};

const FIRST_VERSION_WITH_LOG_START: i16 = 5;
const FIRST_VERSION_WITH_SESSION: i16 = 7;
const FIRST_VERSION_WITH_PREFERRED_REPLICA: i16 = 11;
const FIRST_VERSION_WITH_TOPIC_ID: i16 = 13;
const FIRST_VERSION_WITH_ENDPOINTS: i16 = 16;

/// The records of one partition, which the caller sends itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsPlaceholder {
    pub len: usize,
}

/// A stretch of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Bytes(Bytes),
    /// Here come the records of the partition with this place among the placeholders. Never of one
    /// whose length is 0.
    Records(usize),
}

/// The body of a response, with gaps. `records` has one entry for each partition of the response, in
/// its order; what the response itself holds as records is not looked at. Records are never null: a
/// partition without any has a length of 0.
pub fn encode_fetch_response(
    response: &FetchResponse,
    version: i16,
    records: &[RecordsPlaceholder],
) -> Result<Vec<Piece>, EncodeError> {
    encode_pieces(response, version, records, BytesMut::new())
}

/// The same with the header in front of it.
pub fn encode_fetch_response_frame(
    response: &FetchResponse,
    version: i16,
    correlation_id: i32,
    records: &[RecordsPlaceholder],
) -> Result<Vec<Piece>, EncodeError> {
    let mut out = BytesMut::new();
    encode_response_header(&mut out, ApiKey::Fetch.spec(), version, correlation_id);
    encode_pieces(response, version, records, out)
}

fn encode_pieces(
    response: &FetchResponse,
    version: i16,
    records: &[RecordsPlaceholder],
    mut out: BytesMut,
) -> Result<Vec<Piece>, EncodeError> {
    let spec = ApiKey::Fetch.spec();
    if !spec.supports(version) {
        return Err(EncodeError::UnsupportedVersion { key: ApiKey::Fetch, version });
    }
    let partitions: usize = response.responses.iter().map(|topic| topic.partitions.len()).sum();
    if partitions != records.len() {
        return Err(EncodeError::Invalid(format!(
            "a fetch response of {partitions} partitions with records for {}",
            records.len()
        )));
    }
    out.reserve(64 + 64 * response.responses.len() + 64 * partitions);
    let mut pieces = Vec::with_capacity(1 + 2 * records.iter().filter(|records| records.len > 0).count());
    let mut writer = Writer::new(&mut out, version, spec.is_flexible(version));
    let mut place = 0;

    writer.out.put_i32(response.throttle_time_ms);
    if version >= FIRST_VERSION_WITH_SESSION {
        writer.out.put_i16(response.error_code);
        writer.out.put_i32(response.session_id);
    }
    writer.length(response.responses.len())?;
    for topic in &response.responses {
        if version >= FIRST_VERSION_WITH_TOPIC_ID {
            writer.out.put_slice(topic.topic_id.as_bytes());
        } else {
            writer.string(&topic.topic)?;
        }
        writer.length(topic.partitions.len())?;
        for partition in &topic.partitions {
            let length = records[place].len;
            write_before_records(&mut writer, partition, length)?;
            if length > 0 {
                pieces.push(Piece::Bytes(writer.out.split().freeze()));
                pieces.push(Piece::Records(place));
            }
            write_partition_tags(&mut writer, partition)?;
            place += 1;
        }
        writer.no_tags();
    }
    write_endpoints(&mut writer, &response.node_endpoints)?;
    if !out.is_empty() {
        pieces.push(Piece::Bytes(out.freeze()));
    }
    Ok(pieces)
}

fn write_before_records(
    writer: &mut Writer<'_>,
    partition: &PartitionData,
    records_len: usize,
) -> Result<(), EncodeError> {
    writer.out.put_i32(partition.partition_index);
    writer.out.put_i16(partition.error_code);
    writer.out.put_i64(partition.high_watermark);
    writer.out.put_i64(partition.last_stable_offset);
    if writer.version >= FIRST_VERSION_WITH_LOG_START {
        writer.out.put_i64(partition.log_start_offset);
    }
    match &partition.aborted_transactions {
        Some(aborted) => {
            writer.length(aborted.len())?;
            for transaction in aborted {
                writer.out.put_i64(transaction.producer_id.0);
                writer.out.put_i64(transaction.first_offset);
                writer.no_tags();
            }
        }
        None => writer.null_length(),
    }
    if writer.version >= FIRST_VERSION_WITH_PREFERRED_REPLICA {
        writer.out.put_i32(partition.preferred_read_replica.0);
    }
    writer.length(records_len)
}

fn write_partition_tags(writer: &mut Writer<'_>, partition: &PartitionData) -> Result<(), EncodeError> {
    if !writer.flexible {
        return Ok(());
    }
    let diverging = partition.diverging_epoch != EpochEndOffset::default();
    let leader = partition.current_leader != LeaderIdAndEpoch::default();
    let snapshot = partition.snapshot_id != SnapshotId::default();
    writer.unsigned_varint(u32::from(diverging) + u32::from(leader) + u32::from(snapshot));
    if diverging {
        writer.tag(0, |content| {
            content.out.put_i32(partition.diverging_epoch.epoch);
            content.out.put_i64(partition.diverging_epoch.end_offset);
            content.no_tags();
            Ok(())
        })?;
    }
    if leader {
        writer.tag(1, |content| {
            content.out.put_i32(partition.current_leader.leader_id.0);
            content.out.put_i32(partition.current_leader.leader_epoch);
            content.no_tags();
            Ok(())
        })?;
    }
    if snapshot {
        writer.tag(2, |content| {
            content.out.put_i64(partition.snapshot_id.end_offset);
            content.out.put_i32(partition.snapshot_id.epoch);
            content.no_tags();
            Ok(())
        })?;
    }
    Ok(())
}

fn write_endpoints(writer: &mut Writer<'_>, endpoints: &[NodeEndpoint]) -> Result<(), EncodeError> {
    if !writer.flexible {
        return Ok(());
    }
    if endpoints.is_empty() || writer.version < FIRST_VERSION_WITH_ENDPOINTS {
        writer.no_tags();
        return Ok(());
    }
    writer.unsigned_varint(1);
    writer.tag(0, |content| {
        content.length(endpoints.len())?;
        for endpoint in endpoints {
            content.out.put_i32(endpoint.node_id.0);
            content.string(&endpoint.host)?;
            content.out.put_i32(endpoint.port);
            content.nullable_string(endpoint.rack.as_deref())?;
            content.no_tags();
        }
        Ok(())
    })
}

/// Decodes by hand what `guard` would not let pass: records of more than a million bytes.
pub(crate) struct ResponseCodec;

impl Codec<FetchResponse> for ResponseCodec {
    fn decode(bytes: Bytes, version: i16, flexible: bool) -> Result<FetchResponse, DecodeError> {
        let mut reader = Reader::new(&bytes, version, flexible);
        let response = read_response(&mut reader)?;
        reader.finish()?;
        Ok(response)
    }

    fn encode(
        message: &FetchResponse,
        out: &mut BytesMut,
        version: i16,
        flexible: bool,
    ) -> Result<(), EncodeError> {
        Kafka::encode(message, out, version, flexible)
    }
}

fn read_response(reader: &mut Reader<'_>) -> Result<FetchResponse, DecodeError> {
    let mut response = FetchResponse::default();
    response.throttle_time_ms = reader.i32()?;
    if reader.version >= FIRST_VERSION_WITH_SESSION {
        response.error_code = reader.i16()?;
        response.session_id = reader.i32()?;
    }
    // A name or an id, and a count.
    response.responses = reader.array(2, read_topic)?;
    reader.tags(|tag, content| {
        let known = tag == 0 && content.version >= FIRST_VERSION_WITH_ENDPOINTS;
        if known {
            response.node_endpoints = content.array(10, read_endpoint)?;
        }
        Ok(known)
    })?;
    Ok(response)
}

fn read_topic(reader: &mut Reader<'_>) -> Result<FetchableTopicResponse, DecodeError> {
    let mut topic = FetchableTopicResponse::default();
    if reader.version >= FIRST_VERSION_WITH_TOPIC_ID {
        topic.topic_id = reader.uuid()?;
    } else {
        topic.topic = TopicName(reader.string()?);
    }
    // Index, error, two offsets, two lengths.
    topic.partitions = reader.array(24, read_partition)?;
    reader.skip_tags()?;
    Ok(topic)
}

fn read_partition(reader: &mut Reader<'_>) -> Result<PartitionData, DecodeError> {
    let mut partition = PartitionData::default();
    partition.partition_index = reader.i32()?;
    partition.error_code = reader.i16()?;
    partition.high_watermark = reader.i64()?;
    partition.last_stable_offset = reader.i64()?;
    if reader.version >= FIRST_VERSION_WITH_LOG_START {
        partition.log_start_offset = reader.i64()?;
    }
    partition.aborted_transactions = reader.nullable_array(16, |reader| {
        let mut transaction = AbortedTransaction::default();
        transaction.producer_id = ProducerId(reader.i64()?);
        transaction.first_offset = reader.i64()?;
        reader.skip_tags()?;
        Ok(transaction)
    })?;
    if reader.version >= FIRST_VERSION_WITH_PREFERRED_REPLICA {
        partition.preferred_read_replica = BrokerId(reader.i32()?);
    }
    partition.records = reader.nullable_bytes()?;
    reader.tags(|tag, content| {
        match tag {
            0 => {
                partition.diverging_epoch.epoch = content.i32()?;
                partition.diverging_epoch.end_offset = content.i64()?;
            }
            1 => {
                partition.current_leader.leader_id = BrokerId(content.i32()?);
                partition.current_leader.leader_epoch = content.i32()?;
            }
            2 => {
                partition.snapshot_id.end_offset = content.i64()?;
                partition.snapshot_id.epoch = content.i32()?;
            }
            _ => return Ok(false),
        }
        content.skip_tags()?;
        Ok(true)
    })?;
    Ok(partition)
}

fn read_endpoint(reader: &mut Reader<'_>) -> Result<NodeEndpoint, DecodeError> {
    let mut endpoint = NodeEndpoint::default();
    endpoint.node_id = BrokerId(reader.i32()?);
    endpoint.host = reader.string()?;
    endpoint.port = reader.i32()?;
    endpoint.rack = reader.nullable_string()?;
    reader.skip_tags()?;
    Ok(endpoint)
}

#[cfg(test)]
mod tests;
