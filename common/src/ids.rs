//! Identifiers, epochs and offsets. A number that means something has its own type here.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                $name(value)
            }
        }

        impl From<$name> for $inner {
            fn from(value: $name) -> Self {
                value.0
            }
        }
    };
}

number! {
    /// A broker's `node.id`, 0 and above.
    BrokerId(i32)
}
number! {
    /// A controller's `node.id`, 0 and above.
    ControllerId(i32)
}
number! {
    /// A position in a partition's log. The log end offset is the next offset to be written.
    Offset(i64)
}
number! {
    /// Epoch of a partition's leadership, raised by the controller at each election and by each cut.
    /// Batches carry the epoch of the leader that first wrote them.
    LeaderEpoch(i32)
}
number! {
    /// Raised by the controller at each change of a partition's registration (KIP-841).
    PartitionEpoch(i32)
}
number! {
    /// Names one registration of a broker: the metadata offset of its registration record.
    BrokerEpoch(i64)
}
number! {
    /// Position in the metadata log. Each request's records form one batch; batches are numbered
    /// from 1 without gaps, so the active controller knows an offset before the batch is committed.
    MetadataOffset(i64)
}
number! {
    /// Term of the controller quorum; the leader epoch of the metadata log.
    Term(u64)
}
number! {
    /// The metadata offset of the record that set `mirror.name`: it names one attempt at mirroring a
    /// topic, and every state record, cut and release of that attempt carries it.
    Association(i64)
}
number! {
    /// The metadata offset of a cut record.
    CutId(i64)
}
number! {
    /// Identifies an idempotent or transactional producer.
    ProducerId(i64)
}
number! {
    /// Fences earlier incarnations of a producer.
    ProducerEpoch(i16)
}

impl Default for Term {
    fn default() -> Self {
        Term::ZERO
    }
}

impl Term {
    /// Before the first leader.
    pub const ZERO: Term = Term(0);
}

impl Offset {
    pub const ZERO: Offset = Offset(0);

    /// The offset `count` places further.
    pub fn plus(self, count: i64) -> Offset {
        Offset(self.0 + count)
    }
}

impl LeaderEpoch {
    /// No epoch known: Kafka's -1.
    pub const UNKNOWN: LeaderEpoch = LeaderEpoch(-1);

    /// Never falls, at the end of the numbers neither.
    pub fn next(self) -> LeaderEpoch {
        LeaderEpoch(self.0.saturating_add(1))
    }
}

impl PartitionEpoch {
    pub fn next(self) -> PartitionEpoch {
        PartitionEpoch(self.0.saturating_add(1))
    }
}

impl Default for MetadataOffset {
    fn default() -> Self {
        MetadataOffset::ZERO
    }
}

impl MetadataOffset {
    /// Before the first batch.
    pub const ZERO: MetadataOffset = MetadataOffset(0);

    pub fn next(self) -> MetadataOffset {
        MetadataOffset(self.0.saturating_add(1))
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Kafka's zero id: none, or not known.
            pub const ZERO: $name = $name(Uuid::nil());

            pub fn is_zero(self) -> bool {
                self.0.is_nil()
            }

            /// Kafka's notation: 22 characters of URL-safe base64. The hyphenated form is read too.
            pub fn parse(text: &str) -> Option<$name> {
                parse_uuid(text).map($name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&URL_SAFE_NO_PAD.encode(self.0.as_bytes()))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl From<Uuid> for $name {
            fn from(value: Uuid) -> Self {
                $name(value)
            }
        }

        impl From<$name> for Uuid {
            fn from(value: $name) -> Self {
                value.0
            }
        }
    };
}

uuid_id! {
    /// A topic's id. A mirror topic has the id of its source topic.
    TopicId
}
uuid_id! {
    /// The id of a log directory, written into its `meta.properties` when it is formatted.
    DirectoryId
}
uuid_id! {
    /// A new one for each start of a broker process.
    IncarnationId
}

fn parse_uuid(text: &str) -> Option<Uuid> {
    let decoded = URL_SAFE_NO_PAD.decode(text).ok();
    match decoded.and_then(|bytes| <[u8; 16]>::try_from(bytes.as_slice()).ok()) {
        Some(bytes) => Some(Uuid::from_bytes(bytes)),
        None => Uuid::try_parse(text).ok(),
    }
}

/// A topic and a partition index, by name as clients know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl TopicPartition {
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A topic's id and a partition index: what survives a deletion and re-creation under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicIdPartition {
    pub topic_id: TopicId,
    pub partition: i32,
}

impl TopicIdPartition {
    pub fn new(topic_id: TopicId, partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id, partition }
    }
}

impl fmt::Display for TopicIdPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.topic_id, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_as_kafka_writes_them() {
        let id = TopicId(Uuid::from_bytes([0xfb; 16]));
        assert_eq!(id.to_string(), "-_v7-_v7-_v7-_v7-_v7-w");
        assert_eq!(TopicId::parse(&id.to_string()), Some(id));
        assert_eq!(TopicId::parse(&id.0.to_string()), Some(id));
        assert_eq!(TopicId::parse("short"), None);
    }
}
