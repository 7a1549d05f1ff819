use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::create_topics_request as kafka_create_topics;
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, CreateTopicsRequest, DescribeLogDirsResponse, FetchRequest,
    MetadataRequest, MetadataResponse, TopicName, describe_log_dirs_response as kafka_log_dirs,
    fetch_request, metadata_request::MetadataRequestTopic, metadata_response,
};
use kafka_protocol::protocol::{Encodable, StrBytes};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::api::ApiKey;
use crate::message::{
    Request, Response, decode_request, decode_response_body, encode_request_body, encode_response,
};

fn encode<T: Encodable>(message: &T, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut out, version).unwrap();
    out.freeze()
}

/// What the guard lets through is what the plain decoder reads.
fn same<T: Encodable + Decodable + PartialEq + std::fmt::Debug>(message: &T, version: i16, flexible: bool) {
    let bytes = encode(message, version);
    let plain = T::decode(&mut bytes.clone(), version).unwrap();
    assert_eq!(decode::<T>(bytes, version, flexible), Ok(plain), "version {version}");
}

fn fetch_of(partitions: usize) -> FetchRequest {
    let partitions = (0..partitions).map(|index| {
        fetch_request::FetchPartition::default()
            .with_partition(index as i32)
            .with_fetch_offset(i64::MAX)
            .with_partition_max_bytes(i32::MAX)
    });
    let topic = fetch_request::FetchTopic::default()
        .with_topic(TopicName("t".into()))
        .with_topic_id(Uuid::from_bytes([7; 16]))
        .with_partitions(partitions.collect());
    FetchRequest::default().with_max_bytes(i32::MAX).with_max_wait_ms(i32::MAX).with_topics(vec![topic])
}

#[test]
fn large_numbers_that_are_no_counts_pass() {
    for version in 4..=18 {
        let mut fetch = fetch_of(3);
        for topic in &mut fetch.topics {
            if version < 13 {
                topic.topic_id = Uuid::nil();
            } else {
                topic.topic = TopicName::default();
            }
        }
        same(&fetch, version, ApiKey::Fetch.is_flexible(version));
    }
}

/// N7.
#[test]
fn a_fetch_of_a_hundred_thousand_partitions_passes() {
    same(&fetch_of(100_000), 12, true);
    same(&fetch_of(100_000), 11, false);
}

#[test]
fn nested_arrays_pass() {
    let partition = metadata_response::MetadataResponsePartition::default()
        .with_replica_nodes(vec![BrokerId(1), BrokerId(2), BrokerId(3)])
        .with_isr_nodes(vec![BrokerId(1)]);
    let topic = metadata_response::MetadataResponseTopic::default()
        .with_name(Some(TopicName("topic".into())))
        .with_partitions(vec![partition; 5]);
    let broker =
        metadata_response::MetadataResponseBroker::default().with_host("host".into()).with_port(i32::MAX);
    for version in 0..=13 {
        let response = MetadataResponse::default()
            .with_brokers(vec![broker.clone(); 3])
            .with_topics(vec![topic.clone(); 4]);
        same(&response, version, ApiKey::Metadata.is_flexible(version));
    }
}

#[test]
fn values_are_bounded() {
    // One byte for the name's null, one for no tags: 72 bytes of memory for two on the wire.
    let topics = MAX_VALUES / 2 + 1;
    let mut out = BytesMut::new();
    crate::wire::Writer::new(&mut out, 12, true).unsigned_varint(topics + 1);
    for _ in 0..topics {
        out.put_bytes(0, 16);
        out.put_slice(&[0, 0]);
    }
    out.put_slice(&[0, 0, 0]);
    let error = decode::<MetadataRequest>(out.freeze(), 12, true).unwrap_err();
    assert_eq!(error, DecodeError::TooManyValues { limit: MAX_VALUES });
}

fn with_tags(count: u32, content: &[u8], first_tag: u32) -> Bytes {
    let mut out = BytesMut::new();
    // Metadata 12: no topics, two booleans.
    out.put_slice(&[0, 0, 0]);
    let mut writer = crate::wire::Writer::new(&mut out, 12, true);
    writer.unsigned_varint(count);
    for tag in 0..count {
        writer.unsigned_varint(first_tag + tag);
        writer.unsigned_varint(content.len() as u32);
        writer.out.put_slice(content);
    }
    out.freeze()
}

#[test]
fn unknown_tags_are_bounded() {
    for content in [&b""[..], &b"x"[..], &b"some more"[..]] {
        let request = decode::<MetadataRequest>(with_tags(256, content, 0), 12, true).unwrap();
        assert_eq!(request.unknown_tagged_fields.len(), 256);
        let error = decode::<MetadataRequest>(with_tags(257, content, 0), 12, true).unwrap_err();
        assert_eq!(error, DecodeError::TooManyTags { limit: 256 });
    }
}

#[test]
fn a_tag_of_a_later_client_passes_at_the_end_of_a_message() {
    for tag in [0, 4, 100, 255] {
        let request = decode::<MetadataRequest>(with_tags(1, b"x", tag), 12, true).unwrap();
        assert_eq!(request.unknown_tagged_fields.get(&(tag as i32)), Some(&Bytes::from_static(b"x")));
    }
}

#[test]
fn strings_in_arrays_are_no_tags() {
    // An array of strings reads like tags, but for the lengths being one higher.
    let names: Vec<_> =
        (0..1000).map(|_| MetadataRequestTopic::default().with_name(Some(TopicName("n".into())))).collect();
    for version in 0..=13 {
        same(&MetadataRequest::default().with_topics(Some(names.clone())), version, version >= 9);
    }
    let ids = kafka_protocol::messages::DeleteTopicsRequest::default().with_topic_names(vec![
        TopicName(
            "a-topic".into()
        );
        1000
    ]);
    for version in 1..=5 {
        same(&ids, version, version >= 4);
    }
}

#[test]
fn a_boolean_cannot_hide_a_count() {
    let mut guard = Guard::new(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x07, 0]), false);
    // The decoder takes the first byte for a boolean, the next four for a count.
    for _ in 0..4 {
        guard.try_get_u8().unwrap();
    }
    assert!(guard.try_get_u8().is_err());
    assert!(matches!(guard.refusal, Some(DecodeError::Count { .. })));
}

#[test]
fn varints_of_more_than_32_bits_are_refused() {
    for bytes in [&[0xff, 0xff, 0xff, 0xff, 0x10, 0][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0]] {
        let error = decode::<MetadataRequest>(Bytes::copy_from_slice(bytes), 12, true).unwrap_err();
        assert_eq!(error, DecodeError::Varint);
    }
}

/// Ours beside `kafka-protocol`'s, in the versions that both know.
#[test]
fn our_create_topics_is_kafkas() {
    let topic = kafka_create_topics::CreatableTopic::default()
        .with_name(TopicName("t".into()))
        .with_num_partitions(3)
        .with_replication_factor(2)
        .with_assignments(vec![
            kafka_create_topics::CreatableReplicaAssignment::default()
                .with_partition_index(1)
                .with_broker_ids(vec![BrokerId(4), BrokerId(5)]),
        ])
        .with_configs(vec![
            kafka_create_topics::CreatableTopicConfig::default()
                .with_name("k".into())
                .with_value(Some("v".into())),
            kafka_create_topics::CreatableTopicConfig::default().with_name("n".into()),
        ]);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_validate_only(true);
    for version in 2..=7 {
        let bytes = encode(&request, version);
        let ours = decode_request(ApiKey::CreateTopics, version, bytes.clone()).unwrap();
        let Request::CreateTopics(message) = &ours else { panic!("{ours:?}") };
        assert_eq!((message.timeout_ms, message.topics[0].configs.len()), (60_000, 2));
        assert_eq!(encode_request_body(&ours, version).unwrap(), bytes, "{version}");
    }
    let null = decode::<CreateTopicsRequest>(encode(&CreateTopicsRequest::default(), 2), 2, false).unwrap();
    assert_eq!(null.timeout_ms, crate::messages::CreateTopicsRequest::default().timeout_ms);
}

#[test]
fn our_api_versions_is_kafkas() {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("name"))
        .with_client_software_version(StrBytes::from_static_str("1.2"));
    for version in 0..=4 {
        let request = if version < 3 { ApiVersionsRequest::default() } else { request.clone() };
        let bytes = encode(&request, version);
        let ours = decode_request(ApiKey::ApiVersions, version, bytes.clone()).unwrap();
        assert_eq!(encode_request_body(&ours, version).unwrap(), bytes, "{version}");
    }
}

#[test]
fn our_describe_log_dirs_is_kafkas() {
    let topic = kafka_log_dirs::DescribeLogDirsTopic::default()
        .with_name(TopicName("t".into()))
        .with_partitions(vec![
            kafka_log_dirs::DescribeLogDirsPartition::default()
                .with_partition_index(1)
                .with_partition_size(2)
                .with_offset_lag(3)
                .with_is_future_key(true),
        ]);
    let result = kafka_log_dirs::DescribeLogDirsResult::default()
        .with_log_dir("/d".into())
        .with_topics(vec![topic])
        .with_error_code(56);
    let response = DescribeLogDirsResponse::default().with_throttle_time_ms(1).with_results(vec![result]);
    for version in 1..=4 {
        let bytes = encode(&response, version);
        let ours = decode_response_body(ApiKey::DescribeLogDirs, version, bytes.clone()).unwrap();
        let Response::DescribeLogDirs(message) = &ours else { panic!("{ours:?}") };
        assert_eq!(message.results[0].topics[0].partitions[0].offset_lag, 3);
        assert_eq!(encode_response(&ours, ApiKey::DescribeLogDirs, version).unwrap(), bytes, "{version}");
    }
}

proptest! {
    /// A fetch with any counts: true ones pass, and equal the plain decoder's.
    #[test]
    fn fetches_pass(
        version in 4_i16..=12,
        topics in prop::collection::vec(("[a-z]{0,40}", prop::collection::vec(any::<(i32, i64, i32)>(), 0..20)), 0..20),
        max_bytes in any::<i32>(),
    ) {
        let topics = topics.into_iter().map(|(name, partitions)| {
            let partitions = partitions.into_iter().map(|(index, offset, max)| {
                fetch_request::FetchPartition::default()
                    .with_partition(index)
                    .with_fetch_offset(offset)
                    .with_partition_max_bytes(max)
            });
            fetch_request::FetchTopic::default()
                .with_topic(TopicName(name.into()))
                .with_partitions(partitions.collect())
        });
        let fetch = FetchRequest::default().with_max_bytes(max_bytes).with_topics(topics.collect());
        let bytes = encode(&fetch, version);
        let plain = FetchRequest::decode(&mut bytes.clone(), version).unwrap();
        prop_assert_eq!(decode::<FetchRequest>(bytes, version, version >= 12), Ok(plain));
    }
}
