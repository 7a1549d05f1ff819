//! An image as records; loading is replay on an empty image.

use std::hash::Hasher;

use serde::{Deserialize, Serialize};

use crate::ids::*;

use super::codec::{CodecError, put_frame, take_frame};
use super::delta::MetadataDelta;
use super::image::MetadataImage;
use super::record::*;

/// Records a frame holds, so that no frame grows with the cluster.
const RECORDS_PER_FRAME: usize = 512;

#[derive(Serialize, Deserialize)]
struct SnapshotHeader {
    offset: MetadataOffset,
    term: Term,
    digest: u64,
    records: u64,
}

/// The image as bytes.
pub fn write(image: &MetadataImage) -> Vec<u8> {
    let records = records(image);
    let header = SnapshotHeader {
        offset: image.offset,
        term: image.term,
        digest: digest(image.offset, image.term, &records),
        records: records.len() as u64,
    };
    let mut out = Vec::with_capacity(records.len() * 64);
    put_frame(&mut out, &header);
    for chunk in records.chunks(RECORDS_PER_FRAME) {
        put_frame(&mut out, &chunk);
    }
    out
}

/// The inverse of [`write`]. A snapshot that is cut off, damaged, or does not give the image it was
/// made of is an error.
pub fn read(bytes: &[u8]) -> Result<MetadataImage, CodecError> {
    let (header, mut at) = take_frame::<SnapshotHeader>(bytes, 0)?;
    let mut image = MetadataImage::default();
    let mut delta = MetadataDelta::default();
    let mut count = 0u64;
    while at < bytes.len() {
        let (chunk, next) = take_frame::<Vec<MetadataRecord>>(bytes, at)?;
        for record in &chunk {
            image
                .replay(header.offset, record, &mut delta)
                .map_err(|reason| CodecError::Malformed { at, reason })?;
        }
        count += chunk.len() as u64;
        at = next;
    }
    if count != header.records {
        return Err(CodecError::CutOff { at });
    }
    image.offset = header.offset;
    image.term = header.term;
    if image.digest() != header.digest {
        let reason = "the snapshot does not give the image it was made of".to_owned();
        return Err(CodecError::Malformed { at: 0, reason });
    }
    Ok(image)
}

impl MetadataImage {
    /// Equal on every node that has replayed to the same offset (invariant 8).
    pub fn digest(&self) -> u64 {
        digest(self.offset, self.term, &records(self))
    }

    /// One line for people and tests who compare nodes.
    pub fn describe_position(&self) -> String {
        format!("offset {} term {} digest {:016x}\n", self.offset, self.term.0, self.digest())
    }
}

fn digest(offset: MetadataOffset, term: Term, records: &[MetadataRecord]) -> u64 {
    // The default hasher has fixed keys: equal input gives an equal digest on every node of one build.
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    hasher.write_i64(offset.0);
    hasher.write_u64(term.0);
    let mut bytes = Vec::new();
    for record in records {
        bytes.clear();
        put_frame(&mut bytes, record);
        hasher.write(&bytes);
    }
    hasher.finish()
}

/// The records that give this image, in an order that does not depend on how it came about.
fn records(image: &MetadataImage) -> Vec<MetadataRecord> {
    use MetadataRecord as R;
    let mut out = Vec::new();
    for (name, level) in &image.features {
        out.push(R::FeatureLevel { name: name.clone(), level: *level });
    }
    for (broker_id, registration) in &image.brokers {
        out.push(R::BrokerSnapshot { broker_id: *broker_id, registration: (**registration).clone() });
    }
    for mirror in image.mirrors.values() {
        out.push(R::MirrorSnapshot { mirror: (**mirror).clone() });
    }
    for (topic, mirror) in &image.pending_mirror_topics {
        out.push(R::PendingMirrorTopic { topic: topic.clone(), mirror: Some(mirror.clone()) });
    }
    for topic_id in image.topics.by_name.values() {
        let Some(topic) = image.topics.by_id.get(topic_id) else { continue };
        let topic_id = *topic_id;
        out.push(R::Topic { topic_id, name: topic.name.clone() });
        for (index, partition) in topic.partitions.iter().enumerate() {
            let registration = partition.registration.clone();
            out.push(R::Partition { topic_id, partition: index as i32, registration });
        }
    }
    for (resource, map) in &image.configs {
        for (key, value) in map.iter() {
            // The association of `mirror.name` comes from the TopicMirror record below; here the value
            // is restated without its suffix first, as replay wants it.
            let is_mirror_name = resource.resource_type == ConfigResourceType::Topic
                && key == crate::mirror_state::MIRROR_NAME_CONFIG;
            if let Some(name) = value.strip_suffix(crate::mirror_state::REMOVED_SUFFIX)
                && is_mirror_name
            {
                let value = Some(name.to_owned());
                out.push(R::Config { resource: resource.clone(), key: key.clone(), value });
            }
            let value = Some(value.clone());
            out.push(R::Config { resource: resource.clone(), key: key.clone(), value });
        }
    }
    for topic_id in image.topics.by_name.values() {
        let Some(topic) = image.topics.by_id.get(topic_id) else { continue };
        let topic_id = *topic_id;
        let mirror = topic.mirror.as_deref().cloned();
        out.push(R::TopicMirror { topic_id, created_at: topic.created_at, mirror });
        for (index, partition) in topic.partitions.iter().enumerate() {
            if partition.mirror != PartitionMirror::default() {
                let mirror = partition.mirror.clone();
                out.push(R::PartitionMirror { topic_id, partition: index as i32, mirror });
            }
            if let (Some(cut_id), Some(mirror)) = (partition.mirror.checked_source_cut, &topic.mirror) {
                let (partition, association) = (index as i32, mirror.association);
                out.push(R::SourceCutChecked { topic_id, partition, association, cut_id });
            }
        }
    }
    if let Some(next_producer_id) = image.next_producer_id {
        let (broker_id, broker_epoch) = (BrokerId(-1), BrokerEpoch(-1));
        out.push(R::ProducerIds { broker_id, broker_epoch, next_producer_id });
    }
    let mut deleted: Vec<_> = image.topics.deleted_epochs.iter().collect();
    deleted.sort_by_key(|(topic_id, _)| **topic_id);
    for (topic_id, (leader_epoch, partition_epoch)) in deleted {
        out.push(R::DeletedTopicEpochs {
            topic_id: *topic_id,
            leader_epoch: *leader_epoch,
            partition_epoch: *partition_epoch,
        });
    }
    out
}
