//! A small cluster as an image, and batches with every kind of record that fit it.

use std::sync::Arc;

use common::ids::*;
use common::metadata::image::MirrorImage;
use common::metadata::record::*;
use common::metadata::{MetadataBatch, MetadataDelta, MetadataImage, MetadataRecord};
use uuid::Uuid;

/// The term of the image's last batch.
const TERM: Term = Term(3);
const BROKERS: [BrokerId; 3] = [BrokerId(1), BrokerId(2), BrokerId(3)];
pub const ORDERS: TopicId = TopicId(Uuid::from_bytes([7; 16]));
const COPIES: TopicId = TopicId(Uuid::from_bytes([8; 16]));
const DIRECTORY: DirectoryId = DirectoryId(Uuid::from_bytes([9; 16]));

fn batch(offset: MetadataOffset, records: Vec<MetadataRecord>) -> MetadataBatch {
    let predecessor_term = if offset == MetadataOffset(1) { Term::ZERO } else { TERM };
    MetadataBatch { term: TERM, offset, predecessor_term, timestamp_ms: 1_700_000_000_000, records }
}

fn endpoints() -> Vec<Endpoint> {
    let endpoint =
        Endpoint { name: "PLAINTEXT".into(), host: "host".into(), port: 9092, security_protocol: 0 };
    vec![endpoint]
}

fn registration() -> PartitionRegistration {
    PartitionRegistration {
        replicas: BROKERS.to_vec(),
        directories: vec![DIRECTORY, DirectoryId::ZERO, DirectoryId::ZERO],
        isr: BROKERS[..2].to_vec(),
        elr: vec![],
        last_known_elr: vec![],
        adding_replicas: vec![],
        removing_replicas: vec![],
        leader: Some(BROKERS[0]),
        leader_epoch: LeaderEpoch(2),
        partition_epoch: PartitionEpoch(4),
        leader_recovery_state: LeaderRecoveryState::Recovered,
    }
}

fn config(resource_type: ConfigResourceType, name: &str, key: &str, value: Option<&str>) -> MetadataRecord {
    MetadataRecord::Config {
        resource: ConfigResource { resource_type, name: name.into() },
        key: key.into(),
        value: value.map(str::to_owned),
    }
}

fn topic(topic_id: TopicId, name: &str, partitions: i32) -> Vec<MetadataRecord> {
    let mut records = vec![MetadataRecord::Topic { topic_id, name: name.into() }];
    records.extend((0..partitions).map(|partition| MetadataRecord::Partition {
        topic_id,
        partition,
        registration: registration(),
    }));
    records
}

fn cut(kind: CutKind, association: Option<Association>, offset: i64) -> MetadataRecord {
    MetadataRecord::Cut {
        topic_id: COPIES,
        partition: 0,
        kind,
        association,
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(9),
        broker_id: BROKERS[0],
        directory: DIRECTORY,
        leader_keeps_tail: false,
    }
}

fn release(association: Association) -> MetadataRecord {
    MetadataRecord::Release {
        topic_id: COPIES,
        partition: 0,
        association,
        offset: Offset(40),
        source_cluster_id: "source".into(),
        checked_cut_id: -1,
    }
}

/// How the image came about, request by request. `copies` is the copy of a mirror that was stopped and released.
fn history() -> Vec<Vec<MetadataRecord>> {
    let register = |broker_id: BrokerId| MetadataRecord::RegisterBroker {
        broker_id,
        incarnation_id: IncarnationId(Uuid::from_bytes([broker_id.0 as u8; 16])),
        endpoints: endpoints(),
        rack: Some(format!("rack-{broker_id}")),
        directories: vec![DIRECTORY],
        inter_broker_endpoint: 0,
    };
    let mirror_name = |value| config(ConfigResourceType::Topic, "copies", "mirror.name", Some(value));
    vec![
        vec![MetadataRecord::FeatureLevel { name: "metadata.version".into(), level: 33 }],
        BROKERS.map(register).to_vec(),
        topic(ORDERS, "orders", 2),
        topic(COPIES, "copies", 1),
        vec![
            config(ConfigResourceType::Topic, "orders", "cleanup.policy", Some("compact")),
            config(ConfigResourceType::Broker, "", "min.insync.replicas", Some("2")),
            MetadataRecord::Mirror { name: "m1".into() },
            config(ConfigResourceType::Mirror, "m1", "bootstrap.servers", Some("source:9092")),
        ],
        vec![mirror_name("m1")],
        vec![cut(CutKind::Preparing, Some(Association(6)), 0)],
        vec![mirror_name("m1.removed"), cut(CutKind::Stopping, Some(Association(6)), 40)],
        vec![release(Association(6))],
        vec![MetadataRecord::PendingMirrorTopic { topic: "later".into(), mirror: Some("m1".into()) }],
    ]
}

pub fn image() -> MetadataImage {
    let mut image = MetadataImage::default();
    for records in history() {
        let batch = batch(image.offset.next(), records);
        let applied = image.apply(&batch, &mut MetadataDelta::default());
        applied.unwrap_or_else(|error| panic!("the sample image: {error}"));
    }
    image
}

/// Each can be applied to the image.
pub fn batches() -> Vec<MetadataBatch> {
    let next = image().offset.next();
    let (broker_id, broker_epoch) = (BROKERS[0], BrokerEpoch(2));
    let change = PartitionChange {
        leader: Some(Some(BROKERS[1])),
        isr: Some(vec![BROKERS[1]]),
        elr: Some(vec![BROKERS[0]]),
        leader_recovery_state: Some(LeaderRecoveryState::Recovering),
        leader_epoch: Some(LeaderEpoch(20)),
        ..PartitionChange::default()
    };
    let mirror =
        TopicMirror { mirror: "m1".into(), removed: false, association: Association(6), recopy: true };
    let registration_of_broker = BrokerRegistration {
        broker_epoch,
        incarnation_id: IncarnationId(Uuid::from_bytes([4; 16])),
        endpoints: endpoints(),
        inter_broker_endpoint: 0,
        rack: None,
        directories: vec![DIRECTORY],
        fenced: false,
        in_controlled_shutdown: true,
    };
    let again = config(ConfigResourceType::Topic, "copies", "mirror.name", Some("m1"));
    let requests: Vec<Vec<MetadataRecord>> = vec![
        vec![
            MetadataRecord::BrokerChange {
                broker_id,
                broker_epoch,
                fenced: Some(false),
                in_controlled_shutdown: None,
            },
            MetadataRecord::BrokerDirectories { broker_id, broker_epoch, online: vec![] },
        ],
        vec![MetadataRecord::UnregisterBroker { broker_id, broker_epoch }],
        topic(TopicId(Uuid::from_bytes([10; 16])), "new", 3),
        vec![MetadataRecord::RemoveTopic { topic_id: ORDERS }],
        vec![MetadataRecord::PartitionChange { topic_id: ORDERS, partition: 1, change }],
        vec![MetadataRecord::Partition { topic_id: ORDERS, partition: 2, registration: registration() }],
        vec![config(ConfigResourceType::Topic, "orders", "cleanup.policy", None)],
        vec![
            again.clone(),
            MetadataRecord::MirrorRecopy { topic_id: COPIES, association: Association(next.0) },
        ],
        vec![
            again.clone(),
            MetadataRecord::SourceCutChecked {
                topic_id: COPIES,
                partition: 0,
                association: Association(next.0),
                cut_id: CutId(7),
            },
            cut(CutKind::Source, Some(Association(next.0)), 12),
        ],
        vec![again, cut(CutKind::Preparing, Some(Association(next.0)), 10), release(Association(next.0))],
        vec![cut(CutKind::Loss, None, 5)],
        vec![MetadataRecord::MirrorSource { name: "m1".into(), source_cluster_id: "source".into() }],
        vec![MetadataRecord::PendingMirrorTopic { topic: "later".into(), mirror: None }],
        vec![MetadataRecord::ProducerIds { broker_id, broker_epoch, next_producer_id: ProducerId(5000) }],
        vec![
            MetadataRecord::DeletedTopicEpochs {
                topic_id: TopicId(Uuid::from_bytes([11; 16])),
                leader_epoch: LeaderEpoch(5),
                partition_epoch: PartitionEpoch(6),
            },
            MetadataRecord::TopicMirror {
                topic_id: COPIES,
                created_at: MetadataOffset(4),
                mirror: Some(mirror),
            },
            MetadataRecord::PartitionMirror {
                topic_id: COPIES,
                partition: 0,
                mirror: PartitionMirror::default(),
            },
            MetadataRecord::MirrorSnapshot { mirror: mirror_image() },
            MetadataRecord::BrokerSnapshot { broker_id, registration: registration_of_broker },
        ],
        history().concat().into_iter().take(4).collect(),
    ];
    requests.into_iter().map(|records| batch(next, records)).collect()
}

fn mirror_image() -> MirrorImage {
    MirrorImage { name: Arc::from("m2"), created_at: MetadataOffset(5), source_cluster_id: None }
}

pub fn words() -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = ["orders", "copies", "mirror.name", "m1", "m1.removed", "cleanup.policy"]
        .iter()
        .map(|word| [&[word.len() as u8], word.as_bytes()].concat())
        .collect();
    words.extend([
        [7; 16].to_vec(),
        [8; 16].to_vec(),
        vec![0xff, 0xff, 0xff, 0xff, 0x0f],
        vec![1, 0],
        vec![0x80; 9],
    ]);
    words
}
