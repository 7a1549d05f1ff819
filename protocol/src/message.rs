//! Requests and responses as values, each with the one way to decode and encode it.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};

use crate::api::{ApiKey, ApiSpec};
use crate::error::{DecodeError, EncodeError};
use crate::frame::{decode_response_header, encode_request_header, encode_response_header};
use crate::guard;
use crate::messages::*;
use crate::mirror::*;
use crate::quorum::*;
use crate::wire::{Field, Reader, Writer};

/// `kafka-protocol`'s.
pub(crate) struct Kafka;
/// Kafka's too, in a version that `kafka-protocol` doesn't know yet and that reads as an older one does.
struct KafkaUpTo<const MAX: i16>;
/// Ours.
struct Own;

pub(crate) trait Codec<T> {
    fn decode(bytes: Bytes, version: i16, flexible: bool) -> Result<T, DecodeError>;
    fn encode(message: &T, out: &mut BytesMut, version: i16, flexible: bool) -> Result<(), EncodeError>;
}

impl<T: Encodable + Decodable> Codec<T> for Kafka {
    fn decode(bytes: Bytes, version: i16, flexible: bool) -> Result<T, DecodeError> {
        guard::decode(bytes, version, flexible)
    }

    fn encode(message: &T, out: &mut BytesMut, version: i16, _flexible: bool) -> Result<(), EncodeError> {
        message.encode(out, version).map_err(|error| EncodeError::Invalid(error.to_string()))
    }
}

impl<T: Encodable + Decodable, const MAX: i16> Codec<T> for KafkaUpTo<MAX> {
    fn decode(bytes: Bytes, version: i16, flexible: bool) -> Result<T, DecodeError> {
        Kafka::decode(bytes, version.min(MAX), flexible)
    }

    fn encode(message: &T, out: &mut BytesMut, version: i16, flexible: bool) -> Result<(), EncodeError> {
        Kafka::encode(message, out, version.min(MAX), flexible)
    }
}

impl<T: Field> Codec<T> for Own {
    fn decode(bytes: Bytes, version: i16, flexible: bool) -> Result<T, DecodeError> {
        let mut reader = Reader::new(&bytes, version, flexible);
        let message = T::read(&mut reader)?;
        reader.finish()?;
        Ok(message)
    }

    fn encode(message: &T, out: &mut BytesMut, version: i16, flexible: bool) -> Result<(), EncodeError> {
        message.write(&mut Writer::new(out, version, flexible))
    }
}

macro_rules! messages {
    ($($name:ident: $request:ident by $request_codec:ty, $response:ident by $response_codec:ty;)*) => {
        /// A request that we serve or send.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Request {
            $($name($request),)*
        }

        /// The response to it.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Response {
            $($name($response),)*
        }

        impl Request {
            pub fn key(&self) -> ApiKey {
                match self {
                    $(Request::$name(_) => ApiKey::$name,)*
                }
            }

            fn decode(key: ApiKey, version: i16, body: Bytes) -> Result<Request, DecodeError> {
                let flexible = key.is_flexible(version);
                match key {
                    $(ApiKey::$name => {
                        <$request_codec as Codec<$request>>::decode(body, version, flexible).map(Request::$name)
                    })*
                    _ => Err(DecodeError::UnsupportedVersion { key, version }),
                }
            }

            fn encode(&self, out: &mut BytesMut, version: i16) -> Result<(), EncodeError> {
                let flexible = self.key().is_flexible(version);
                match self {
                    $(Request::$name(request) => {
                        <$request_codec as Codec<$request>>::encode(request, out, version, flexible)
                    })*
                }
            }
        }

        impl Response {
            pub fn key(&self) -> ApiKey {
                match self {
                    $(Response::$name(_) => ApiKey::$name,)*
                }
            }

            fn decode(key: ApiKey, version: i16, body: Bytes) -> Result<Response, DecodeError> {
                let flexible = key.is_flexible(version);
                match key {
                    $(ApiKey::$name => {
                        <$response_codec as Codec<$response>>::decode(body, version, flexible).map(Response::$name)
                    })*
                    _ => Err(DecodeError::UnsupportedVersion { key, version }),
                }
            }

            fn encode(&self, out: &mut BytesMut, version: i16) -> Result<(), EncodeError> {
                let flexible = self.key().is_flexible(version);
                match self {
                    $(Response::$name(response) => {
                        <$response_codec as Codec<$response>>::encode(response, out, version, flexible)
                    })*
                }
            }
        }

        $(
            impl From<$request> for Request {
                fn from(request: $request) -> Request {
                    Request::$name(request)
                }
            }

            impl From<$response> for Response {
                fn from(response: $response) -> Response {
                    Response::$name(response)
                }
            }
        )*

        #[cfg(any(test, feature = "proof"))]
        pub mod empty {
            //! One message of each kind with nothing in it, for tests of all of them.

            use super::*;

            pub fn requests() -> Vec<Request> {
                vec![$(Request::$name($request::default()),)*]
            }

            pub fn responses() -> Vec<Response> {
                vec![$(Response::$name($response::default()),)*]
            }
        }
    };
}

messages! {
    Produce: ProduceRequest by crate::produce::RequestCodec, ProduceResponse by Kafka;
    Fetch: FetchRequest by Kafka, FetchResponse by crate::fetch::ResponseCodec;
    // 11 allows another timestamp (KIP-1023).
    ListOffsets: ListOffsetsRequest by KafkaUpTo<10>, ListOffsetsResponse by KafkaUpTo<10>;
    Metadata: MetadataRequest by Kafka, MetadataResponse by Kafka;
    FindCoordinator: FindCoordinatorRequest by Kafka, FindCoordinatorResponse by Kafka;
    // The response of 5 is that of 4.
    ApiVersions: ApiVersionsRequest by Own, ApiVersionsResponse by KafkaUpTo<4>;
    // The response of 8 is that of 7.
    CreateTopics: CreateTopicsRequest by Own, CreateTopicsResponse by KafkaUpTo<7>;
    DeleteTopics: DeleteTopicsRequest by Kafka, DeleteTopicsResponse by Kafka;
    DeleteRecords: DeleteRecordsRequest by Kafka, DeleteRecordsResponse by Kafka;
    InitProducerId: InitProducerIdRequest by Kafka, InitProducerIdResponse by Kafka;
    OffsetForLeaderEpoch: OffsetForLeaderEpochRequest by Kafka, OffsetForLeaderEpochResponse by Kafka;
    DescribeConfigs: DescribeConfigsRequest by Kafka, DescribeConfigsResponse by Kafka;
    AlterConfigs: AlterConfigsRequest by Kafka, AlterConfigsResponse by Kafka;
    AlterReplicaLogDirs: AlterReplicaLogDirsRequest by Kafka, AlterReplicaLogDirsResponse by Kafka;
    // The request of 5 is that of 4.
    DescribeLogDirs: DescribeLogDirsRequest by KafkaUpTo<4>, DescribeLogDirsResponse by Own;
    CreatePartitions: CreatePartitionsRequest by Kafka, CreatePartitionsResponse by Kafka;
    ElectLeaders: ElectLeadersRequest by Kafka, ElectLeadersResponse by Kafka;
    IncrementalAlterConfigs: IncrementalAlterConfigsRequest by Kafka, IncrementalAlterConfigsResponse by Kafka;
    AlterPartitionReassignments:
        AlterPartitionReassignmentsRequest by Kafka, AlterPartitionReassignmentsResponse by Kafka;
    ListPartitionReassignments:
        ListPartitionReassignmentsRequest by Kafka, ListPartitionReassignmentsResponse by Kafka;
    DescribeQuorum: DescribeQuorumRequest by Kafka, DescribeQuorumResponse by Kafka;
    DescribeCluster: DescribeClusterRequest by Kafka, DescribeClusterResponse by Kafka;
    DescribeProducers: DescribeProducersRequest by Kafka, DescribeProducersResponse by Kafka;
    DescribeTransactions: DescribeTransactionsRequest by Kafka, DescribeTransactionsResponse by Kafka;
    ListTransactions: ListTransactionsRequest by Kafka, ListTransactionsResponse by Kafka;
    ListConfigResources: ListConfigResourcesRequest by Kafka, ListConfigResourcesResponse by Kafka;
    DescribeTopicPartitions: DescribeTopicPartitionsRequest by Kafka, DescribeTopicPartitionsResponse by Kafka;
    CreateMirror: CreateMirrorRequest by Own, CreateMirrorResponse by Own;
    AddTopicsToMirror: AddTopicsToMirrorRequest by Own, AddTopicsToMirrorResponse by Own;
    RemoveTopicsFromMirror: RemoveTopicsFromMirrorRequest by Own, RemoveTopicsFromMirrorResponse by Own;
    LastMirroredOffsets: LastMirroredOffsetsRequest by Own, LastMirroredOffsetsResponse by Own;
    ListMirrors: ListMirrorsRequest by Own, ListMirrorsResponse by Own;
    DescribeMirrors: DescribeMirrorsRequest by Own, DescribeMirrorsResponse by Own;
    ReadMirrorStates: ReadMirrorStatesRequest by Own, ReadMirrorStatesResponse by Own;
    WriteMirrorStates: WriteMirrorStatesRequest by Own, WriteMirrorStatesResponse by Own;
    ListSourceTopics: ListSourceTopicsRequest by Own, ListSourceTopicsResponse by Own;
    VerifyMirror: VerifyMirrorRequest by Own, VerifyMirrorResponse by Own;
    UpdateFeatures: UpdateFeaturesRequest by Kafka, UpdateFeaturesResponse by Kafka;
    UnregisterBroker: UnregisterBrokerRequest by Kafka, UnregisterBrokerResponse by Kafka;
    AddRaftVoter: AddRaftVoterRequest by Kafka, AddRaftVoterResponse by Kafka;
    RemoveRaftVoter: RemoveRaftVoterRequest by Kafka, RemoveRaftVoterResponse by Kafka;
    UpdateRaftVoter: UpdateRaftVoterRequest by Kafka, UpdateRaftVoterResponse by Kafka;
    TransferQuorumLeader: TransferQuorumLeaderRequest by Own, TransferQuorumLeaderResponse by Own;
}

fn decodable(key: ApiKey, version: i16) -> Result<&'static ApiSpec, DecodeError> {
    let spec = key.spec();
    if spec.supports(version) { Ok(spec) } else { Err(DecodeError::UnsupportedVersion { key, version }) }
}

fn encodable(key: ApiKey, version: i16) -> Result<&'static ApiSpec, EncodeError> {
    let spec = key.spec();
    if spec.supports(version) { Ok(spec) } else { Err(EncodeError::UnsupportedVersion { key, version }) }
}

/// The body of a request, all of it. For Produce see `produce::decode`, which leaves the batches where
/// they are.
pub fn decode_request(key: ApiKey, version: i16, body: Bytes) -> Result<Request, DecodeError> {
    decodable(key, version)?;
    Request::decode(key, version, body)
}

/// The body of a request, without header: for requests that travel inside another one.
pub fn encode_request_body(request: &Request, version: i16) -> Result<Bytes, EncodeError> {
    encodable(request.key(), version)?;
    let mut out = BytesMut::new();
    request.encode(&mut out, version)?;
    Ok(out.freeze())
}

/// A whole request: 4-byte length, header, body.
pub fn encode_request(
    request: &Request,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<BytesMut, EncodeError> {
    let spec = encodable(request.key(), version)?;
    let mut out = BytesMut::with_capacity(128);
    out.put_i32(0);
    encode_request_header(&mut out, spec, version, correlation_id, client_id)?;
    request.encode(&mut out, version)?;
    let length = out.len() - 4;
    let length = i32::try_from(length).map_err(|_| EncodeError::TooLong(length))?;
    out[..4].copy_from_slice(&length.to_be_bytes());
    Ok(out)
}

/// The body of a response, without header.
pub fn encode_response(response: &Response, key: ApiKey, version: i16) -> Result<Bytes, EncodeError> {
    encodable(key, version)?;
    if response.key() != key {
        return Err(EncodeError::WrongMessage { wanted: key, found: response.key() });
    }
    let mut out = BytesMut::new();
    response.encode(&mut out, version)?;
    Ok(out.freeze())
}

/// A whole response but for the length in front: header and body.
pub fn encode_response_frame(
    response: &Response,
    version: i16,
    correlation_id: i32,
) -> Result<Bytes, EncodeError> {
    let spec = encodable(response.key(), version)?;
    let mut out = BytesMut::with_capacity(128);
    encode_response_header(&mut out, spec, version, correlation_id);
    response.encode(&mut out, version)?;
    Ok(out.freeze())
}

/// The body of a response, without header.
pub fn decode_response_body(key: ApiKey, version: i16, body: Bytes) -> Result<Response, DecodeError> {
    decodable(key, version)?;
    Response::decode(key, version, body)
}

/// A whole response, after its length.
pub fn decode_response(key: ApiKey, version: i16, mut frame: Bytes) -> Result<(i32, Response), DecodeError> {
    let spec = decodable(key, version)?;
    let correlation_id = decode_response_header(&mut frame, spec, version)?;
    Ok((correlation_id, Response::decode(key, version, frame)?))
}

#[cfg(test)]
mod tests;
