//! The controller daemon.

use std::process::ExitCode;

use common::config::{ConfigError, ControllerConfig, Properties, Warning};
use common::daemon::Daemon;
use controller::server::{ControllerServer, StartError};

/// Many connections allocate and free from many threads: this keeps their memory flat.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Controller(ControllerServer);

impl Daemon for Controller {
    const NAME: &'static str = "kagami-controller";
    const ABOUT: &'static str = "A Kagami controller";
    type Config = ControllerConfig;
    type StartError = StartError;

    fn configure(properties: &Properties) -> Result<(ControllerConfig, Vec<Warning>), ConfigError> {
        ControllerConfig::from_properties(properties)
    }

    async fn start(config: ControllerConfig) -> Result<Controller, StartError> {
        ControllerServer::start(config).await.map(Controller)
    }

    async fn failed(&self) -> String {
        self.0.failed().await
    }

    async fn shutdown(self) {
        self.0.shutdown().await;
    }
}

fn main() -> ExitCode {
    common::daemon::main::<Controller>()
}
