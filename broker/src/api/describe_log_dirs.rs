//! DescribeLogDirs: directories, what lies in them, and how full their disks are (4). Nothing is ever
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
type ByTopic = BTreeMap<Arc<str>, Vec<Arc<Partition>>>;

pub fn handle(replicas: &ReplicaManager, request: &DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let wanted: Option<Wanted<'_>> = request.topics.as_ref().map(|topics| {
        let topic = |topic: &'_ protocol::messages::describe_log_dirs_request::DescribableLogDirTopic| {
            topic.partitions.iter().copied().collect::<HashSet<i32>>()
        };
        topics.iter().map(|entry| (entry.topic.0.as_str(), topic(entry))).collect()
    });
    let mut by_directory: HashMap<DirectoryId, ByTopic> = HashMap::new();
    for partition in replicas.partitions() {
        let is_wanted = wanted.as_ref().is_none_or(|wanted| {
            wanted
                .get(&**partition.topic())
                .is_some_and(|indexes| indexes.contains(&partition.id().partition))
        });
        if is_wanted {
            let topics = by_directory.entry(partition.directory_id()).or_default();
            topics.entry(partition.topic().clone()).or_default().push(partition);
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

fn topic((name, mut partitions): (Arc<str>, Vec<Arc<Partition>>)) -> DescribeLogDirsTopic {
    partitions.sort_by_key(|partition| partition.id().partition);
    let partitions = partitions.iter().map(|partition| {
        let (size_bytes, lag) = partition.size_and_lag();
        DescribeLogDirsPartition::default()
            .with_partition_index(partition.id().partition)
            .with_partition_size(i64::try_from(size_bytes).unwrap_or(i64::MAX))
            .with_offset_lag(lag)
    });
    DescribeLogDirsTopic::default()
        .with_name(TopicName(StrBytes::from_string(name.to_string())))
        .with_partitions(partitions.collect())
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
