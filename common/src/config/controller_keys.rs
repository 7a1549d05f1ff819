//! The controller keys that Kagami uses: Kafka 4.4's names, defaults and ranges, and its own.

use super::broker_keys::METRICS_LISTENER;
use super::definition::{ConfigDef, ValueType, types};

/// In the order of their names, Kafka's first.
pub static CONTROLLER_CONFIGS: &[ConfigDef] = &[
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
        "auto.leader.rebalance.enable",
        ValueType::Boolean,
        Some("true"),
        "Whether leadership goes back to the preferred replicas.",
    ),
    ConfigDef::new("broker.id", types::ANY_INT, Some("-1"), "Older name of node.id."),
    ConfigDef::new(
        "broker.session.timeout.ms",
        types::POSITIVE_INT,
        Some("9000"),
        "A broker that has not been heard of for this long is fenced.",
    ),
    ConfigDef::new("client.quota.callback.class", ValueType::Class, None, "Provider of client quotas.")
        .only(""),
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
        "leader.imbalance.check.interval.seconds",
        types::POSITIVE_LONG,
        Some("300"),
        "Time between two looks for partitions that are not led by their preferred replica.",
    ),
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
        None,
        "Where the Kafka protocol is served to admin clients, as CONTROLLER://host:port.",
    )
    .per_broker(),
    ConfigDef::new(
        "log.dir",
        ValueType::List,
        Some("/tmp/kafka-logs"),
        "Data directory where log.dirs is not set.",
    ),
    ConfigDef::new(
        "log.dirs",
        ValueType::List,
        None,
        "Data directories, each formatted before the first start.",
    ),
    ConfigDef::new(
        "max.connections",
        types::NATURAL_INT,
        Some("2147483647"),
        "Open connections of one listener.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "max.connections.per.ip",
        types::NATURAL_INT,
        Some("2147483647"),
        "Open connections of one client address.",
    )
    .cluster_wide(),
    ConfigDef::new(
        "max.connections.per.ip.overrides",
        ValueType::String,
        Some(""),
        "Other limits for single addresses.",
    )
    .cluster_wide()
    .only(""),
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
        "process.roles",
        ValueType::ListOf(&["broker", "controller"]),
        None,
        "Roles of this process. Each daemon has one; the key is accepted for the sake of \
         Kafka files.",
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
        "request.timeout.ms",
        types::POSITIVE_INT,
        Some("30000"),
        "How long this node waits for the answer to a request of its own.",
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
    ConfigDef::new(
        "unclean.leader.election.interval.ms",
        types::POSITIVE_LONG,
        Some("300000"),
        "Time between two looks for partitions that only an unclean election can help.",
    ),
    ConfigDef::new("metrics.listener", ValueType::String, None, METRICS_LISTENER),
    ConfigDef::new(
        "quorum.listener",
        ValueType::String,
        None,
        "Where other controllers and the brokers reach this controller, as host:port.",
    ),
    ConfigDef::new(
        "quorum.heartbeat.interval.ms",
        types::int_range(1, 60_000),
        Some("50"),
        "Time between two heartbeats of the active controller to the others.",
    ),
    ConfigDef::new(
        "quorum.election.timeout.ms",
        types::int_range(1, 600_000),
        Some("200"),
        "An election begins when the active controller has been silent for this long, to twice that.",
    ),
    ConfigDef::new(
        "mirror.state.topic.num.partitions",
        types::POSITIVE_INT,
        Some("50"),
        "Partitions of the topic that keeps the state of mirrors; fixed at its creation.",
    ),
    ConfigDef::new(
        "mirror.state.topic.replication.factor",
        types::POSITIVE_SHORT,
        Some("3"),
        "Replicas of the topic that keeps the state of mirrors.",
    ),
    ConfigDef::new(
        "mirror.state.topic.min.isr",
        types::POSITIVE_INT,
        Some("2"),
        "In-sync replicas that a change of a mirror state needs.",
    ),
];
