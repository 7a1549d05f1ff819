//! Which cluster a command speaks to.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::failure::Failure;

/// Addresses of brokers.
#[derive(Args, Clone, Debug)]
pub struct ServerTarget {
    /// Brokers to begin with, HOST:PORT[,HOST:PORT].
    #[arg(long, value_name = "HOST:PORT")]
    pub bootstrap_server: String,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Addresses of brokers or of controllers.
#[derive(Args, Clone, Debug)]
pub struct AnyTarget {
    /// Brokers to begin with, HOST:PORT[,HOST:PORT].
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "bootstrap_controller")]
    pub bootstrap_server: Option<String>,
    /// Controllers to begin with, HOST:PORT[,HOST:PORT]: works with only the quorum reachable.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "bootstrap_server")]
    pub bootstrap_controller: Option<String>,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// Client properties with Kafka's names.
    #[arg(long, value_name = "FILE")]
    pub command_config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Seconds until the command gives up.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

impl CommonArgs {
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// Where to connect, and what answers there.
#[derive(Clone, Debug)]
pub struct Addresses {
    pub addresses: Vec<String>,
    pub are_controllers: bool,
}

impl ServerTarget {
    pub fn addresses(&self) -> Result<Addresses, Failure> {
        parse(&self.bootstrap_server, "--bootstrap-server", false)
    }
}

impl AnyTarget {
    pub fn addresses(&self) -> Result<Addresses, Failure> {
        match (&self.bootstrap_server, &self.bootstrap_controller) {
            (Some(servers), _) => parse(servers, "--bootstrap-server", false),
            (None, Some(controllers)) => parse(controllers, "--bootstrap-controller", true),
            (None, None) => Err(Failure::usage("give --bootstrap-server or --bootstrap-controller")),
        }
    }
}

fn parse(list: &str, flag: &str, are_controllers: bool) -> Result<Addresses, Failure> {
    let addresses: Vec<String> =
        list.split(',').map(str::trim).filter(|address| !address.is_empty()).map(str::to_owned).collect();
    if addresses.is_empty() {
        return Err(Failure::usage(format!("{flag} names no address")));
    }
    for address in &addresses {
        let port = address.rsplit_once(':').and_then(|(host, port)| {
            (!host.is_empty()).then(|| port.parse::<u16>().ok()).flatten().filter(|port| *port > 0)
        });
        if port.is_none() {
            return Err(Failure::usage(format!("{flag}: {address:?} is not HOST:PORT")));
        }
    }
    Ok(Addresses { addresses, are_controllers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_host_and_a_port() {
        assert_eq!(parse("a:1, b:2,", "-", false).unwrap().addresses, ["a:1", "b:2"]);
        for wrong in ["", ",", "a", "a:", ":1", "a:0", "a:70000", "a:b"] {
            assert!(parse(wrong, "-", false).is_err(), "{wrong:?}");
        }
    }
}
