//! Images for the tables of the tests: built by replaying records, as everywhere.

use common::ids::*;
use common::metadata::record::*;
use common::metadata::{MetadataBatch, MetadataDelta, MetadataImage, MetadataRecord};
use common::mirror_state::MIRROR_NAME_CONFIG;
use uuid::Uuid;

use super::ControlSettings;

pub fn ids(numbers: &[i32]) -> Vec<BrokerId> {
    numbers.iter().copied().map(BrokerId).collect()
}

pub fn topic_id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

pub fn directory(number: u128) -> DirectoryId {
    DirectoryId(Uuid::from_u128(0xd000 + number))
}

pub fn settings() -> ControlSettings {
    ControlSettings { cluster_id: "here".to_owned(), ..ControlSettings::default() }
}

pub fn registration(replicas: &[i32], isr: &[i32], leader: Option<i32>) -> PartitionRegistration {
    PartitionRegistration {
        replicas: ids(replicas),
        directories: vec![DirectoryId::ZERO; replicas.len()],
        isr: ids(isr),
        elr: Vec::new(),
        last_known_elr: Vec::new(),
        adding_replicas: Vec::new(),
        removing_replicas: Vec::new(),
        leader: leader.map(BrokerId),
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(7),
        leader_recovery_state: LeaderRecoveryState::Recovered,
    }
}

/// Replays records as the next batch; gives its offset.
pub fn replay(image: &mut MetadataImage, records: Vec<MetadataRecord>) -> MetadataOffset {
    let batch = MetadataBatch {
        term: Term(1),
        offset: image.offset.next(),
        predecessor_term: image.term,
        timestamp_ms: 0,
        records,
    };
    image.apply(&batch, &mut MetadataDelta::default()).expect("the records fit the image");
    batch.offset
}

pub fn register(broker: i32, rack: Option<&str>) -> MetadataRecord {
    MetadataRecord::RegisterBroker {
        broker_id: BrokerId(broker),
        incarnation_id: IncarnationId(Uuid::from_u128(broker as u128 + 1)),
        endpoints: vec![Endpoint {
            name: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092 + broker as u16,
            security_protocol: 0,
        }],
        rack: rack.map(str::to_owned),
        directories: vec![directory(broker as u128)],
        inter_broker_endpoint: 0,
    }
}

/// Brokers registered and unfenced, one batch each.
pub fn with_brokers(brokers: &[i32]) -> MetadataImage {
    let mut image = MetadataImage::default();
    for broker in brokers {
        let epoch = replay(&mut image, vec![register(*broker, None)]);
        replay(&mut image, vec![fence(*broker, epoch.0, false)]);
    }
    image
}

pub fn fence(broker: i32, epoch: i64, fenced: bool) -> MetadataRecord {
    MetadataRecord::BrokerChange {
        broker_id: BrokerId(broker),
        broker_epoch: BrokerEpoch(epoch),
        fenced: Some(fenced),
        in_controlled_shutdown: None,
    }
}

pub fn add_topic(image: &mut MetadataImage, name: &str, id: TopicId, partitions: Vec<PartitionRegistration>) {
    let mut records = vec![MetadataRecord::Topic { topic_id: id, name: name.into() }];
    for (index, registration) in partitions.into_iter().enumerate() {
        records.push(MetadataRecord::Partition { topic_id: id, partition: index as i32, registration });
    }
    replay(image, records);
}

pub fn set_config(
    image: &mut MetadataImage,
    resource_type: ConfigResourceType,
    name: &str,
    key: &str,
    value: Option<&str>,
) -> MetadataOffset {
    let record = MetadataRecord::Config {
        resource: ConfigResource { resource_type, name: name.into() },
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    replay(image, vec![record])
}

pub fn set_mirror_name(image: &mut MetadataImage, topic: &str, value: &str) -> Association {
    Association(set_config(image, ConfigResourceType::Topic, topic, MIRROR_NAME_CONFIG, Some(value)).0)
}

pub fn add_mirror(image: &mut MetadataImage, name: &str, source: Option<&str>) {
    let mut records = vec![MetadataRecord::Mirror { name: name.into() }];
    if let Some(source) = source {
        records
            .push(MetadataRecord::MirrorSource { name: name.into(), source_cluster_id: source.to_owned() });
    }
    replay(image, records);
}

/// Counting instead of random.
#[derive(Default)]
pub struct Numbers(u128);

impl super::topic::Randomness for Numbers {
    fn topic_id(&mut self) -> TopicId {
        self.0 += 1;
        topic_id(0xa000 + self.0)
    }

    fn placement(&mut self) -> super::placement::PlacementSeed {
        self.0 += 1;
        super::placement::PlacementSeed { start: self.0 as u32, shift: 0 }
    }
}
