use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

/// A response in which everything is set that the version has.
fn response(version: i16, partitions: Vec<Option<Vec<u8>>>) -> FetchResponse {
    let partitions = partitions.into_iter().enumerate().map(|(index, records)| {
        let mut partition = PartitionData::default()
            .with_partition_index(index as i32)
            .with_error_code(1)
            .with_high_watermark(300)
            .with_last_stable_offset(200)
            .with_records(records.map(Bytes::from));
        if version >= 5 {
            partition.log_start_offset = 100;
        }
        if version >= 11 {
            partition.preferred_read_replica = BrokerId(7);
        }
        if index % 2 == 0 {
            let aborted =
                AbortedTransaction::default().with_producer_id(ProducerId(9)).with_first_offset(150);
            partition.aborted_transactions = Some(vec![aborted; index]);
        }
        if version >= 12 && index % 3 == 1 {
            partition.diverging_epoch = EpochEndOffset::default().with_epoch(4).with_end_offset(120);
            partition.current_leader =
                LeaderIdAndEpoch::default().with_leader_id(BrokerId(2)).with_leader_epoch(5);
        }
        if version >= 12 && index % 3 == 2 {
            partition.snapshot_id = SnapshotId::default().with_end_offset(1).with_epoch(2);
        }
        partition
    });
    let topic = FetchableTopicResponse::default().with_partitions(partitions.collect());
    let topic = if version >= 13 {
        topic.with_topic_id(Uuid::from_bytes([3; 16]))
    } else {
        topic.with_topic(TopicName("topic".into()))
    };
    let mut response =
        FetchResponse::default().with_throttle_time_ms(10).with_responses(vec![topic.clone(), topic]);
    if version >= 7 {
        response.error_code = 2;
        response.session_id = 77;
    }
    if version >= 16 {
        let endpoint =
            NodeEndpoint::default().with_node_id(BrokerId(2)).with_host("host".into()).with_port(9092);
        response.node_endpoints = vec![endpoint.clone().with_rack(Some("r".into())), endpoint];
    }
    response
}

fn plain(response: &FetchResponse, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    response.encode(&mut out, version).unwrap();
    out.freeze()
}

/// Takes the records out, encodes, and puts them into the gaps.
fn spliced(response: &FetchResponse, version: i16) -> Vec<u8> {
    let mut without = response.clone();
    let mut records = Vec::new();
    for partition in without.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
        records.push(partition.records.take().unwrap_or_default());
    }
    let placeholders: Vec<_> =
        records.iter().map(|records| RecordsPlaceholder { len: records.len() }).collect();
    let mut out = Vec::new();
    for piece in encode_fetch_response(&without, version, &placeholders).unwrap() {
        match piece {
            Piece::Bytes(bytes) => out.extend_from_slice(&bytes),
            Piece::Records(place) => {
                assert!(!records[place].is_empty());
                out.extend_from_slice(&records[place]);
            }
        }
    }
    out
}

#[test]
fn equal_to_kafka_protocol_in_all_versions() {
    for version in 4..=18 {
        let batch = |length: usize| Some(vec![0xab; length]);
        for records in [
            vec![],
            vec![batch(0)],
            vec![batch(100)],
            vec![batch(0), batch(20_000), batch(0), batch(1), batch(127), batch(128), batch(0)],
        ] {
            let response = response(version, records);
            let plain = plain(&response, version);
            assert_eq!(spliced(&response, version), plain, "version {version}");
            let read = ResponseCodec::decode(plain.clone(), version, version >= 12).unwrap();
            assert_eq!(read, FetchResponse::decode(&mut plain.clone(), version).unwrap());
            assert_eq!(read, response, "version {version}");
        }
    }
}

#[test]
fn an_empty_response_is_one_piece() {
    let pieces = encode_fetch_response_frame(&FetchResponse::default(), 12, 5, &[]).unwrap();
    let golden: &[u8] = &[0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(pieces, vec![Piece::Bytes(Bytes::from_static(golden))]);
}

#[test]
fn records_for_other_partitions_are_an_error() {
    let response = response(12, vec![None]);
    assert!(encode_fetch_response(&response, 12, &[RecordsPlaceholder { len: 1 }]).is_err());
    assert!(encode_fetch_response(&FetchResponse::default(), 3, &[]).is_err());
    assert!(encode_fetch_response(&FetchResponse::default(), 19, &[]).is_err());
}

#[test]
fn large_records_pass_and_are_slices_of_the_frame() {
    for version in [11, 12] {
        let response = response(version, vec![Some(vec![1; 3 << 20])]);
        let bytes = plain(&response, version);
        let frame = bytes.as_ptr_range();
        let read = ResponseCodec::decode(bytes.clone(), version, version >= 12).unwrap();
        let records = read.responses[0].partitions[0].records.clone().unwrap();
        assert_eq!(records.len(), 3 << 20);
        assert!(frame.contains(&records.as_ptr()));
    }
}

proptest! {
    #[test]
    fn equal_to_kafka_protocol(
        version in 4_i16..=18,
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let response = response(version, records.into_iter().map(Some).collect());
        let plain = plain(&response, version);
        prop_assert_eq!(&spliced(&response, version)[..], &plain[..]);
        let cut = cut.index(plain.len());
        prop_assert!(ResponseCodec::decode(plain.slice(..cut), version, version >= 12).is_err());
    }
}
