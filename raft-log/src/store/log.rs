//! The store as openraft sees it.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::Ordering;

use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::{LogIdOptionExt as _, LogState, OptionalSend};
use tokio::sync::oneshot;

use crate::store::guard::guarded;
use crate::store::keys::{self, EntryDecoder};
use crate::store::memory::entry_bytes;
use crate::store::writer::Job;
use crate::store::{Store, closed, damaged, wait};
use crate::type_config::{Entry, LogId, TypeConfig, Vote};

/// An append to a follower carries at least one entry and not much more than this.
const REPLICATION_BYTES: usize = 1 << 20;

impl Store {
    /// Entries in `start..end`, as far as the log has them.
    fn read(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let (tail_index, cached, start) = {
            let memory = self.shared.memory.read();
            let start = start.max(memory.first_index());
            let end = end.min(memory.end_index());
            (memory.tail_index(), memory.cached(start, end), start)
        };
        let end = end.min(tail_index);
        if start >= end {
            return Ok(cached);
        }
        let mut entries = self.read_stored(start, end)?;
        let found = entries.first().map(|entry| entry.log_id().index);
        // Entries at the beginning may have been purged meanwhile.
        let purged = self.shared.memory.read().first_index();
        let first = start.max(purged);
        if first < end && (found > Some(first) || entries.len() as u64 + found.unwrap_or(first) != end) {
            return Err(damaged(format!("entries of {first}..{end} are missing")));
        }
        entries.extend(cached);
        Ok(entries)
    }

    fn read_stored(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let database = self.shared.database.read();
        let database = database.as_ref().ok_or_else(closed)?;
        guarded(|| {
            let mut entries = Vec::new();
            let mut decoder = EntryDecoder::new();
            let keys = keys::entry_key(start, 0).to_vec()..keys::entry_key(end, 0).to_vec();
            for item in database.range(keys) {
                let (key, value) = item?;
                entries.extend(decoder.push(&key, &value)?.map(|(_, entry)| entry));
            }
            decoder.finish()?;
            Ok(entries)
        })
    }
}

impl RaftLogReader<TypeConfig> for Store {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start, end)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let mut entries = self.read(start, end)?;
        let mut bytes = 0;
        let fitting = entries.iter().take_while(|entry| {
            let before = bytes;
            bytes += entry_bytes(entry);
            before == 0 || bytes <= REPLICATION_BYTES
        });
        let fitting = fitting.count();
        entries.truncate(fitting);
        Ok(entries)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.memory.read().vote)
    }
}

impl RaftLogStorage<TypeConfig> for Store {
    type LogReader = Store;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let memory = self.shared.memory.read();
        Ok(LogState { last_purged_log_id: memory.purged, last_log_id: memory.last })
    }

    async fn get_log_reader(&mut self) -> Store {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.put(keys::VOTE, vote).await?;
        self.shared.memory.write().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        // A hint for the next start, which follows from the log and the quorum anyway: not worth a sync.
        if let Some(committed) = committed {
            self.send(Job::PutLazily {
                name: keys::COMMITTED,
                value: keys::seal(keys::COMMITTED, &committed)?,
            })?;
        }
        self.shared.memory.write().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.shared.memory.read().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut writes = Vec::new();
        let durable_end = self.durable_end();
        let (first_index, end_index) = {
            let mut memory = self.shared.memory.write();
            let mut first_index = None;
            for entry in entries {
                first_index.get_or_insert(entry.log_id().index);
                writes.extend(keys::encode_entry(entry.log_id().index, &entry)?);
                memory.push(entry, durable_end);
            }
            (first_index.unwrap_or_else(|| memory.end_index()), memory.end_index())
        };
        self.send(Job::Append { writes, first_index, end_index, done: callback })
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let from = last_log_id.next_index();
        self.shared.memory.write().truncate_after(last_log_id);
        let (done, waiter) = oneshot::channel();
        self.send(Job::Truncate { from, done })?;
        wait(waiter).await?;
        // The same indices will be written again; until then they are on disk no more. No append
        // is in the queue now, so nobody else moves it.
        self.shared.durable_end.fetch_min(from, Ordering::AcqRel);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        self.shared.memory.write().purge(log_id);
        let mark = keys::seal(keys::PURGED, &log_id)?;
        let (done, waiter) = oneshot::channel();
        self.send(Job::Purge { below: log_id.index + 1, mark, done })?;
        wait(waiter).await
    }
}
