//! DescribeLogDirs: directories, what lies in them or moves there, and how full their disks are (4). Nothing is ever
//! cordoned (5).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use common::ids::*;
use protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use protocol::{ErrorCode, StrBytes};

use crate::replica::{Partition, ReplicaManager};

const UNKNOWN_BYTES: i64 = -1;

type Wanted<'a> = HashMap<&'a str, HashSet<i32>>;
type ByTopic = BTreeMap<Arc<str>, Vec<DescribeLogDirsPartition>>;

pub fn handle(replicas: &ReplicaManager, request: &DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let wanted: Option<Wanted<'_>> = request.topics.as_ref().map(|topics| {
        let topic = |topic: &'_ protocol::messages::describe_log_dirs_request::DescribableLogDirTopic| {
            topic.partitions.iter().copied().collect::<HashSet<i32>>()
        };
        topics.iter().map(|entry| (entry.topic.0.as_str(), topic(entry))).collect()
    });
    let is_wanted = |topic: &str, index: i32| {
        let named = |wanted: &Wanted<'_>| wanted.get(topic).is_some_and(|indexes| indexes.contains(&index));
        wanted.as_ref().is_none_or(named)
    };
    let mut by_directory: HashMap<DirectoryId, ByTopic> = HashMap::new();
    let mut put = |directory: DirectoryId, topic: &Arc<str>, described: DescribeLogDirsPartition| {
        by_directory.entry(directory).or_default().entry(topic.clone()).or_default().push(described);
    };
    for partition in replicas.partitions() {
        if is_wanted(partition.topic(), partition.id().partition) {
            put(partition.directory_id(), partition.topic(), described(&partition));
        }
    }
    for (future, lag) in replicas.moving_replicas() {
        if is_wanted(future.topic(), future.id().partition) {
            let described = DescribeLogDirsPartition::default()
                .with_partition_index(future.id().partition)
                .with_partition_size(size(future.read().size_bytes()))
                .with_offset_lag(lag)
                .with_is_future_key(true);
            put(future.directory().id(), future.topic(), described);
        }
    }
    let directories = replicas.log_manager().directories().iter();
    let results = directories.map(|directory| {
        let path = StrBytes::from_string(directory.path().display().to_string());
        let result = DescribeLogDirsResult::default().with_log_dir(path);
        if !directory.is_online() {
            return result.with_error_code(ErrorCode::KafkaStorageError.code());
        }
        let (total_bytes, usable_bytes) = volume(directory.path());
        let topics = by_directory.remove(&directory.id()).unwrap_or_default();
        result
            .with_total_bytes(total_bytes)
            .with_usable_bytes(usable_bytes)
            .with_topics(topics.into_iter().map(topic).collect())
    });
    DescribeLogDirsResponse::default().with_results(results.collect())
}

fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn described(partition: &Partition) -> DescribeLogDirsPartition {
    let (size_bytes, lag) = partition.size_and_lag();
    DescribeLogDirsPartition::default()
        .with_partition_index(partition.id().partition)
        .with_partition_size(size(size_bytes))
        .with_offset_lag(lag)
}

fn topic((name, mut partitions): (Arc<str>, Vec<DescribeLogDirsPartition>)) -> DescribeLogDirsTopic {
    partitions.sort_by_key(|partition| partition.partition_index);
    DescribeLogDirsTopic::default()
        .with_name(TopicName(StrBytes::from_string(name.to_string())))
        .with_partitions(partitions)
}

fn volume(path: &Path) -> (i64, i64) {
    match rustix::fs::statvfs(path) {
        Ok(volume) => {
            let bytes =
                |blocks: u64| i64::try_from(blocks.saturating_mul(volume.f_frsize)).unwrap_or(i64::MAX);
            (bytes(volume.f_blocks), bytes(volume.f_bavail))
        }
        Err(_) => (UNKNOWN_BYTES, UNKNOWN_BYTES),
    }
}
