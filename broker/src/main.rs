//! The broker daemon.

use std::process::ExitCode;

use broker::server::{BrokerServer, StartError};
use common::config::{BrokerConfig, ConfigError, Properties, Warning};
use common::daemon::Daemon;

/// Many connections allocate and free from many threads: this keeps their memory flat.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Broker(BrokerServer);

impl Daemon for Broker {
    const NAME: &'static str = "kagami-broker";
    const ABOUT: &'static str = "A Kagami broker";
    type Config = BrokerConfig;
    type StartError = StartError;

    fn configure(properties: &Properties) -> Result<(BrokerConfig, Vec<Warning>), ConfigError> {
        BrokerConfig::from_properties(properties)
    }

    async fn start(config: BrokerConfig) -> Result<Broker, StartError> {
        BrokerServer::start(config).await.map(Broker)
    }

    async fn failed(&self) -> String {
        self.0.failed().await
    }

    async fn shutdown(self) {
        self.0.shutdown().await;
    }
}

fn main() -> ExitCode {
    common::daemon::main::<Broker>()
}
