//! Data in, data out, and still there after a restart.

use broker::client::Connection;
use bytes::Bytes;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest};
use protocol::record_batch::{BatchBuilder, batches, check_crc};
use protocol::{Request, Response};

use crate::cluster::{Cluster, create_topic, topic_name};

fn batch(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for (index, value) in values.iter().enumerate() {
        builder = builder.record(1_700_000_000_000 + index as i64, Some(b"key"), Some(value.as_bytes()));
    }
    builder.build()
}

/// Version 12 of Produce and of Fetch still name topics.
const BY_NAME: i16 = 12;

/// From here on they name topics by id.
const BY_ID: i16 = 13;

pub fn produce_request(topic: &str, topic_id: uuid::Uuid, version: i16) -> Request {
    produce_records(topic, topic_id, version, -1, batch(&["sample"]))
}

fn produce_records(topic: &str, topic_id: uuid::Uuid, version: i16, acks: i16, records: Bytes) -> Request {
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(records));
    let data = TopicProduceData::default().with_partition_data(vec![partition]);
    let data =
        if version >= BY_ID { data.with_topic_id(topic_id) } else { data.with_name(topic_name(topic)) };
    let request = ProduceRequest::default().with_transactional_id(None);
    request.with_acks(acks).with_timeout_ms(10_000).with_topic_data(vec![data]).into()
}

/// Error code and base offset.
async fn produce(connection: &mut Connection, topic: &str, acks: i16, records: Bytes) -> (i16, i64) {
    let request = produce_records(topic, uuid::Uuid::nil(), BY_NAME, acks, records);
    let response = connection.call(request, BY_NAME).await.unwrap();
    let Response::Produce(response) = response else { panic!("{response:?}") };
    let answer = &response.responses[0].partition_responses[0];
    (answer.error_code, answer.base_offset)
}

pub fn fetch_request(topic: &str, topic_id: uuid::Uuid, version: i16) -> Request {
    fetch_from(topic, topic_id, version, 0)
}

fn fetch_from(topic: &str, topic_id: uuid::Uuid, version: i16, offset: i64) -> Request {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    let asked = FetchTopic::default().with_partitions(vec![partition]);
    let asked =
        if version >= BY_ID { asked.with_topic_id(topic_id) } else { asked.with_topic(topic_name(topic)) };
    FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![asked])
        .into()
}

async fn fetch(connection: &mut Connection, topic: &str, offset: i64) -> (i16, i64, Bytes) {
    let request = fetch_from(topic, uuid::Uuid::nil(), BY_NAME, offset);
    let response = connection.call(request, BY_NAME).await.unwrap();
    let Response::Fetch(response) = response else { panic!("{response:?}") };
    let answer = &response.responses[0].partitions[0];
    (answer.error_code, answer.high_watermark, answer.records.clone().unwrap_or_default())
}

pub fn list_offsets_request(topic: &str, timestamp: i64) -> ListOffsetsRequest {
    let partition = ListOffsetsPartition::default().with_partition_index(0).with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(vec![partition]);
    ListOffsetsRequest::default().with_topics(vec![topic])
}

async fn list_offset(connection: &mut Connection, topic: &str, timestamp: i64) -> i64 {
    let request = list_offsets_request(topic, timestamp);
    let response = connection.call_latest(Request::ListOffsets(request)).await.unwrap();
    let Response::ListOffsets(response) = response else { panic!("{response:?}") };
    let answer = &response.topics[0].partitions[0];
    assert_eq!(answer.error_code, 0, "{answer:?}");
    answer.offset
}

fn values(records: &[u8]) -> Vec<String> {
    let mut values = Vec::new();
    for batch in batches(records) {
        let batch = batch.unwrap();
        for record in batch.records() {
            values.push(String::from_utf8(record.unwrap().value.unwrap().to_vec()).unwrap());
        }
    }
    values
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_produced_is_fetched_and_survives_a_restart() {
    let mut cluster = Cluster::start().await;
    let mut connection = cluster.connect().await;
    create_topic(&mut connection, "orders", 1).await;
    wait_for_leader(&mut connection, "orders").await;

    assert_eq!(produce(&mut connection, "orders", -1, batch(&["a", "b"])).await, (0, 0));
    assert_eq!(produce(&mut connection, "orders", 1, batch(&["c"])).await, (0, 2));
    let (error, high_watermark, records) = fetch(&mut connection, "orders", 0).await;
    assert_eq!((error, high_watermark), (0, 3));
    assert_eq!(values(&records), ["a", "b", "c"]);
    for batch in batches(&records) {
        check_crc(batch.unwrap().bytes).unwrap();
    }
    assert_eq!(list_offset(&mut connection, "orders", -1).await, 3);
    assert_eq!(list_offset(&mut connection, "orders", -2).await, 0);
    assert_eq!(list_offset(&mut connection, "orders", 1_700_000_000_001).await, 1);

    cluster.stop_broker().await;
    cluster.start_broker().await;
    let mut connection = cluster.connect().await;
    wait_for_leader(&mut connection, "orders").await;
    let (error, _, records) = fetch(&mut connection, "orders", 1).await;
    assert_eq!((error, values(&records)), (0, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    assert_eq!(produce(&mut connection, "orders", -1, batch(&["d"])).await, (0, 3));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_kafkas() {
    let cluster = Cluster::start().await;
    let mut connection = cluster.connect().await;
    create_topic(&mut connection, "orders", 1).await;
    wait_for_leader(&mut connection, "orders").await;
    let unknown = produce(&mut connection, "nowhere", -1, batch(&["a"])).await;
    assert_eq!(unknown.0, 3, "UNKNOWN_TOPIC_OR_PARTITION");
    let mut damaged = batch(&["a"]).to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert_eq!(produce(&mut connection, "orders", -1, damaged.into()).await.0, 2, "CORRUPT_MESSAGE");
    assert_eq!(produce(&mut connection, "orders", 7, batch(&["a"])).await.0, 21, "INVALID_REQUIRED_ACKS");
    assert_eq!(fetch(&mut connection, "orders", 99).await.0, 1, "OFFSET_OUT_OF_RANGE");
    cluster.stop().await;
}

pub async fn wait_for_leader(connection: &mut Connection, topic: &str) {
    let deadline = tokio::time::Instant::now() + crate::cluster::PATIENCE;
    loop {
        let asked = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
        let request = MetadataRequest::default().with_topics(Some(vec![asked]));
        let response = connection.call_latest(Request::Metadata(request)).await.unwrap();
        let Response::Metadata(response) = response else { panic!("{response:?}") };
        let topic = &response.topics[0];
        if topic.error_code == 0 && topic.partitions.iter().all(|partition| partition.error_code == 0) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{topic:?}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
