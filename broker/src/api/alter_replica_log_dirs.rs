//! AlterReplicaLogDirs: replicas of this broker are to lie in other directories of it (KIP-113).

use std::collections::BTreeMap;

use protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use protocol::messages::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, TopicName};

use crate::replica::ReplicaManager;

/// Blocks on the disk.
pub fn handle(
    replicas: &ReplicaManager,
    request: &AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    // A topic may be named under several directories; it is answered once.
    let mut results: BTreeMap<&TopicName, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for directory in &request.dirs {
        for topic in &directory.topics {
            for partition in &topic.partitions {
                let altered = replicas.alter_log_dir(&topic.name.0, *partition, &directory.path);
                let result = AlterReplicaLogDirPartitionResult::default()
                    .with_partition_index(*partition)
                    .with_error_code(altered.err().map_or(0, |error| error.code()));
                results.entry(&topic.name).or_default().push(result);
            }
        }
    }
    let results = results.into_iter().map(|(name, partitions)| {
        AlterReplicaLogDirTopicResult::default().with_topic_name(name.clone()).with_partitions(partitions)
    });
    AlterReplicaLogDirsResponse::default().with_results(results.collect())
}
