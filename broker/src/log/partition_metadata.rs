//! Which topic a partition directory belongs to: Kafka's `partition.metadata` with the topic's id, and
//! beside it the metadata offset of the topic's record. An id can come back (mirrors create topics
//! under their source's id), the offset cannot: a directory of the deleted topic is told apart by it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::ids::{MetadataOffset, TopicId};

use super::checkpoint::{Durability, read_text, replace_file};
use super::disk;
use super::error::LogError;

const PARTITION_METADATA: &str = "partition.metadata";
const TOPIC_RECORD: &str = "topic-record.metadata";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionMetadata {
    pub topic_id: TopicId,
    pub topic_record: MetadataOffset,
}

impl PartitionMetadata {
    pub fn write(&self, log_directory: &Path) -> Result<(), LogError> {
        let record = format!("version: 0\ntopic_record: {}\n", self.topic_record);
        replace_file(&log_directory.join(TOPIC_RECORD), record.as_bytes(), Durability::Process)?;
        let metadata = format!("version: 0\ntopic_id: {}\n", self.topic_id);
        replace_file(&log_directory.join(PARTITION_METADATA), metadata.as_bytes(), Durability::Process)
    }

    /// To be synced with a log's first flush; none where the log stands alone, as in tests.
    pub fn files(log_directory: &Path) -> Result<Vec<(PathBuf, Arc<File>)>, LogError> {
        [TOPIC_RECORD, PARTITION_METADATA]
            .map(|name| log_directory.join(name))
            .into_iter()
            .filter(|path| path.exists())
            .map(|path| disk::open(&path).map(|file| (path, Arc::new(file))))
            .collect()
    }

    /// None where a file is missing or unreadable: the directory belongs to no topic that we know.
    pub fn read(log_directory: &Path) -> Result<Option<PartitionMetadata>, LogError> {
        let field = |file: &str, name: &str| -> Result<Option<String>, LogError> {
            let text = match read_text(&log_directory.join(file)) {
                Err(LogError::Corrupt { .. }) => return Ok(None),
                other => other?,
            };
            Ok(text.and_then(|text| {
                let mut lines = text.lines();
                (lines.next()? == "version: 0").then_some(())?;
                lines.next()?.strip_prefix(name).map(|value| value.trim().to_owned())
            }))
        };
        let topic_id = field(PARTITION_METADATA, "topic_id:")?.and_then(|value| TopicId::parse(&value));
        let topic_record = field(TOPIC_RECORD, "topic_record:")?.and_then(|value| value.parse().ok());
        Ok(topic_id.zip(topic_record).map(|(topic_id, topic_record)| PartitionMetadata {
            topic_id,
            topic_record: MetadataOffset(topic_record),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_file_and_ours() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(PartitionMetadata::read(directory.path()).unwrap(), None);
        let id = TopicId::parse("-_v7-_v7-_v7-_v7-_v7-w").unwrap();
        let metadata = PartitionMetadata { topic_id: id, topic_record: MetadataOffset(42) };
        metadata.write(directory.path()).unwrap();
        let path = directory.path().join(PARTITION_METADATA);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "version: 0\ntopic_id: -_v7-_v7-_v7-_v7-_v7-w\n");
        assert_eq!(PartitionMetadata::read(directory.path()).unwrap(), Some(metadata));
        std::fs::write(&path, "").unwrap();
        assert_eq!(PartitionMetadata::read(directory.path()).unwrap(), None);
    }
}
