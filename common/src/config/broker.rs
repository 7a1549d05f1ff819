//! The configuration of a broker.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::ids::BrokerId;

use super::broker_keys::RACK_AWARE_SELECTOR;
use super::controller_keys::CONTROLLER_CONFIGS;
use super::definition::{ConfigDef, Dynamic};
use super::error::{ConfigError, Warning, nearest_key};
use super::listener::{
    HostPort, ListenerEndpoint, ProtocolMap, QuorumVoter, parse_address, parse_listeners, parse_voters,
};
use super::properties::Properties;
use super::reader::{Reader, find};
use super::resolve::BrokerLevels;
use super::topic::TopicConfig;

pub use super::broker_keys::BROKER_CONFIGS;

/// Memory for requests where `queued.max.request.bytes` leaves it to the broker.
const DEFAULT_IN_FLIGHT_BYTES: i64 = 256 << 20;

/// How far `produce` looks into what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProduceValidation {
    /// Every record is walked, as Kafka does.
    Full,
    /// Header and CRC of each batch.
    Relaxed,
}

/// Kafka's keys as fields; durations in milliseconds and sizes in bytes keep Kafka's types.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerConfig {
    pub node_id: BrokerId,
    pub broker_rack: Option<String>,
    pub listeners: Vec<ListenerEndpoint>,
    pub advertised_listeners: Vec<ListenerEndpoint>,
    /// The name of one of `advertised_listeners`.
    pub inter_broker_listener_name: String,
    pub controller_quorum_voters: Vec<QuorumVoter>,
    pub log_dirs: Vec<PathBuf>,
    pub metrics_listener: Option<HostPort>,

    pub auto_create_topics_enable: bool,
    pub delete_topic_enable: bool,
    pub controlled_shutdown_enable: bool,
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub min_insync_replicas: i32,
    pub unclean_leader_election_enable: bool,

    pub broker_heartbeat_interval_ms: i32,
    pub broker_session_timeout_ms: i32,
    pub initial_broker_registration_timeout_ms: i32,
    pub request_timeout_ms: i32,

    pub num_replica_fetchers: i32,
    pub replica_fetch_backoff_ms: i32,
    pub replica_fetch_max_bytes: i32,
    pub replica_fetch_min_bytes: i32,
    pub replica_fetch_response_max_bytes: i32,
    pub replica_fetch_wait_max_ms: i32,
    pub replica_high_watermark_checkpoint_interval_ms: i64,
    pub replica_lag_time_max_ms: i64,
    pub replica_socket_timeout_ms: i32,
    /// `replica.selector.class` is Kafka's RackAwareReplicaSelector (KIP-392).
    pub replica_selector_is_rack_aware: bool,
    pub leader_replication_throttled_rate: i64,
    pub follower_replication_throttled_rate: i64,
    pub replica_alter_log_dirs_io_max_bytes_per_second: i64,

    pub connections_max_idle_ms: i64,
    pub fetch_max_bytes: i32,
    pub max_connections: i32,
    pub max_connections_per_ip: i32,
    pub max_incremental_fetch_session_cache_slots: i32,
    pub max_request_partition_size_limit: i32,
    pub message_max_bytes: i32,
    /// Never -1: the broker's choice is in it, and at least `socket_request_max_bytes`.
    pub queued_max_request_bytes: i64,
    pub socket_request_max_bytes: i32,
    pub produce_validation: ProduceValidation,

    pub log_cleaner_backoff_ms: i64,
    pub log_cleaner_dedupe_buffer_size: i64,
    pub log_cleaner_enable: bool,
    pub log_cleaner_io_buffer_size: i32,
    pub log_cleaner_io_max_bytes_per_second: f64,
    pub log_cleaner_threads: i32,
    pub log_dir_failure_timeout_ms: i64,
    pub log_flush_offset_checkpoint_interval_ms: i32,
    pub log_flush_scheduler_interval_ms: i64,
    pub log_flush_start_offset_checkpoint_interval_ms: i32,
    pub log_initial_task_delay_ms: i64,
    pub log_retention_check_interval_ms: i64,
    pub num_recovery_threads_per_data_dir: i32,
    pub producer_id_expiration_check_interval_ms: i32,
    pub producer_id_expiration_ms: i32,

    pub mirror_failed_retry_initial_backoff_ms: i64,
    pub mirror_failed_retry_max_backoff_ms: i64,
    pub mirror_fetch_memory_bytes: i64,
    pub mirror_metadata_refresh_interval_ms: i64,
    pub mirror_num_replica_fetchers: i32,

    /// What topics have that set nothing themselves; all the `log.*` defaults are in it.
    pub topic_defaults: TopicConfig,
    /// The file, for the levels below a dynamic configuration.
    pub properties: Properties,
}

impl BrokerConfig {
    pub fn from_properties(properties: &Properties) -> Result<(BrokerConfig, Vec<Warning>), ConfigError> {
        let (reader, warnings) = Reader::new(BROKER_CONFIGS, CONTROLLER_CONFIGS, properties)?;
        check_role(&reader, "broker")?;
        let listeners = Listeners::read(&reader)?;
        let topic_defaults = TopicConfig::defaults(properties);
        let config = BrokerConfig {
            node_id: BrokerId(node_id(&reader)?),
            broker_rack: reader.non_empty_text("broker.rack")?.map(str::to_owned),
            inter_broker_listener_name: listeners.inter_broker,
            listeners: listeners.bound,
            advertised_listeners: listeners.advertised,
            controller_quorum_voters: parse_voters(reader.text("controller.quorum.voters")?)?,
            log_dirs: log_dirs(&reader)?,
            metrics_listener: metrics_listener(&reader)?,
            auto_create_topics_enable: reader.boolean("auto.create.topics.enable")?,
            delete_topic_enable: reader.boolean("delete.topic.enable")?,
            controlled_shutdown_enable: reader.boolean("controlled.shutdown.enable")?,
            num_partitions: reader.number("num.partitions")?,
            default_replication_factor: reader.number("default.replication.factor")?,
            min_insync_replicas: topic_defaults.min_insync_replicas,
            unclean_leader_election_enable: topic_defaults.unclean_leader_election_enable,
            broker_heartbeat_interval_ms: reader.number("broker.heartbeat.interval.ms")?,
            broker_session_timeout_ms: reader.number("broker.session.timeout.ms")?,
            initial_broker_registration_timeout_ms: reader
                .number("initial.broker.registration.timeout.ms")?,
            request_timeout_ms: reader.number("request.timeout.ms")?,
            num_replica_fetchers: reader.number("num.replica.fetchers")?,
            replica_fetch_backoff_ms: reader.number("replica.fetch.backoff.ms")?,
            replica_fetch_max_bytes: reader.number("replica.fetch.max.bytes")?,
            replica_fetch_min_bytes: reader.number("replica.fetch.min.bytes")?,
            replica_fetch_response_max_bytes: reader.number("replica.fetch.response.max.bytes")?,
            replica_fetch_wait_max_ms: reader.number("replica.fetch.wait.max.ms")?,
            replica_high_watermark_checkpoint_interval_ms: reader
                .number("replica.high.watermark.checkpoint.interval.ms")?,
            replica_lag_time_max_ms: reader.number("replica.lag.time.max.ms")?,
            replica_socket_timeout_ms: reader.number("replica.socket.timeout.ms")?,
            replica_selector_is_rack_aware: reader.non_empty_text("replica.selector.class")?
                == Some(RACK_AWARE_SELECTOR),
            leader_replication_throttled_rate: reader.number("leader.replication.throttled.rate")?,
            follower_replication_throttled_rate: reader.number("follower.replication.throttled.rate")?,
            replica_alter_log_dirs_io_max_bytes_per_second: reader
                .number("replica.alter.log.dirs.io.max.bytes.per.second")?,
            connections_max_idle_ms: reader.number("connections.max.idle.ms")?,
            fetch_max_bytes: reader.number("fetch.max.bytes")?,
            max_connections: reader.number("max.connections")?,
            max_connections_per_ip: reader.number("max.connections.per.ip")?,
            max_incremental_fetch_session_cache_slots: reader
                .number("max.incremental.fetch.session.cache.slots")?,
            max_request_partition_size_limit: reader.number("max.request.partition.size.limit")?,
            message_max_bytes: topic_defaults.max_message_bytes,
            queued_max_request_bytes: queued_max_request_bytes(&reader)?,
            socket_request_max_bytes: reader.number("socket.request.max.bytes")?,
            produce_validation: match reader.text("produce.validation")? {
                "relaxed" => ProduceValidation::Relaxed,
                _ => ProduceValidation::Full,
            },
            log_cleaner_backoff_ms: reader.number("log.cleaner.backoff.ms")?,
            log_cleaner_dedupe_buffer_size: reader.number("log.cleaner.dedupe.buffer.size")?,
            log_cleaner_enable: reader.boolean("log.cleaner.enable")?,
            log_cleaner_io_buffer_size: reader.number("log.cleaner.io.buffer.size")?,
            log_cleaner_io_max_bytes_per_second: reader.number("log.cleaner.io.max.bytes.per.second")?,
            log_cleaner_threads: reader.number("log.cleaner.threads")?,
            log_dir_failure_timeout_ms: reader.number("log.dir.failure.timeout.ms")?,
            log_flush_offset_checkpoint_interval_ms: reader
                .number("log.flush.offset.checkpoint.interval.ms")?,
            log_flush_scheduler_interval_ms: reader.number("log.flush.scheduler.interval.ms")?,
            log_flush_start_offset_checkpoint_interval_ms: reader
                .number("log.flush.start.offset.checkpoint.interval.ms")?,
            log_initial_task_delay_ms: reader.number("log.initial.task.delay.ms")?,
            log_retention_check_interval_ms: reader.number("log.retention.check.interval.ms")?,
            num_recovery_threads_per_data_dir: reader.number("num.recovery.threads.per.data.dir")?,
            producer_id_expiration_check_interval_ms: reader
                .number("producer.id.expiration.check.interval.ms")?,
            producer_id_expiration_ms: reader.number("producer.id.expiration.ms")?,
            mirror_failed_retry_initial_backoff_ms: reader
                .number("mirror.failed.retry.initial.backoff.ms")?,
            mirror_failed_retry_max_backoff_ms: reader.number("mirror.failed.retry.max.backoff.ms")?,
            mirror_fetch_memory_bytes: reader.number("mirror.fetch.memory.bytes")?,
            mirror_metadata_refresh_interval_ms: reader.number("mirror.metadata.refresh.interval.ms")?,
            mirror_num_replica_fetchers: reader.number("mirror.num.replica.fetchers")?,
            topic_defaults,
            properties: properties.clone(),
        };
        config.check()?;
        Ok((config, warnings))
    }

    /// This configuration under the dynamic values of the metadata image. Values that do not fit count
    /// as not set, and static keys stay as they are in the file.
    pub fn with_dynamic(
        &self,
        broker: Option<&BTreeMap<String, String>>,
        cluster: Option<&BTreeMap<String, String>>,
    ) -> Result<BrokerConfig, ConfigError> {
        let mut effective = self.properties.clone();
        let levels = BrokerLevels { broker, cluster, file: &self.properties };
        for def in BROKER_CONFIGS.iter().filter(|def| def.dynamic != Dynamic::ReadOnly) {
            match levels.synonyms(def).into_iter().next() {
                Some(first) if first.source.is_dynamic() => effective.set(def.name, first.value),
                _ => {}
            }
        }
        let (mut config, _) = BrokerConfig::from_properties(&effective)?;
        config.properties = self.properties.clone();
        Ok(config)
    }

    pub fn inter_broker_endpoint(&self) -> Option<&ListenerEndpoint> {
        self.advertised_listeners.iter().find(|listener| listener.name == self.inter_broker_listener_name)
    }

    /// For `network::Limits`; a negative `connections.max.idle.ms` means never.
    pub fn idle_timeout(&self) -> Duration {
        idle_timeout(self.connections_max_idle_ms)
    }

    fn check(&self) -> Result<(), ConfigError> {
        if i64::from(self.replica_fetch_wait_max_ms) > self.replica_lag_time_max_ms {
            return Err(ConfigError::inconsistent(
                "replica.fetch.wait.max.ms",
                self.replica_fetch_wait_max_ms,
                format!(
                    "it must not be above replica.lag.time.max.ms ({}), or idle followers would leave the ISR",
                    self.replica_lag_time_max_ms
                ),
            ));
        }
        if self.broker_heartbeat_interval_ms >= self.broker_session_timeout_ms {
            return Err(ConfigError::inconsistent(
                "broker.heartbeat.interval.ms",
                self.broker_heartbeat_interval_ms,
                format!("it must be below broker.session.timeout.ms ({})", self.broker_session_timeout_ms),
            ));
        }
        Ok(())
    }
}

/// Whether this dynamic configuration of one broker (`per_broker`) or of all may be set. `None` deletes.
pub fn validate_broker_config(key: &str, value: Option<&str>, per_broker: bool) -> Result<(), ConfigError> {
    let Some(def) = find(BROKER_CONFIGS, key) else {
        let nearest = nearest_key(key, BROKER_CONFIGS.iter().map(|def| def.name));
        return Err(ConfigError::Unknown { key: key.to_owned(), nearest });
    };
    let refused =
        |reason: &str| Err(ConfigError::NotChangeable { key: key.to_owned(), reason: reason.to_owned() });
    match def.dynamic {
        Dynamic::ReadOnly => refused("it cannot be updated dynamically, only in the properties file"),
        Dynamic::PerBroker if !per_broker => refused("it is set for each broker, not for all"),
        // Kafka moves sockets at run time; here the file is the one place for addresses.
        _ if matches!(key, "listeners" | "listener.security.protocol.map") => {
            refused("changing it without a restart is not yet supported")
        }
        _ => value.map_or(Ok(()), |value| def.validate(value)),
    }
}

pub fn broker_config_def(key: &str) -> Option<&'static ConfigDef> {
    find(BROKER_CONFIGS, key)
}

struct Listeners {
    bound: Vec<ListenerEndpoint>,
    advertised: Vec<ListenerEndpoint>,
    inter_broker: String,
}

impl Listeners {
    fn read(reader: &Reader<'_>) -> Result<Listeners, ConfigError> {
        let protocols = ProtocolMap::parse(reader.text("listener.security.protocol.map")?)?;
        let text = reader.text("listeners")?;
        let bound = parse_listeners("listeners", text, &protocols)?;
        if bound.is_empty() {
            return Err(ConfigError::invalid("listeners", text, "at least one is needed"));
        }
        let controllers = reader.list("controller.listener.names")?;
        if let Some(of_controller) = bound.iter().find(|listener| {
            listener.name == "CONTROLLER"
                || controllers.iter().any(|name| name.eq_ignore_ascii_case(&listener.name))
        }) {
            return Err(ConfigError::inconsistent(
                "listeners",
                of_controller,
                "a broker has no controller listener",
            ));
        }
        let advertised = match reader.non_empty_text("advertised.listeners")? {
            Some(text) => parse_listeners("advertised.listeners", text, &protocols)?,
            None => bound.clone(),
        };
        for listener in &advertised {
            if !bound.iter().any(|bound| bound.name == listener.name) {
                let reason = "listeners has none of that name";
                return Err(ConfigError::inconsistent("advertised.listeners", listener, reason));
            }
            if matches!(listener.address.host.as_str(), "0.0.0.0" | "::") {
                let reason = "clients cannot connect to it; name an address of this machine";
                return Err(ConfigError::inconsistent("advertised.listeners", listener, reason));
            }
        }
        let inter_broker = match reader.non_empty_text("inter.broker.listener.name")? {
            Some(_) if reader.is_set("security.inter.broker.protocol") => {
                return Err(ConfigError::inconsistent(
                    "security.inter.broker.protocol",
                    reader.text("security.inter.broker.protocol")?,
                    "only one of it and inter.broker.listener.name can be set",
                ));
            }
            Some(name) => name.to_ascii_uppercase(),
            // As in Kafka, the listener with the protocol's name.
            None => reader.text("security.inter.broker.protocol")?.to_owned(),
        };
        if !advertised.iter().any(|listener| listener.name == inter_broker) {
            let reason = "advertised.listeners has none of that name";
            return Err(ConfigError::inconsistent("inter.broker.listener.name", inter_broker, reason));
        }
        Ok(Listeners { bound, advertised, inter_broker })
    }
}

/// The keys by which a directory is formatted, whichever daemon the file is for.
pub fn node_id_and_log_dirs(properties: &Properties) -> Result<(i32, Vec<PathBuf>), ConfigError> {
    let (reader, _) = Reader::new(BROKER_CONFIGS, CONTROLLER_CONFIGS, properties)?;
    Ok((node_id(&reader)?, log_dirs(&reader)?))
}

pub(super) fn node_id(reader: &Reader<'_>) -> Result<i32, ConfigError> {
    if let Some(id) = reader.optional_number("node.id")? {
        let old: i32 = reader.number("broker.id")?;
        if old != -1 && old != id {
            return Err(ConfigError::inconsistent("broker.id", old, format!("node.id is {id}")));
        }
        return Ok(id);
    }
    match reader.number("broker.id")? {
        id if id >= 0 => Ok(id),
        _ => Err(ConfigError::Missing {
            key: "node.id".to_owned(),
            allowed: "it must be an integer of at least 0, unique over controllers and brokers".to_owned(),
        }),
    }
}

pub(super) fn check_role(reader: &Reader<'_>, role: &str) -> Result<(), ConfigError> {
    let roles = reader.list("process.roles")?;
    if roles.iter().all(|configured| *configured == role) {
        return Ok(());
    }
    Err(ConfigError::invalid(
        "process.roles",
        &roles.join(","),
        format!("this process is a {role} and only that"),
    ))
}

pub(super) fn log_dirs(reader: &Reader<'_>) -> Result<Vec<PathBuf>, ConfigError> {
    let mut dirs = reader.list("log.dirs")?;
    if dirs.is_empty() {
        dirs = reader.list("log.dir")?;
    }
    let distinct: std::collections::BTreeSet<&str> = dirs.iter().copied().collect();
    if dirs.is_empty() || distinct.len() != dirs.len() {
        return Err(ConfigError::invalid(
            "log.dirs",
            &dirs.join(","),
            "allowed is a list of different directories",
        ));
    }
    Ok(dirs.into_iter().map(PathBuf::from).collect())
}

pub(super) fn metrics_listener(reader: &Reader<'_>) -> Result<Option<HostPort>, ConfigError> {
    reader.non_empty_text("metrics.listener")?.map(|text| parse_address("metrics.listener", text)).transpose()
}

pub(super) fn queued_max_request_bytes(reader: &Reader<'_>) -> Result<i64, ConfigError> {
    const KEY: &str = "queued.max.request.bytes";
    let largest: i32 = reader.number("socket.request.max.bytes")?;
    match reader.number::<i64>(KEY)? {
        bytes if bytes <= 0 => Ok(DEFAULT_IN_FLIGHT_BYTES.max(i64::from(largest))),
        bytes if bytes < i64::from(largest) => {
            let reason = format!("it must not be below socket.request.max.bytes ({largest})");
            Err(ConfigError::inconsistent(KEY, bytes, reason))
        }
        bytes => Ok(bytes),
    }
}

pub(super) fn idle_timeout(connections_max_idle_ms: i64) -> Duration {
    // A hundred years stand for "never": a timer cannot be set to the end of time.
    const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);
    u64::try_from(connections_max_idle_ms).map_or(NEVER, |ms| Duration::from_millis(ms).min(NEVER))
}

#[cfg(test)]
mod tests;
