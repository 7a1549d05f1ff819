//! What clients did and saw, and the rules that such a history must keep: those of Jepsen's Kafka workload
//! that concern single sends and polls with manual assignment.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

/// Cases of one anomaly that are kept for the report.
const CASES_KEPT: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Acknowledged,
    /// Certainly not done.
    Failed,
    Unknown,
}

/// One record sent. Values are unique within their partition.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    pub process: u32,
    pub partition: i32,
    pub value: u64,
    /// As the acknowledgement said.
    pub offset: Option<i64>,
    pub outcome: Outcome,
    /// Since the beginning of the run.
    pub begin_ms: u64,
    pub end_ms: u64,
}

/// What one poll gave for one partition.
#[derive(Clone, Debug)]
pub struct Poll {
    pub process: u32,
    pub partition: i32,
    pub begin_ms: u64,
    pub end_ms: u64,
    /// The process chose its position anew.
    pub seek: bool,
    /// Of the consumer that reads everything at the end.
    pub last: bool,
    /// Offset and value.
    pub records: Vec<(i64, u64)>,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub sends: Vec<Send>,
    pub polls: Vec<Poll>,
}

/// What broke a rule, by the rule's name.
#[derive(Debug, Default)]
pub struct Anomalies {
    found: BTreeMap<&'static str, (usize, Vec<String>)>,
    /// How long before a poll began the newest record that it missed was already acknowledged.
    pub realtime_lag_ms: u64,
}

impl Anomalies {
    fn add(&mut self, rule: &'static str, case: String) {
        let (count, cases) = self.found.entry(rule).or_default();
        *count += 1;
        if cases.len() < CASES_KEPT {
            cases.push(case);
        }
    }

    pub fn count(&self, rule: &str) -> usize {
        self.found.get(rule).map_or(0, |(count, _)| *count)
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

impl std::fmt::Display for Anomalies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (rule, (count, cases)) in &self.found {
            writeln!(f, "{rule}: {count}, first {}", cases.join("; "))?;
        }
        Ok(())
    }
}

/// One partition of a history, put in order.
struct Partition<'a> {
    partition: i32,
    sends: Vec<&'a Send>,
    polls: Vec<&'a Poll>,
    /// Every value that an acknowledgement or a poll placed at an offset.
    at: BTreeMap<i64, BTreeSet<u64>>,
    /// Value to its place in the log, counted without holes.
    place: HashMap<u64, usize>,
}

impl<'a> Partition<'a> {
    fn new(partition: i32, history: &'a History) -> Partition<'a> {
        let sends: Vec<&Send> = history.sends.iter().filter(|send| send.partition == partition).collect();
        let polls: Vec<&Poll> = history.polls.iter().filter(|poll| poll.partition == partition).collect();
        let mut at: BTreeMap<i64, BTreeSet<u64>> = BTreeMap::new();
        for send in &sends {
            if let (Some(offset), true) = (send.offset, send.outcome != Outcome::Failed) {
                at.entry(offset).or_default().insert(send.value);
            }
        }
        for (offset, value) in polls.iter().flat_map(|poll| &poll.records) {
            at.entry(*offset).or_default().insert(*value);
        }
        let mut place = HashMap::new();
        for (index, values) in at.values().enumerate() {
            for value in values {
                place.entry(*value).or_insert(index);
            }
        }
        Partition { partition, sends, polls, at, place }
    }

    fn check(&self, found: &mut Anomalies) {
        self.offsets(found);
        self.losses(found);
        self.order_of_sends(found);
        self.order_of_polls(found);
        self.lag(found);
    }

    fn offsets(&self, found: &mut Anomalies) {
        let partition = self.partition;
        let mut first: HashMap<u64, i64> = HashMap::new();
        for (offset, values) in &self.at {
            if values.len() > 1 {
                found.add("inconsistent-offsets", format!("{partition} at {offset}: {values:?}"));
            }
            for value in values {
                if let Some(other) = first.insert(*value, *offset) {
                    found.add("duplicate", format!("{partition}: {value} at {other} and {offset}"));
                }
            }
        }
    }

    fn losses(&self, found: &mut Anomalies) {
        let partition = self.partition;
        let seen: BTreeSet<u64> =
            self.polls.iter().flat_map(|poll| &poll.records).map(|record| record.1).collect();
        let highest = self.polls.iter().flat_map(|poll| &poll.records).map(|record| record.0).max();
        let is_over = self.polls.iter().any(|poll| poll.last);
        let mut sent = BTreeSet::new();
        for send in &self.sends {
            let value = send.value;
            sent.insert(value);
            match send.outcome {
                Outcome::Failed if seen.contains(&value) => {
                    found.add("aborted-read", format!("{partition}: {value} was read and had failed"));
                }
                Outcome::Acknowledged if !seen.contains(&value) => {
                    if send.offset.is_some_and(|offset| Some(offset) <= highest) {
                        found.add("lost-write", format!("{partition}: {value} at {:?}", send.offset));
                    } else if is_over {
                        found.add("unseen", format!("{partition}: {value} at {:?}", send.offset));
                    }
                }
                _ => {}
            }
        }
        for value in seen.difference(&sent) {
            found.add("from-nowhere", format!("{partition}: {value}"));
        }
    }

    fn order_of_sends(&self, found: &mut Anomalies) {
        let mut last: HashMap<u32, usize> = HashMap::new();
        for send in &self.sends {
            let Some(place) = self.place.get(&send.value) else { continue };
            let before = last.insert(send.process, *place);
            if before.is_some_and(|before| before >= *place) {
                let case = format!("{}: {} of process {}", self.partition, send.value, send.process);
                found.add("nonmonotonic-send", case);
            }
        }
    }

    fn order_of_polls(&self, found: &mut Anomalies) {
        let mut last: HashMap<u32, usize> = HashMap::new();
        for poll in &self.polls {
            if poll.seek {
                last.remove(&poll.process);
            }
            for (_, value) in &poll.records {
                let Some(place) = self.place.get(value) else { continue };
                let case = || format!("{}: {value} by process {}", self.partition, poll.process);
                match last.insert(poll.process, *place) {
                    Some(before) if *place <= before => found.add("nonmonotonic-poll", case()),
                    Some(before) if *place > before + 1 => found.add("poll-skip", case()),
                    _ => {}
                }
            }
        }
    }

    fn lag(&self, found: &mut Anomalies) {
        let acknowledged: HashMap<u64, u64> = self
            .sends
            .iter()
            .filter(|send| send.outcome == Outcome::Acknowledged)
            .map(|send| (send.value, send.end_ms))
            .collect();
        // The record behind the last one that a process had read when a poll gave it nothing.
        let in_order: Vec<u64> = self.at.values().filter_map(|values| values.first().copied()).collect();
        let mut next: HashMap<u32, usize> = HashMap::new();
        for poll in &self.polls {
            if let Some(place) = poll.records.last().and_then(|record| self.place.get(&record.1)) {
                next.insert(poll.process, place + 1);
                continue;
            }
            let missed = in_order.get(next.get(&poll.process).copied().unwrap_or(0));
            if let Some(at_ms) = missed.and_then(|value| acknowledged.get(value))
                && poll.begin_ms > *at_ms
            {
                found.realtime_lag_ms = found.realtime_lag_ms.max(poll.begin_ms - at_ms);
            }
        }
    }
}

impl History {
    pub fn check(&self) -> Anomalies {
        let mut partitions: BTreeSet<i32> = self.sends.iter().map(|send| send.partition).collect();
        partitions.extend(self.polls.iter().map(|poll| poll.partition));
        let mut found = Anomalies::default();
        for partition in partitions {
            Partition::new(partition, self).check(&mut found);
        }
        found
    }

    pub fn acknowledged(&self) -> usize {
        self.sends.iter().filter(|send| send.outcome == Outcome::Acknowledged).count()
    }

    /// For an independent checker: an operation a line (scripts/suites/history_check.py).
    pub fn write_lines(&self, out: &mut impl Write) -> io::Result<()> {
        for send in &self.sends {
            let result = match send.outcome {
                Outcome::Acknowledged => "ok",
                Outcome::Failed => "fail",
                Outcome::Unknown => "info",
            };
            let line = serde_json::json!({
                "p": send.process, "f": "send", "r": result, "t0": seconds(send.begin_ms), "t1": seconds(send.end_ms),
                "ops": [["send", send.partition.to_string(), send.value, send.offset]],
            });
            writeln!(out, "{line}")?;
        }
        for poll in &self.polls {
            if poll.seek {
                let keys = Vec::<String>::new();
                let line = serde_json::json!({"p": poll.process, "f": "assign", "r": "ok", "keys": keys});
                writeln!(out, "{line}")?;
            }
            let line = serde_json::json!({
                "p": poll.process, "f": "poll", "r": "ok", "t0": seconds(poll.begin_ms), "t1": seconds(poll.end_ms),
                "final": poll.last,
                "ops": [["poll", poll.partition.to_string(), poll.records]],
            });
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(value: u64, offset: i64) -> Send {
        Send {
            process: 1,
            partition: 0,
            value,
            offset: Some(offset),
            outcome: Outcome::Acknowledged,
            begin_ms: 10 * value,
            end_ms: 10 * value + 5,
        }
    }

    fn polled(records: &[(i64, u64)]) -> Poll {
        Poll {
            process: 2,
            partition: 0,
            begin_ms: 1_000,
            end_ms: 1_001,
            seek: false,
            last: true,
            records: records.to_vec(),
        }
    }

    fn rules(sends: Vec<Send>, polls: Vec<Poll>) -> Vec<&'static str> {
        History { sends, polls }.check().found.into_keys().collect()
    }

    #[test]
    fn a_sound_history_breaks_no_rule() {
        let unknown = Send { offset: None, outcome: Outcome::Unknown, ..sent(2, 2) };
        let sends = vec![sent(0, 0), sent(1, 1), unknown, sent(3, 5)];
        assert!(rules(sends.clone(), vec![polled(&[(0, 0), (1, 1)]), polled(&[(2, 2), (5, 3)])]).is_empty());
        // Never written, never read.
        assert!(rules(sends, vec![polled(&[(0, 0), (1, 1), (5, 3)])]).is_empty());
    }

    #[test]
    fn each_rule_finds_its_violation() {
        let two = || vec![sent(0, 0), sent(1, 1)];
        let failed = Send { outcome: Outcome::Failed, offset: None, ..sent(1, 1) };
        for (rule, sends, polls) in [
            ("lost-write", two(), vec![polled(&[(1, 1)])]),
            ("unseen", two(), vec![polled(&[(0, 0)])]),
            ("from-nowhere", two(), vec![polled(&[(0, 0), (1, 1), (2, 9)])]),
            ("aborted-read", vec![sent(0, 0), failed], vec![polled(&[(0, 0), (1, 1)])]),
            ("inconsistent-offsets", two(), vec![polled(&[(0, 1), (1, 0)])]),
            ("duplicate", two(), vec![polled(&[(0, 0), (1, 1), (2, 1)])]),
            ("nonmonotonic-send", vec![sent(0, 1), sent(1, 0)], vec![polled(&[(0, 1), (1, 0)])]),
            ("poll-skip", vec![sent(0, 0), sent(1, 1), sent(2, 2)], vec![polled(&[(0, 0), (2, 2)])]),
            ("nonmonotonic-poll", two(), vec![polled(&[(0, 0), (1, 1)]), polled(&[(0, 0)])]),
        ] {
            let found = rules(sends, polls);
            assert!(found.contains(&rule), "{rule} is not among {found:?}");
        }
    }

    #[test]
    fn the_lag_of_a_reader_is_measured_from_the_acknowledgement() {
        let history = History {
            sends: vec![sent(0, 0), sent(1, 1)],
            polls: vec![polled(&[(0, 0)]), polled(&[]), polled(&[(1, 1)])],
        };
        assert_eq!(history.check().realtime_lag_ms, 1_000 - 15);
    }
}
