//! Faults against a cluster of real processes under load, and the proof afterwards: the clients' history,
//! all replicas' logs, all nodes' metadata images.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::history::{Anomalies, History};
use crate::interop::mirroring::equal_replicas;
use crate::interop::note;
use crate::segments;

mod fault;
mod load;
mod stage;

pub use fault::{Action, Fault, Kind, Node, Nodes, Plan};
use load::{Outcomes, PARTITIONS, Running, TOPIC};
use stage::Stage;

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Faults(usize),
    Elapsed(Duration),
}

#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub until: Until,
    /// Disks are filled where this user may mount small ones.
    pub full_disks: bool,
    /// Takes the history for an independent checker.
    pub history: Option<PathBuf>,
}

/// What a run comes to.
#[derive(Debug, Default)]
pub struct Summary {
    pub faults: BTreeMap<Kind, usize>,
    pub acknowledged: usize,
    pub anomalies: Anomalies,
}

impl Summary {
    /// The line that a run ends with.
    pub fn line(&self) -> String {
        let all: usize = self.faults.values().sum();
        let kinds: Vec<String> =
            self.faults.iter().map(|(kind, count)| format!("{} {count}", kind.name())).collect();
        let count = |rules: &[&str]| -> usize { rules.iter().map(|rule| self.anomalies.count(rule)).sum() };
        format!(
            "chaos: {all} faults ({}); {} acknowledged, {} lost, {} duplicate, {} inconsistent; \
             longest lag of the reader {} ms",
            kinds.join(", "),
            self.acknowledged,
            count(&["lost-write", "unseen"]),
            count(&["duplicate"]),
            count(&[
                "inconsistent-offsets",
                "from-nowhere",
                "aborted-read",
                "nonmonotonic-send",
                "nonmonotonic-poll",
                "poll-skip"
            ]),
            self.anomalies.realtime_lag_ms
        )
    }
}

/// Rounds of faults chosen by the seed, each from a whole cluster; then the checks.
pub async fn run(options: &Options) -> Result<Summary> {
    let mut stage = Stage::start(3, 3, options.full_disks).await?;
    let mut plan = Plan::new(options.seed, stage.nodes());
    if options.full_disks && !stage.nodes().has_small_disks {
        note("this user may not mount file systems: no disk is filled");
    }
    stage.create_topic().await?;
    let mut running = Running::start(&stage.cluster.bootstrap());
    running.load.await_progress().await?;
    let begin = Instant::now();
    let mut summary = Summary::default();
    let mut struck = 0;
    let is_over = |struck: usize| match options.until {
        Until::Faults(count) => struck >= count,
        Until::Elapsed(time) => begin.elapsed() >= time,
    };
    while !is_over(struck) {
        let mut faults = plan.round();
        stage.settle_targets(&mut faults).await?;
        let named: Vec<String> = faults.iter().map(Fault::to_string).collect();
        let named = named.join(" and ");
        let at = begin.elapsed().as_secs_f64();
        round(&mut stage, &mut running, &faults)
            .await
            .with_context(|| format!("seed {}, after {at:.1} s: {named}", options.seed))?;
        note(&format!("{at:6.1} s  {named}: whole after {:.1} s", begin.elapsed().as_secs_f64() - at));
        struck += faults.len();
        for fault in &faults {
            *summary.faults.entry(fault.kind()).or_default() += 1;
        }
    }
    finish(stage, running, options, summary).await
}

/// `kill -9` of every process in turn, then of all controllers at once.
pub async fn kill_loop(rounds: usize, all_controllers_rounds: usize) -> Result<Summary> {
    let mut stage = Stage::start(3, 3, false).await?;
    let nodes = stage.nodes();
    stage.create_topic().await?;
    let mut running = Running::start(&stage.cluster.bootstrap());
    running.load.await_progress().await?;
    let mut summary = Summary::default();
    let lasts = Duration::from_millis(250);
    let mut faults = Vec::new();
    for round in 0..rounds {
        faults.push(Action::Kill(match round % 4 {
            0 => Node::ActiveController,
            2 => Node::Controller(nodes.controllers[round / 2 % nodes.controllers.len()]),
            _ => Node::Broker(nodes.brokers[round / 2 % nodes.brokers.len()]),
        }));
    }
    faults.extend((0..all_controllers_rounds).map(|_| Action::KillAllControllers));
    for (number, action) in faults.into_iter().enumerate() {
        let mut faults = [Fault { action, lasts }];
        stage.settle_targets(&mut faults).await?;
        let named = faults[0].to_string();
        round(&mut stage, &mut running, &faults).await.with_context(|| format!("round {number}: {named}"))?;
        *summary.faults.entry(Kind::Kill).or_default() += 1;
    }
    let options = Options { seed: 0, until: Until::Faults(0), full_disks: false, history: None };
    finish(stage, running, &options, summary).await
}

/// Breaks, waits, mends; ends when all is well again and clients get on.
async fn round(stage: &mut Stage, running: &mut Running, faults: &[Fault]) -> Result<()> {
    for fault in faults {
        stage.inject(fault).await.context("break")?;
    }
    let mut mending: Vec<&Fault> = faults.iter().collect();
    mending.sort_by_key(|fault| fault.lasts);
    let begin = Instant::now();
    for fault in mending {
        tokio::time::sleep(fault.lasts.saturating_sub(begin.elapsed())).await;
        stage.mend(fault).await.context("mend")?;
    }
    running.ensure_running()?;
    stage.ensure_nobody_died()?;
    stage.await_whole().await?;
    running.load.await_progress().await?;
    running.load.await_topics(1).await?;
    running.ensure_running()
}

async fn finish(
    mut stage: Stage,
    running: Running,
    options: &Options,
    mut summary: Summary,
) -> Result<Summary> {
    let Outcomes { history, created } = running.finish().await?;
    stage.await_whole().await?;
    if let Some(path) = &options.history {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        history.write_lines(&mut file)?;
    }
    summary.acknowledged = history.acknowledged();
    summary.anomalies = history.check();
    ensure!(summary.anomalies.is_empty(), "{}\n{}", summary.line(), summary.anomalies);
    logs_hold_the_history(&stage, &history).await?;
    let image = stage.ensure_one_image().await?;
    let there = stage.client.metadata(None).await?.topics;
    let there: BTreeSet<String> =
        there.into_iter().filter_map(|topic| Some(topic.name?.to_string())).collect();
    let missing: Vec<&String> = created.difference(&there).collect();
    ensure!(missing.is_empty(), "topics acknowledged and gone: {missing:?}");
    stage.ensure_no_panic()?;
    note(&format!(
        "{} topics created meanwhile are there; every node has the image of {image}",
        created.len()
    ));
    Ok(summary)
}

/// The replicas are equal byte by byte, and hold as many records as the last reader saw.
async fn logs_hold_the_history(stage: &Stage, history: &History) -> Result<()> {
    let logs = equal_replicas(&stage.cluster, TOPIC, PARTITIONS).await?;
    for (partition, log) in logs.iter().enumerate() {
        let held = segments::summarize(log)?.records;
        let last = history.polls.iter().filter(|poll| poll.last && poll.partition == partition as i32);
        let read: usize = last.map(|poll| poll.records.len()).sum();
        ensure!(held == read as i64, "{TOPIC}-{partition} holds {held} records, {read} were read");
    }
    Ok(())
}
