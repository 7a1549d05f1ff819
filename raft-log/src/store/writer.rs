//! The one thread that writes. It takes what has gathered in the queue, writes it as one batch, syncs
//! once and only then calls back. Vote, entries, truncation and purge go through the same queue:
//! their order is a safety rule of the consensus.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use common::fault;
use openraft::storage::IOFlushed;
use tokio::sync::{oneshot, watch};

use crate::crash;
use crate::store::guard::{self, guarded};
use crate::store::keys::{self, EntryKey};
use crate::store::manifest::{MANIFEST, Manifest, Watermark};
use crate::type_config::TypeConfig;

const BATCH_BYTES: usize = 4 << 20;

pub enum Job {
    Append {
        writes: Vec<(EntryKey, Vec<u8>)>,
        first_index: u64,
        end_index: u64,
        done: IOFlushed<TypeConfig>,
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
    Append { end_index: u64, done: IOFlushed<TypeConfig> },
    Waiter(oneshot::Sender<io::Result<()>>),
}

pub struct Writer {
    database: sled::Db,
    /// sled's own file, opened a second time: its `flush` does not reach the disk on Linux.
    file: File,
    durable_end: Arc<AtomicU64>,
    failure: watch::Sender<Option<String>>,
    manifest: Manifest,
    watermark: Watermark,
    batch: sled::Batch,
    batch_bytes: usize,
    /// Written to sled since the last sync.
    dirty: bool,
}

impl Writer {
    pub fn new(
        database: sled::Db,
        file: File,
        durable_end: Arc<AtomicU64>,
        failure: watch::Sender<Option<String>>,
        (manifest, watermark): (Manifest, Watermark),
    ) -> Writer {
        Writer {
            database,
            file,
            durable_end,
            failure,
            manifest,
            watermark,
            batch: sled::Batch::default(),
            batch_bytes: 0,
            dirty: false,
        }
    }

    /// Works until all senders of the queue are gone.
    pub fn run(mut self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            let mut dones = Vec::new();
            let result = guarded(|| self.round(job, queue, &mut dones));
            self.call_back(dones, result);
        }
        if self.dirty && self.failure.borrow().is_none() {
            let result = guarded(|| self.sync());
            self.call_back(Vec::new(), result);
        }
        guard::close(Some(self.database));
    }

    fn round(&mut self, job: Job, queue: &Receiver<Job>, dones: &mut Vec<Done>) -> io::Result<()> {
        self.take(job, dones)?;
        while self.batch_bytes < BATCH_BYTES {
            let Ok(job) = queue.try_recv() else { break };
            self.take(job, dones)?;
        }
        self.write()?;
        // A batch of lazy marks alone waits for company.
        if dones.is_empty() { Ok(()) } else { self.sync() }
    }

    fn take(&mut self, job: Job, dones: &mut Vec<Done>) -> io::Result<()> {
        match job {
            Job::Append { writes, first_index, end_index, done } => {
                self.manifest.appended(first_index, end_index);
                dones.push(Done::Append { end_index, done });
                for (key, value) in writes {
                    self.batch_bytes += value.len();
                    self.batch.insert(&key, value);
                }
                Ok(())
            }
            Job::Put { name, value, done } => {
                dones.push(Done::Waiter(done));
                self.manifest.put(name, &value);
                self.batch_bytes += value.len();
                self.batch.insert(name, value);
                Ok(())
            }
            Job::PutLazily { name, value } => {
                self.manifest.put(name, &value);
                self.batch_bytes += value.len();
                self.batch.insert(name, value);
                Ok(())
            }
            Job::Together { marks, writes, first_index, end_index, done } => {
                dones.push(Done::Waiter(done));
                self.manifest.appended(first_index, end_index);
                for (name, value) in marks {
                    self.manifest.put(name, &value);
                    self.batch.insert(name, value);
                }
                for (key, value) in writes {
                    self.batch.insert(&key, value);
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
                self.batch.insert(keys::PURGED, mark);
                Ok(())
            }
        }
    }

    fn remove(&mut self, from: u64, below: u64) -> io::Result<()> {
        // The scan must see what came before it in the queue.
        self.write()?;
        let start = keys::entry_key(from, 0);
        for key in self.database.range(start.as_slice()..keys::entries_end().as_slice()).keys() {
            let key = key?;
            if keys::parse_entry_key(&key)?.0 >= below {
                break;
            }
            self.batch.remove(key);
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        // A failed disk may claim success later, which would mean nothing.
        if let Some(reason) = self.failure.borrow().clone() {
            return Err(io::Error::other(reason));
        }
        self.dirty = true;
        self.batch_bytes = 0;
        self.manifest.number += 1;
        self.batch.insert(MANIFEST, keys::seal(MANIFEST, &self.manifest)?);
        crash::point();
        Ok(self.database.apply_batch(std::mem::take(&mut self.batch))?)
    }

    /// The only durable write: sled's flush alone is safe against a crash of the process, not of the
    /// machine.
    fn sync(&mut self) -> io::Result<()> {
        fault::point_blocking("quorum.sync", "");
        crash::point();
        self.database.flush()?;
        crash::point();
        self.file.sync_data()?;
        crash::point();
        self.watermark.write(self.manifest.number)?;
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
                    done.io_completed(result);
                }
                // Whoever asked may have gone.
                Done::Waiter(waiter) => drop(waiter.send(result)),
            }
        }
    }
}
