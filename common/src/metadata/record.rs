//! Every fact the metadata log can hold.
//!
//! Requests become records on the active controller, the quorum commits them, and the same `replay`
//! changes state on controllers and brokers alike.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::*;

use super::image::MirrorImage;

/// The records of one request, in one atomic step of the log.
///
/// `term` and the predecessor fence it: a batch whose predecessor is not the last one applied was
/// computed on a draft that never became true, and is ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetadataBatch {
    /// The term under which it was computed.
    pub term: Term,
    /// Its own offset: one above the predecessor's.
    pub offset: MetadataOffset,
    /// The term of the batch at `offset - 1`.
    pub predecessor_term: Term,
    /// Wall-clock time at the active controller when it was made, in milliseconds since 1970.
    pub timestamp_ms: i64,
    pub records: Vec<MetadataRecord>,
}

/// What a config belongs to. The numbers are Kafka's `ConfigResource.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConfigResourceType {
    Topic,
    Broker,
    /// Ours: the configuration of a mirror.
    Mirror,
}

impl ConfigResourceType {
    pub fn code(self) -> i8 {
        match self {
            ConfigResourceType::Topic => 2,
            ConfigResourceType::Broker => 4,
            ConfigResourceType::Mirror => 64,
        }
    }

    pub fn from_code(code: i8) -> Option<ConfigResourceType> {
        match code {
            2 => Some(ConfigResourceType::Topic),
            4 => Some(ConfigResourceType::Broker),
            64 => Some(ConfigResourceType::Mirror),
            _ => None,
        }
    }
}

/// A topic, a broker (an empty name is the cluster-wide default) or a mirror.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConfigResource {
    pub resource_type: ConfigResourceType,
    pub name: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The listener's name.
    pub name: String,
    pub host: String,
    pub port: u16,
    /// Kafka's SecurityProtocol id: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// Why a partition was cut (decision 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CutKind {
    /// Once per association, before its first fetch.
    Preparing,
    /// Once per association, at failover.
    Stopping,
    /// After an unclean election; needs no association.
    Loss,
    /// The source was cut at or above where the copy ends: nothing of the leader's log goes, but a replica
    /// that was away may hold what the source has undone (ADR 11).
    Source,
}

/// Whether a partition's log may have lost acknowledged records (KIP-704).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LeaderRecoveryState {
    Recovered,
    Recovering,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MetadataRecord {
    /// The level of a feature (`metadata.version`, `kagami.metadata.version`).
    FeatureLevel {
        name: String,
        level: i16,
    },
    /// A broker process registered; its epoch is this record's offset. It starts fenced.
    RegisterBroker {
        broker_id: BrokerId,
        incarnation_id: IncarnationId,
        endpoints: Vec<Endpoint>,
        rack: Option<String>,
        directories: Vec<DirectoryId>,
        /// Address of the broker's inter-broker listener, an index into `endpoints`.
        inter_broker_endpoint: u32,
    },
    /// A change of a registered broker; `None` leaves a field as it is.
    BrokerChange {
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        fenced: Option<bool>,
        in_controlled_shutdown: Option<bool>,
    },
    UnregisterBroker {
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
    },
    /// A topic is created. Its partitions follow in the same batch.
    Topic {
        topic_id: TopicId,
        name: Arc<str>,
    },
    /// A topic is deleted, with partitions, configs and mirror facts; the image keeps its highest epochs.
    RemoveTopic {
        topic_id: TopicId,
    },
    /// A new partition, or a whole registration (snapshots).
    Partition {
        topic_id: TopicId,
        partition: i32,
        registration: PartitionRegistration,
    },
    /// A change of a partition; `None` leaves a field as it is. Every change raises the partition epoch.
    PartitionChange {
        topic_id: TopicId,
        partition: i32,
        change: PartitionChange,
    },
    /// Sets (or with `None` removes) a config. `mirror.name` of a topic is one of these; setting it
    /// without suffix begins a new association and moves the topic's releases into history.
    Config {
        resource: ConfigResource,
        key: String,
        value: Option<String>,
    },
    /// A mirror is created.
    Mirror {
        name: Arc<str>,
    },
    /// First contact told the source's cluster id.
    MirrorSource {
        name: Arc<str>,
        source_cluster_id: String,
    },
    /// A topic was added to a mirror before it exists here (decision 17); `None` clears it.
    PendingMirrorTopic {
        topic: Arc<str>,
        mirror: Option<Arc<str>>,
    },
    /// A cut (decision 10); its offset in the metadata log is its id. Raises the leader epoch to
    /// `leader_epoch`.
    Cut {
        topic_id: TopicId,
        partition: i32,
        kind: CutKind,
        association: Option<Association>,
        offset: Offset,
        leader_epoch: LeaderEpoch,
        /// The leader that asked, and the directory of its replica.
        broker_id: BrokerId,
        directory: DirectoryId,
        /// LOSS on an ordinary or released topic: this leader's replica keeps its tail.
        leader_keeps_tail: bool,
    },
    /// A stopped partition becomes writable (decision 14). The offset counts as last mirrored offset
    /// only if the association made its PREPARING cut (decision 10b).
    Release {
        topic_id: TopicId,
        partition: i32,
        association: Association,
        offset: Offset,
        source_cluster_id: String,
        /// The newest of the source's cut ids that the association had checked (decision 20), -1 none.
        checked_cut_id: i64,
    },
    /// `mirror add --recopy` (decision 11): partitions that wait uncut may cut to 0.
    MirrorRecopy {
        topic_id: TopicId,
        association: Association,
    },
    /// A block of producer ids was handed to a broker; the next block starts here.
    ProducerIds {
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        next_producer_id: ProducerId,
    },
    /// Snapshots only: the epochs above which a topic id that comes back must start.
    DeletedTopicEpochs {
        topic_id: TopicId,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
    },
    /// Snapshots only: facts of a topic that no other record restates.
    TopicMirror {
        topic_id: TopicId,
        created_at: MetadataOffset,
        mirror: Option<TopicMirror>,
    },
    /// Snapshots only: facts of a partition that no other record restates.
    PartitionMirror {
        topic_id: TopicId,
        partition: i32,
        mirror: PartitionMirror,
    },
    /// Snapshots only: a mirror with the offset of its creation.
    MirrorSnapshot {
        mirror: MirrorImage,
    },
    /// Snapshots only: a broker's registration with its epoch.
    BrokerSnapshot {
        broker_id: BrokerId,
        registration: BrokerRegistration,
    },
    /// The log directories of a registered broker that are left (KIP-858).
    BrokerDirectories {
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        online: Vec<DirectoryId>,
    },
    /// The newest of the source's cuts that the association has taken note of: in one batch with the
    /// PREPARING or SOURCE cut that does so (ADR 11).
    SourceCutChecked {
        topic_id: TopicId,
        partition: i32,
        association: Association,
        cut_id: CutId,
    },
}

/// What the controller knows of a broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BrokerRegistration {
    pub broker_epoch: BrokerEpoch,
    pub incarnation_id: IncarnationId,
    pub endpoints: Vec<Endpoint>,
    pub inter_broker_endpoint: u32,
    pub rack: Option<String>,
    pub directories: Vec<DirectoryId>,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
}

impl BrokerRegistration {
    /// May lead, join an ISR and take new replicas.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// Whether a replica in that directory can be there; one whose directory is not known yet can.
    pub fn has_online(&self, directory: DirectoryId) -> bool {
        directory.is_zero() || self.directories.contains(&directory)
    }

    pub fn inter_broker(&self) -> Option<&Endpoint> {
        self.endpoints.get(self.inter_broker_endpoint as usize)
    }

    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.name == listener)
    }
}

/// What the controller knows of a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionRegistration {
    pub replicas: Vec<BrokerId>,
    /// The directory of each replica, in the order of `replicas`; zero while it is not known.
    pub directories: Vec<DirectoryId>,
    pub isr: Vec<BrokerId>,
    /// Eligible leader replicas (KIP-966).
    pub elr: Vec<BrokerId>,
    pub last_known_elr: Vec<BrokerId>,
    pub adding_replicas: Vec<BrokerId>,
    pub removing_replicas: Vec<BrokerId>,
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub leader_recovery_state: LeaderRecoveryState,
}

impl PartitionRegistration {
    /// The directory in which that broker's replica lies; None: it has none, or it is not known.
    pub fn directory_of(&self, broker: BrokerId) -> Option<DirectoryId> {
        let place = self.replicas.iter().position(|replica| *replica == broker)?;
        self.directories.get(place).copied().filter(|directory| !directory.is_zero())
    }
}

/// Fields of a partition that change together. `leader: Some(None)` is "no leader".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartitionChange {
    pub leader: Option<Option<BrokerId>>,
    pub isr: Option<Vec<BrokerId>>,
    pub elr: Option<Vec<BrokerId>>,
    pub last_known_elr: Option<Vec<BrokerId>>,
    pub replicas: Option<Vec<BrokerId>>,
    pub directories: Option<Vec<DirectoryId>>,
    pub adding_replicas: Option<Vec<BrokerId>>,
    pub removing_replicas: Option<Vec<BrokerId>>,
    pub leader_recovery_state: Option<LeaderRecoveryState>,
    /// The leader epoch afterwards. `None`: raised by one if `leader` is given, else kept. A value at or
    /// below the current epoch is taken as current + 1, so an epoch never falls.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// `mirror.name` as the image keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicMirror {
    pub mirror: Arc<str>,
    /// The suffix stands: stop requested or stopped.
    pub removed: bool,
    pub association: Association,
    /// `--recopy` was accepted for this association.
    pub recopy: bool,
}

/// A committed cut of a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    pub id: CutId,
    pub kind: CutKind,
    pub association: Option<Association>,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub broker_id: BrokerId,
    pub directory: DirectoryId,
    pub leader_keeps_tail: bool,
}

/// A committed release of a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    pub association: Association,
    /// Exclusive: the log end at which the stopped copy was released. `None`: born released, or
    /// stopped before its PREPARING cut, so nothing is recorded.
    pub offset: Option<Offset>,
    pub source_cluster_id: String,
    pub checked_cut_id: i64,
    /// Offset of the release record.
    pub released_at: MetadataOffset,
    /// The PREPARING cut of that association, if it made one.
    pub preparing_cut: Option<CutId>,
}

/// Cuts and releases of one partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartitionMirror {
    /// Oldest first: a new cut drops those at or above its offset, a SOURCE cut only its own kind.
    pub cuts: Vec<Cut>,
    /// The PREPARING cut of the newest association, kept apart from `cuts`, which drops entries.
    pub preparing_cut: Option<Cut>,
    /// The STOPPING cut of the newest association.
    pub stopping_cut: Option<Cut>,
    /// The release of the newest association.
    pub release: Option<Release>,
    /// Releases of earlier associations, oldest first.
    pub history: Vec<Release>,
    /// The newest of the source's cuts that the newest association has taken note of. A snapshot restates
    /// it with a record of its own.
    #[serde(skip)]
    pub checked_source_cut: Option<CutId>,
}

impl PartitionMirror {
    /// The newest cut made here.
    pub fn newest_cut(&self) -> Option<&Cut> {
        self.cuts.last()
    }

    /// Those of which whoever copies from here has to hear. A SOURCE cut lies at or above the leader's log
    /// end, so nobody has copied what it takes away.
    pub fn cuts_told(&self) -> impl Iterator<Item = &Cut> {
        self.cuts.iter().filter(|cut| cut.kind != CutKind::Source)
    }

    /// The lowest offset this partition was cut to by a cut with a higher id than `since`. A cut that
    /// `cuts` has dropped was followed by one at or below its offset, so none is missed.
    pub fn lowest_cut_since(&self, since: CutId) -> Option<Offset> {
        self.cuts.iter().filter(|cut| cut.id > since).map(|cut| cut.offset).min()
    }
}
