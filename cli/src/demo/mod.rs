//! `kagami demo`: two clusters in this process. Keyed data in five codecs is mirrored from one to the other,
//! the source is stopped, the mirror fails over, a client writes, and the logs of both are compared.

mod client;
mod compare;
mod data;
mod report;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use tempfile::TempDir;
use tokio::time::sleep;

use self::client::{DemoClient, Lag};
use self::data::{CODECS, RECORDS_PER_BATCH};
use self::report::Report;
use crate::embedded::{Embedded, Ports};
use crate::failure::Failure;

const TOPIC: &str = "orders";
const MIRROR: &str = "demo";
const PARTITIONS: usize = 4;
/// The demo ends by itself within this.
const LIMIT: Duration = Duration::from_secs(60);
const LIVE: Duration = Duration::from_secs(3);
const LIVE_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Args)]
pub struct DemoCommand {
    /// Records to mirror before the failover.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1_000..=2_000_000))]
    records: u64,
}

pub async fn run(command: DemoCommand) -> Result<(), Failure> {
    match tokio::time::timeout(LIMIT, demo(command)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::timed_out(format!("the demo did not end within {} s", LIMIT.as_secs()))),
    }
}

async fn demo(command: DemoCommand) -> Result<(), Failure> {
    let directory = TempDir::with_prefix("kagami-demo-")
        .map_err(|error| Failure::refused(format!("cannot make a directory: {error}")))?;
    let mut report = Report::new();
    let started = Instant::now();
    let settings = [("mirror.metadata.refresh.interval.ms".to_owned(), "500".to_owned())];
    let source = Embedded::start(&directory.path().join("source"), Ports::free()?, &settings).await?;
    let destination =
        Embedded::start(&directory.path().join("destination"), Ports::free()?, &settings).await?;
    report.step(
        "two clusters",
        &format!("source {}, destination {}", source.bootstrap, destination.bootstrap),
        started.elapsed(),
    );
    let source_data = source.data.clone();
    let outcome = failover(&mut report, command.records, source, &destination).await;
    let destination_data = destination.data.clone();
    destination.shutdown().await;
    let end_offsets = outcome?;

    let compared = compare::compare(&source_data, &destination_data, TOPIC, PARTITIONS)?;
    let equal = compared.differences.is_empty();
    report.check(
        "logs compared",
        equal,
        &if equal {
            format!(
                "{} of {} partitions equal, byte for byte",
                report::bytes(compared.bytes),
                compared.partitions
            )
        } else {
            format!("different: {}", compared.differences.join(", "))
        },
    );
    report.summary(end_offsets, started.elapsed())
}

/// Everything up to the first writes at the destination; gives its end offsets.
async fn failover(
    report: &mut Report,
    records: u64,
    source: Embedded,
    destination: &Embedded,
) -> Result<Vec<i64>, Failure> {
    let mut at_source = DemoClient::connect(&source.bootstrap).await?;
    let mut at_destination = DemoClient::connect(&destination.bootstrap).await?;

    let started = Instant::now();
    at_source.create_topic(TOPIC, PARTITIONS as i32).await?;
    let batches = (records as usize).div_ceil(RECORDS_PER_BATCH);
    let mut produced = 0;
    for number in 0..batches {
        let batch = data::batch(number, CODECS[number % CODECS.len()], now_ms())?;
        produced += batch.len() as u64;
        at_source.produce(TOPIC, (number % PARTITIONS) as i32, batch).await?;
    }
    let mut expected = (batches * RECORDS_PER_BATCH) as i64;
    let what = format!("{expected} keyed records in 5 codecs, {} on disk", report::bytes(produced));
    report.step("produced at the source", &what, started.elapsed());

    let started = Instant::now();
    at_destination.create_mirror(MIRROR, &source.bootstrap).await?;
    at_destination.add_topic(MIRROR, TOPIC).await?;
    let mut seen = 0;
    loop {
        let lag = at_destination.lag(MIRROR).await?;
        report.progress("mirroring", &lag.line(expected));
        seen = lag.destination.max(seen);
        if lag.is_mirroring(PARTITIONS) && lag.destination >= expected {
            break;
        }
        sleep(LIVE_INTERVAL).await;
    }
    let took = started.elapsed();
    let rate = report::bytes((produced as f64 / took.as_secs_f64()) as u64);
    report.step("mirrored", &format!("{expected} records, {rate}/s with the mirror's set-up"), took);

    let started = Instant::now();
    let mut live = Vec::new();
    let mut number = batches;
    while started.elapsed() < LIVE {
        let batch = data::batch(number, CODECS[number % CODECS.len()], now_ms())?;
        at_source.produce(TOPIC, (number % PARTITIONS) as i32, batch).await?;
        number += 1;
        expected += RECORDS_PER_BATCH as i64;
        let written = Instant::now();
        let lag = at_destination.await_offset(TOPIC, expected).await?;
        live.push(written.elapsed());
        report.progress("live", &Lag::live_line(expected, lag));
        sleep(LIVE_INTERVAL).await;
    }
    live.sort();
    let (median, worst) = (live[live.len() / 2], live[live.len() - 1]);
    let what = format!("lag of {} batches: median {median:.1?}, worst {worst:.1?}", live.len());
    report.step("live writes followed", &what, started.elapsed());

    let refused = at_destination.produce(TOPIC, 0, data::batch(0, CODECS[0], now_ms())?).await;
    let is_read_only = matches!(&refused, Err(failure) if failure.to_string().contains("READ_ONLY_TOPIC"));
    report.check("a client's write to the mirror", is_read_only, "refused with READ_ONLY_TOPIC");

    drop(at_source);
    let started = Instant::now();
    source.shutdown().await;
    report.step("source stopped", "its broker and controller are gone", started.elapsed());

    let started = Instant::now();
    at_destination.remove_topic(MIRROR, TOPIC).await?;
    let mut waiting = [true; PARTITIONS];
    let mut offsets = [0; PARTITIONS];
    while waiting.iter().any(|waiting| *waiting) {
        for partition in 0..PARTITIONS {
            if !waiting[partition] {
                continue;
            }
            let batch = data::batch(number + partition, CODECS[0], now_ms())?;
            match at_destination.produce(TOPIC, partition as i32, batch).await {
                Ok(offset) => {
                    offsets[partition] = offset;
                    waiting[partition] = false;
                }
                Err(failure) if failure.to_string().contains("READ_ONLY_TOPIC") => {}
                Err(failure) => return Err(failure),
            }
        }
        sleep(Duration::from_millis(2)).await;
    }
    report.step("failover", "every partition takes writes", started.elapsed());
    let total: i64 = offsets.iter().sum();
    report.check(
        "first writes",
        total == expected,
        &format!("at offsets {offsets:?}: right behind the {expected} mirrored records"),
    );
    Ok(offsets.iter().map(|offset| offset + RECORDS_PER_BATCH as i64).collect())
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().min(i64::MAX as u128) as i64
}
