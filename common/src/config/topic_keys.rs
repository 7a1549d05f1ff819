//! Kafka 4.4's topic keys, with its defaults and ranges.

use super::definition::{ConfigDef, ValueType, types};

/// In the order of their names.
pub static TOPIC_CONFIGS: &[ConfigDef] = &[
    ConfigDef::new(
        "cleanup.policy",
        types::CLEANUP_POLICY,
        Some("delete"),
        "What happens to old segments: deleted after their retention, compacted by key, \
         or both.",
    ),
    ConfigDef::new(
        "compression.gzip.level",
        ValueType::GzipLevel,
        Some("-1"),
        "The gzip level, should the broker compress batches.",
    ),
    ConfigDef::new(
        "compression.lz4.level",
        types::int_range(1, 17),
        Some("9"),
        "The lz4 level, should the broker compress batches.",
    ),
    ConfigDef::new(
        "compression.type",
        types::COMPRESSION_TYPE,
        Some("producer"),
        "Codec of the stored batches. The value producer keeps what the producer chose.",
    )
    .only("producer"),
    ConfigDef::new(
        "compression.zstd.level",
        types::int_range(-131072, 22),
        Some("3"),
        "The zstd level, should the broker compress batches.",
    ),
    ConfigDef::new(
        "delete.retention.ms",
        types::NATURAL_LONG,
        Some("86400000"),
        "How long compaction keeps the tombstones of deleted keys.",
    ),
    ConfigDef::new(
        "errors.deadletterqueue.group.enable",
        ValueType::Boolean,
        Some("false"),
        "Whether share groups may use this topic as their dead letter queue.",
    )
    .only("false"),
    ConfigDef::new(
        "file.delete.delay.ms",
        types::NATURAL_LONG,
        Some("60000"),
        "How long a file stays on disk after its segment was deleted.",
    ),
    ConfigDef::new(
        "flush.messages",
        types::POSITIVE_LONG,
        Some("9223372036854775807"),
        "Records after which the log is synced to disk. Replication, not the sync, is \
         what makes writes safe.",
    ),
    ConfigDef::new(
        "flush.ms",
        types::NATURAL_LONG,
        Some("9223372036854775807"),
        "Time after which the log is synced to disk.",
    ),
    ConfigDef::new(
        "follower.replication.throttled.replicas",
        ValueType::ThrottledReplicas,
        Some(""),
        "Replicas whose replication is throttled on the follower, as partition:broker \
         pairs or *.",
    ),
    ConfigDef::new(
        "index.interval.bytes",
        types::NATURAL_INT,
        Some("4096"),
        "Bytes of a segment between two entries of its offset index.",
    ),
    ConfigDef::new(
        "internal.segment.bytes",
        types::ANY_INT,
        None,
        "Segment size without the lower bound, for tests.",
    ),
    ConfigDef::new(
        "leader.replication.throttled.replicas",
        ValueType::ThrottledReplicas,
        Some(""),
        "Replicas whose replication is throttled on the leader, as partition:broker pairs \
         or *.",
    ),
    ConfigDef::new(
        "local.retention.bytes",
        types::long_from(-2),
        Some("-2"),
        "Bytes kept on local disk with remote storage; -2 means retention.bytes.",
    ),
    ConfigDef::new(
        "local.retention.ms",
        types::long_from(-2),
        Some("-2"),
        "Time that segments stay on local disk with remote storage; -2 means retention.ms.",
    ),
    ConfigDef::new(
        "max.compaction.lag.ms",
        types::POSITIVE_LONG,
        Some("9223372036854775807"),
        "The longest that a record may wait for compaction.",
    ),
    ConfigDef::new(
        "max.decompressed.message.bytes",
        types::int_range(1, 2147483639),
        Some("2147483639"),
        "The largest size of a batch after decompression.",
    ),
    ConfigDef::new(
        "max.message.bytes",
        types::NATURAL_INT,
        Some("1048588"),
        "The largest batch that producers may write, as it arrives.",
    ),
    ConfigDef::new(
        "message.timestamp.after.max.ms",
        types::NATURAL_LONG,
        Some("3600000"),
        "How far a record timestamp may lie after the broker time.",
    ),
    ConfigDef::new(
        "message.timestamp.before.max.ms",
        types::NATURAL_LONG,
        Some("9223372036854775807"),
        "How far a record timestamp may lie before the broker time.",
    ),
    ConfigDef::new(
        "message.timestamp.type",
        types::TIMESTAMP_TYPE,
        Some("CreateTime"),
        "Whether records carry the time of their creation or of the append.",
    ),
    ConfigDef::new(
        "min.cleanable.dirty.ratio",
        types::RATIO,
        Some("0.5"),
        "The part of a log that is not compacted yet from which on the cleaner takes it.",
    ),
    ConfigDef::new(
        "min.compaction.lag.ms",
        types::NATURAL_LONG,
        Some("0"),
        "How long a record is left alone by compaction.",
    ),
    ConfigDef::new(
        "min.insync.replicas",
        types::POSITIVE_INT,
        Some("1"),
        "In-sync replicas that a write with acks=all needs.",
    ),
    ConfigDef::new(
        "preallocate",
        ValueType::Boolean,
        Some("false"),
        "Whether a new segment gets its whole size on disk at once.",
    ),
    ConfigDef::new(
        "remote.copy.lag.bytes",
        types::long_from(-1),
        Some("-1"),
        "Bytes by which the copy to remote storage may lag; -1 means no bound.",
    ),
    ConfigDef::new(
        "remote.copy.lag.ms",
        types::long_from(-1),
        Some("0"),
        "Time by which the copy to remote storage may lag; -1 means no bound.",
    ),
    ConfigDef::new(
        "remote.log.copy.disable",
        ValueType::Boolean,
        Some("false"),
        "Whether remote storage is read only.",
    )
    .only("false"),
    ConfigDef::new(
        "remote.log.delete.on.disable",
        ValueType::Boolean,
        Some("false"),
        "Whether switching remote storage off deletes what is there.",
    )
    .only("false"),
    ConfigDef::new(
        "remote.storage.enable",
        ValueType::Boolean,
        Some("false"),
        "Whether old segments move to remote storage.",
    )
    .only("false"),
    ConfigDef::new(
        "retention.bytes",
        types::ANY_LONG,
        Some("-1"),
        "Bytes that a partition keeps before its oldest segments are deleted; -1 means no \
         bound.",
    ),
    ConfigDef::new(
        "retention.ms",
        types::long_from(-1),
        Some("604800000"),
        "Time that a partition keeps its records; -1 means for ever.",
    ),
    ConfigDef::new("segment.bytes", types::int_from(1048576), Some("1073741824"), "Size of a segment file."),
    ConfigDef::new(
        "segment.index.bytes",
        types::int_from(4),
        Some("10485760"),
        "Largest size of a segment's offset index.",
    ),
    ConfigDef::new(
        "segment.jitter.ms",
        types::NATURAL_LONG,
        Some("0"),
        "The most that is taken off segment.ms at random, so that segments do not roll \
         together.",
    ),
    ConfigDef::new(
        "segment.ms",
        types::POSITIVE_LONG,
        Some("604800000"),
        "Age at which a segment is rolled though it is not full.",
    ),
    ConfigDef::new(
        "unclean.leader.election.enable",
        ValueType::Boolean,
        Some("false"),
        "Whether a replica that is not in sync may lead when no other is left, at the \
         price of acknowledged records.",
    ),
];
