//! `simulate`: runs seeds of the deterministic simulations, of the machines and of the quorum, prints each
//! seed that fails and how to replay it, and with `--mutations` shows that they find each safety rule that
//! is taken out.

#[path = "simulate/quorum.rs"]
mod quorum;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use kagami_tests::simulation::{Mutation, Outcome, Run};

#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many seeds.
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Only this one.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints what happens in it.
    #[arg(long)]
    trace: bool,
    /// Events of a seed before the world heals.
    #[arg(long, default_value_t = 3_000)]
    steps: u64,
    /// Seeds until the time is up, instead of a number of them.
    #[arg(long)]
    minutes: Option<f64>,
    /// With one safety rule taken out.
    #[arg(long)]
    mutation: Option<String>,
    /// Each safety rule in turn: all must be found.
    #[arg(long)]
    mutations: bool,
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// How many seeds of the quorum, after the others.
    #[arg(long, default_value_t = 500)]
    quorum_seeds: u64,
    /// Only this one of the quorum.
    #[arg(long)]
    quorum_seed: Option<u64>,
}

#[derive(Default)]
struct Totals {
    seeds: AtomicU64,
    steps: AtomicU64,
    simulated_ms: AtomicU64,
    failed: Mutex<Vec<Outcome>>,
}

#[allow(clippy::print_stdout)] // what it finds is its output
fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let Some(seed) = options.quorum_seed {
        return quorum::replay(seed, options.mutation.as_deref(), options.trace);
    }
    if let Some(mutation) = options.mutation.as_deref().and_then(quorum::mutation) {
        return quorum::search(options.quorum_seeds, options.jobs, Some(mutation));
    }
    let mutation = match &options.mutation {
        Some(name) => Some(Mutation::named(name).ok_or_else(|| anyhow::anyhow!("no mutation '{name}'"))?),
        None => None,
    };
    if let Some(seed) = options.seed {
        let outcome = Run { seed, steps: options.steps, mutation, trace: options.trace }.go();
        outcome.trace.iter().for_each(|line| println!("{line}"));
        println!(
            "seed {seed}: {} steps, {:.1} s simulated",
            outcome.steps,
            outcome.simulated_ms as f64 / 1e3
        );
        anyhow::ensure!(outcome.violation.is_none(), "{}", describe(&outcome));
        return Ok(());
    }
    if options.mutations {
        return find_mutations(&options);
    }
    let totals = search(&options, mutation, usize::MAX);
    let failed = totals.failed.lock().map_err(|_| anyhow::anyhow!("a job panicked"))?;
    for outcome in failed.iter() {
        println!("{}", describe(outcome));
        println!(
            "  replay: target/release/simulate --steps {} --seed {} --trace",
            options.steps, outcome.seed
        );
    }
    anyhow::ensure!(failed.is_empty(), "{} seeds failed", failed.len());
    if mutation.is_some() {
        return Ok(());
    }
    quorum::search(options.quorum_seeds, options.jobs, None)
}

fn describe(outcome: &Outcome) -> String {
    match &outcome.violation {
        Some(violation) => format!("seed {}: {}: {}", outcome.seed, violation.rule, violation.detail),
        None => format!("seed {} holds", outcome.seed),
    }
}

#[allow(clippy::print_stdout)]
fn find_mutations(options: &Options) -> anyhow::Result<()> {
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        let begun = Instant::now();
        let totals = search(&Options { minutes: None, ..options.clone() }, Some(*mutation), 1);
        let failed = totals.failed.lock().map_err(|_| anyhow::anyhow!("a job panicked"))?;
        let seeds = totals.seeds.load(Ordering::Relaxed);
        match failed.first() {
            Some(outcome) => {
                println!(
                    "{:<26} found by seed {:<6} ({seeds} seeds, {:.1} s): {}",
                    mutation.name(),
                    outcome.seed,
                    begun.elapsed().as_secs_f64(),
                    outcome.violation.as_ref().map_or("", |v| v.rule)
                );
            }
            None => {
                println!("{:<26} NOT FOUND in {seeds} seeds: {}", mutation.name(), mutation.rule());
                missed.push(mutation.name());
            }
        }
    }
    missed.extend(quorum::find_mutations(options.quorum_seeds, options.jobs)?);
    anyhow::ensure!(missed.is_empty(), "not found: {}", missed.join(", "));
    println!("all {} mutations found", Mutation::ALL.len() + quorum::mutations());
    Ok(())
}

/// Runs seeds on some threads until there are enough, the time is up, or `most` have failed.
#[allow(clippy::print_stdout)]
fn search(options: &Options, mutation: Option<Mutation>, most: usize) -> Arc<Totals> {
    let totals = Arc::new(Totals::default());
    let next = AtomicU64::new(options.first_seed);
    let enough = AtomicBool::new(false);
    let begun = Instant::now();
    let limit = options.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let over = match limit {
                        Some(limit) => begun.elapsed() >= limit,
                        None => seed >= options.first_seed + options.seeds,
                    };
                    if over {
                        return;
                    }
                    let outcome = Run { seed, steps: options.steps, mutation, trace: false }.go();
                    totals.seeds.fetch_add(1, Ordering::Relaxed);
                    totals.steps.fetch_add(outcome.steps, Ordering::Relaxed);
                    totals.simulated_ms.fetch_add(outcome.simulated_ms.unsigned_abs(), Ordering::Relaxed);
                    if outcome.violation.is_some()
                        && let Ok(mut failed) = totals.failed.lock()
                    {
                        failed.push(outcome);
                        if failed.len() >= most {
                            enough.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    if mutation.is_none() || most == usize::MAX {
        let seconds = begun.elapsed().as_secs_f64();
        let steps = totals.steps.load(Ordering::Relaxed);
        println!(
            "{} seeds, {steps} steps, {:.1} simulated hours in {seconds:.0} s ({:.0} steps/s on {} threads)",
            totals.seeds.load(Ordering::Relaxed),
            totals.simulated_ms.load(Ordering::Relaxed) as f64 / 3.6e6,
            steps as f64 / seconds.max(1e-3),
            options.jobs,
        );
    }
    totals
}
