//! The configuration of a controller.

use std::path::PathBuf;
use std::time::Duration;

use crate::ids::ControllerId;

use super::broker::{
    check_role, idle_timeout, log_dirs, metrics_listener, node_id, queued_max_request_bytes,
};
use super::broker_keys::BROKER_CONFIGS;
use super::error::{ConfigError, Warning};
use super::listener::{
    HostPort, ListenerEndpoint, ProtocolMap, QuorumVoter, parse_address, parse_listeners, parse_voters,
};
use super::properties::Properties;
use super::reader::Reader;
use super::topic::TopicConfig;

pub use super::controller_keys::CONTROLLER_CONFIGS;

#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    pub node_id: ControllerId,
    /// Where admin clients speak the Kafka protocol.
    pub listeners: Vec<ListenerEndpoint>,
    /// Where other controllers and the brokers connect.
    pub quorum_listener: HostPort,
    pub controller_quorum_voters: Vec<QuorumVoter>,
    /// A controller has one data directory.
    pub log_dir: PathBuf,
    pub metrics_listener: Option<HostPort>,

    pub quorum_heartbeat_interval_ms: u64,
    /// To twice that.
    pub quorum_election_timeout_ms: u64,

    pub broker_session_timeout_ms: i32,
    /// What a partition count of -1 means.
    pub num_partitions: i32,
    /// What a replication factor of -1 means.
    pub default_replication_factor: i16,
    pub min_insync_replicas: i32,
    pub unclean_leader_election_enable: bool,
    pub auto_create_topics_enable: bool,
    pub delete_topic_enable: bool,
    pub auto_leader_rebalance_enable: bool,
    pub leader_imbalance_check_interval_seconds: i64,
    pub unclean_leader_election_interval_ms: i64,
    pub mirror_state_topic_num_partitions: i32,
    pub mirror_state_topic_replication_factor: i16,
    pub mirror_state_topic_min_isr: i32,

    pub connections_max_idle_ms: i64,
    pub max_connections: i32,
    pub max_connections_per_ip: i32,
    /// Never -1: the choice for it is in it.
    pub queued_max_request_bytes: i64,
    pub request_timeout_ms: i32,
    pub socket_request_max_bytes: i32,

    /// What topics have that set nothing themselves.
    pub topic_defaults: TopicConfig,
    /// The file, for the levels below a dynamic configuration.
    pub properties: Properties,
}

impl ControllerConfig {
    pub fn from_properties(properties: &Properties) -> Result<(ControllerConfig, Vec<Warning>), ConfigError> {
        let (reader, warnings) = Reader::new(CONTROLLER_CONFIGS, BROKER_CONFIGS, properties)?;
        check_role(&reader, "controller")?;
        let node_id = node_id(&reader)?;
        let voters = parse_voters(reader.text("controller.quorum.voters")?)?;
        let quorum_listener = parse_address("quorum.listener", reader.text("quorum.listener")?)?;
        // One that is not listed observes until it is added; but nobody is another node at its own address.
        let listed = voters.iter().any(|voter| voter.node_id == node_id);
        if !listed && voters.iter().any(|voter| voter.address == quorum_listener) {
            let reason = "controller.quorum.voters does not list it, but its quorum.listener";
            return Err(ConfigError::inconsistent("node.id", node_id, reason));
        }
        let topic_defaults = TopicConfig::defaults(properties);
        let config = ControllerConfig {
            node_id: ControllerId(node_id),
            listeners: listeners(&reader)?,
            quorum_listener,
            controller_quorum_voters: voters,
            log_dir: log_dir(&reader)?,
            metrics_listener: metrics_listener(&reader)?,
            quorum_heartbeat_interval_ms: reader.number("quorum.heartbeat.interval.ms")?,
            quorum_election_timeout_ms: reader.number("quorum.election.timeout.ms")?,
            broker_session_timeout_ms: reader.number("broker.session.timeout.ms")?,
            num_partitions: reader.number("num.partitions")?,
            default_replication_factor: reader.number("default.replication.factor")?,
            min_insync_replicas: topic_defaults.min_insync_replicas,
            unclean_leader_election_enable: topic_defaults.unclean_leader_election_enable,
            auto_create_topics_enable: reader.boolean("auto.create.topics.enable")?,
            delete_topic_enable: reader.boolean("delete.topic.enable")?,
            auto_leader_rebalance_enable: reader.boolean("auto.leader.rebalance.enable")?,
            leader_imbalance_check_interval_seconds: reader
                .number("leader.imbalance.check.interval.seconds")?,
            unclean_leader_election_interval_ms: reader.number("unclean.leader.election.interval.ms")?,
            mirror_state_topic_num_partitions: reader.number("mirror.state.topic.num.partitions")?,
            mirror_state_topic_replication_factor: reader.number("mirror.state.topic.replication.factor")?,
            mirror_state_topic_min_isr: reader.number("mirror.state.topic.min.isr")?,
            connections_max_idle_ms: reader.number("connections.max.idle.ms")?,
            max_connections: reader.number("max.connections")?,
            max_connections_per_ip: reader.number("max.connections.per.ip")?,
            queued_max_request_bytes: queued_max_request_bytes(&reader)?,
            request_timeout_ms: reader.number("request.timeout.ms")?,
            socket_request_max_bytes: reader.number("socket.request.max.bytes")?,
            topic_defaults,
            properties: properties.clone(),
        };
        config.check()?;
        Ok((config, warnings))
    }

    /// For `network::Limits`; a negative `connections.max.idle.ms` means never.
    pub fn idle_timeout(&self) -> Duration {
        idle_timeout(self.connections_max_idle_ms)
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.quorum_heartbeat_interval_ms >= self.quorum_election_timeout_ms {
            return Err(ConfigError::inconsistent(
                "quorum.heartbeat.interval.ms",
                self.quorum_heartbeat_interval_ms,
                format!("it must be below quorum.election.timeout.ms ({})", self.quorum_election_timeout_ms),
            ));
        }
        if self.mirror_state_topic_min_isr > i32::from(self.mirror_state_topic_replication_factor) {
            return Err(ConfigError::inconsistent(
                "mirror.state.topic.min.isr",
                self.mirror_state_topic_min_isr,
                format!(
                    "it must not be above mirror.state.topic.replication.factor ({})",
                    self.mirror_state_topic_replication_factor
                ),
            ));
        }
        Ok(())
    }
}

fn listeners(reader: &Reader<'_>) -> Result<Vec<ListenerEndpoint>, ConfigError> {
    let text = if reader.is_set("listeners") { reader.text("listeners")? } else { "" };
    let protocols = ProtocolMap::parse(reader.text("listener.security.protocol.map")?)?;
    let listeners = parse_listeners("listeners", text, &protocols)?;
    if listeners.is_empty() {
        return Err(ConfigError::Missing {
            key: "listeners".to_owned(),
            allowed: "it must be CONTROLLER://host:port".to_owned(),
        });
    }
    Ok(listeners)
}

fn log_dir(reader: &Reader<'_>) -> Result<PathBuf, ConfigError> {
    let mut dirs = log_dirs(reader)?;
    match (dirs.pop(), dirs.is_empty()) {
        (Some(dir), true) => Ok(dir),
        _ => Err(ConfigError::invalid(
            "log.dirs",
            reader.optional_text("log.dirs")?.unwrap_or_default(),
            "a controller has one directory",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<(ControllerConfig, Vec<Warning>), ConfigError> {
        let mut properties: Properties = [
            ("node.id", "10"),
            ("listeners", "CONTROLLER://localhost:9093"),
            ("quorum.listener", "localhost:9094"),
            ("controller.quorum.voters", "10@localhost:9094"),
            ("log.dirs", "/data"),
        ]
        .into_iter()
        .collect();
        for (key, value) in pairs {
            properties.set(*key, *value);
        }
        ControllerConfig::from_properties(&properties)
    }

    #[test]
    fn the_contracts_defaults_hold() {
        let (config, warnings) =
            with(&[("log.retention.hours", "5"), ("process.roles", "controller")]).unwrap();
        assert_eq!(warnings, []);
        assert_eq!(config.quorum_heartbeat_interval_ms, 50);
        assert_eq!(config.quorum_election_timeout_ms, 200);
        assert_eq!(config.mirror_state_topic_num_partitions, 50);
        assert_eq!(config.mirror_state_topic_replication_factor, 3);
        assert_eq!(config.mirror_state_topic_min_isr, 2);
        assert_eq!((config.num_partitions, config.default_replication_factor), (1, 1));
        assert_eq!(config.log_dir, PathBuf::from("/data"));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("node.id", "11")], "does not list it"),
            (&[("log.dirs", "/a,/b")], "one directory"),
            (&[("quorum.listener", "9094")], "allowed is host:port"),
            (&[("quorum.heartbeat.interval.ms", "200")], "quorum.election.timeout.ms (200)"),
            (&[("mirror.state.topic.replication.factor", "1")], "mirror.state.topic.min.isr"),
            (&[("process.roles", "broker")], "a controller and only that"),
            (&[("listeners", "")], "Missing required configuration listeners"),
        ];
        for (pairs, expected) in cases {
            let message = with(pairs).unwrap_err().to_string();
            assert!(message.contains(expected), "{pairs:?}: {message}");
        }
    }
}
