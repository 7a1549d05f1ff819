//! `kagami`: the operator's command.
//!
//! Exit codes: 0 done; 1 the cluster refused, or a check failed; 2 wrong usage; 3 time-out.

// This program's output is what it prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod command_config;
mod demo;
mod dev;
mod embedded;
mod failure;
mod mirror;
mod output;
mod quorum;
mod session;
mod storage;
mod target;
mod topic;
mod verify;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

#[derive(Parser)]
#[command(
    name = "kagami",
    version,
    about = "Kafka-protocol brokers with cluster mirroring: the operator's command"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ids and formatting of log directories.
    #[command(subcommand)]
    Storage(storage::StorageCommand),
    /// Create mirrors, add topics to them, fail over.
    #[command(subcommand)]
    Mirror(mirror::MirrorCommand),
    /// Compare the bytes of a mirror with its source.
    Verify(verify::VerifyCommand),
    /// The controller quorum.
    #[command(subcommand)]
    Quorum(quorum::QuorumCommand),
    /// Topics.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// A cluster in this process, for trying things out.
    Dev(dev::DevCommand),
    /// Two clusters in this process: mirror, lose the source, fail over, compare.
    Demo(demo::DemoCommand),
}

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Storage(command) => storage::run(command),
        other => run_async(other),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("kagami: {failure}");
            std::process::ExitCode::from(failure.exit_code())
        }
    }
}

fn run_async(command: Command) -> Result<(), Failure> {
    if matches!(command, Command::Dev(_) | Command::Demo(_)) {
        common::descriptors::raise_limit();
    }
    // The embedded daemons log as they do alone; a demo's own lines are enough unless logs are asked for.
    if matches!(command, Command::Dev(_)) || std::env::var_os("RUST_LOG").is_some() {
        common::telemetry::init_logging(common::telemetry::LogFormat::Text);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        match command {
            Command::Storage(command) => storage::run(command),
            Command::Mirror(command) => mirror::run(command).await,
            Command::Verify(command) => verify::run(command).await,
            Command::Quorum(command) => quorum::run(command).await,
            Command::Topic(command) => topic::run(command).await,
            Command::Dev(command) => dev::run(command).await,
            Command::Demo(command) => demo::run(command).await,
        }
    })
}
