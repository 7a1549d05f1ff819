use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::messages::*;
use protocol::mirror::add_topics_to_mirror::TopicState as AddTopic;
use protocol::mirror::create_mirror::MirrorConfig;
use protocol::mirror::remove_topics_from_mirror::TopicState as RemoveTopic;
use protocol::mirror::*;

use crate::ask;
use crate::harness::{Kafka, start};

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn new_topic(name: &str, partitions: i32) -> CreatableTopic {
    let mut topic = CreatableTopic::default();
    topic.name = TopicName(text(name));
    topic.num_partitions = partitions;
    topic.replication_factor = -1;
    topic
}

#[tokio::test]
async fn versions_cluster_and_quorum() {
    let harness = start(&[]).await;
    let mut kafka = harness.kafka().await;
    let mut request = ApiVersionsRequest::default();
    request.client_software_name = text("apache-kafka-java");
    request.client_software_version = text("4.4.0");
    let versions = ask!(kafka, ApiVersions, request, 4);
    let range = |key: i16| versions.api_keys.iter().find(|range| range.api_key == key);
    assert_eq!(range(19).unwrap().max_version, 7, "CreateTopics 8 only for our own clients");
    assert!(range(12790).is_some() && range(0).is_none());
    assert!(versions.finalized_features.iter().any(|feature| feature.max_version_level == 33));

    let request = DescribeClusterRequest::default().with_endpoint_type(2);
    let cluster = ask!(kafka, DescribeCluster, request, 1);
    assert_eq!((cluster.error_code, cluster.controller_id.0), (0, 1));
    assert_eq!(cluster.brokers[0].port, i32::from(harness.server.addresses().listeners[0].port()));
    let cluster = ask!(kafka, DescribeCluster, DescribeClusterRequest::default(), 0);
    assert_eq!(cluster.error_code, ErrorCode::MismatchedEndpointType.code());

    let mut topic = describe_quorum_request::TopicData::default();
    topic.topic_name = TopicName(text("__cluster_metadata"));
    topic.partitions = vec![describe_quorum_request::PartitionData::default()];
    let quorum = ask!(kafka, DescribeQuorum, DescribeQuorumRequest::default().with_topics(vec![topic]), 2);
    let partition = &quorum.topics[0].partitions[0];
    assert_eq!((partition.error_code, partition.leader_id.0, partition.current_voters.len()), (0, 1, 1));
    assert!(partition.high_watermark > 0);
    harness.server.shutdown().await;
}

#[tokio::test]
async fn bad_frames_close_the_connection_and_an_unknown_version_is_answered() {
    let harness = start(&[]).await;
    let address = harness.server.addresses().listeners[0];
    // ApiVersions 99 without a client id, with the tags that headers of later versions have.
    let mut kafka = Kafka::connect(address).await;
    let frame = kafka.send(&[0, 0, 0, 11, 0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff, 0]).await;
    assert_eq!(frame.map(|frame| frame[..6].to_vec()), Some(vec![0, 0, 0, 7, 0, 35]));
    let cases: [(&str, &[u8]); 3] = [
        ("unknown key", &[0, 0, 0, 10, 0x70, 0, 0, 0, 0, 0, 0, 7, 0xff, 0xff]),
        ("Produce", &[0, 0, 0, 10, 0, 0, 0, 3, 0, 0, 0, 7, 0xff, 0xff]),
        ("a body that ends too early", &[0, 0, 0, 10, 0, 20, 0, 1, 0, 0, 0, 7, 0xff, 0xff]),
    ];
    for (name, bytes) in cases {
        let mut kafka = Kafka::connect(address).await;
        assert_eq!(kafka.send(bytes).await, None, "{name}");
    }
    harness.server.shutdown().await;
}

#[tokio::test]
async fn topics_and_configs() {
    let harness = start(&[("num.partitions", "3")]).await;
    let _broker = harness.active_broker(5).await;
    let mut kafka = harness.kafka().await;
    let topics = vec![new_topic("t", -1), new_topic("bad/name", 1)];
    let created = ask!(kafka, CreateTopics, CreateTopicsRequest::default().with_topics(topics), 7);
    assert_eq!((created.topics[0].error_code, created.topics[0].num_partitions), (0, 3));
    assert!(created.topics[0].configs.as_ref().is_some_and(|configs| configs.len() > 20));
    assert_eq!(created.topics[1].error_code, ErrorCode::InvalidTopicException.code());

    let alter = |key: &str, value: &str| {
        let mut config = AlterableConfig::default();
        config.name = text(key);
        config.value = Some(text(value));
        let mut resource = AlterConfigsResource::default();
        resource.resource_type = 2;
        resource.resource_name = text("t");
        resource.configs = vec![config];
        IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
    };
    let answer = ask!(kafka, IncrementalAlterConfigs, alter("retention.ms", "77"), 1);
    assert_eq!(answer.responses[0].error_code, 0);
    let answer = ask!(kafka, IncrementalAlterConfigs, alter("mirror.name", "m"), 1);
    assert_eq!(answer.responses[0].error_code, ErrorCode::InvalidRequest.code(), "case 42");
    let mut resource = DescribeConfigsResource::default();
    resource.resource_type = 2;
    resource.resource_name = text("t");
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let described = ask!(kafka, DescribeConfigs, request, 4);
    let entry = described.results[0].configs.iter().find(|entry| &*entry.name == "retention.ms").unwrap();
    assert_eq!((entry.value.as_deref(), entry.config_source), (Some("77"), 1));

    let mut more = create_partitions_request::CreatePartitionsTopic::default();
    more.name = TopicName(text("t"));
    more.count = 5;
    more.assignments = None;
    let request = CreatePartitionsRequest::default().with_topics(vec![more]);
    assert_eq!(ask!(kafka, CreatePartitions, request, 3).results[0].error_code, 0);
    assert_eq!(harness.server.image().topic("t").unwrap().partitions.len(), 5);

    let mut wanted = DeleteTopicState::default();
    wanted.topic_id = created.topics[0].topic_id;
    let request = DeleteTopicsRequest::default().with_topics(vec![wanted]);
    let deleted = ask!(kafka, DeleteTopics, request.clone(), 6);
    assert_eq!(
        (deleted.responses[0].error_code, deleted.responses[0].name.as_ref().map(|n| &*n.0)),
        (0, Some("t"))
    );
    let again = ask!(kafka, DeleteTopics, request, 6);
    assert_eq!(again.responses[0].error_code, ErrorCode::UnknownTopicId.code());
    harness.server.shutdown().await;
}

#[tokio::test]
async fn a_thousand_topics_of_four_partitions_in_well_under_a_second() {
    let harness = start(&[]).await;
    let _broker = harness.active_broker(5).await;
    let topics = (0..1000).map(|number| new_topic(&format!("topic-{number}"), 4)).collect();
    let started = std::time::Instant::now();
    let request = CreateTopicsRequest::default().with_topics(topics);
    let created = ask!(harness.kafka().await, CreateTopics, request, 7);
    assert!(created.topics.iter().all(|topic| topic.error_code == 0));
    // Without optimisation; a release build needs a fraction of it.
    assert!(started.elapsed().as_millis() < 3000, "{:?}", started.elapsed());
    assert_eq!(harness.server.image().topics.by_id.len(), 1000);
    harness.server.shutdown().await;
}

#[tokio::test]
async fn mirrors_are_driven_through_the_controller_alone() {
    let harness = start(&[]).await;
    let _broker = harness.active_broker(5).await;
    let mut kafka = harness.kafka().await;
    let topics = vec![new_topic("t", 2)];
    ask!(kafka, CreateTopics, CreateTopicsRequest::default().with_topics(topics), 7);

    let mut config = MirrorConfig::default();
    config.name = text("bootstrap.servers");
    config.value = Some(text("source:9092"));
    let mut create = CreateMirrorRequest::default();
    create.mirror_name = Some(text("m"));
    create.config = vec![config];
    assert_eq!(ask!(kafka, CreateMirror, create.clone(), 0).error_code, 0);
    assert_eq!(ask!(kafka, CreateMirror, create, 0).error_code, ErrorCode::MirrorAlreadyExists.code());
    assert!(harness.server.image().topic("__mirror_state").is_some());

    let add = |names: &[&str]| {
        let mut request = AddTopicsToMirrorRequest::default();
        request.topics = names
            .iter()
            .map(|name| {
                let mut topic = AddTopic::default();
                topic.topic_name = TopicName(text(name));
                topic.mirror_name = Some(text("m"));
                topic
            })
            .collect();
        request
    };
    let added = ask!(kafka, AddTopicsToMirror, add(&["t", "later"]), 0);
    assert_eq!((added.error_code, added.topics.len()), (0, 2));
    let again = ask!(kafka, AddTopicsToMirror, add(&["later", "t"]), 0);
    assert_eq!(again.error_code, ErrorCode::InvalidRequest.code());
    assert_eq!(again.topics[0].error_code, ErrorCode::OperationNotAttempted.code());

    let listed = ask!(kafka, ListMirrors, ListMirrorsRequest::default(), 0);
    assert_eq!((&*listed.mirrors[0].mirror_name, listed.mirrors[0].topic_count), ("m", 2));
    let described = ask!(kafka, DescribeMirrors, DescribeMirrorsRequest::default(), 0);
    let partition = &described.mirrors[0].topics[0].partitions[0];
    assert_eq!((&*partition.state, partition.reason.as_deref()), ("", Some("not reported yet")));

    let mut asked = LastMirroredOffsetsRequest::default();
    asked.mirror_name = text("m");
    let mut topic = last_mirrored_offsets::TopicState::default();
    topic.name = TopicName(text("unknown"));
    topic.partitions = vec![last_mirrored_offsets::PartitionState::default()];
    asked.topics = vec![topic];
    let answer = ask!(kafka, LastMirroredOffsets, asked, 0);
    let partition = &answer.topics[0].partitions[0];
    assert_eq!((partition.last_mirrored_offset, partition.error_code, partition.recorded), (0, 0, false));

    let mut remove = RemoveTopicsFromMirrorRequest::default();
    remove.mirror_name = text("m");
    let mut topic = RemoveTopic::default();
    topic.topic_name = TopicName(text("t"));
    remove.topics = vec![topic];
    assert_eq!(ask!(kafka, RemoveTopicsFromMirror, remove.clone(), 0).error_code, 0);
    assert!(harness.server.image().topic("t").unwrap().mirror.as_ref().unwrap().removed);
    assert_eq!(ask!(kafka, RemoveTopicsFromMirror, remove, 0).error_code, 0, "goes on waiting");
    let states = ask!(kafka, WriteMirrorStates, WriteMirrorStatesRequest::default(), 0);
    assert_eq!(states.error_code, ErrorCode::NotCoordinator.code());
    harness.server.shutdown().await;
}

#[tokio::test]
async fn every_version_of_every_api_is_answered() {
    use protocol::{ApiKey, Request};

    let harness = start(&[]).await;
    let _broker = harness.active_broker(5).await;
    let mut software = ApiVersionsRequest::default();
    software.client_software_name = text("kagami");
    software.client_software_version = text("1");
    let mut deleted = DeleteTopicState::default();
    deleted.name = Some(TopicName(text("absent")));
    let by_state = DeleteTopicsRequest::default().with_topics(vec![deleted]);
    let by_name = DeleteTopicsRequest::default().with_topic_names(vec![TopicName(text("absent"))]);
    let mut described = DescribeConfigsResource::default();
    described.resource_type = 4;
    described.resource_name = text("1");
    described.configuration_keys = None;
    let mut partitions = create_partitions_request::CreatePartitionsTopic::default();
    partitions.name = TopicName(text("absent"));
    let mut quorum = describe_quorum_request::TopicData::default();
    quorum.topic_name = TopicName(text("__cluster_metadata"));
    quorum.partitions = vec![describe_quorum_request::PartitionData::default()];
    let mut altered = AlterConfigsResource::default();
    altered.resource_type = 99;
    let mut legacy = alter_configs_request::AlterConfigsResource::default();
    legacy.resource_type = 2;
    legacy.resource_name = text("absent");
    let requests: Vec<Request> = vec![
        software.into(),
        DescribeClusterRequest::default().into(),
        DescribeQuorumRequest::default().with_topics(vec![quorum]).into(),
        DescribeConfigsRequest::default().with_resources(vec![described]).into(),
        IncrementalAlterConfigsRequest::default().with_resources(vec![altered]).into(),
        AlterConfigsRequest::default().with_resources(vec![legacy]).into(),
        CreatePartitionsRequest::default().with_topics(vec![partitions]).into(),
        CreateMirrorRequest::default().into(),
        AddTopicsToMirrorRequest::default().into(),
        RemoveTopicsFromMirrorRequest::default().into(),
        LastMirroredOffsetsRequest::default().into(),
        ListMirrorsRequest::default().into(),
        DescribeMirrorsRequest::default().into(),
        ReadMirrorStatesRequest::default().into(),
        WriteMirrorStatesRequest::default().into(),
    ];
    let mut kafka = harness.kafka().await;
    for request in requests {
        let spec = request.key().spec();
        for version in spec.min_version..=spec.max_version {
            kafka.ask(request.clone(), version).await;
        }
    }
    let delete = ApiKey::DeleteTopics.spec();
    for version in delete.min_version..=delete.max_version {
        let request = if version < 6 { by_name.clone() } else { by_state.clone() };
        let response = ask!(kafka, DeleteTopics, request, version);
        assert_eq!(response.responses[0].error_code, ErrorCode::UnknownTopicOrPartition.code());
    }
    let create = ApiKey::CreateTopics.spec();
    for version in create.min_version..=create.max_version {
        let mut topic = new_topic(&format!("v{version}"), 1);
        topic.replication_factor = 1;
        let response =
            ask!(kafka, CreateTopics, CreateTopicsRequest::default().with_topics(vec![topic]), version);
        assert_eq!(response.topics[0].error_code, 0, "version {version}");
    }
    harness.server.shutdown().await;
}
