//! Every version of every API that is advertised is answered.

use broker::client::Connection;
use protocol::api::{self, ApiKey};
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::*;
use protocol::mirror::*;
use protocol::quorum::TransferQuorumLeaderRequest;
use protocol::{Request, Response};

use crate::cluster::{Cluster, create_topic, text, topic_name};
use crate::produce_fetch::{self, wait_for_leader};

/// A request about the topic `orders` (or nothing at all) that the version can express.
fn sample(key: ApiKey, version: i16, topic_id: uuid::Uuid) -> Option<Request> {
    Some(match key {
        ApiKey::Produce => produce_fetch::produce_request("orders", topic_id, version),
        ApiKey::Fetch => produce_fetch::fetch_request("orders", topic_id, version),
        ApiKey::ListOffsets => produce_fetch::list_offsets_request("orders", -1).into(),
        ApiKey::Metadata => {
            let asked = MetadataRequestTopic::default().with_name(Some(topic_name("orders")));
            let request = MetadataRequest::default()
                .with_topics(Some(vec![asked]))
                .with_allow_auto_topic_creation(true)
                .with_include_topic_authorized_operations(version >= 8)
                .with_include_cluster_authorized_operations((8..=10).contains(&version));
            request.into()
        }
        ApiKey::ApiVersions => {
            let mut request = ApiVersionsRequest::default();
            if version >= 3 {
                request.client_software_name = text("test");
                request.client_software_version = text("1");
            }
            request.into()
        }
        ApiKey::CreateTopics => CreateTopicsRequest::default().into(),
        ApiKey::DeleteTopics => DeleteTopicsRequest::default().into(),
        ApiKey::DeleteRecords => {
            let partition = delete_records_request::DeleteRecordsPartition::default().with_offset(0);
            let topic = delete_records_request::DeleteRecordsTopic::default()
                .with_name(topic_name("orders"))
                .with_partitions(vec![partition]);
            DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(1_000).into()
        }
        ApiKey::InitProducerId => InitProducerIdRequest::default().with_transactional_id(None).into(),
        ApiKey::OffsetForLeaderEpoch => {
            let partition =
                offset_for_leader_epoch_request::OffsetForLeaderPartition::default().with_leader_epoch(0);
            let topic = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
                .with_topic(topic_name("orders"))
                .with_partitions(vec![partition]);
            OffsetForLeaderEpochRequest::default().with_topics(vec![topic]).into()
        }
        ApiKey::DescribeConfigs => {
            let resource = |kind, name: &str| {
                describe_configs_request::DescribeConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
                    .with_configuration_keys(None)
            };
            let resources = vec![
                resource(2, "orders"),
                resource(4, "1"),
                resource(4, ""),
                resource(2, "nowhere"),
                resource(99, ""),
            ];
            DescribeConfigsRequest::default().with_resources(resources).with_include_synonyms(true).into()
        }
        ApiKey::AlterConfigs => AlterConfigsRequest::default().into(),
        ApiKey::AlterReplicaLogDirs => {
            let topic = alter_replica_log_dirs_request::AlterReplicaLogDirTopic::default()
                .with_name(topic_name("orders"))
                .with_partitions(vec![0, 99]);
            let directory = alter_replica_log_dirs_request::AlterReplicaLogDir::default()
                .with_path(text("nowhere"))
                .with_topics(vec![topic]);
            AlterReplicaLogDirsRequest::default().with_dirs(vec![directory]).into()
        }
        ApiKey::DescribeLogDirs => DescribeLogDirsRequest::default().with_topics(None).into(),
        ApiKey::CreatePartitions => CreatePartitionsRequest::default().with_timeout_ms(1_000).into(),
        ApiKey::IncrementalAlterConfigs => IncrementalAlterConfigsRequest::default().into(),
        ApiKey::DescribeQuorum => crate::metadata::quorum_request().into(),
        ApiKey::DescribeCluster => DescribeClusterRequest::default().into(),
        ApiKey::DescribeProducers => {
            let topic = describe_producers_request::TopicRequest::default()
                .with_name(topic_name("orders"))
                .with_partition_indexes(vec![0, 99]);
            DescribeProducersRequest::default().with_topics(vec![topic]).into()
        }
        ApiKey::ElectLeaders => ElectLeadersRequest::default().with_topic_partitions(None).into(),
        ApiKey::AlterPartitionReassignments => {
            let partition = alter_partition_reassignments_request::ReassignablePartition::default()
                .with_replicas(Some(vec![BrokerId(1)]));
            let topic = alter_partition_reassignments_request::ReassignableTopic::default()
                .with_name(topic_name("orders"))
                .with_partitions(vec![partition]);
            AlterPartitionReassignmentsRequest::default().with_topics(vec![topic]).into()
        }
        ApiKey::ListPartitionReassignments => {
            ListPartitionReassignmentsRequest::default().with_topics(None).into()
        }
        ApiKey::UpdateFeatures => UpdateFeaturesRequest::default().into(),
        ApiKey::UnregisterBroker => UnregisterBrokerRequest::default().with_broker_id(BrokerId(99)).into(),
        ApiKey::AddRaftVoter => AddRaftVoterRequest::default().with_cluster_id(None).into(),
        ApiKey::RemoveRaftVoter => RemoveRaftVoterRequest::default().with_cluster_id(None).into(),
        ApiKey::TransferQuorumLeader => TransferQuorumLeaderRequest::default().into(),
        ApiKey::ListConfigResources => ListConfigResourcesRequest::default().into(),
        ApiKey::DescribeTopicPartitions => DescribeTopicPartitionsRequest::default()
            .with_cursor(None)
            .with_response_partition_limit(10)
            .into(),
        ApiKey::CreateMirror => CreateMirrorRequest::default().into(),
        ApiKey::AddTopicsToMirror => AddTopicsToMirrorRequest::default().into(),
        ApiKey::RemoveTopicsFromMirror => RemoveTopicsFromMirrorRequest::default().into(),
        ApiKey::LastMirroredOffsets => LastMirroredOffsetsRequest::default().into(),
        ApiKey::ListMirrors => ListMirrorsRequest::default().into(),
        ApiKey::DescribeMirrors => DescribeMirrorsRequest::default().into(),
        ApiKey::ReadMirrorStates => ReadMirrorStatesRequest::default().into(),
        ApiKey::WriteMirrorStates => WriteMirrorStatesRequest::default().into(),
        ApiKey::ListSourceTopics => ListSourceTopicsRequest::default().into(),
        ApiKey::VerifyMirror => VerifyMirrorRequest::default().into(),
        _ => return None,
    })
}

async fn topic_id(connection: &mut Connection, name: &str) -> uuid::Uuid {
    let asked = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
    let request = MetadataRequest::default().with_topics(Some(vec![asked]));
    let response = connection.call_latest(Request::Metadata(request)).await.unwrap();
    let Response::Metadata(response) = response else { panic!("{response:?}") };
    response.topics[0].topic_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_advertised_versions_are_answered() {
    let cluster = Cluster::start().await;
    let mut connection = cluster.connect().await;
    create_topic(&mut connection, "orders", 1).await;
    wait_for_leader(&mut connection, "orders").await;
    let id = topic_id(&mut connection, "orders").await;
    let mut failures = Vec::new();
    for spec in api::served_by_broker() {
        for version in spec.min_version..=spec.max_version {
            let Some(request) = sample(spec.key, version, id) else {
                failures.push(format!("{}: the test asks nothing", spec.name));
                break;
            };
            if let Err(error) = connection.call(request, version).await {
                failures.push(format!("{} {version}: {error}", spec.name));
                connection = cluster.connect().await;
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    cluster.stop().await;
}
