//! The store as openraft sees it.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::Ordering;

use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::{LogIdOptionExt as _, LogState, OptionalSend};
use tokio::sync::oneshot;

use crate::store::keys::{self, EntryDecoder};
use crate::store::memory::entry_bytes;
use crate::store::writer::{Flushed, Job};
use crate::store::{Store, closed, damaged, wait};
use crate::type_config::{Entry, LogId, Types, Vote};

/// An append to a follower carries at least one entry and not much more than this.
const REPLICATION_BYTES: usize = 1 << 20;

impl Store {
    /// Entries in `start..end`, as far as the log has them.
    pub fn read(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
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

    /// First index that the log still has.
    #[cfg(any(test, feature = "proof"))]
    pub fn first_index(&self) -> u64 {
        self.shared.memory.read().first_index()
    }

    /// Appends and waits for the disk.
    #[cfg(any(test, feature = "proof"))]
    pub async fn write_durably(&self, entries: impl IntoIterator<Item = Entry>) -> io::Result<()> {
        let (done, durable) = oneshot::channel();
        self.write(entries, Box::new(move |result| drop(done.send(result))))?;
        wait(durable).await
    }

    fn read_stored(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let database = self.shared.database.read();
        let database = database.as_ref().ok_or_else(closed)?;
        let mut entries = Vec::new();
        let mut decoder = EntryDecoder::new();
        database.scan(&keys::entry_key(start, 0), &keys::entry_key(end, 0), &mut |key, value| {
            entries.extend(decoder.push(key, value)?.map(|(_, entry)| entry));
            Ok(true)
        })?;
        decoder.finish()?;
        Ok(entries)
    }

    /// Entries for one message. What was purged meanwhile is missing at their beginning, and such a message is not sent
    /// (`network::check_entries`).
    pub fn read_for_replication(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
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

    pub fn vote(&self) -> Option<Vote> {
        self.shared.memory.read().vote
    }

    pub async fn write_vote(&self, vote: &Vote) -> io::Result<()> {
        self.put(keys::VOTE, vote).await?;
        self.shared.memory.write().vote = Some(*vote);
        Ok(())
    }

    pub fn committed(&self) -> Option<LogId> {
        self.shared.memory.read().committed
    }

    /// A hint for the next start, which follows from the log and the quorum anyway: not worth a sync.
    pub fn note_committed(&self, committed: Option<LogId>) -> io::Result<()> {
        if let Some(committed) = committed {
            self.send(Job::PutLazily {
                name: keys::COMMITTED,
                value: keys::seal(keys::COMMITTED, &committed)?,
            })?;
        }
        self.shared.memory.write().committed = committed;
        Ok(())
    }

    /// Readable at once; `done` is told once it is durable.
    pub fn write(&self, entries: impl IntoIterator<Item = Entry>, done: Flushed) -> io::Result<()> {
        let mut writes = Vec::new();
        let durable_end = self.durable_end();
        let (first_index, end_index) = {
            let mut memory = self.shared.memory.write();
            let mut first_index = None;
            for entry in entries {
                let (index, end_index) = (entry.log_id().index, memory.end_index());
                // A log that begins may begin anywhere.
                if memory.last.is_some() && index != end_index {
                    return Err(io::Error::other(format!(
                        "entry {index} cannot be appended to a log that ends at {end_index}"
                    )));
                }
                first_index.get_or_insert(index);
                writes.extend(keys::encode_entry(entry.log_id().index, &entry)?);
                memory.push(entry, durable_end);
            }
            (first_index.unwrap_or_else(|| memory.end_index()), memory.end_index())
        };
        self.send(Job::Append { writes, first_index, end_index, done })
    }

    pub async fn cut_after(&self, last_log_id: Option<LogId>) -> io::Result<()> {
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

    pub async fn drop_upto(&self, log_id: LogId) -> io::Result<()> {
        self.shared.memory.write().purge(log_id);
        let mark = keys::seal(keys::PURGED, &log_id)?;
        let (done, waiter) = oneshot::channel();
        self.send(Job::Purge { below: log_id.index + 1, mark, done })?;
        wait(waiter).await
    }

    /// What was removed from its beginning, and its last entry or the last one removed.
    pub fn ends(&self) -> (Option<LogId>, Option<LogId>) {
        let memory = self.shared.memory.read();
        (memory.purged, memory.last)
    }
}

/// On any runtime: the product's and the simulation's.
impl<C: Types> RaftLogReader<C> for Store {
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
        self.read_for_replication(start, end)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.vote())
    }
}

impl<C: Types> RaftLogStorage<C> for Store {
    type LogReader = Store;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        let (last_purged_log_id, last_log_id) = self.ends();
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Store {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.write_vote(vote).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.note_committed(committed)
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.committed())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.write(entries, Box::new(move |result| callback.io_completed(result)))
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        self.cut_after(last_log_id).await
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        self.drop_upto(log_id).await
    }
}
