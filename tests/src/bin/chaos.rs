//! `chaos [--faults N | --minutes M] [--seed S] [--history FILE]`: breaks a cluster of three controllers and three
//! brokers under load, and ends with one line of what that came to. Exit 1 where a promise was broken.

// Its output is what it prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use kagami_tests::chaos::{self, Options, Until};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "Breaks a Kagami cluster of real processes and checks its promises")]
struct Arguments {
    /// Ends after so many faults.
    #[arg(long, default_value_t = 60)]
    faults: usize,
    /// Ends after so many minutes instead.
    #[arg(long)]
    minutes: Option<u64>,
    /// Gives the same plan again; the machine's own timing stays its own.
    #[arg(long)]
    seed: Option<u64>,
    /// Fills no disk.
    #[arg(long)]
    no_full_disks: bool,
    /// Writes the clients' history there, an operation a line.
    #[arg(long)]
    history: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let options = Options {
        seed: arguments.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0),
        until: match arguments.minutes {
            Some(minutes) => Until::Elapsed(Duration::from_secs(60 * minutes)),
            None => Until::Faults(arguments.faults),
        },
        full_disks: !arguments.no_full_disks,
        history: arguments.history,
    };
    eprintln!("-- chaos, seed {}", options.seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        // Told to end: the run is unwound, so that what it started ends with it.
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let outcome = tokio::select! {
            outcome = chaos::run(&options) => outcome,
            _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
            _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
        };
        Ok(match outcome {
            Ok(summary) => {
                println!("{}", summary.line());
                ExitCode::SUCCESS
            }
            Err(error) => {
                println!("FAIL chaos, seed {}: {error:#}", options.seed);
                ExitCode::FAILURE
            }
        })
    })
}
