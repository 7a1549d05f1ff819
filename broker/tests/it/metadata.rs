//! Topics come into being, are described and go again; what only the controller can answer is forwarded.

use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::*;
use protocol::{Request, Response};

use crate::cluster::{Cluster, create_topic, text, topic_name};
use crate::produce_fetch::wait_for_leader;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_created_by_asking_for_it() {
    let cluster = Cluster::start().await;
    let mut connection = cluster.connect().await;
    let asked = MetadataRequestTopic::default().with_name(Some(topic_name("first")));
    let request =
        MetadataRequest::default().with_topics(Some(vec![asked])).with_allow_auto_topic_creation(true);
    let response = connection.call_latest(Request::Metadata(request)).await.unwrap();
    let Response::Metadata(response) = response else { panic!("{response:?}") };
    assert_eq!(response.topics[0].error_code, 0, "it is here at once: {response:?}");
    assert_eq!(response.topics[0].partitions.len(), 2, "the controller's num.partitions");
    assert_eq!(response.brokers.len(), 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_described_altered_and_deleted() {
    let cluster = Cluster::start().await;
    let mut connection = cluster.connect().await;
    create_topic(&mut connection, "orders", 3).await;
    wait_for_leader(&mut connection, "orders").await;

    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("orders"))
        .with_configuration_keys(Some(vec![text("retention.ms"), text("mirror.name")]));
    let request =
        DescribeConfigsRequest::default().with_resources(vec![resource]).with_include_synonyms(true);
    let response = connection.call_latest(Request::DescribeConfigs(request)).await.unwrap();
    let Response::DescribeConfigs(response) = response else { panic!("{response:?}") };
    let names: Vec<&str> = response.results[0].configs.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["retention.ms"], "an ordinary topic has no mirror");

    let response = connection.call_latest(Request::DescribeQuorum(quorum_request())).await.unwrap();
    let Response::DescribeQuorum(response) = response else { panic!("{response:?}") };
    assert_eq!(response.topics[0].partitions[0].leader_id.0, 100);

    let topic = delete_topics_request::DeleteTopicState::default().with_name(Some(topic_name("orders")));
    let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
    let response = connection.call_latest(Request::DeleteTopics(request)).await.unwrap();
    let Response::DeleteTopics(response) = response else { panic!("{response:?}") };
    assert_eq!(response.responses[0].error_code, 0, "{response:?}");
    cluster.stop().await;
}

pub fn quorum_request() -> DescribeQuorumRequest {
    let partition = describe_quorum_request::PartitionData::default().with_partition_index(0);
    let topic = describe_quorum_request::TopicData::default()
        .with_topic_name(topic_name("__cluster_metadata"))
        .with_partitions(vec![partition]);
    DescribeQuorumRequest::default().with_topics(vec![topic])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotent_producers_get_ids_of_this_cluster_and_transactions_are_refused() {
    let cluster = Cluster::start().await;
    let mut connection = cluster.connect().await;
    let ask = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(1_000);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let response = connection.call_latest(Request::InitProducerId(ask.clone())).await.unwrap();
        let Response::InitProducerId(response) = response else { panic!("{response:?}") };
        assert_eq!((response.error_code, response.producer_epoch), (0, 0), "{response:?}");
        ids.push(response.producer_id.0);
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id > 1 << 40), "a prefix of the cluster's own: {ids:?}");
    let transactional = ask.with_transactional_id(Some(TransactionalId(text("t"))));
    let response = connection.call_latest(Request::InitProducerId(transactional)).await.unwrap();
    let Response::InitProducerId(response) = response else { panic!("{response:?}") };
    assert_eq!(response.error_code, 35, "UNSUPPORTED_VERSION");
    cluster.stop().await;
}
