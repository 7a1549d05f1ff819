//! What has happened, as nobody in the simulation knows it, and the invariants that must hold.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openraft::EntryPayload;
use openraft::entry::RaftEntry as _;
use openraft::vote::RaftLeaderId as _;
use parking_lot::Mutex;

use super::executor;
use super::mutation::Mutation;
use crate::config::VoterId;
use crate::store::crc;
use crate::type_config::{Entry, LogId, Vote};

/// As short as can be, for people.
pub fn name(voter: VoterId) -> String {
    format!("{}.{}", voter.node_id, voter.directory_id.as_u64_pair().1)
}

/// Index and term of an entry.
pub type Position = (u64, u64);
pub type Voters = Vec<BTreeSet<VoterId>>;

pub fn position(log_id: &LogId) -> Position {
    (log_id.index, **log_id.committed_leader_id())
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub rule: &'static str,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub elections: u64,
    pub commits: u64,
    pub acknowledged: u64,
    pub reads: u64,
    pub snapshots: u64,
    pub installed: u64,
    pub voter_changes: u64,
    pub crashes: u64,
    pub wiped: u64,
    pub transfers: u64,
}

impl Counts {
    pub fn add(&mut self, more: &Counts) {
        self.elections += more.elections;
        self.commits += more.commits;
        self.acknowledged += more.acknowledged;
        self.reads += more.reads;
        self.snapshots += more.snapshots;
        self.installed += more.installed;
        self.voter_changes += more.voter_changes;
        self.crashes += more.crashes;
        self.wiped += more.wiped;
        self.transfers += more.transfers;
    }
}

#[derive(Clone)]
pub struct Oracle {
    mutation: Option<Mutation>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    violation: Option<Violation>,
    trace: Option<Vec<String>>,
    counts: Counts,
    /// Every entry that ever was in a log.
    entries: BTreeMap<Position, Known>,
    /// What state machines were given: payloads by index.
    committed: BTreeMap<u64, Committed>,
    /// What clients were told.
    acknowledged: BTreeMap<u64, u64>,
    leaders: BTreeMap<u64, VoterId>,
    durable_votes: BTreeMap<VoterId, Vote>,
    grants: BTreeMap<(VoterId, u64), VoterId>,
    /// Their disks are gone.
    gone: BTreeSet<VoterId>,
}

struct Known {
    crc: u32,
    before: Option<Position>,
    voters: Option<Voters>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Committed {
    term: u64,
    crc: u32,
    /// Of this payload and all before.
    state: u64,
}

impl Oracle {
    pub fn new(mutation: Option<Mutation>, trace: bool) -> Oracle {
        let inner = Inner { trace: trace.then(Vec::new), ..Inner::default() };
        Oracle { mutation, inner: Arc::new(Mutex::new(inner)) }
    }

    pub fn mutation(&self) -> Option<Mutation> {
        self.mutation
    }

    pub fn violation(&self) -> Option<Violation> {
        self.inner.lock().violation.clone()
    }

    pub fn violate(&self, rule: &'static str, detail: impl Into<String>) {
        self.inner.lock().violate(rule, detail);
    }

    pub fn trace(&self, line: impl FnOnce() -> String) {
        self.inner.lock().note(line);
    }

    pub fn take_trace(&self) -> Vec<String> {
        self.inner.lock().trace.take().unwrap_or_default()
    }

    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.inner.lock().counts);
    }

    pub fn counts(&self) -> Counts {
        let inner = self.inner.lock();
        Counts {
            elections: inner.leaders.len() as u64,
            commits: inner.committed.len() as u64,
            ..inner.counts
        }
    }

    /// A disk is gone for good, and so must be its voter.
    pub fn voter_gone(&self, voter: VoterId) {
        self.inner.lock().gone.insert(voter);
    }

    pub fn is_gone(&self, voter: &VoterId) -> bool {
        self.inner.lock().gone.contains(voter)
    }

    /// An entry is in a voter's log, after that one. The same index and term is the same entry, and comes
    /// after the same entries, in every log.
    pub fn entry_written(&self, voter: VoterId, entry: &Entry, before: Option<Position>) {
        let at = position(&entry.log_id());
        let crc = postcard::to_allocvec(&entry.payload).map(|bytes| crc(&[&bytes])).unwrap_or_default();
        let inner = &mut *self.inner.lock();
        let voters = match &entry.payload {
            EntryPayload::Membership(membership) => Some(membership.get_joint_config().clone()),
            _ => None,
        };
        let known = inner.entries.entry(at).or_insert(Known { crc, before, voters });
        if known.crc != crc || (before.is_some() && known.before.is_some() && known.before != before) {
            let detail = format!(
                "{} has at {at:?} after {before:?} what is elsewhere after {:?}",
                name(voter),
                known.before
            );
            inner.violate("log matching", detail);
            return;
        }
        known.before = known.before.or(before);
    }

    /// No voter goes back on a vote that it has made durable.
    pub fn vote_written(&self, voter: VoterId, vote: Vote) {
        let inner = &mut *self.inner.lock();
        if let Some(before) = inner.durable_votes.get(&voter)
            && !follows(before, &vote)
        {
            let detail = format!("{} had voted {before}, and now {vote}", name(voter));
            inner.violate("a vote is kept", detail);
        }
    }

    pub fn vote_durable(&self, voter: VoterId, vote: Vote) {
        self.inner.lock().durable_votes.insert(voter, vote);
    }

    /// A voter says whom it has voted for.
    pub fn voted(&self, voter: VoterId, vote: &Vote, durable: Option<Vote>) {
        let (term, candidate) = (vote.leader_id.term, *vote.leader_id.node_id());
        let inner = &mut *self.inner.lock();
        if durable.is_none_or(|durable| !follows(vote, &durable)) {
            let detail = format!("{} votes {vote}, and has stored {durable:?}", name(voter));
            inner.violate("a vote is durable before it is answered", detail);
        }
        let first = *inner.grants.entry((voter, term)).or_insert(candidate);
        if first != candidate {
            let detail = format!(
                "{} votes for {} in term {term}, after {}",
                name(voter),
                name(candidate),
                name(first)
            );
            inner.violate("one vote a term", detail);
        }
        inner.note(|| format!("{} votes for {} in term {term}", name(voter), name(candidate)));
    }

    /// Somebody leads, and has this log.
    pub fn leads(&self, leader: VoterId, term: u64, log: &[Position], log_start: u64) {
        let inner = &mut *self.inner.lock();
        let first = *inner.leaders.entry(term).or_insert(leader);
        if first != leader {
            inner.violate(
                "one leader a term",
                format!("{} and {} lead in term {term}", name(first), name(leader)),
            );
        }
        inner.note(|| format!("{} leads in term {term}", name(leader)));
        let lost = inner.acknowledged.iter().find(|(index, of_term)| {
            **of_term < term && **index >= log_start && log.binary_search(&(**index, **of_term)).is_err()
        });
        if let Some((index, of_term)) = lost {
            let detail = format!("{} leads in term {term} without {:?}", name(leader), (index, of_term));
            inner.violate("a leader has all that was acknowledged", detail);
        }
    }

    /// A leader is about to decide.
    pub fn ready(&self, leader: VoterId, term: u64, applied: u64) {
        let inner = &mut *self.inner.lock();
        let missing = inner.acknowledged.iter().rev().find(|(_, of_term)| **of_term < term);
        if let Some((index, _)) = missing.filter(|(index, _)| **index > applied) {
            let detail = format!("{} is ready in term {term} at {applied}, before {index}", name(leader));
            inner.violate("a leader decides on all that was acknowledged", detail);
        }
    }

    /// A state machine was given a payload.
    pub fn applied(&self, voter: VoterId, (index, term): Position, crc: u32, state: u64) {
        let inner = &mut *self.inner.lock();
        let now = Committed { term, crc, state };
        match inner.committed.get(&index).copied() {
            Some(known) if known == now => {}
            Some(known) => {
                let detail = format!(
                    "{} applies at {index} a payload of term {term}; elsewhere it is of term {}, after {}",
                    name(voter),
                    known.term,
                    if known.crc == crc { "another state" } else { "whatever state" }
                );
                inner.violate("state machines are given the same", detail);
            }
            None => {
                let last = inner.committed.last_key_value().map(|(last, _)| *last);
                if last.is_some_and(|last| last > index) {
                    inner.violate(
                        "state machines are given the same",
                        format!("{} applies {index} alone", name(voter)),
                    );
                }
                inner.committed.insert(index, now);
            }
        }
    }

    /// A state machine was given a snapshot that reaches `upto`.
    pub fn loaded(&self, voter: VoterId, upto: u64, index: u64, state: u64) {
        let inner = &mut *self.inner.lock();
        let last = inner.committed.range(..=upto).next_back();
        let expected = last.map_or((0, 0), |(index, committed)| (*index, committed.state));
        if expected != (index, state) {
            let detail = format!("{} loads a snapshot up to {upto} with the state of {index}", name(voter));
            inner.violate("a snapshot is the state of its last entry", detail);
        }
    }

    /// A client was told that its payload is in the log.
    pub fn acknowledged(&self, (index, term): Position, crc: u32) {
        let inner = &mut *self.inner.lock();
        inner.counts.acknowledged += 1;
        let committed = inner.committed.get(&index).map(|committed| (committed.term, committed.crc));
        if committed != Some((term, crc)) {
            inner.violate("what is acknowledged is committed", format!("{index} of term {term}"));
        }
        inner.acknowledged.insert(index, term);
    }

    /// All reads from now on must see this.
    pub fn newest_acknowledged(&self) -> Option<u64> {
        self.inner.lock().acknowledged.last_key_value().map(|(index, _)| *index)
    }

    /// After all is healed: the log that ends there is the one that everybody was told of.
    pub fn check_log(&self, end: Position) {
        let inner = &mut *self.inner.lock();
        let mut log = BTreeMap::new();
        let mut memberships: Vec<Voters> = Vec::new();
        let mut at = Some(end);
        while let Some((index, term)) = at {
            log.insert(index, term);
            let known = inner.entries.get(&(index, term));
            memberships.extend(known.and_then(|known| known.voters.clone()));
            at = known.and_then(|known| known.before);
        }
        if log.first_key_value().is_none_or(|(first, _)| *first != 0) {
            let detail = format!("it is known from {:?} on", log.first_key_value());
            return inner.violate("the log has no hole", detail);
        }
        let lost = inner.acknowledged.iter().find(|(index, term)| log.get(index) != Some(term));
        if let Some((index, term)) = lost {
            let detail = format!("{index} of term {term} is now of term {:?}", log.get(index));
            return inner.violate("nothing acknowledged is lost", detail);
        }
        let unsafe_change =
            memberships.windows(2).find(|pair| pair[0].iter().all(|voters| !pair[1].contains(voters)));
        if let Some(pair) = unsafe_change {
            let detail = format!("{:?} came after {:?}", pair[0], pair[1]);
            return inner.violate("one change of the voters at a time", detail);
        }
        let changes = memberships.windows(2).filter(|pair| pair[0] != pair[1]).count();
        inner.counts.voter_changes += changes as u64;
    }
}

/// Whether a voter may go from one vote to the other: to a later term, or to whoever was elected in this one.
fn follows(before: &Vote, after: &Vote) -> bool {
    let same = before.leader_id == after.leader_id;
    match after.leader_id.term.cmp(&before.leader_id.term) {
        Ordering::Greater => true,
        Ordering::Equal => {
            same && after.committed >= before.committed || after.committed && !before.committed
        }
        Ordering::Less => false,
    }
}

impl Inner {
    fn violate(&mut self, rule: &'static str, detail: impl Into<String>) {
        if self.violation.is_none() {
            let detail = detail.into();
            self.note(|| format!("VIOLATION: {rule}: {detail}"));
            self.violation = Some(Violation { rule, detail });
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} {}", executor::true_now_ns() as f64 / 1e9 - 3_600.0, line()));
        }
    }
}
