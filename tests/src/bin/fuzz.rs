//! Mutated inputs against everything that reads bytes of others (`kagami_tests::fuzz`). A line a target; exit 1 where
//! one fails. Each target runs in a process of its own, since an allocation that cannot be had ends the process.

// This program's output is what it prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use kagami_tests::fuzz::corpus;
use kagami_tests::fuzz::meter::Meter;
use kagami_tests::fuzz::run::{self, Options};
use kagami_tests::fuzz::targets::{OWN_TESTS, TARGETS, TargetEntry};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const METER: Meter = Meter {
    current_bytes: || ALLOCATOR.current_usage(),
    peak_bytes: || ALLOCATOR.peak_usage(),
    reset_peak: || ALLOCATOR.reset_peak_usage(),
};

#[derive(Parser)]
#[command(about = "Mutated inputs against everything that reads bytes of others")]
struct Arguments {
    /// One of the targets; all of them where it is left out.
    #[arg(long)]
    target: Option<String>,
    /// Of each target.
    #[arg(long, default_value_t = 10_000_000)]
    inputs: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Targets that run at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Processor time that one input may take.
    #[arg(long, default_value_t = 1000)]
    limit_ms: u64,
    /// Folders of inputs, one a target; the one in the source tree where it is left out.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Where inputs that fail are kept.
    #[arg(long, default_value = "target/fuzz-failures")]
    failures: PathBuf,
    /// Reads this file once, as the target that its folder names.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Internal: this is the process that runs the target.
    #[arg(long, hide = true)]
    child: bool,
    /// Internal: each input is written here before it is read.
    #[arg(long, hide = true)]
    trace: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(file) = &arguments.replay {
        let name = arguments.target.as_deref().or(corpus::target_of(file)).unwrap_or_default();
        let input = fs::read(file).with_context(|| file.display().to_string())?;
        println!("{}", run::replay(entry(name)?, &input, METER));
        return Ok(ExitCode::SUCCESS);
    }
    match &arguments.target {
        Some(name) if arguments.child => one(entry(name)?, &arguments),
        Some(name) => all(vec![entry(name)?], &arguments),
        None => all(TARGETS.iter().collect(), &arguments),
    }
}

fn entry(name: &str) -> Result<&'static TargetEntry> {
    TARGETS.iter().chain(OWN_TESTS).find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<&str> = TARGETS.iter().map(|entry| entry.name).collect();
        anyhow!("there is no target `{name}`, but {}", known.join(", "))
    })
}

fn one(entry: &TargetEntry, arguments: &Arguments) -> Result<ExitCode> {
    let options = Options {
        inputs: arguments.inputs,
        seed: arguments.seed,
        corpus: arguments.corpus.clone().unwrap_or_else(corpus::directory),
        failures: arguments.failures.clone(),
        limit: Duration::from_millis(arguments.limit_ms),
        tell: |text| eprintln!("{text}"),
        trace: arguments.trace.clone(),
    };
    let report = run::run(entry, &options, METER)?;
    println!("{}", report.line());
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn all(targets: Vec<&TargetEntry>, arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let count = targets.len();
    let waiting: Mutex<VecDeque<&TargetEntry>> = Mutex::new(targets.into());
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.clamp(1, count) {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().ok().and_then(|mut waiting| waiting.pop_front());
                    let Some(entry) = next else { return };
                    match child(entry, arguments) {
                        Ok(line) => println!("{line}"),
                        Err(error) => {
                            failed.store(true, Ordering::Relaxed);
                            println!("{}: FAILED: {error:#}", entry.name);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.load(Ordering::Relaxed);
    println!(
        "{count} targets, {} inputs each, seed {}, {:.0} s: {}",
        arguments.inputs,
        arguments.seed,
        started.elapsed().as_secs_f64(),
        if failed { "FAILED" } else { "no failure" }
    );
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs a target in a process of its own; its line, or what ended it.
fn child(entry: &TargetEntry, arguments: &Arguments) -> Result<String> {
    let (line, status) = spawn(entry, arguments, None)?;
    match status {
        Some(0) => Ok(line),
        Some(_) => Err(anyhow!("{line}")),
        None => {
            // A signal: once more, with each input written down before it is read.
            fs::create_dir_all(&arguments.failures)?;
            let trace = arguments.failures.join(format!("{}.trace", entry.name));
            spawn(entry, arguments, Some(&trace))?;
            let input = fs::read(&trace)?;
            let kept = corpus::keep(&arguments.failures, entry.name, "abort", &input)?;
            fs::remove_file(&trace)?;
            Err(anyhow!("the process was ended by a signal; the input is kept as {}", kept.display()))
        }
    }
}

/// What it printed and its exit code.
fn spawn(entry: &TargetEntry, arguments: &Arguments, trace: Option<&Path>) -> Result<(String, Option<i32>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", "--target", entry.name]).arg("--failures").arg(&arguments.failures);
    command.args(["--inputs", &arguments.inputs.to_string(), "--seed", &arguments.seed.to_string()]);
    command.args(["--limit-ms", &arguments.limit_ms.to_string()]);
    for (flag, path) in [("--corpus", arguments.corpus.as_deref()), ("--trace", trace)] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    Ok((String::from_utf8_lossy(&output.stdout).trim().to_owned(), output.status.code()))
}
