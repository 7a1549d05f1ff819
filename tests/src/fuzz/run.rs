//! One target, some million inputs.

use std::fs;
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::meter::{Meter, peak_resident_bytes};
use super::mutate::mutate;
use super::pool::Pool;
use super::targets::TargetEntry;
use super::watch::Watch;
use super::{Target, Trail, corpus};
use crate::simulation::random::Random;

/// Different failures that one run keeps before it gives up.
const MOST_FAILURES: usize = 20;

#[derive(Clone)]
pub struct Options {
    pub inputs: u64,
    pub seed: u64,
    pub corpus: PathBuf,
    /// Where inputs that fail are kept.
    pub failures: PathBuf,
    /// Processor time that one input may take.
    pub limit: Duration,
    /// What there is to say meanwhile.
    pub tell: fn(&str),
    /// Each input is written here before it is read: names the one that ends the process.
    pub trace: Option<PathBuf>,
}

#[derive(Debug)]
pub struct Report {
    pub target: &'static str,
    pub inputs: u64,
    pub accepted: u64,
    pub outcomes: usize,
    pub seeds: usize,
    pub elapsed: Duration,
    pub largest_bytes: usize,
    /// What the input with the largest allocation was allowed.
    pub allowed_bytes: usize,
    pub resident_bytes: usize,
    /// What failed, and the file that holds the input.
    pub failures: Vec<(String, PathBuf)>,
}

impl Report {
    /// One line for people.
    pub fn line(&self) -> String {
        let rate = self.inputs as f64 / self.elapsed.as_secs_f64().max(1e-9);
        format!(
            "{}: {} inputs from {} seeds, {rate:.0} a second, {:.1} % accepted, {} outcomes, largest allocation {} of \
             {} bytes allowed, {} MiB resident, {} failures",
            self.target,
            self.inputs,
            self.seeds,
            self.accepted as f64 * 100.0 / self.inputs.max(1) as f64,
            self.outcomes,
            self.largest_bytes,
            self.allowed_bytes,
            self.resident_bytes >> 20,
            self.failures.len(),
        )
    }
}

/// What a run notes of its last panic.
type Panicked = Arc<Mutex<Option<String>>>;

struct Runner<'a> {
    entry: &'a TargetEntry,
    target: Box<dyn Target>,
    options: &'a Options,
    meter: Meter,
    watch: Watch,
    panicked: Panicked,
    report: Report,
}

/// Runs the corpus and the seeds, then mutations of them.
pub fn run(entry: &TargetEntry, options: &Options, meter: Meter) -> io::Result<Report> {
    let panicked: Panicked = Arc::default();
    let noted = panicked.clone();
    panic::set_hook(Box::new(move |info| {
        *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.to_string());
    }));
    let (failures, name, tell) = (options.failures.clone(), entry.name, options.tell);
    let watch = Watch::start(options.limit, move |input| {
        let kept = keep(&failures, name, input);
        tell(&format!("{name}: an input takes too long: {}", kept.unwrap_or_else(|error| error.to_string())));
        process::exit(1);
    });
    let report = Report {
        target: entry.name,
        inputs: 0,
        accepted: 0,
        outcomes: 0,
        seeds: 0,
        elapsed: Duration::ZERO,
        largest_bytes: 0,
        allowed_bytes: 0,
        resident_bytes: 0,
        failures: Vec::new(),
    };
    let mut runner = Runner { entry, target: (entry.make)(), options, meter, watch, panicked, report };
    let outcome = runner.all();
    let _ = panic::take_hook();
    outcome?;
    Ok(runner.report)
}

impl Runner<'_> {
    fn all(&mut self) -> io::Result<()> {
        let started = Instant::now();
        let mut pool = Pool::default();
        let kept = corpus::inputs(&self.options.corpus, self.entry.name)?;
        for input in kept.into_iter().map(|(_, input)| input).chain(self.target.seeds()) {
            let trail = self.one(&input)?.unwrap_or_default();
            pool.add_seed(input, &trail);
            self.report.seeds += 1;
        }
        let words = self.target.words();
        let longest_bytes = self.target.longest_input_bytes();
        let mut random = Random::new(self.options.seed);
        let mut input = Vec::new();
        for _ in 0..self.options.inputs {
            input.clear();
            input.extend_from_slice(pool.pick(&mut random));
            let other = pool.pick(&mut random);
            mutate(&mut input, other, &words, longest_bytes, &mut random);
            self.target.repair(&mut input, &mut random);
            self.report.inputs += 1;
            if let Some(trail) = self.one(&input)? {
                self.report.accepted += u64::from(trail.accepted);
                pool.offer(&input, &trail);
            }
            if self.report.failures.len() >= MOST_FAILURES {
                break;
            }
        }
        self.report.outcomes = pool.outcomes();
        self.report.elapsed = started.elapsed();
        self.report.resident_bytes = peak_resident_bytes();
        Ok(())
    }

    /// `None`: it failed.
    fn one(&mut self, input: &[u8]) -> io::Result<Option<Trail>> {
        if let Some(trace) = &self.options.trace {
            fs::write(trace, input)?;
        }
        self.watch.begin(input);
        let Runner { target, meter, .. } = self;
        let (outcome, allocated) = meter.measure(|| catch_unwind(AssertUnwindSafe(|| target.run(input))));
        self.watch.end();
        let allowed = self.target.bound_bytes(input);
        if allocated > self.report.largest_bytes {
            (self.report.largest_bytes, self.report.allowed_bytes) = (allocated, allowed);
        }
        let failure = match outcome {
            Ok(trail) if allocated <= allowed => return Ok(Some(trail)),
            Ok(_) => format!("{allocated} bytes allocated, {allowed} are allowed"),
            Err(_) => {
                let panicked = self.panicked.lock().unwrap_or_else(PoisonError::into_inner).take();
                self.target = (self.entry.make)();
                panicked.unwrap_or_default()
            }
        };
        // One of a kind: the numbers in it make no other.
        let kind =
            |failure: &str| failure.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
        if !self.report.failures.iter().any(|(known, _)| kind(known) == kind(&failure)) {
            let path = keep(&self.options.failures, self.entry.name, input)?;
            (self.options.tell)(&format!("{}: {failure}\n  kept as {path}", self.entry.name));
            self.report.failures.push((failure, PathBuf::from(path)));
        }
        Ok(None)
    }
}

fn keep(failures: &Path, target: &str, input: &[u8]) -> io::Result<String> {
    let mut trail = Trail::default();
    input.iter().for_each(|byte| trail.note(*byte));
    let name = format!("{:016x}", trail.signature());
    corpus::keep(failures, target, &name, input).map(|path| path.display().to_string())
}

/// Runs one input and says what became of it; panics as it panics.
pub fn replay(entry: &TargetEntry, input: &[u8], meter: Meter) -> String {
    let mut target = (entry.make)();
    let started = Instant::now();
    let (trail, allocated) = meter.measure(|| target.run(input));
    let allowed = target.bound_bytes(input);
    let verdict = match (trail.accepted, allocated > allowed) {
        (_, true) => "ABOVE ITS BOUND",
        (true, false) => "accepted",
        (false, false) => "refused",
    };
    let (target, bytes, elapsed) = (entry.name, input.len(), started.elapsed());
    format!("{target}: {bytes} bytes {verdict}, {allocated} of {allowed} bytes allocated, {elapsed:?}")
}
