use bytes::BufMut;
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;

use super::*;

type Partition = (i32, Option<Vec<u8>>);

fn message(
    version: i16,
    id: Option<String>,
    acks: i16,
    topics: Vec<(String, [u8; 16], Vec<Partition>)>,
) -> KafkaProduceRequest {
    let topics = topics.into_iter().map(|(name, topic_id, partitions)| {
        let partitions = partitions.into_iter().map(|(index, records)| {
            PartitionProduceData::default().with_index(index).with_records(records.map(Bytes::from))
        });
        let topic = TopicProduceData::default().with_partition_data(partitions.collect());
        if version >= 13 {
            topic.with_topic_id(Uuid::from_bytes(topic_id))
        } else {
            topic.with_name(TopicName(name.into()))
        }
    });
    KafkaProduceRequest::default()
        .with_transactional_id(id.map(|id| TransactionalId(id.into())))
        .with_acks(acks)
        .with_timeout_ms(1500)
        .with_topic_data(topics.collect())
}

fn encode(message: &KafkaProduceRequest, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut out, version).unwrap();
    out.freeze()
}

/// Null and no records are one to us.
fn without_null(mut message: KafkaProduceRequest) -> KafkaProduceRequest {
    for partition in message.topic_data.iter_mut().flat_map(|topic| &mut topic.partition_data) {
        partition.records.get_or_insert_default();
    }
    message
}

#[test]
fn records_are_found_where_they_lie() {
    let message = message(9, None, -1, vec![("t".into(), [0; 16], vec![(3, Some(b"batch".to_vec()))])]);
    let bytes = encode(&message, 9);
    let request = decode(&bytes, 9).unwrap();
    assert_eq!((request.acks, request.timeout_ms), (-1, 1500));
    let partition = &request.topics[0].partitions[0];
    assert_eq!((partition.index, &bytes[partition.records.clone()]), (3, &b"batch"[..]));
}

#[test]
fn what_cannot_be_true_is_refused() {
    let body = |rest: &[u8]| [&[0xff, 0xff, 0, 1, 0, 0, 0, 1][..], rest].concat();
    // Topics, partitions, records of 2^31-1; topics null; a batch past the end.
    assert!(matches!(decode(&body(&[0x7f, 0xff, 0xff, 0xff]), 3), Err(DecodeError::Count { .. })));
    assert!(matches!(
        decode(&body(&[0, 0, 0, 1, 0, 1, b't', 0x7f, 0xff, 0xff, 0xff]), 3),
        Err(DecodeError::Count { .. })
    ));
    let partition = |length: i32| {
        let mut bytes = body(&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0]);
        bytes.put_i32(length);
        bytes
    };
    for length in [i32::MAX, 1, -2] {
        assert!(matches!(decode(&partition(length), 3), Err(DecodeError::Count { .. })), "{length}");
    }
    assert_eq!(decode(&partition(-1), 3).unwrap().topics[0].partitions[0].records, 0..0);
    assert_eq!(decode(&body(&[0xff, 0xff, 0xff, 0xff]), 3), Err(DecodeError::Null));
    for version in [-1, 0, 2, 14] {
        let error = DecodeError::UnsupportedVersion { key: ApiKey::Produce, version };
        assert_eq!(decode(&[], version), Err(error));
    }
}

proptest! {
    #[test]
    fn reads_what_kafka_protocol_reads(
        version in 3_i16..=13,
        id in prop::option::of("[a-z]{0,10}"),
        acks in -1_i16..=1,
        topics in prop::collection::vec(
            (
                "[a-z]{0,10}",
                any::<[u8; 16]>(),
                prop::collection::vec((any::<i32>(), prop::option::of(prop::collection::vec(any::<u8>(), 0..300))), 0..5),
            ),
            0..5,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = encode(&message(version, id, acks, topics), version);
        let theirs = KafkaProduceRequest::decode(&mut bytes.clone(), version).unwrap();
        let ours = RequestCodec::decode(bytes.clone(), version, version >= 9);
        prop_assert_eq!(ours, Ok(without_null(theirs)));

        prop_assert!(decode(&bytes, version).is_ok());
        let cut = cut.index(bytes.len());
        prop_assert!(decode(&bytes[..cut], version).is_err());
        let mut longer = bytes.to_vec();
        longer.push(0);
        prop_assert_eq!(decode(&longer, version), Err(DecodeError::TrailingBytes(1)));
    }

    #[test]
    fn random_bytes_are_harmless(version in 3_i16..=13, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes, version);
    }
}
