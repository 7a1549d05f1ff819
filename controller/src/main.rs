//! The controller daemon: command line, signals, exit code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use common::config::{ControllerConfig, Properties};
use common::telemetry::{LogFormat, init_logging, reason};
use controller::server::ControllerServer;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

/// Many connections allocate and free from many threads: this keeps their memory flat.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The contract promises an end within 10 s of a signal.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Parser)]
#[command(name = "kagami-controller", version, about = "A Kagami controller")]
struct Arguments {
    /// Properties file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Takes the place of a key of the file; may be given more than once.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormatArgument,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogFormatArgument {
    Text,
    Json,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    init_logging(match arguments.log_format {
        LogFormatArgument::Text => LogFormat::Text,
        LogFormatArgument::Json => LogFormat::Json,
    });
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("kagami-controller stops: {}", reason(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut properties = Properties::load(&arguments.config)
        .with_context(|| format!("cannot read {}", arguments.config.display()))?;
    for key_value in &arguments.overrides {
        properties.set_override(key_value)?;
    }
    let (config, warnings) = ControllerConfig::from_properties(&properties)?;
    for warning in warnings {
        warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("controller")
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(serve(config));
    // A task that blocks its thread must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

async fn serve(config: ControllerConfig) -> anyhow::Result<()> {
    // Before anything else: a signal during the start is a wish to stop, too.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let server = tokio::select! {
        server = ControllerServer::start(config) => server?,
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
