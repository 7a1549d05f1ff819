//! Addresses: `host:port`, Kafka's `NAME://host:port`, and the quorum's `id@host:port`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::metadata::record::Endpoint;

use super::definition::split_list;
use super::error::ConfigError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityProtocol {
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

impl SecurityProtocol {
    /// Kafka's number.
    pub fn id(self) -> i16 {
        match self {
            SecurityProtocol::Plaintext => 0,
            SecurityProtocol::Ssl => 1,
            SecurityProtocol::SaslPlaintext => 2,
            SecurityProtocol::SaslSsl => 3,
        }
    }

    fn from_name(name: &str) -> Option<SecurityProtocol> {
        match name {
            "PLAINTEXT" => Some(SecurityProtocol::Plaintext),
            "SSL" => Some(SecurityProtocol::Ssl),
            "SASL_PLAINTEXT" => Some(SecurityProtocol::SaslPlaintext),
            "SASL_SSL" => Some(SecurityProtocol::SaslSsl),
            _ => None,
        }
    }
}

/// `host:port`; an IPv6 address stands in brackets. An empty host means all addresses of the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Without brackets.
    pub host: String,
    pub port: u16,
}

impl HostPort {
    pub fn new(host: impl Into<String>, port: u16) -> HostPort {
        HostPort { host: host.into(), port }
    }
}

/// The text is not `host:port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress;

impl FromStr for HostPort {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<HostPort, BadAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(BadAddress)?;
        let port = Some(port)
            .filter(|port| port.bytes().all(|digit| digit.is_ascii_digit()))
            .and_then(|port| port.parse().ok())
            .ok_or(BadAddress)?;
        let bare = match host.strip_prefix('[') {
            Some(rest) => {
                let address = rest.strip_suffix(']').ok_or(BadAddress)?;
                // A zone (`%eth0`) may follow the address.
                let plain = address.split('%').next().unwrap_or(address);
                plain.parse::<std::net::Ipv6Addr>().map_err(|_| BadAddress)?;
                address
            }
            None => host,
        };
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
        if host == bare && !host.chars().all(is_name) {
            return Err(BadAddress);
        }
        Ok(HostPort::new(bare, port))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A named listener or its advertised address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerEndpoint {
    pub name: String,
    pub address: HostPort,
    pub security_protocol: SecurityProtocol,
}

impl ListenerEndpoint {
    /// As the metadata log holds it.
    pub fn to_endpoint(&self) -> Endpoint {
        Endpoint {
            name: self.name.clone(),
            host: self.address.host.clone(),
            port: self.address.port,
            security_protocol: self.security_protocol.id(),
        }
    }
}

impl fmt::Display for ListenerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.name, self.address)
    }
}

/// A voter of the quorum as `controller.quorum.voters` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumVoter {
    pub node_id: i32,
    pub address: HostPort,
}

/// Parses a list of listeners. Names are unique; so are ports, but for 0 and for one IPv4 and one IPv6
/// address with the same port.
pub(super) fn parse_listeners(
    key: &str,
    value: &str,
    protocols: &ProtocolMap,
) -> Result<Vec<ListenerEndpoint>, ConfigError> {
    let mut listeners: Vec<ListenerEndpoint> = Vec::new();
    for item in split_list(value) {
        let form = || ConfigError::invalid(key, item, "allowed is a list of NAME://host:port");
        let (name, address) = item.split_once("://").ok_or_else(form)?;
        let name = name.to_ascii_uppercase();
        let address: HostPort = address.parse().map_err(|BadAddress| form())?;
        if name.is_empty() {
            return Err(form());
        }
        let security_protocol = protocols.protocol(key, &name, item)?;
        if listeners.iter().any(|other| other.name == name) {
            return Err(ConfigError::inconsistent(
                key,
                item,
                format!("the listener name {name} is used twice"),
            ));
        }
        let clash = listeners.iter().find(|other| {
            let one_family = other.address.host.contains(':') == address.host.contains(':');
            other.address.port == address.port && address.port != 0 && one_family
        });
        if let Some(other) = clash.filter(|_| key == "listeners") {
            return Err(ConfigError::inconsistent(key, item, format!("the port is that of {other}")));
        }
        listeners.push(ListenerEndpoint { name, address, security_protocol });
    }
    Ok(listeners)
}

/// `listener.security.protocol.map`.
pub(super) struct ProtocolMap {
    protocols: BTreeMap<String, SecurityProtocol>,
}

impl ProtocolMap {
    pub(super) fn parse(value: &str) -> Result<ProtocolMap, ConfigError> {
        const KEY: &str = "listener.security.protocol.map";
        let mut protocols = BTreeMap::new();
        for item in split_list(value) {
            let parsed = item.split_once(':').and_then(|(name, protocol)| {
                let protocol = SecurityProtocol::from_name(protocol.trim())?;
                Some((name.trim().to_ascii_uppercase(), protocol))
            });
            let Some((name, protocol)) = parsed else {
                return Err(ConfigError::invalid(
                    KEY,
                    item,
                    "allowed is a list of NAME:PROTOCOL, PROTOCOL one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
                ));
            };
            protocols.insert(name, protocol);
        }
        // As in Kafka, the controllers' listener needs no entry.
        protocols.entry("CONTROLLER".to_owned()).or_insert(SecurityProtocol::Plaintext);
        Ok(ProtocolMap { protocols })
    }

    fn protocol(&self, key: &str, name: &str, item: &str) -> Result<SecurityProtocol, ConfigError> {
        match self.protocols.get(name) {
            Some(SecurityProtocol::Plaintext) => Ok(SecurityProtocol::Plaintext),
            Some(_) => Err(ConfigError::NotSupported {
                key: key.to_owned(),
                value: item.to_owned(),
                supported: "listeners with the security protocol PLAINTEXT".to_owned(),
            }),
            None => Err(ConfigError::inconsistent(
                key,
                item,
                format!("listener.security.protocol.map has no entry for {name}"),
            )),
        }
    }
}

/// Parses `controller.quorum.voters`.
pub(super) fn parse_voters(value: &str) -> Result<Vec<QuorumVoter>, ConfigError> {
    const KEY: &str = "controller.quorum.voters";
    let mut voters: Vec<QuorumVoter> = Vec::new();
    for item in split_list(value) {
        let parsed = item.split_once('@').and_then(|(id, address)| {
            let node_id = id.parse().ok().filter(|id: &i32| *id >= 0)?;
            let address: HostPort = address.parse().ok()?;
            (!address.host.is_empty() && address.port != 0).then_some(QuorumVoter { node_id, address })
        });
        let Some(voter) = parsed else {
            return Err(ConfigError::invalid(KEY, item, "allowed is a list of id@host:port"));
        };
        if voters.iter().any(|other| other.node_id == voter.node_id || other.address == voter.address) {
            return Err(ConfigError::inconsistent(KEY, item, "an id or an address is listed twice"));
        }
        voters.push(voter);
    }
    if voters.is_empty() {
        return Err(ConfigError::Missing {
            key: KEY.to_owned(),
            allowed: "it must list every controller as id@host:port".to_owned(),
        });
    }
    Ok(voters)
}

/// Parses a single `host:port`.
pub(super) fn parse_address(key: &str, value: &str) -> Result<HostPort, ConfigError> {
    value.parse().map_err(|BadAddress| ConfigError::invalid(key, value, "allowed is host:port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, host, port) in [
            ("localhost:9092", "localhost", 9092),
            (":0", "", 0),
            ("[::1]:9092", "::1", 9092),
            ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
            ("10.0.0.1:65535", "10.0.0.1", 65535),
        ] {
            let parsed: HostPort = text.parse().unwrap();
            assert_eq!(parsed, HostPort::new(host, port));
            assert_eq!(parsed.to_string(), text);
        }
        for text in
            ["", "localhost", "::1:9092", "[::1]", "[::1", "[x]:1", "a b:1", "h:65536", "h:+1", "h:", "a/b:1"]
        {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    fn listeners(value: &str, map: &str) -> Result<Vec<ListenerEndpoint>, ConfigError> {
        parse_listeners("listeners", value, &ProtocolMap::parse(map).unwrap())
    }

    #[test]
    fn listeners_have_names_and_protocols() {
        let map = "PLAINTEXT:PLAINTEXT,inner:PLAINTEXT,SSL:SSL";
        let parsed = listeners("PLAINTEXT://:9092, Inner://[::1]:9093", map).unwrap();
        assert_eq!(
            parsed.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["PLAINTEXT://:9092", "INNER://[::1]:9093"]
        );
        assert!(listeners("PLAINTEXT://127.0.0.1:1,INNER://[::1]:1", map).is_ok());
        assert!(listeners("PLAINTEXT://:0,INNER://:0", map).is_ok());
        for wrong in [
            "PLAINTEXT://a:1,PLAINTEXT://b:2",
            "PLAINTEXT://a:1,INNER://a:1",
            "OTHER://a:1",
            "a:1",
            "://a:1",
            "PLAINTEXT://a",
        ] {
            assert!(listeners(wrong, map).is_err(), "{wrong}");
        }
        let error = listeners("SSL://a:1", map).unwrap_err();
        assert!(error.to_string().contains("not yet supported"), "{error}");
        assert!(ProtocolMap::parse("A:TLS").is_err());
    }

    #[test]
    fn voters_are_unique() {
        assert_eq!(parse_voters("1@a:1, 2@[::1]:2").unwrap().len(), 2);
        for wrong in ["", "1@a:1,1@b:1", "1@a:1,2@a:1", "-1@a:1", "a:1", "1@:1", "1@a:0"] {
            assert!(parse_voters(wrong).is_err(), "{wrong}");
        }
    }
}
