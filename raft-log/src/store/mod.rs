//! Log, vote and marks in a database. A small cache in front keeps the tail of the log, so replication and
//! application rarely read the disk; one writer thread makes everything durable.

pub(crate) mod database;
mod disk;
mod guard;
pub(crate) mod keys;
mod log;
pub(crate) mod manifest;
mod memory;
pub(crate) mod open;
pub(crate) mod writer;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use openraft::entry::RaftEntry as _;
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{Identity, VoterId};
use crate::error::OpenError;
use crate::recovery::Recovered;
use crate::store::database::Database;
use crate::store::memory::Memory;
use crate::store::writer::Job;
use crate::type_config::{Entry, LogId, Vote};

pub(crate) use disk::CREATED_MARK;
pub(crate) use keys::crc;

/// One voter's store. Clones share it; it is closed once, for all of them.
#[derive(Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    memory: RwLock<Memory>,
    /// `None` after [`Store::close`]: the directory is free for another owner, whoever still holds a clone.
    database: RwLock<Option<Arc<dyn Database>>>,
    queue: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// First index that is not known to be on disk.
    durable_end: Arc<AtomicU64>,
    failure: watch::Receiver<Option<String>>,
}

impl Store {
    /// Opens or creates the store in `directory`, checks every byte of it and starts its writer.
    pub fn open(directory: &Path, identity: &Identity) -> Result<Store, OpenError> {
        open::open(directory, identity)
    }

    /// For a recovery: also where this voter was given up by an earlier one.
    pub fn open_stopped(directory: &Path, identity: &Identity) -> Result<Store, OpenError> {
        open::open_any(directory, identity)
    }

    /// The first membership this voter made durable, empty before.
    pub fn founding(&self) -> Vec<VoterId> {
        self.shared.memory.read().founding.clone()
    }

    /// True once this voter belongs to a quorum: it has a log, or has voted.
    pub fn has_log(&self) -> bool {
        let memory = self.shared.memory.read();
        memory.last.is_some() || memory.vote.is_some()
    }

    pub async fn save_founding(&self, voters: Vec<VoterId>) -> io::Result<()> {
        self.put(keys::FOUNDING, &voters).await?;
        self.shared.memory.write().founding = voters;
        Ok(())
    }

    /// Refuses a log that ends, or begins, where it cannot: what was committed must be in the log or in
    /// the snapshot, which `covered` says how far it reaches.
    pub fn check_complete(&self, covered: Option<LogId>) -> io::Result<()> {
        let memory = self.shared.memory.read();
        if memory.committed > memory.last.max(covered) {
            return Err(damaged("entries that were committed are missing at the end of the log"));
        }
        if memory.purged > covered {
            return Err(damaged("entries were removed from the log that are in no snapshot"));
        }
        Ok(())
    }

    /// Name of the snapshot file that counts.
    pub fn snapshot_name(&self) -> Option<String> {
        self.shared.memory.read().snapshot_name.clone()
    }

    pub async fn save_snapshot_name(&self, name: String) -> io::Result<()> {
        self.put(keys::SNAPSHOT, &name).await?;
        self.shared.memory.write().snapshot_name = Some(name);
        Ok(())
    }

    /// The last recovery that this voter belongs to.
    pub fn recovered(&self) -> Option<Recovered> {
        self.shared.memory.read().recovered.clone()
    }

    /// Its number; 0: there was none.
    pub fn recovery(&self) -> u64 {
        self.shared.memory.read().recovered.as_ref().map_or(0, |recovered| recovered.number)
    }

    /// An empty voter has been told which recovery the quorum belongs to that takes it in.
    pub async fn save_recovered(&self, recovered: Recovered) -> io::Result<()> {
        self.put(keys::RECOVERED, &recovered).await?;
        self.shared.memory.write().recovered = Some(recovered);
        Ok(())
    }

    /// This voter was given up: its store opens for nothing but a later recovery.
    pub async fn save_given_up(&self, recovery: u64) -> io::Result<()> {
        self.put(keys::GIVEN_UP, &recovery).await?;
        self.shared.memory.write().given_up = Some(recovery);
        Ok(())
    }

    /// Number of the recovery that gave this voter up; 0: none, or this voter belongs to a later one.
    pub fn given_up(&self) -> u64 {
        let given_up = self.shared.memory.read().given_up.unwrap_or_default();
        if given_up > self.recovery() { given_up } else { 0 }
    }

    /// A recovery: its mark, a vote above all others, and the membership that it leaves, at the end of the
    /// log; all of it or nothing.
    pub async fn recover(&self, recovered: Recovered, vote: Vote, membership: Entry) -> io::Result<()> {
        let first_index = membership.log_id().index;
        let log_end = self.shared.memory.read().end_index();
        if first_index != log_end {
            return Err(damaged(format!("the log ends at {log_end}: entry {first_index} does not follow")));
        }
        let end_index = first_index + 1;
        let marks = vec![
            (keys::VOTE, keys::seal(keys::VOTE, &vote)?),
            (keys::RECOVERED, keys::seal(keys::RECOVERED, &recovered)?),
        ];
        let writes = keys::encode_entry(first_index, &membership)?;
        let (done, waiter) = oneshot::channel();
        self.send(Job::Together { marks, writes, first_index, end_index, done })?;
        wait(waiter).await?;
        self.shared.durable_end.store(end_index, Ordering::Release);
        let mut memory = self.shared.memory.write();
        memory.vote = Some(vote);
        memory.recovered = Some(recovered);
        memory.push(membership, end_index);
        Ok(())
    }

    /// Holds the reason once a write has failed. Nothing is written after that: a later success would
    /// mean nothing.
    pub fn failure(&self) -> watch::Receiver<Option<String>> {
        self.shared.failure.clone()
    }

    /// Ends the writer after all it was given and gives the directory back. It waits for the disk.
    pub fn close(&self) {
        drop(self.shared.queue.lock().take());
        let writer = self.shared.writer.lock().take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!(path = %self.shared.path.display(), "the quorum's writer thread panicked");
        }
        drop(self.shared.database.write().take());
    }

    async fn put(&self, name: &'static [u8], value: &impl Serialize) -> io::Result<()> {
        let (done, waiter) = oneshot::channel();
        self.send(Job::Put { name, value: keys::seal(name, value)?, done })?;
        wait(waiter).await
    }

    fn send(&self, job: Job) -> io::Result<()> {
        let queue = self.shared.queue.lock();
        queue.as_ref().and_then(|queue| queue.send(job).ok()).ok_or_else(closed)
    }

    fn durable_end(&self) -> u64 {
        self.shared.durable_end.load(Ordering::Acquire)
    }
}

async fn wait(waiter: oneshot::Receiver<io::Result<()>>) -> io::Result<()> {
    waiter.await.unwrap_or_else(|_| Err(closed()))
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the quorum's store is closed")
}

pub(crate) fn damaged(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}
