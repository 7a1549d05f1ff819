//! Golden bytes, made by an encoder that knows nothing of this crate: field by field from the KIP's
//! schemas, tagged fields after them.

use bytes::Bytes;
use kafka_protocol::messages::{BrokerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::*;
use crate::api::ApiKey;
use crate::message::{
    Request, Response, decode_request, decode_response_body, encode_request_body, encode_response,
};
use crate::messages::CreateTopicsRequest;
use crate::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig, MirrorInfo};

const ID: Uuid = Uuid::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

fn topic(name: &'static str) -> TopicName {
    TopicName(StrBytes::from_static_str(name))
}

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn request(request: impl Into<Request>, version: i16, golden: &str) {
    let (request, golden) = (request.into(), unhex(golden));
    assert_eq!(encode_request_body(&request, version).unwrap(), golden);
    let key = request.key();
    assert_eq!(decode_request(key, version, golden.clone()), Ok(request));
    for cut in 0..golden.len() {
        assert!(decode_request(key, version, golden.slice(..cut)).is_err(), "cut at {cut}");
    }
}

fn response(response: impl Into<Response>, golden: &str) {
    let (response, golden) = (response.into(), unhex(golden));
    let key = response.key();
    assert_eq!(encode_response(&response, key, 0).unwrap(), golden);
    assert_eq!(decode_response_body(key, 0, golden.clone()), Ok(response));
    for cut in 0..golden.len() {
        assert!(decode_response_body(key, 0, golden.slice(..cut)).is_err(), "cut at {cut}");
    }
}

fn last_request(
    partition: last_mirrored_offsets::PartitionState,
    cluster_id: Option<StrBytes>,
    topic_id: Uuid,
) -> LastMirroredOffsetsRequest {
    let topic = last_mirrored_offsets::TopicState { name: topic("t"), partitions: vec![partition], topic_id };
    LastMirroredOffsetsRequest { mirror_name: "m".into(), topics: vec![topic], cluster_id }
}

#[test]
fn create_mirror() {
    request(
        CreateMirrorRequest {
            mirror_name: Some("m".into()),
            config: vec![
                create_mirror::MirrorConfig { name: "bootstrap.servers".into(), value: Some("h:1".into()) },
                create_mirror::MirrorConfig { name: "x".into(), value: None },
            ],
        },
        0,
        "026d0312626f6f7473747261702e7365727665727304683a31000278000000",
    );
    response(
        CreateMirrorResponse { throttle_time_ms: 1, error_code: 12791, error_message: Some("taken".into()) },
        "0000000131f70674616b656e00",
    );
}

#[test]
fn add_topics_to_mirror() {
    request(
        AddTopicsToMirrorRequest {
            topics: vec![add_topics_to_mirror::TopicState {
                topic_id: ID,
                topic_name: topic("t"),
                mirror_name: Some("m".into()),
            }],
            ..Default::default()
        },
        0,
        "02000102030405060708090a0b0c0d0e0f0274026d0000",
    );
    request(
        AddTopicsToMirrorRequest {
            topics: vec![add_topics_to_mirror::TopicState {
                topic_id: ID,
                topic_name: topic("t"),
                mirror_name: None,
            }],
            recopy: true,
        },
        0,
        "02000102030405060708090a0b0c0d0e0f0274000001000101",
    );
    response(
        AddTopicsToMirrorResponse {
            throttle_time_ms: 0,
            topic_id: ID,
            error_code: 42,
            error_message: Some("no".into()),
            topics: vec![add_topics_to_mirror::TopicResult {
                topic_id: ID,
                topic_name: topic("t"),
                error_code: 42,
                error_message: Some("no".into()),
            }],
        },
        "00000000000102030405060708090a0b0c0d0e0f002a036e6f01001902000102030405060708 \
         090a0b0c0d0e0f0274002a036e6f00",
    );
}

#[test]
fn remove_topics_from_mirror() {
    request(
        RemoveTopicsFromMirrorRequest {
            mirror_name: "m".into(),
            topics: vec![remove_topics_from_mirror::TopicState { topic_id: ID, topic_name: topic("t") }],
        },
        0,
        "026d02000102030405060708090a0b0c0d0e0f02740000",
    );
    response(
        RemoveTopicsFromMirrorResponse { topic_id: ID, ..Default::default() },
        "00000000000102030405060708090a0b0c0d0e0f00000000",
    );
}

#[test]
fn last_mirrored_offsets() {
    request(
        last_request(
            last_mirrored_offsets::PartitionState { partition_index: 3, ..Default::default() },
            None,
            Uuid::nil(),
        ),
        0,
        "026d0202740200000003000000",
    );
    request(
        last_request(
            last_mirrored_offsets::PartitionState { partition_index: 3, last_seen_cut_id: 55 },
            Some("cluster".into()),
            ID,
        ),
        0,
        "026d02027402000000030100080000000000000037010010000102030405060708090a0b0c0d \
         0e0f01000808636c7573746572",
    );
    response(
        LastMirroredOffsetsResponse {
            topics: vec![last_mirrored_offsets::OffsetResponseTopic {
                name: topic("t"),
                partitions: vec![last_mirrored_offsets::OffsetResponsePartition {
                    partition_index: 3,
                    last_mirrored_offset: 100,
                    newest_cut_id: 60,
                    lowest_cut_offset: 90,
                    checked_cut_id: 7,
                    recorded: true,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        },
        "000000000000020274020000000300000000000000640000040008000000000000003c010800 \
         0000000000005a020800000000000000070301010000",
    );
}

#[test]
fn list_mirrors() {
    request(ListMirrorsRequest {}, 0, "00");
    response(
        ListMirrorsResponse {
            mirrors: vec![list_mirrors::ListedMirror {
                mirror_name: "m".into(),
                source_bootstrap: "h:1".into(),
                topic_count: 2,
                source_cluster_id: Some("cluster".into()),
            }],
            ..Default::default()
        },
        "00000000000002026d04683a310000000201000808636c757374657200",
    );
}

#[test]
fn describe_mirrors() {
    request(
        DescribeMirrorsRequest {
            mirror_names: Some(vec!["m".into()]),
            include_authorized_operations: true,
            ..Default::default()
        },
        0,
        "02026d0100",
    );
    let elsewhere = DescribeMirrorsRequest { include_led_elsewhere: true, ..Default::default() };
    request(elsewhere, 0, "000001000101");
    request(DescribeMirrorsRequest::default(), 0, "000000");
    response(
        DescribeMirrorsResponse {
            mirrors: vec![describe_mirrors::DescribedMirror {
                mirror_name: "m".into(),
                topics: vec![describe_mirrors::TopicPartitions {
                    topic_name: topic("t"),
                    partitions: vec![describe_mirrors::PartitionDetail {
                        partition_index: 0,
                        source_offset: 10,
                        destination_offset: 8,
                        lag: 2,
                        state: "FAILED".into(),
                        reason: Some("why".into()),
                        since_ms: 5,
                        attempt: 2,
                        next_retry_ms: 9,
                        leader_id: BrokerId(1),
                        ..Default::default()
                    }],
                    topic_id: ID,
                }],
                source_bootstrap: Some("h:1".into()),
                ..Default::default()
            }],
            ..Default::default()
        },
        "00000000020000026d0202740200000000000000000000000a00000000000000080000000000 \
         000002074641494c454405000404776879010800000000000000050204000000020308000000 \
         0000000009050400000001010010000102030405060708090a0b0c0d0e0f8000000001010404 \
         683a3100",
    );
}

#[test]
fn read_mirror_states() {
    request(
        ReadMirrorStatesRequest {
            mirror_name: "m".into(),
            topics: vec![read_mirror_states::TopicState {
                name: topic("t"),
                partitions: vec![read_mirror_states::PartitionState {
                    partition_index: 0,
                    topic_id: ID,
                    leader_epoch: 4,
                }],
            }],
            ..Default::default()
        },
        0,
        "026d0202740200000000020010000102030405060708090a0b0c0d0e0f010400000004000100",
    );
    response(
        ReadMirrorStatesResponse {
            topics: vec![read_mirror_states::ReadTopicState {
                name: topic("t"),
                partitions: vec![
                    read_mirror_states::ReadPartitionState::default(),
                    read_mirror_states::ReadPartitionState {
                        partition_index: 1,
                        last_mirrored_offset: 100,
                        state: 8,
                        error_code: 0,
                        topic_id: ID,
                        leader_epoch: 4,
                        state_epoch: 6,
                        association: 33,
                        reason: Some("why".into()),
                        since_ms: 5,
                        attempt: 2,
                        next_retry_ms: 9,
                        checked_cut_id: 44,
                        failed_state: 1,
                    },
                ],
            }],
            ..Default::default()
        },
        "0000000000000202740300000000ffffffffffffffff10000000000000010000000000000064 \
         0800000a0010000102030405060708090a0b0c0d0e0f01040000000402040000000603080000 \
         0000000000210404047768790508000000000000000506040000000207080000000000000009 \
         0808000000000000002c0901010000",
    );
}

#[test]
fn write_mirror_states() {
    request(
        WriteMirrorStatesRequest {
            mirror_name: "m".into(),
            topics_updated: vec![write_mirror_states::TopicState {
                name: topic("t"),
                partitions: vec![write_mirror_states::PartitionState {
                    partition_index: 1,
                    last_mirrored_offset: 100,
                    state: 4,
                    topic_id: ID,
                    leader_epoch: 4,
                    state_epoch: 6,
                    association: 33,
                    ..Default::default()
                }],
            }],
            removed_topics: vec!["gone".into()],
        },
        0,
        "026d0202740200000001000000000000006404040010000102030405060708090a0b0c0d0e0f \
         01040000000402040000000603080000000000000021000205676f6e6500",
    );
    response(
        WriteMirrorStatesResponse {
            topics: vec![write_mirror_states::WrittenTopic {
                name: topic("t"),
                partitions: vec![write_mirror_states::WrittenPartition {
                    partition_index: 1,
                    error_code: 124,
                    topic_id: ID,
                    state_epoch: 7,
                }],
            }],
            ..Default::default()
        },
        "0000000000000202740200000001007c020010000102030405060708090a0b0c0d0e0f020400 \
         0000070000",
    );
}

#[test]
fn list_source_topics() {
    request(
        ListSourceTopicsRequest { mirror_name: "m".into(), patterns: vec!["a.*".into(), "b".into()] },
        0,
        "026d0304612e2a026200",
    );
    response(
        ListSourceTopicsResponse {
            topics: vec![list_source_topics::SourceTopic { name: topic("a1"), topic_id: ID, partitions: 3 }],
            ..Default::default()
        },
        "0000000000000002036131000102030405060708090a0b0c0d0e0f000000030000",
    );
}

#[test]
fn verify_mirror() {
    request(
        VerifyMirrorRequest {
            mirror_name: "m".into(),
            topics: vec![verify_mirror::VerifyTopic { name: topic("t"), partitions: vec![0, 2] }],
        },
        0,
        "026d0202740300000000000000020000",
    );
    response(
        VerifyMirrorResponse {
            topics: vec![verify_mirror::VerifiedTopic {
                name: topic("t"),
                partitions: vec![verify_mirror::VerifiedPartition {
                    partition_index: 0,
                    error_code: 0,
                    error_message: None,
                    from: 1,
                    to: 9,
                    equal: 5,
                    compacted: 2,
                    differing: 1,
                    missing: 0,
                    first_difference: 4,
                }],
            }],
            ..Default::default()
        },
        "0000000000000002027402000000000000000000000000000001000000000000000900000000 \
         0000000500000000000000020000000000000001000000000000000000000000000000040000 \
         00",
    );
}

#[test]
fn create_topics_8() {
    let mirrored = CreatableTopic::default()
        .with_name(topic("t"))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_mirror_info(Some(MirrorInfo { topic_id: ID }));
    let ordinary = CreatableTopic::default()
        .with_name(topic("u"))
        .with_num_partitions(1)
        .with_replication_factor(1)
        .with_configs(vec![CreatableTopicConfig { name: "k".into(), value: Some("v".into()) }]);
    let create = CreateTopicsRequest::default().with_topics(vec![mirrored, ordinary]);
    request(
        create,
        8,
        "030274ffffffffffff010101000102030405060708090a0b0c0d0e0f00000275000000010001 \
         0102026b027600ff000000ea600000",
    );
}

#[test]
fn unknown_tagged_fields_are_skipped() {
    let tagged = |count: u32| {
        let mut bytes = bytes::BytesMut::new();
        let mut writer = crate::wire::Writer::new(&mut bytes, 0, true);
        writer.unsigned_varint(count);
        for tag in 0..count {
            writer.tag(tag + 100, |content| content.string("later")).unwrap();
        }
        bytes.freeze()
    };
    let empty = Request::from(ListMirrorsRequest {});
    assert_eq!(decode_request(ApiKey::ListMirrors, 0, tagged(256)), Ok(empty));
    assert!(decode_request(ApiKey::ListMirrors, 0, tagged(257)).is_err());
    // A known tag that is longer than its value.
    let golden = unhex("01 01 00 02 01 00");
    let error = crate::error::DecodeError::TagLength;
    assert_eq!(decode_request(ApiKey::AddTopicsToMirror, 0, golden), Err(error));
}
