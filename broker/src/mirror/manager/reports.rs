//! Soft state to the active controller (decision 21): a changed state at once, offsets once a second
//! while they move.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use common::fault;
use common::ids::*;
use protocol::proto::controller::{ReportMirrorRequest, report_mirror_request::Partition};
use tokio::time::Instant;

use crate::mirror::lag::LagReading;
use crate::mirror::view::ViewEntry;

use super::proposals::topic_bytes;
use super::{ManagerTask, Message};

const LAG_INTERVAL: Duration = Duration::from_secs(1);
/// A new active controller knows nothing; this bounds how long (it is also told with each change).
const EVERYTHING_EVERY: u32 = 30;

pub struct Reports {
    changed: BTreeSet<TopicIdPartition>,
    told: HashMap<TopicIdPartition, LagReading>,
    next: Instant,
    rounds: u32,
    /// One at a time: an older report that overtakes a newer one would show what is no longer true.
    under_way: bool,
    /// The last one was lost: the next turn of the clock tries again.
    held: bool,
}

impl Default for Reports {
    fn default() -> Reports {
        let next = Instant::now() + LAG_INTERVAL;
        Reports {
            changed: BTreeSet::new(),
            told: HashMap::new(),
            next,
            rounds: 0,
            under_way: false,
            held: false,
        }
    }
}

impl Reports {
    pub fn changed(&mut self, id: TopicIdPartition) {
        self.changed.insert(id);
    }

    /// A report was answered; what it told is told again where it was lost.
    pub fn answered(&mut self, lost: Vec<TopicIdPartition>) {
        self.under_way = false;
        self.held = !lost.is_empty();
        self.changed.extend(lost);
    }

    fn may_send(&self) -> bool {
        !self.changed.is_empty() && !self.under_way && !self.held
    }

    pub fn next(&self) -> Option<Instant> {
        Some(self.next)
    }
}

impl ManagerTask {
    pub(super) fn flush_reports(&mut self) {
        let now = Instant::now();
        if now >= self.reports.next {
            self.reports.next = now + LAG_INTERVAL;
            self.reports.held = false;
            self.reports.rounds = (self.reports.rounds + 1) % EVERYTHING_EVERY;
            let everything = self.reports.rounds == 0;
            for (id, entry) in self.view.all() {
                if everything || self.reports.told.get(&id) != Some(&entry.reading()) {
                    self.reports.changed.insert(id);
                }
            }
        }
        if !self.reports.may_send() {
            return;
        }
        let changed = std::mem::take(&mut self.reports.changed);
        let mut partitions = Vec::with_capacity(changed.len());
        let mut ids = Vec::with_capacity(changed.len());
        for id in changed {
            match self.view.get(id) {
                Some(entry) => {
                    self.reports.told.insert(id, entry.reading());
                    ids.push(id);
                    partitions.push(wire(id, &entry));
                }
                None => {
                    self.reports.told.remove(&id);
                }
            }
        }
        if partitions.is_empty() {
            return;
        }
        self.reports.under_way = true;
        let (controller, messages) = (self.deps.controller.clone(), self.messages.clone());
        self.runtime.spawn(async move {
            for (id, told) in ids.iter().zip(&partitions) {
                let passed = fault::point("mirror.report.send", format_args!("{id}@{}", told.state));
                passed.await;
            }
            let request = ReportMirrorRequest { partitions, ..Default::default() };
            let lost = match controller.report(request).await {
                Ok(()) => Vec::new(),
                Err(why) => {
                    tracing::debug!(why, "mirror report is lost; the next one repeats it");
                    ids
                }
            };
            // Closed only at shutdown.
            let _ = messages.send(Message::Reported { lost });
        });
    }
}

fn wire(id: TopicIdPartition, entry: &ViewEntry) -> Partition {
    let reading = entry.reading();
    Partition {
        topic_id: topic_bytes(id.topic_id),
        partition: id.partition,
        leader_epoch: entry.leader_epoch.0,
        association: entry.association.0,
        state: i32::from(entry.report.state.code()),
        source_offset: reading.source.map_or(-1, |offset| offset.0),
        destination_offset: reading.destination.map_or(-1, |offset| offset.0),
        reason: entry.report.reason.clone(),
        since_ms: entry.report.since_ms,
        attempt: i32::try_from(entry.report.attempt).unwrap_or(i32::MAX),
        next_retry_ms: entry.report.next_retry_ms,
        writable: entry.released,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_report_is_told_again_and_not_before_the_clock_turns() {
        let id = TopicIdPartition::new(TopicId::ZERO, 0);
        let mut reports = Reports { under_way: true, ..Reports::default() };
        reports.answered(vec![id]);
        assert!(reports.changed.contains(&id));
        assert!(!reports.may_send(), "a controller that refuses is not asked in a busy loop");
        reports.held = false;
        assert!(reports.may_send());
        reports.under_way = true;
        assert!(!reports.may_send(), "one at a time");
        reports.answered(Vec::new());
        assert!(reports.may_send());
    }
}
