//! Seeds of the quorum's simulation.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use raft_log::simulation::{Counts, Mutation, Outcome, Run};

pub fn mutation(name: &str) -> Option<Mutation> {
    Mutation::named(name)
}

pub fn mutations() -> usize {
    Mutation::ALL.len()
}

#[allow(clippy::print_stdout)]
pub fn replay(seed: u64, mutation: Option<&str>, trace: bool) -> anyhow::Result<()> {
    let mutation = match mutation {
        Some(name) => Some(Mutation::named(name).ok_or_else(|| anyhow::anyhow!("no mutation '{name}'"))?),
        None => None,
    };
    let outcome = Run { mutation, trace, ..Run::of(seed) }.go();
    outcome.trace.iter().for_each(|line| println!("{line}"));
    let seconds = outcome.simulated_ms as f64 / 1e3;
    println!("seed {seed}: {} steps, {seconds:.1} s simulated, {}", outcome.steps, told(&outcome.counts));
    anyhow::ensure!(outcome.violation.is_none(), "{}", describe(&outcome));
    Ok(())
}

#[allow(clippy::print_stdout)]
pub fn search(seeds: u64, jobs: usize, mutation: Option<Mutation>) -> anyhow::Result<()> {
    let begun = Instant::now();
    let found = run(seeds, jobs, mutation, usize::MAX);
    let mutated = mutation.map_or_else(String::new, |mutation| format!(" --mutation {}", mutation.name()));
    for outcome in &found.failed {
        println!("{}", describe(outcome));
        println!("  replay: target/release/simulate --quorum-seed {} --trace{mutated}", outcome.seed);
    }
    println!(
        "quorum: {} seeds, {}, {} steps, {:.1} simulated hours in {:.0} s",
        found.seeds,
        told(&found.counts),
        found.steps,
        found.simulated_ms as f64 / 3.6e6,
        begun.elapsed().as_secs_f64(),
    );
    anyhow::ensure!(found.failed.is_empty(), "{} seeds of the quorum failed", found.failed.len());
    Ok(())
}

/// Each safety rule in turn; gives those that were not missed.
#[allow(clippy::print_stdout)]
pub fn find_mutations(seeds: u64, jobs: usize) -> anyhow::Result<Vec<&'static str>> {
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        let begun = Instant::now();
        let found = run(seeds, jobs, Some(*mutation), 1);
        let seconds = begun.elapsed().as_secs_f64();
        match found.failed.first() {
            Some(outcome) => println!(
                "{:<26} found by seed {:<6} ({} seeds, {seconds:.1} s): {}",
                mutation.name(),
                outcome.seed,
                found.seeds,
                outcome.violation.as_ref().map_or("", |violation| violation.rule)
            ),
            None => {
                println!("{:<26} NOT FOUND in {} seeds: {}", mutation.name(), found.seeds, mutation.rule());
                missed.push(mutation.name());
            }
        }
    }
    Ok(missed)
}

fn told(counts: &Counts) -> String {
    format!(
        "{} elections, {} commits ({} acknowledged), {} reads, {} snapshots ({} installed), {} changes of the \
         voters, {} crashes, {} wiped disks",
        counts.elections,
        counts.commits,
        counts.acknowledged,
        counts.reads,
        counts.snapshots,
        counts.installed,
        counts.voter_changes,
        counts.crashes,
        counts.wiped,
    )
}

fn describe(outcome: &Outcome) -> String {
    match &outcome.violation {
        Some(violation) => format!("quorum seed {}: {}: {}", outcome.seed, violation.rule, violation.detail),
        None => format!("quorum seed {} holds", outcome.seed),
    }
}

#[derive(Default)]
struct Found {
    seeds: u64,
    steps: u64,
    simulated_ms: u64,
    counts: Counts,
    failed: Vec<Outcome>,
}

/// Runs seeds on some threads until there are enough, or `most` have failed.
fn run(seeds: u64, jobs: usize, mutation: Option<Mutation>, most: usize) -> Found {
    let next = AtomicU64::new(1);
    let enough = AtomicBool::new(false);
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        return;
                    }
                    let outcome = Run { mutation, ..Run::of(seed) }.go();
                    let Ok(mut found) = found.lock() else { return };
                    found.seeds += 1;
                    found.steps += outcome.steps;
                    found.simulated_ms += outcome.simulated_ms;
                    found.counts.add(&outcome.counts);
                    if outcome.violation.is_some() {
                        found.failed.push(outcome);
                        if found.failed.len() >= most {
                            enough.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
