//! What of the store is kept in memory: the marks and the tail of the log.

use std::collections::VecDeque;

use openraft::entry::RaftEntry as _;
use openraft::{EntryPayload, LogIdOptionExt as _};

use crate::config::VoterId;
use crate::recovery::Recovered;
use crate::type_config::{Entry, LogId, Vote};

/// Entries that are durable leave the cache, oldest first, above this.
const TAIL_BYTES: usize = 32 << 20;
/// What an entry costs beside its payload.
const ENTRY_OVERHEAD_BYTES: usize = 128;

#[derive(Default)]
pub struct Memory {
    pub vote: Option<Vote>,
    pub committed: Option<LogId>,
    pub purged: Option<LogId>,
    /// Last entry of the log; the purged one if there is none after it.
    pub last: Option<LogId>,
    /// First index that the log has.
    first_index: u64,
    pub founding: Vec<VoterId>,
    pub snapshot_name: Option<String>,
    pub recovered: Option<Recovered>,
    /// Number of the recovery that gave this voter up.
    pub given_up: Option<u64>,
    /// Entries without a gap up to `last`.
    tail: VecDeque<Entry>,
    tail_bytes: usize,
}

impl Memory {
    pub fn first_index(&self) -> u64 {
        self.first_index
    }

    pub fn end_index(&self) -> u64 {
        self.last.next_index()
    }

    /// First index in the cache.
    pub fn tail_index(&self) -> u64 {
        self.end_index() - self.tail.len() as u64
    }

    /// Appends an entry. `durable_end`: first index that is not on disk yet and so must stay.
    pub fn push(&mut self, entry: Entry, durable_end: u64) {
        if self.last.is_none() {
            self.first_index = entry.log_id().index;
        }
        self.last = Some(entry.log_id());
        self.tail_bytes += entry_bytes(&entry);
        self.tail.push_back(entry);
        while self.tail_bytes > TAIL_BYTES && self.tail_index() < durable_end {
            self.pop_front();
        }
    }

    /// Cached entries in `start..end`.
    pub fn cached(&self, start: u64, end: u64) -> Vec<Entry> {
        let tail_index = self.tail_index();
        let skip = start.saturating_sub(tail_index) as usize;
        let take = end.saturating_sub(start.max(tail_index)) as usize;
        self.tail.iter().skip(skip).take(take).cloned().collect()
    }

    /// Drops everything after `last`.
    pub fn truncate_after(&mut self, last: Option<LogId>) {
        if self.last <= last {
            return;
        }
        while self.last > last {
            let Some(entry) = self.tail.pop_back() else { break };
            self.tail_bytes -= entry_bytes(&entry);
            self.last = self.tail.back().map(|entry| entry.log_id()).or(last);
        }
        self.last = last;
    }

    pub fn purge(&mut self, upto: LogId) {
        while !self.tail.is_empty() && self.tail_index() <= upto.index {
            self.pop_front();
        }
        if self.last.as_ref() < Some(&upto) {
            self.last = Some(upto);
        }
        self.first_index = upto.index + 1;
        self.purged = Some(upto);
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.tail.pop_front() {
            self.tail_bytes -= entry_bytes(&entry);
        }
    }
}

pub fn entry_bytes(entry: &Entry) -> usize {
    ENTRY_OVERHEAD_BYTES
        + match &entry.payload {
            EntryPayload::Normal(payload) => payload.0.len(),
            EntryPayload::Blank | EntryPayload::Membership(_) => 0,
        }
}
