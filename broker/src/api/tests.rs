//! Answers from an image, as clients of one listener see them.

use common::ids::{
    BrokerEpoch, BrokerId, DirectoryId, IncarnationId, LeaderEpoch, MetadataOffset, PartitionEpoch, Term,
    TopicId,
};
use common::metadata::record::*;
use common::metadata::{MetadataBatch, MetadataDelta, MetadataImage, MetadataRecord};
use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::describe_topic_partitions_request::TopicRequest;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::*;
use uuid::Uuid;

use super::metadata::{Asker, topics_to_create};
use super::{describe_cluster, describe_topic_partitions, list_config_resources, metadata};

fn id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

fn register(broker: i32, listeners: &[&str]) -> MetadataRecord {
    let endpoint = |name: &&str| Endpoint {
        name: (*name).to_owned(),
        host: format!("host{broker}"),
        port: 9092,
        security_protocol: 0,
    };
    MetadataRecord::RegisterBroker {
        broker_id: BrokerId(broker),
        incarnation_id: IncarnationId(Uuid::from_u128(broker as u128)),
        endpoints: listeners.iter().map(endpoint).collect(),
        rack: None,
        directories: vec![],
        inter_broker_endpoint: 0,
    }
}

fn unfence(broker: i32, epoch: i64) -> MetadataRecord {
    MetadataRecord::BrokerChange {
        broker_id: BrokerId(broker),
        broker_epoch: BrokerEpoch(epoch),
        fenced: Some(false),
        in_controlled_shutdown: None,
    }
}

fn partition(topic: u128, index: i32, leader: Option<i32>, replicas: &[i32]) -> MetadataRecord {
    let ids: Vec<BrokerId> = replicas.iter().map(|id| BrokerId(*id)).collect();
    MetadataRecord::Partition {
        topic_id: id(topic),
        partition: index,
        registration: PartitionRegistration {
            directories: vec![DirectoryId::ZERO; ids.len()],
            isr: ids.clone(),
            replicas: ids,
            elr: vec![],
            last_known_elr: vec![],
            adding_replicas: vec![],
            removing_replicas: vec![],
            leader: leader.map(BrokerId),
            leader_epoch: LeaderEpoch(5),
            partition_epoch: PartitionEpoch(0),
            leader_recovery_state: LeaderRecoveryState::Recovered,
        },
    }
}

fn topic(number: u128, name: &str) -> MetadataRecord {
    MetadataRecord::Topic { topic_id: id(number), name: name.into() }
}

/// Brokers 1 (two listeners), 2 (one listener), 3 (fenced); topics `alpha` of 3 partitions and `beta`
/// of 1; a pending mirror topic.
fn image() -> MetadataImage {
    let steps = [
        vec![register(1, &["PLAINTEXT", "OTHER"])],
        vec![register(2, &["PLAINTEXT"])],
        vec![register(3, &["PLAINTEXT", "OTHER"])],
        vec![unfence(1, 1), unfence(2, 2)],
        vec![
            topic(1, "alpha"),
            partition(1, 0, Some(1), &[1, 3]),
            partition(1, 1, Some(2), &[2, 1]),
            partition(1, 2, None, &[3]),
        ],
        vec![topic(2, "beta"), partition(2, 0, Some(1), &[1])],
        vec![
            MetadataRecord::Mirror { name: "m".into() },
            MetadataRecord::PendingMirrorTopic { topic: "waiting".into(), mirror: Some("m".into()) },
        ],
    ];
    let mut image = MetadataImage::default();
    for (index, records) in steps.into_iter().enumerate() {
        let batch = MetadataBatch {
            term: Term(1),
            offset: MetadataOffset(index as i64 + 1),
            predecessor_term: Term(u64::from(index > 0)),
            timestamp_ms: 0,
            records,
        };
        image.apply(&batch, &mut MetadataDelta::default()).expect("applies");
    }
    image
}

fn asker(listener_name: &str, version: i16) -> Asker<'_> {
    Asker { broker_id: 2, cluster_id: "cluster", listener_name, version }
}

fn named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
}

fn errors(response: &MetadataResponse) -> Vec<i16> {
    response.topics.iter().map(|topic| topic.error_code).collect()
}

#[test]
fn all_topics_with_leaders_and_offline_replicas() {
    let request = MetadataRequest::default().with_topics(None);
    let response = metadata::handle(&image(), &request, &asker("PLAINTEXT", 13));
    assert_eq!(response.brokers.iter().map(|broker| broker.node_id.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(response.controller_id.0, 2);
    let alpha = &response.topics[0];
    let seen: Vec<(i16, i32, i32, usize)> = alpha
        .partitions
        .iter()
        .map(|p| (p.error_code, p.leader_id.0, p.leader_epoch, p.offline_replicas.len()))
        .collect();
    assert_eq!(seen, [(0, 1, 5, 1), (0, 2, 5, 0), (ErrorCode::LeaderNotAvailable.code(), -1, 5, 1)]);
    assert_eq!(alpha.topic_id, id(1).0);
    assert_eq!(response.topics.len(), 2);
}

#[test]
fn none_and_all_are_told_apart() {
    let none = MetadataRequest::default().with_topics(Some(vec![]));
    assert!(metadata::handle(&image(), &none, &asker("PLAINTEXT", 1)).topics.is_empty());
    assert_eq!(metadata::handle(&image(), &none, &asker("PLAINTEXT", 0)).topics.len(), 2, "version 0");
}

#[test]
fn a_leader_without_the_listener_of_the_asker() {
    let request = MetadataRequest::default().with_topics(Some(vec![named("alpha")]));
    let error = |version| {
        let response = metadata::handle(&image(), &request, &asker("OTHER", version));
        response.topics[0].partitions[1].error_code
    };
    assert_eq!(error(6), ErrorCode::ListenerNotFound.code());
    assert_eq!(error(5), ErrorCode::LeaderNotAvailable.code());
}

#[test]
fn version_0_lists_what_can_be_reached() {
    let request = MetadataRequest::default().with_topics(Some(vec![named("alpha")]));
    let response = metadata::handle(&image(), &request, &asker("PLAINTEXT", 0));
    let first = &response.topics[0].partitions[0];
    assert_eq!(first.error_code, ErrorCode::ReplicaNotAvailable.code());
    assert_eq!(first.replica_nodes.len(), 1);
}

#[test]
fn unknown_names_and_ids() {
    let by_id = |id: TopicId| MetadataRequestTopic::default().with_topic_id(id.0).with_name(None);
    let topics = vec![named("gamma"), named("a b"), by_id(id(1)), by_id(id(9))];
    let request = MetadataRequest::default().with_topics(Some(topics));
    let response = metadata::handle(&image(), &request, &asker("PLAINTEXT", 12));
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    let invalid = ErrorCode::InvalidTopicException.code();
    assert_eq!(errors(&response), [unknown, invalid, 0, ErrorCode::UnknownTopicId.code()]);
    assert_eq!(response.topics[2].name.as_ref().map(|name| name.0.as_str()), Some("alpha"));
    assert_eq!(response.topics[3].topic_id, id(9).0);
    let response = metadata::handle(&image(), &request, &asker("PLAINTEXT", 11));
    assert_eq!(errors(&response)[2], ErrorCode::InvalidRequest.code(), "ids came with version 12");
}

#[test]
fn what_a_request_may_create() {
    let topics = ["gamma", "alpha", "waiting", "a b", "__mirror_state", "gamma"].map(named).to_vec();
    let request = MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(true);
    let names = |request: &MetadataRequest, version| topics_to_create(&image(), request, version);
    assert_eq!(names(&request, 4), ["gamma".into()]);
    let forbidden = request.with_allow_auto_topic_creation(false);
    assert!(names(&forbidden, 4).is_empty());
    assert_eq!(names(&forbidden, 3), ["gamma".into()], "an older client cannot forbid it");
}

#[test]
fn clusters_of_brokers_only() {
    let ask = |endpoint_type, fenced| {
        let request = DescribeClusterRequest::default()
            .with_endpoint_type(endpoint_type)
            .with_include_fenced_brokers(fenced);
        describe_cluster::handle(&image(), &request, &asker("PLAINTEXT", 2))
    };
    assert_eq!(ask(1, false).brokers.len(), 2);
    assert!(ask(1, true).brokers.iter().any(|broker| broker.is_fenced));
    assert_eq!(ask(2, false).error_code, ErrorCode::MismatchedEndpointType.code());
    assert_eq!(ask(9, false).error_code, ErrorCode::UnsupportedEndpointType.code());
}

#[test]
fn partitions_come_page_by_page() {
    let mut cursor = None;
    let mut pages = Vec::new();
    loop {
        let request = DescribeTopicPartitionsRequest::default()
            .with_response_partition_limit(2)
            .with_cursor(cursor.take());
        let response =
            describe_topic_partitions::handle(&image(), &request, "PLAINTEXT").expect("a valid cursor");
        let page: Vec<(String, Vec<i32>)> = response
            .topics
            .iter()
            .map(|topic| {
                let name = topic.name.as_ref().map(|name| name.0.to_string()).unwrap_or_default();
                (name, topic.partitions.iter().map(|p| p.partition_index).collect())
            })
            .collect();
        pages.push(page);
        let Some(next) = response.next_cursor else { break };
        cursor = Some(
            describe_topic_partitions_request::Cursor::default()
                .with_topic_name(next.topic_name)
                .with_partition_index(next.partition_index),
        );
    }
    let page = |topics: &[(&str, &[i32])]| -> Vec<(String, Vec<i32>)> {
        topics.iter().map(|(name, partitions)| ((*name).to_owned(), partitions.to_vec())).collect()
    };
    assert_eq!(pages, [page(&[("alpha", &[0, 1])]), page(&[("alpha", &[2]), ("beta", &[0])])]);
}

#[test]
fn a_negative_cursor_is_refused_and_unknown_topics_are_named() {
    let bad = describe_topic_partitions_request::Cursor::default().with_partition_index(-1);
    let request = DescribeTopicPartitionsRequest::default().with_cursor(Some(bad));
    assert_eq!(
        describe_topic_partitions::handle(&image(), &request, "PLAINTEXT").expect_err("refused"),
        ErrorCode::InvalidRequest
    );
    let topic = TopicRequest::default().with_name(TopicName(StrBytes::from_static_str("gamma")));
    let request = DescribeTopicPartitionsRequest::default().with_topics(vec![topic]);
    let response = describe_topic_partitions::handle(&image(), &request, "PLAINTEXT").expect("valid");
    assert_eq!(response.topics[0].error_code, ErrorCode::UnknownTopicOrPartition.code());
}

#[test]
fn resources_with_a_configuration() {
    let names = |types: Vec<i8>, version| {
        let request = protocol::messages::ListConfigResourcesRequest::default().with_resource_types(types);
        let response = list_config_resources::handle(&image(), &request, version);
        let names = response.config_resources.iter().map(|r| r.resource_name.to_string()).collect::<Vec<_>>();
        (response.error_code, names)
    };
    assert_eq!(names(vec![2], 1), (0, vec!["alpha".to_owned(), "beta".to_owned()]));
    assert_eq!(names(vec![64], 1), (0, vec!["m".to_owned()]));
    assert_eq!(names(vec![], 0), (0, vec![]), "version 0 lists client metrics");
    assert_eq!(names(vec![99], 1).0, ErrorCode::UnsupportedVersion.code());
    assert_eq!(names(vec![], 1).1.len(), 2 + 2 + 2 + 1);
}

#[test]
fn eligible_leader_replicas_show_in_describe_topic_partitions() {
    let mut image = image();
    let ids = |ids: &[i32]| Some(ids.iter().map(|id| BrokerId(*id)).collect::<Vec<_>>());
    let batch = MetadataBatch {
        term: Term(1),
        offset: image.offset.next(),
        predecessor_term: image.term,
        timestamp_ms: 0,
        records: vec![MetadataRecord::PartitionChange {
            topic_id: id(1),
            partition: 0,
            change: PartitionChange {
                isr: ids(&[1]),
                elr: ids(&[3]),
                last_known_elr: ids(&[2]),
                ..PartitionChange::default()
            },
        }],
    };
    image.apply(&batch, &mut MetadataDelta::default()).expect("applies");
    let alpha = TopicRequest::default().with_name(TopicName("alpha".into()));
    let request =
        DescribeTopicPartitionsRequest::default().with_topics(vec![alpha]).with_response_partition_limit(10);
    let response = describe_topic_partitions::handle(&image, &request, "PLAINTEXT").expect("valid");
    let wire = |ids: &[i32]| Some(ids.iter().map(|id| (*id).into()).collect::<Vec<_>>());
    let shown = response.topics[0]
        .partitions
        .iter()
        .map(|partition| (partition.eligible_leader_replicas.clone(), partition.last_known_elr.clone()));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [(wire(&[3]), wire(&[2])), (wire(&[]), wire(&[])), (wire(&[]), wire(&[]))]
    );
}
