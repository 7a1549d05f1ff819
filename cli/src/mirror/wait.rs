//! `--wait`: until every partition of some topics is where it should be, with what is left in the time-out's
//! message.

use std::time::Duration;

use common::mirror_state::MirrorState;
use tokio::time::{Instant, sleep};

use super::gather::{DescribedPartition, describe_all};
use crate::failure::Failure;
use crate::session::Session;

const INTERVAL: Duration = Duration::from_millis(50);
/// Between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Partitions named in a message.
const NAMED: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// `add --wait`.
    Mirroring,
    /// `remove --wait`.
    Writable,
}

impl Wanted {
    fn is_met(self, partition: &DescribedPartition) -> bool {
        match self {
            Wanted::Mirroring => partition.state == MirrorState::Mirroring.name(),
            Wanted::Writable => partition.writable,
        }
    }
}

pub async fn wait_until(
    session: &mut Session,
    mirror: &str,
    topics: &[String],
    wanted: Wanted,
    quiet: bool,
) -> Result<(), Failure> {
    let mut next_progress = Instant::now() + PROGRESS_INTERVAL;
    let mut left: Vec<String> = Vec::new();
    loop {
        match describe_all(session, Some(mirror)).await {
            Ok(partitions) => {
                left = missing(&partitions, topics, wanted);
                if left.is_empty() {
                    return Ok(());
                }
            }
            Err(Failure::Usage(message)) => return Err(Failure::Usage(message)),
            // What is missing says more than that there was no time left to ask once more.
            Err(Failure::TimedOut(_)) if !left.is_empty() => {}
            Err(failure) => left = vec![failure.to_string()],
        }
        let shown = left.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = left.len().saturating_sub(NAMED);
        let message = if more > 0 { format!("{shown} and {more} more") } else { shown };
        let now = Instant::now();
        if now >= session.deadline() {
            return Err(Failure::timed_out(message));
        }
        if now >= next_progress && !quiet {
            eprintln!("waiting for {message}");
            next_progress = now + PROGRESS_INTERVAL;
        }
        sleep(INTERVAL).await;
    }
}

/// What is not there yet, each with its state. A topic without a partition is not there either, unless a
/// removal has just cleared a pending association.
fn missing(partitions: &[DescribedPartition], topics: &[String], wanted: Wanted) -> Vec<String> {
    let mut left = Vec::new();
    for topic in topics {
        let mut any = false;
        for partition in partitions.iter().filter(|partition| partition.topic == *topic) {
            any = true;
            if !wanted.is_met(partition) {
                let reason =
                    partition.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                left.push(format!("{topic}-{} {}{reason}", partition.partition, partition.state));
            }
        }
        if !any && wanted == Wanted::Mirroring {
            left.push(format!("{topic} (not here yet)"));
        }
    }
    left
}
