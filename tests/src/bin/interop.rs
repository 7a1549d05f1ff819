//! `interop [NAME-REGEX] [--list]`: runs the scenarios of `kagami_tests::interop` one after the other against
//! the daemons beside this program. Exit 1 where any failed.

// Its output is what it prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use kagami_tests::foreign;
use kagami_tests::interop::{Scenario, scenarios};
use regex::Regex;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "Runs Kagami against real Apache Kafka and stock clients")]
struct Arguments {
    /// Which scenarios: a regular expression found in their names.
    #[arg(default_value = ".")]
    name: Regex,
    /// Name the scenarios and end.
    #[arg(long)]
    list: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let chosen: Vec<Scenario> =
        scenarios().into_iter().filter(|scenario| arguments.name.is_match(scenario.name)).collect();
    if chosen.is_empty() {
        bail!("no scenario is named like {}", arguments.name);
    }
    if arguments.list {
        for scenario in chosen {
            println!("{:<20} {}", scenario.name, scenario.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(chosen))
}

async fn run(chosen: Vec<Scenario>) -> Result<ExitCode> {
    foreign::prepare().await?;
    let (mut passed, mut failed) = (0, 0);
    for scenario in chosen {
        eprintln!("-- {}: {}", scenario.name, scenario.about);
        let begin = Instant::now();
        match run_one(&scenario).await? {
            Ok(()) => {
                passed += 1;
                println!("ok {} ({:.1} s)", scenario.name, begin.elapsed().as_secs_f64());
            }
            Err(error) => {
                failed += 1;
                println!("FAIL {}: {}", scenario.name, format!("{error:#}").replace('\n', " "));
            }
        }
    }
    println!("interop: {passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The scenario's own result inside; an error of its own when this program was told to end. The scenario is
/// always unwound, so that what it started ends with it.
async fn run_one(scenario: &Scenario) -> Result<Result<()>> {
    let mut task = tokio::spawn(scenario.run());
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let outcome = tokio::select! {
        joined = &mut task => match joined {
            Ok(outcome) => return Ok(outcome),
            Err(error) => return Ok(Err(anyhow!("it panicked: {error}"))),
        },
        () = tokio::time::sleep(scenario.limit) => Ok(Err(anyhow!("not done within {:?}", scenario.limit))),
        _ = terminate.recv() => Err(anyhow!("terminated")),
        _ = interrupt.recv() => Err(anyhow!("interrupted")),
    };
    task.abort();
    // Resolves once its values are dropped.
    let _ = task.await;
    outcome
}
