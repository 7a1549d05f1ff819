//! The addresses that clients are told.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use common::config::BrokerConfig;
use common::metadata::record::Endpoint;

/// As configured; port 0 is the port that the listener of that name got, and an empty host this
/// machine's name.
pub fn advertised(config: &BrokerConfig, bound: &BTreeMap<String, SocketAddr>) -> Vec<Endpoint> {
    config
        .advertised_listeners
        .iter()
        .map(|listener| {
            let mut endpoint = listener.to_endpoint();
            if endpoint.port == 0
                && let Some(address) = bound.get(&listener.name)
            {
                endpoint.port = address.port();
            }
            if endpoint.host.is_empty() {
                endpoint.host = host_name();
            }
            endpoint
        })
        .collect()
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}
