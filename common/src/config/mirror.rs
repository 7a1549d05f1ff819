//! The configuration of a mirror: client settings that arrive over the wire (decision 22). What is not
//! on the list is refused, and so is every value that would make this process read a file, reach a
//! URL, load a class or resolve a variable.

use std::collections::BTreeMap;

use regex::Regex;

use super::definition::{ConfigDef, ValueType, split_list, trimmed, types};
use super::error::{ConfigError, nearest_key};
use super::listener::HostPort;
use super::reader::find;
use super::topic::MIRROR_NAME;

mod jaas;

/// The longest value; certificates are the longest there are.
pub const MAX_VALUE_BYTES: usize = 64 << 10;
const MAX_BOOTSTRAP_SERVERS: usize = 64;
/// A regular expression of the exclude list may compile to this much.
const MAX_REGEX_BYTES: usize = 1 << 20;

const BOOTSTRAP_SERVERS: &str = "bootstrap.servers";
const TOPIC_PROPERTIES_EXCLUDE: &str = "mirror.topic.properties.exclude";

/// All keys that a mirror can have.
pub static MIRROR_CONFIGS: &[ConfigDef] = &[
    ConfigDef::new(
        BOOTSTRAP_SERVERS,
        ValueType::List,
        None,
        "Brokers of the source cluster to start from, as host:port.",
    ),
    ConfigDef::new(
        "mirror.fetch.backoff.ms",
        types::NATURAL_INT,
        Some("1000"),
        "Pause of a mirror fetcher after an error.",
    ),
    ConfigDef::new(
        "mirror.fetch.max.bytes",
        types::POSITIVE_INT,
        Some("1048576"),
        "Bytes of one partition in a fetch from the source. A larger first batch is taken all the same.",
    ),
    ConfigDef::new(
        "mirror.fetch.min.bytes",
        types::NATURAL_INT,
        Some("1"),
        "Bytes that a fetch from the source waits for.",
    ),
    ConfigDef::new(
        "mirror.fetch.response.max.bytes",
        types::POSITIVE_INT,
        Some("10485760"),
        "Bytes of a whole answer of the source.",
    ),
    ConfigDef::new(
        "mirror.fetch.wait.max.ms",
        types::int_range(0, 60_000),
        Some("500"),
        "How long a fetch from the source waits for data.",
    ),
    ConfigDef::new(
        TOPIC_PROPERTIES_EXCLUDE,
        ValueType::List,
        Some(
            "follower.replication.throttled.replicas,leader.replication.throttled.replicas,\
             message.timestamp.difference.max.ms,log.message.timestamp.before.max.ms,\
             log.message.timestamp.after.max.ms,message.timestamp.type,unclean.leader.election.enable,\
             min.insync.replicas,mirror.name",
        ),
        "Topic keys that are not copied: regular expressions that must match a whole key.",
    ),
    ConfigDef::new(
        "request.timeout.ms",
        types::int_from(1),
        Some("30000"),
        "How long an answer of the source is waited for.",
    ),
    ConfigDef::new("sasl.jaas.config", ValueType::Password, None, "Login module, user name and password."),
    ConfigDef::new(
        "sasl.mechanism",
        ValueType::OneOf(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
        Some("PLAIN"),
        "SASL mechanism towards the source.",
    ),
    ConfigDef::new(
        "security.protocol",
        ValueType::OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
        Some("PLAINTEXT"),
        "Security protocol towards the source.",
    )
    .only("PLAINTEXT"),
    ConfigDef::new(
        "socket.connection.setup.timeout.ms",
        types::POSITIVE_LONG,
        Some("10000"),
        "How long a connection to the source may take.",
    ),
    ConfigDef::new(
        "ssl.endpoint.identification.algorithm",
        ValueType::OneOf(&["https", ""]),
        Some("https"),
        "Whether the host name must be that of the certificate; empty means not.",
    ),
    ConfigDef::new("ssl.key.password", ValueType::Password, None, "Password of the private key."),
    ConfigDef::new(
        "ssl.keystore.certificate.chain",
        ValueType::Password,
        None,
        "Own certificate and its chain, in PEM.",
    ),
    ConfigDef::new("ssl.keystore.key", ValueType::Password, None, "Private key, in PEM."),
    ConfigDef::new("ssl.keystore.type", ValueType::OneOf(&["PEM"]), Some("PEM"), "Format of the key."),
    ConfigDef::new(
        "ssl.truststore.certificates",
        ValueType::Password,
        None,
        "Certificates of trusted authorities, in PEM.",
    ),
    ConfigDef::new(
        "ssl.truststore.type",
        ValueType::OneOf(&["PEM"]),
        Some("PEM"),
        "Format of the certificates.",
    ),
];

/// The values of a mirror, typed.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    pub bootstrap_servers: Vec<HostPort>,
    pub request_timeout_ms: i32,
    pub connection_setup_timeout_ms: i64,
    pub fetch_backoff_ms: i32,
    pub fetch_max_bytes: i32,
    pub fetch_min_bytes: i32,
    pub fetch_response_max_bytes: i32,
    pub fetch_wait_max_ms: i32,
    pub topic_properties_exclude: TopicPropertiesExclude,
}

/// Which keys of a topic are not copied from the source.
#[derive(Clone, Debug)]
pub struct TopicPropertiesExclude {
    pattern: Regex,
}

impl TopicPropertiesExclude {
    fn parse(value: &str) -> Result<TopicPropertiesExclude, ConfigError> {
        let invalid = |item: &str, reason: String| {
            ConfigError::invalid(
                TOPIC_PROPERTIES_EXCLUDE,
                item,
                format!("allowed are regular expressions: {reason}"),
            )
        };
        let mut alternatives = String::new();
        for item in split_list(value) {
            // Each alone, so that no expression can close a group of the whole.
            build(item).map_err(|reason| invalid(item, reason))?;
            alternatives.push_str(&format!("(?:{item})|"));
        }
        alternatives.push_str(&regex::escape(MIRROR_NAME));
        let pattern = build(&format!("^(?:{alternatives})$")).map_err(|reason| invalid(value, reason))?;
        Ok(TopicPropertiesExclude { pattern })
    }

    /// `mirror.name` is excluded whatever the list says.
    pub fn is_excluded(&self, key: &str) -> bool {
        self.pattern.is_match(key)
    }
}

fn build(expression: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(expression).size_limit(MAX_REGEX_BYTES).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
        // The message shows the expression on several lines; its last one says what is wrong.
        error => error.to_string().lines().last().unwrap_or_default().trim().to_owned(),
    })
}

impl MirrorConfig {
    /// Reads the values that the metadata log holds for a mirror.
    pub fn from_values(values: &BTreeMap<String, String>) -> Result<MirrorConfig, ConfigError> {
        validate_mirror_configs(values)?;
        let value = |key: &str| match values.get(key) {
            Some(value) => value.trim(),
            None => find(MIRROR_CONFIGS, key).and_then(|def| def.default).unwrap_or_default(),
        };
        fn number<N: std::str::FromStr>(key: &str, value: &str) -> Result<N, ConfigError> {
            value.parse().map_err(|_| ConfigError::invalid(key, value, "allowed is a number"))
        }
        let int = |key: &str| number::<i32>(key, value(key));
        Ok(MirrorConfig {
            bootstrap_servers: bootstrap_servers(value(BOOTSTRAP_SERVERS))?,
            request_timeout_ms: int("request.timeout.ms")?,
            connection_setup_timeout_ms: number(
                "socket.connection.setup.timeout.ms",
                value("socket.connection.setup.timeout.ms"),
            )?,
            fetch_backoff_ms: int("mirror.fetch.backoff.ms")?,
            fetch_max_bytes: int("mirror.fetch.max.bytes")?,
            fetch_min_bytes: int("mirror.fetch.min.bytes")?,
            fetch_response_max_bytes: int("mirror.fetch.response.max.bytes")?,
            fetch_wait_max_ms: int("mirror.fetch.wait.max.ms")?,
            topic_properties_exclude: TopicPropertiesExclude::parse(value(TOPIC_PROPERTIES_EXCLUDE))?,
        })
    }
}

pub fn mirror_config_def(key: &str) -> Option<&'static ConfigDef> {
    find(MIRROR_CONFIGS, key)
}

/// Whether a mirror may have this value.
pub fn validate_mirror_config(key: &str, value: &str) -> Result<(), ConfigError> {
    let def = find(MIRROR_CONFIGS, key).ok_or_else(|| ConfigError::Unknown {
        key: key.chars().take(256).collect(),
        nearest: nearest_key(key, MIRROR_CONFIGS.iter().map(|def| def.name)),
    })?;
    let refused = |allowed: &str| {
        let shown = if def.sensitive { "[hidden]".to_owned() } else { value.chars().take(256).collect() };
        Err(ConfigError::Invalid { key: key.to_owned(), value: shown, allowed: allowed.to_owned() })
    };
    if value.len() > MAX_VALUE_BYTES {
        return refused("allowed are at most 65536 bytes");
    }
    if value.contains("${") {
        return refused("variables are not resolved and not allowed");
    }
    let plain = trimmed(def.value_type, value);
    if !def.sensitive && (plain.contains("://") || plain.starts_with('/') || plain.starts_with("file:")) {
        return refused("a path or a URL is not allowed");
    }
    def.validate(value)?;
    match key {
        BOOTSTRAP_SERVERS => bootstrap_servers(plain).map(drop),
        TOPIC_PROPERTIES_EXCLUDE => TopicPropertiesExclude::parse(plain).map(drop),
        "sasl.jaas.config" => match jaas::check(value) {
            Ok(()) => Ok(()),
            Err(allowed) => refused(allowed),
        },
        "ssl.truststore.certificates" | "ssl.keystore.certificate.chain" | "ssl.keystore.key"
            if !value.trim_start().starts_with("-----BEGIN ") =>
        {
            refused("allowed is PEM, inline")
        }
        _ => Ok(()),
    }
}

/// Checks all values of a mirror together: at its creation, and after a change.
pub fn validate_mirror_configs(values: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    for (key, value) in values {
        validate_mirror_config(key, value)?;
    }
    if values.contains_key(BOOTSTRAP_SERVERS) {
        Ok(())
    } else {
        Err(ConfigError::Missing {
            key: BOOTSTRAP_SERVERS.to_owned(),
            allowed: "it must be a list of host:port".to_owned(),
        })
    }
}

fn bootstrap_servers(value: &str) -> Result<Vec<HostPort>, ConfigError> {
    let invalid = |item: &str, allowed: &str| ConfigError::invalid(BOOTSTRAP_SERVERS, item, allowed);
    let servers = split_list(value)
        .map(|item| match item.parse::<HostPort>() {
            Ok(address) if !address.host.is_empty() && address.port != 0 => Ok(address),
            _ => Err(invalid(item, "allowed is a list of host:port")),
        })
        .collect::<Result<Vec<HostPort>, ConfigError>>()?;
    if servers.is_empty() || servers.len() > MAX_BOOTSTRAP_SERVERS {
        return Err(invalid(value, "allowed is a list of 1 to 64 host:port"));
    }
    Ok(servers)
}

#[cfg(test)]
mod tests;
