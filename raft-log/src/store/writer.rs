//! The one thread that writes. It takes what has gathered in the queue, writes it as one batch, syncs
//! once and only then calls back. Vote, entries, truncation and purge go through the same queue:
//! their order is a safety rule of the consensus.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::fault;
use tokio::sync::{mpsc, oneshot, watch};

use crate::store::database::{Batch, Database};
use crate::store::keys::{self, EntryKey};
use crate::store::manifest::{MANIFEST, Manifest};

const BATCH_BYTES: usize = 4 << 20;

/// Tells openraft, on whatever runtime it runs.
pub type Flushed = Box<dyn FnOnce(io::Result<()>) + Send>;

pub enum Job {
    Append {
        writes: Vec<(EntryKey, Vec<u8>)>,
        first_index: u64,
        end_index: u64,
        done: Flushed,
    },
    Put {
        name: &'static [u8],
        value: Vec<u8>,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Nobody waits for it: it becomes durable with whatever is synced next.
    PutLazily {
        name: &'static [u8],
        value: Vec<u8>,
    },
    /// Marks and entries that are on disk together or not at all.
    Together {
        marks: Vec<(&'static [u8], Vec<u8>)>,
        writes: Vec<(EntryKey, Vec<u8>)>,
        first_index: u64,
        end_index: u64,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Removes the entries from `from` on.
    Truncate {
        from: u64,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Removes the entries below `below` and notes it.
    Purge {
        below: u64,
        mark: Vec<u8>,
        done: oneshot::Sender<io::Result<()>>,
    },
}

enum Done {
    Append { end_index: u64, done: Flushed },
    Waiter(oneshot::Sender<io::Result<()>>),
}

/// Written, not durable yet.
pub struct Written {
    dones: Vec<Done>,
    result: io::Result<()>,
}

pub struct Writer {
    database: Arc<dyn Database>,
    durable_end: Arc<AtomicU64>,
    failure: watch::Sender<Option<String>>,
    manifest: Manifest,
    batch: Batch,
    batch_bytes: usize,
    /// Written to the database since the last sync.
    dirty: bool,
}

impl Writer {
    pub fn new(
        database: Arc<dyn Database>,
        durable_end: Arc<AtomicU64>,
        failure: watch::Sender<Option<String>>,
        manifest: Manifest,
    ) -> Writer {
        Writer {
            database,
            durable_end,
            failure,
            manifest,
            batch: Batch::default(),
            batch_bytes: 0,
            dirty: false,
        }
    }

    /// Works until all senders of the queue are gone.
    pub fn run(mut self, queue: &mut mpsc::UnboundedReceiver<Job>) {
        while let Some(job) = queue.blocking_recv() {
            let written = self.write_all(job, || queue.try_recv().ok());
            self.settle(written);
        }
        self.end();
    }

    /// Writes a job and, with it, what `next` has ready.
    pub fn write_all(&mut self, job: Job, mut next: impl FnMut() -> Option<Job>) -> Written {
        let mut dones = Vec::new();
        let mut result = self.take(job, &mut dones);
        while result.is_ok() && self.batch_bytes < BATCH_BYTES {
            let Some(job) = next() else { break };
            result = self.take(job, &mut dones);
        }
        Written { dones, result: result.and_then(|()| self.write()) }
    }

    /// Makes it durable and only then calls back.
    pub fn settle(&mut self, written: Written) {
        let Written { dones, result } = written;
        // A batch of lazy marks alone waits for company.
        let result = result.and_then(|()| if dones.is_empty() { Ok(()) } else { self.sync() });
        self.call_back(dones, result);
    }

    fn end(mut self) {
        if self.dirty && self.failure.borrow().is_none() {
            let result = self.sync();
            self.call_back(Vec::new(), result);
        }
    }

    fn take(&mut self, job: Job, dones: &mut Vec<Done>) -> io::Result<()> {
        match job {
            Job::Append { writes, first_index, end_index, done } => {
                self.manifest.appended(first_index, end_index);
                dones.push(Done::Append { end_index, done });
                for (key, value) in writes {
                    self.batch_bytes += value.len();
                    self.batch.put_entry(key, value);
                }
                Ok(())
            }
            Job::Put { name, value, done } => {
                dones.push(Done::Waiter(done));
                self.manifest.put(name, &value);
                self.batch_bytes += value.len();
                self.batch.put(name, value);
                Ok(())
            }
            Job::PutLazily { name, value } => {
                self.manifest.put(name, &value);
                self.batch_bytes += value.len();
                self.batch.put(name, value);
                Ok(())
            }
            Job::Together { marks, writes, first_index, end_index, done } => {
                dones.push(Done::Waiter(done));
                self.manifest.appended(first_index, end_index);
                for (name, value) in marks {
                    self.manifest.put(name, &value);
                    self.batch.put(name, value);
                }
                for (key, value) in writes {
                    self.batch.put_entry(key, value);
                }
                Ok(())
            }
            Job::Truncate { from, done } => {
                dones.push(Done::Waiter(done));
                self.remove(from, u64::MAX)?;
                self.manifest.truncated(from);
                Ok(())
            }
            Job::Purge { below, mark, done } => {
                dones.push(Done::Waiter(done));
                self.remove(0, below)?;
                self.manifest.purged(below);
                self.manifest.put(keys::PURGED, &mark);
                self.batch.put(keys::PURGED, mark);
                Ok(())
            }
        }
    }

    fn remove(&mut self, from: u64, below: u64) -> io::Result<()> {
        // The scan must see what came before it in the queue.
        self.write()?;
        let batch = &mut self.batch;
        self.database.scan(&keys::entry_key(from, 0), &keys::entries_end(), &mut |key, _| {
            let (index, part) = keys::parse_entry_key(key)?;
            if index >= below {
                return Ok(false);
            }
            batch.remove_entry(keys::entry_key(index, part));
            Ok(true)
        })
    }

    fn write(&mut self) -> io::Result<()> {
        // A failed disk may claim success later, which would mean nothing.
        if let Some(reason) = self.failure.borrow().clone() {
            return Err(io::Error::other(reason));
        }
        self.dirty = true;
        self.batch_bytes = 0;
        self.manifest.number += 1;
        self.batch.put(MANIFEST, keys::seal(MANIFEST, &self.manifest)?);
        self.database.apply(std::mem::take(&mut self.batch))
    }

    fn sync(&mut self) -> io::Result<()> {
        fault::point_blocking("quorum.sync", "");
        self.database.sync(self.manifest.number)?;
        self.dirty = false;
        Ok(())
    }

    fn call_back(&mut self, dones: Vec<Done>, result: io::Result<()>) {
        if let Err(error) = &result {
            self.failure.send_if_modified(|failure| {
                let first = failure.is_none();
                if first {
                    tracing::error!(%error, "the quorum's store cannot be written");
                    *failure = Some(error.to_string());
                }
                first
            });
        }
        for done in dones {
            let result = match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            match done {
                Done::Append { end_index, done } => {
                    if result.is_ok() {
                        self.durable_end.store(end_index, Ordering::Release);
                    }
                    done(result);
                }
                // Whoever asked may have gone.
                Done::Waiter(waiter) => drop(waiter.send(result)),
            }
        }
    }
}
