//! What the two daemons' `main` have in common: command line, signals, exit code (the contract of the
//! binaries: 0 after SIGTERM or SIGINT within ten seconds, otherwise non-zero behind one clear line).

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{CommandFactory, FromArgMatches, Parser};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use crate::config::{ConfigError, Properties, PropertiesError, Warning};
use crate::descriptors;
use crate::telemetry::{LogFormat, init_logging, reason};

const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(10);

/// A server that runs until it is told to stop, or fails.
pub trait Daemon: Sized + Send + Sync {
    /// Of the program, and in its log lines.
    const NAME: &'static str;
    const ABOUT: &'static str;
    type Config: Send;
    type StartError: std::error::Error + Send + Sync + 'static;

    /// The configuration and what is odd about it.
    fn configure(properties: &Properties) -> Result<(Self::Config, Vec<Warning>), ConfigError>;
    fn start(config: Self::Config) -> impl Future<Output = Result<Self, Self::StartError>> + Send;
    /// Ends when the daemon cannot go on; says why.
    fn failed(&self) -> impl Future<Output = String> + Send;
    fn shutdown(self) -> impl Future<Output = ()> + Send;
}

#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Properties file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Takes the place of a key of the file; may be given more than once.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[arg(long, value_parser = ["text", "json"], default_value = "text")]
    log_format: String,
}

/// The whole of a daemon's `main`.
pub fn main<D: Daemon>() -> ExitCode {
    let matches = Arguments::command().name(D::NAME).about(D::ABOUT).get_matches();
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    init_logging(match arguments.log_format.as_str() {
        "json" => LogFormat::Json,
        _ => LogFormat::Text,
    });
    descriptors::raise_limit();
    match run::<D>(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{} stops: {}", D::NAME, reason(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run<D: Daemon>(arguments: &Arguments) -> anyhow::Result<()> {
    let mut properties = load(&arguments.config)?;
    for key_value in &arguments.overrides {
        properties.set_override(key_value)?;
    }
    let (config, warnings) = D::configure(&properties)?;
    for warning in warnings {
        warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name(D::NAME)
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(serve::<D>(config));
    // A task that blocks its thread must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

/// Every error names the file.
fn load(file: &Path) -> anyhow::Result<Properties> {
    Properties::load(file).map_err(|error| match error {
        PropertiesError::Read { .. } => error.into(),
        other => anyhow::Error::new(other).context(format!("cannot read {}", file.display())),
    })
}

async fn serve<D: Daemon>(config: D::Config) -> anyhow::Result<()> {
    // Before anything else: a signal during the start is a wish to stop, too.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let server = tokio::select! {
        server = D::start(config) => server?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let failure = tokio::select! {
        _ = terminate.recv() => { info!("SIGTERM: shutting down"); None }
        _ = interrupt.recv() => { info!("SIGINT: shutting down"); None }
        failure = server.failed() => Some(failure),
    };
    if tokio::time::timeout(SHUTDOWN_DEADLINE, server.shutdown()).await.is_err() {
        warn!("shutdown took longer than {SHUTDOWN_DEADLINE:?} and was cut short");
    }
    match failure {
        Some(failure) => Err(anyhow::anyhow!(failure)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_named_once() {
        let directory = tempfile::tempdir().unwrap();
        let (missing, broken) = (directory.path().join("missing"), directory.path().join("broken"));
        std::fs::write(&broken, "a=\\u12").unwrap();
        for (file, expected) in [(&missing, "No such file"), (&broken, "line 1")] {
            let message = reason(load(file).unwrap_err().as_ref());
            let name = format!("cannot read {}", file.display());
            assert!(message.matches(&name).count() == 1 && message.contains(expected), "{message}");
        }
    }
}
