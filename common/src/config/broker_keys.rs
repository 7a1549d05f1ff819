//! The broker keys that Kagami uses: Kafka 4.4's names, defaults and ranges, and its own.

use super::definition::{ConfigDef, ValueType, types};

pub(super) const METRICS_LISTENER: &str =
    "Where /metrics, /livez and /readyz are served over HTTP, as host:port. Absent means not at all.";

/// Kafka's names for the choices of `replica.selector.class`, which here are built in.
const LEADER_SELECTOR: &str = "org.apache.kafka.common.replica.LeaderSelector";
pub(super) const RACK_AWARE_SELECTOR: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// In the order of their names, Kafka's first.
pub static BROKER_CONFIGS: &[ConfigDef] = &[
    ConfigDef::new(
        "advertised.listeners",
        ValueType::List,
        None,
        "The addresses that clients are told, where they differ from listeners.",
    ),
    ConfigDef::new(
        "alter.config.policy.class.name",
        ValueType::Class,
        None,
        "Policy that admits changes of configurations.",
    )
    .only(""),
    ConfigDef::new("authorizer.class.name", ValueType::String, Some(""), "The authorizer.").only(""),
    ConfigDef::new(
        "auto.create.topics.enable",
        ValueType::Boolean,
        Some("true"),
        "Whether asking for a topic that is not there creates it.",
    ),
    ConfigDef::new(
        "broker.heartbeat.interval.ms",
        types::POSITIVE_INT,
        Some("2000"),
        "Time between two heartbeats to the active controller.",
    ),
    ConfigDef::new("broker.id", types::ANY_INT, Some("-1"), "Older name of node.id."),
    ConfigDef::new(
        "broker.rack",
        ValueType::String,
        None,
        "Rack of this broker, for the placement of replicas.",
    ),
    ConfigDef::new(
        "broker.session.timeout.ms",
        types::POSITIVE_INT,
        Some("9000"),
        "A broker that has not been heard of for this long is fenced.",
    ),
    ConfigDef::new("client.quota.callback.class", ValueType::Class, None, "Provider of client quotas.")
        .only(""),
    ConfigDef::new(
        "compression.gzip.level",
        ValueType::GzipLevel,
        Some("-1"),
        "The default of the topic key compression.gzip.level.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "compression.lz4.level",
        types::int_range(1, 17),
        Some("9"),
        "The default of the topic key compression.lz4.level.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "compression.type",
        types::COMPRESSION_TYPE,
        Some("producer"),
        "The default of the topic key compression.type.",
    )
    .cluster_wide()
    .only("producer"),
    ConfigDef::new(
        "compression.zstd.level",
        types::int_range(-131072, 22),
        Some("3"),
        "The default of the topic key compression.zstd.level.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "config.providers",
        ValueType::List,
        Some(""),
        "Providers of values that stand outside the file.",
    )
    .cluster_wide()
    .only(""),
    ConfigDef::new(
        "connections.max.idle.ms",
        types::ANY_LONG,
        Some("600000"),
        "A connection without traffic is closed after this.",
    ),
    ConfigDef::new(
        "controlled.shutdown.enable",
        ValueType::Boolean,
        Some("true"),
        "Whether leaders move elsewhere before this broker stops.",
    ),
    ConfigDef::new(
        "controller.listener.names",
        ValueType::List,
        None,
        "Names of the controllers' listeners.",
    ),
    ConfigDef::new(
        "controller.quorum.auto.join.enable",
        ValueType::Boolean,
        Some("false"),
        "Whether a controller adds itself to the quorum.",
    )
    .only("false"),
    ConfigDef::new(
        "controller.quorum.voters",
        ValueType::List,
        Some(""),
        "The quorum: id@host:port of each controller.",
    ),
    ConfigDef::new("create.topic.policy.class.name", ValueType::Class, None, "Policy that admits topics.")
        .only(""),
    ConfigDef::new(
        "default.replication.factor",
        types::int_range(1, 32767),
        Some("1"),
        "Replicas of a topic created without a count.",
    ),
    ConfigDef::new("delete.topic.enable", ValueType::Boolean, Some("true"), "Whether topics can be deleted."),
    ConfigDef::new(
        "fetch.max.bytes",
        types::int_from(1024),
        Some("57671680"),
        "The largest answer to a fetch.",
    ),
    ConfigDef::new(
        "follower.replication.throttled.rate",
        types::NATURAL_LONG,
        Some("9223372036854775807"),
        "Bytes a second that this broker fetches as a follower of throttled replicas.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "initial.broker.registration.timeout.ms",
        types::POSITIVE_INT,
        Some("60000"),
        "How long the first registration may take before the broker gives up.",
    ),
    ConfigDef::new(
        "inter.broker.listener.name",
        ValueType::String,
        None,
        "The listener that brokers use among themselves.",
    ),
    ConfigDef::new(
        "leader.replication.throttled.rate",
        types::NATURAL_LONG,
        Some("9223372036854775807"),
        "Bytes a second that this broker sends as the leader of throttled replicas.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "listener.security.protocol.map",
        ValueType::String,
        Some("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "The security protocol of each listener name.",
    )
    .per_broker(),
    ConfigDef::new(
        "listeners",
        ValueType::List,
        Some("PLAINTEXT://:9092"),
        "Where the Kafka protocol is served, as NAME://host:port. An empty host means all \
         addresses.",
    )
    .per_broker(),
    ConfigDef::new(
        "log.cleaner.backoff.ms",
        types::NATURAL_LONG,
        Some("15000"),
        "Pause of the cleaner when there was nothing to do.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.cleaner.dedupe.buffer.size",
        types::ANY_LONG,
        Some("134217728"),
        "Memory of the cleaner's offset maps, over all its threads.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.cleaner.delete.retention.ms",
        types::NATURAL_LONG,
        Some("86400000"),
        "The default of the topic key delete.retention.ms.",
    )
    .cluster_wide(),
    ConfigDef::new("log.cleaner.enable", ValueType::Boolean, Some("true"), "Whether logs are compacted."),
    ConfigDef::new(
        "log.cleaner.io.buffer.size",
        types::NATURAL_INT,
        Some("524288"),
        "Memory of the cleaner's read and write buffers.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.cleaner.io.max.bytes.per.second",
        ValueType::Double { min: 0.0, max: f64::MAX },
        Some("1.7976931348623157E308"),
        "Bytes per second that the cleaner may read and write.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.cleaner.max.compaction.lag.ms",
        types::POSITIVE_LONG,
        Some("9223372036854775807"),
        "The default of the topic key max.compaction.lag.ms.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.cleaner.min.cleanable.ratio",
        types::RATIO,
        Some("0.5"),
        "The default of the topic key min.cleanable.dirty.ratio.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.cleaner.min.compaction.lag.ms",
        types::NATURAL_LONG,
        Some("0"),
        "The default of the topic key min.compaction.lag.ms.",
    )
    .cluster_wide(),
    ConfigDef::new("log.cleaner.threads", types::NATURAL_INT, Some("1"), "Threads of the cleaner."),
    ConfigDef::new(
        "log.cleanup.policy",
        types::CLEANUP_POLICY,
        Some("delete"),
        "The default of the topic key cleanup.policy.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.dir",
        ValueType::List,
        Some("/tmp/kafka-logs"),
        "Data directory where log.dirs is not set.",
    ),
    ConfigDef::new(
        "log.dir.failure.timeout.ms",
        types::POSITIVE_LONG,
        Some("30000"),
        "A broker that could not report a failed directory for this long stops.",
    ),
    ConfigDef::new(
        "log.dirs",
        ValueType::List,
        None,
        "Data directories, each formatted before the first start.",
    ),
    ConfigDef::new(
        "log.flush.interval.messages",
        types::POSITIVE_LONG,
        Some("9223372036854775807"),
        "The default of the topic key flush.messages.",
    )
    .cluster_wide(),
    ConfigDef::new("log.flush.interval.ms", types::ANY_LONG, None, "The default of the topic key flush.ms.")
        .cluster_wide(),
    ConfigDef::new(
        "log.flush.offset.checkpoint.interval.ms",
        types::NATURAL_INT,
        Some("60000"),
        "Time between two checkpoints of the recovery points.",
    ),
    ConfigDef::new(
        "log.flush.scheduler.interval.ms",
        types::ANY_LONG,
        Some("9223372036854775807"),
        "Time between two looks for logs to be synced.",
    ),
    ConfigDef::new(
        "log.flush.start.offset.checkpoint.interval.ms",
        types::NATURAL_INT,
        Some("60000"),
        "Time between two checkpoints of the log start offsets.",
    ),
    ConfigDef::new(
        "log.index.interval.bytes",
        types::NATURAL_INT,
        Some("4096"),
        "The default of the topic key index.interval.bytes.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.index.size.max.bytes",
        types::int_from(4),
        Some("10485760"),
        "The default of the topic key segment.index.bytes.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.initial.task.delay.ms",
        types::NATURAL_LONG,
        Some("30000"),
        "Pause after the start before the log's periodic tasks begin.",
    ),
    ConfigDef::new(
        "log.local.retention.bytes",
        types::long_from(-2),
        Some("-2"),
        "The default of the topic key local.retention.bytes.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.local.retention.ms",
        types::long_from(-2),
        Some("-2"),
        "The default of the topic key local.retention.ms.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.message.timestamp.after.max.ms",
        types::NATURAL_LONG,
        Some("3600000"),
        "The default of the topic key message.timestamp.after.max.ms.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.message.timestamp.before.max.ms",
        types::NATURAL_LONG,
        Some("9223372036854775807"),
        "The default of the topic key message.timestamp.before.max.ms.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.message.timestamp.type",
        types::TIMESTAMP_TYPE,
        Some("CreateTime"),
        "The default of the topic key message.timestamp.type.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.preallocate",
        ValueType::Boolean,
        Some("false"),
        "The default of the topic key preallocate.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.remote.copy.lag.bytes",
        types::long_from(-1),
        Some("-1"),
        "The default of the topic key remote.copy.lag.bytes.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.remote.copy.lag.ms",
        types::long_from(-1),
        Some("0"),
        "The default of the topic key remote.copy.lag.ms.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.retention.bytes",
        types::ANY_LONG,
        Some("-1"),
        "The default of the topic key retention.bytes.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.retention.check.interval.ms",
        types::POSITIVE_LONG,
        Some("300000"),
        "Time between two searches for segments to be deleted.",
    ),
    ConfigDef::new(
        "log.retention.hours",
        types::ANY_INT,
        Some("168"),
        "The default of the topic key retention.ms, in hours; the key in milliseconds wins.",
    ),
    ConfigDef::new(
        "log.retention.minutes",
        types::ANY_INT,
        None,
        "The default of the topic key retention.ms, in minutes; the key in milliseconds wins.",
    ),
    ConfigDef::new("log.retention.ms", types::ANY_LONG, None, "The default of the topic key retention.ms.")
        .cluster_wide(),
    ConfigDef::new(
        "log.roll.hours",
        types::POSITIVE_INT,
        Some("168"),
        "The default of the topic key segment.ms, in hours; the key in milliseconds wins.",
    ),
    ConfigDef::new(
        "log.roll.jitter.hours",
        types::NATURAL_INT,
        Some("0"),
        "The default of the topic key segment.jitter.ms, in hours; the key in \
         milliseconds wins.",
    ),
    ConfigDef::new(
        "log.roll.jitter.ms",
        types::ANY_LONG,
        None,
        "The default of the topic key segment.jitter.ms.",
    )
    .cluster_wide(),
    ConfigDef::new("log.roll.ms", types::ANY_LONG, None, "The default of the topic key segment.ms.")
        .cluster_wide(),
    ConfigDef::new(
        "log.segment.bytes",
        types::int_from(1048576),
        Some("1073741824"),
        "The default of the topic key segment.bytes.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "log.segment.delete.delay.ms",
        types::NATURAL_LONG,
        Some("60000"),
        "The default of the topic key file.delete.delay.ms.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "max.connections",
        types::NATURAL_INT,
        Some("2147483647"),
        "Open connections of one listener.",
    ),
    ConfigDef::new(
        "max.connections.per.ip",
        types::NATURAL_INT,
        Some("2147483647"),
        "Open connections of one client address.",
    ),
    ConfigDef::new(
        "max.connections.per.ip.overrides",
        ValueType::String,
        Some(""),
        "Other limits for single addresses.",
    )
    .cluster_wide()
    .only(""),
    ConfigDef::new(
        "max.decompressed.message.bytes",
        types::int_range(1, 2147483639),
        Some("2147483639"),
        "The default of the topic key max.decompressed.message.bytes.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "max.incremental.fetch.session.cache.slots",
        types::NATURAL_INT,
        Some("1000"),
        "Fetch sessions that are kept.",
    ),
    ConfigDef::new(
        "max.request.partition.size.limit",
        types::POSITIVE_INT,
        Some("2000"),
        "Partitions in one answer of DescribeTopicPartitions.",
    ),
    ConfigDef::new(
        "message.max.bytes",
        types::NATURAL_INT,
        Some("1048588"),
        "The default of the topic key max.message.bytes.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "min.insync.replicas",
        types::POSITIVE_INT,
        Some("1"),
        "In-sync replicas that a write with acks=all needs.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "node.id",
        types::NATURAL_INT,
        None,
        "Number of this node, unique over controllers and brokers.",
    ),
    ConfigDef::new(
        "num.partitions",
        types::POSITIVE_INT,
        Some("1"),
        "Partitions of a topic created without a count.",
    ),
    ConfigDef::new(
        "num.recovery.threads.per.data.dir",
        types::POSITIVE_INT,
        Some("2"),
        "Threads per data directory that open logs at start and close them at the end.",
    ),
    ConfigDef::new(
        "num.replica.fetchers",
        types::POSITIVE_INT,
        Some("1"),
        "Connections to each other broker that replication uses.",
    ),
    ConfigDef::new(
        "process.roles",
        ValueType::ListOf(&["broker", "controller"]),
        None,
        "Roles of this process. Each daemon has one; the key is accepted for the sake of \
         Kafka files.",
    ),
    ConfigDef::new(
        "producer.id.expiration.check.interval.ms",
        types::POSITIVE_INT,
        Some("600000"),
        "Time between two searches for expired producers.",
    ),
    ConfigDef::new(
        "producer.id.expiration.ms",
        types::POSITIVE_INT,
        Some("86400000"),
        "How long the state of a silent idempotent producer is kept.",
    ),
    ConfigDef::new(
        "queued.max.request.bytes",
        types::ANY_LONG,
        Some("-1"),
        "Memory for all requests that are being read or handled; -1 lets the broker choose.",
    ),
    ConfigDef::new(
        "remote.log.storage.system.enable",
        ValueType::Boolean,
        Some("false"),
        "Whether remote storage is set up.",
    )
    .only("false"),
    ConfigDef::new(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        types::NATURAL_LONG,
        Some("9223372036854775807"),
        "Bytes a second of all replicas that move between log directories of this broker.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "replica.fetch.backoff.ms",
        types::NATURAL_INT,
        Some("1000"),
        "Pause of a follower after an error.",
    ),
    ConfigDef::new(
        "replica.fetch.max.bytes",
        types::NATURAL_INT,
        Some("1048576"),
        "Bytes of one partition in a follower's fetch. A larger first batch is sent all \
         the same.",
    ),
    ConfigDef::new(
        "replica.fetch.min.bytes",
        types::NATURAL_INT,
        Some("1"),
        "Bytes that a follower's fetch waits for.",
    ),
    ConfigDef::new(
        "replica.fetch.response.max.bytes",
        types::NATURAL_INT,
        Some("10485760"),
        "Bytes of a whole answer to a follower's fetch.",
    ),
    ConfigDef::new(
        "replica.fetch.wait.max.ms",
        types::NATURAL_INT,
        Some("500"),
        "How long a follower's fetch waits for data.",
    ),
    ConfigDef::new(
        "replica.high.watermark.checkpoint.interval.ms",
        types::POSITIVE_LONG,
        Some("5000"),
        "Time between two checkpoints of the high watermarks.",
    ),
    ConfigDef::new(
        "replica.lag.time.max.ms",
        types::POSITIVE_LONG,
        Some("30000"),
        "A follower that was not at the log end for this long leaves the ISR.",
    ),
    ConfigDef::new(
        "replica.selector.class",
        ValueType::OneOf(&["", LEADER_SELECTOR, RACK_AWARE_SELECTOR]),
        None,
        "Which replica a consumer is sent to: the leader, or with RackAwareReplicaSelector one in its rack.",
    ),
    ConfigDef::new(
        "replica.socket.receive.buffer.bytes",
        types::ANY_INT,
        Some("65536"),
        "Receive buffer of replication connections.",
    ),
    ConfigDef::new(
        "replica.socket.timeout.ms",
        types::POSITIVE_INT,
        Some("30000"),
        "How long a follower waits for an answer.",
    ),
    ConfigDef::new(
        "request.timeout.ms",
        types::POSITIVE_INT,
        Some("30000"),
        "How long this node waits for the answer to a request of its own.",
    ),
    ConfigDef::new(
        "security.inter.broker.protocol",
        ValueType::OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
        Some("PLAINTEXT"),
        "Security protocol among brokers, where no listener is named.",
    ),
    ConfigDef::new(
        "socket.request.max.bytes",
        types::POSITIVE_INT,
        Some("104857600"),
        "The largest request.",
    ),
    ConfigDef::new(
        "transaction.two.phase.commit.enable",
        ValueType::Boolean,
        Some("false"),
        "Whether transactions may be prepared by an outside coordinator.",
    )
    .only("false"),
    ConfigDef::new(
        "unclean.leader.election.enable",
        ValueType::Boolean,
        Some("false"),
        "Whether a replica that is not in sync may lead when no other is left, at the \
         price of acknowledged records.",
    )
    .cluster_wide(),
    ConfigDef::new("metrics.listener", ValueType::String, None, METRICS_LISTENER),
    ConfigDef::new(
        "produce.validation",
        ValueType::OneOf(&["full", "relaxed"]),
        Some("full"),
        "Whether every record of a produced batch is walked, as Kafka does, or its \
 header and CRC alone are checked.",
    ),
    ConfigDef::new(
        "mirror.num.replica.fetchers",
        types::POSITIVE_INT,
        Some("1"),
        "Connections to each broker of a source cluster that a mirror uses.",
    ),
    ConfigDef::new(
        "mirror.metadata.refresh.interval.ms",
        types::int_from(100),
        Some("5000"),
        "Time between two looks at a source's topics and their leaders.",
    ),
    ConfigDef::new(
        "mirror.fetch.memory.bytes",
        types::long_from(1 << 20),
        Some("134217728"),
        "Memory for all that mirrors have fetched and not yet appended.",
    ),
    ConfigDef::new(
        "mirror.failed.retry.initial.backoff.ms",
        types::POSITIVE_LONG,
        Some("1000"),
        "Pause before a failed mirror partition is tried again the first time.",
    ),
    ConfigDef::new(
        "mirror.failed.retry.max.backoff.ms",
        types::POSITIVE_LONG,
        Some("300000"),
        "The longest pause between two tries of a failed mirror partition.",
    ),
];
