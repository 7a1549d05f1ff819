//! Proof of the store (cases Q5 and Q6): a sequence of operations that follows from a seed, what the store should hold after
//! each, and what it does hold. The programs that kill, tear and damage it are in `tests`.

pub mod decoding;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::LogIdOptionExt as _;
use openraft::entry::RaftEntry as _;
use openraft::impls::leader_id_std::LeaderId;
use openraft::vote::RaftLeaderId as _;
use uuid::Uuid;

pub use crate::crash::arm;

use crate::config::{Identity, VoterId};
use crate::error::OpenError;
use crate::snapshot::Snapshots;
use crate::store::{Store, crc};
use crate::type_config::{Entry, LogId, Payload, SnapshotMeta, Vote};

const ME: VoterId = VoterId { node_id: 1, directory_id: Uuid::nil() };

fn identity() -> Identity {
    Identity { cluster_id: "proof".to_owned(), voter: ME }
}

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(LeaderId::new(term, ME).to_committed(), index)
}

/// A small generator, the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// What a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub vote: u64,
    /// (term, index).
    pub purged: Option<(u64, u64)>,
    /// Index to (term, CRC of the payload).
    pub entries: BTreeMap<u64, (u64, u32)>,
    /// Index that the snapshot reaches, and the CRC of its data.
    pub snapshot: Option<(u64, u32)>,
}

impl Contents {
    fn end(&self) -> u64 {
        let after_purged = self.purged.map_or(0, |(_, index)| index + 1);
        self.entries.last_key_value().map_or(after_purged, |(index, _)| index + 1)
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Vote(u64),
    Append {
        term: u64,
        first: u64,
        payloads: Vec<Bytes>,
    },
    /// Removes the entries from here on.
    Truncate(u64),
    Snapshot {
        term: u64,
        index: u64,
        data: Vec<u8>,
    },
    Purge {
        term: u64,
        index: u64,
    },
}

/// The operations of a seed, and what they lead to.
#[derive(Clone, Debug)]
pub struct Script {
    random: Random,
    pub contents: Contents,
}

impl Script {
    pub fn new(seed: u64) -> Script {
        Script { random: Random::new(seed), contents: Contents { vote: 1, ..Contents::default() } }
    }

    fn next(&mut self) -> Operation {
        let random = &mut self.random;
        let contents = &self.contents;
        let floor = contents.snapshot.map_or(0, |(index, _)| index + 1);
        let operation = match random.below(20) {
            0 => Operation::Vote(contents.vote + 1),
            1 if contents.end() > floor => {
                Operation::Truncate(contents.end() - random.below((contents.end() - floor).min(5)))
            }
            2 if contents.entries.len() > 4 => match contents.entries.last_key_value() {
                Some((index, (term, _))) => {
                    let data = vec![random.below(256) as u8; random.below(50_000) as usize];
                    Operation::Snapshot { term: *term, index: *index, data }
                }
                None => Operation::Vote(contents.vote),
            },
            3 => match contents
                .entries
                .iter()
                .filter(|(index, _)| **index < floor)
                .nth(random.below(9) as usize)
            {
                Some((index, (term, _))) => Operation::Purge { term: *term, index: *index },
                None => Operation::Vote(contents.vote),
            },
            _ => {
                let count = 1 + random.below(4);
                let payloads = (0..count).map(|_| {
                    let size = if random.below(30) == 0 { 150_000 } else { random.below(900) };
                    Bytes::from(vec![random.below(256) as u8; size as usize])
                });
                Operation::Append { term: contents.vote, first: contents.end(), payloads: payloads.collect() }
            }
        };
        self.contents.apply(&operation);
        operation
    }

    /// Skips so many operations: what the store should hold after them.
    pub fn skip(&mut self, count: usize) -> &Contents {
        for _ in 0..count {
            self.next();
        }
        &self.contents
    }
}

impl Contents {
    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Vote(term) => self.vote = *term,
            Operation::Append { term, first, payloads } => {
                let entries = (*first..).zip(payloads).map(|(index, data)| (index, (*term, crc(&[data]))));
                self.entries.extend(entries);
            }
            Operation::Truncate(from) => drop(self.entries.split_off(from)),
            Operation::Snapshot { index, data, .. } => self.snapshot = Some((*index, crc(&[data]))),
            Operation::Purge { term, index } => {
                self.entries = self.entries.split_off(&(index + 1));
                self.purged = Some((*term, *index));
            }
        }
    }
}

/// An open store that follows a script.
pub struct Writing {
    store: Store,
    snapshots: Snapshots,
    script: Script,
}

impl Writing {
    /// A new store in an empty directory. The first vote is in it.
    pub async fn begin(directory: &Path, seed: u64) -> Result<Writing, OpenError> {
        let store = Store::open(directory, &identity())?;
        let failed = |source| OpenError::Io { path: directory.to_owned(), source };
        let snapshots = Snapshots::open(directory.join("snapshots"), store.clone()).map_err(failed)?;
        let writing = Writing { store, snapshots, script: Script::new(seed) };
        writing.store.write_vote(&Vote::new(1, ME)).await.map_err(failed)?;
        Ok(writing)
    }

    /// Runs the next operation; on return it is acknowledged.
    pub async fn step(&mut self) -> io::Result<()> {
        let before = self.script.contents.clone();
        match self.script.next() {
            Operation::Vote(term) => self.store.write_vote(&Vote::new(term, ME)).await?,
            Operation::Append { term, first, payloads } => {
                let entries = (first..).zip(payloads).map(|(index, data)| {
                    Entry::new(log_id(term, index), EntryPayload::Normal(Payload(data)))
                });
                self.store.write_durably(entries.collect::<Vec<_>>()).await?;
            }
            Operation::Truncate(from) => {
                let last = from.checked_sub(1).and_then(|index| {
                    let term = before.entries.get(&index).map(|(term, _)| *term);
                    let term = term.or(before.purged.filter(|(_, at)| *at == index).map(|(term, _)| term));
                    term.map(|term| log_id(term, index))
                });
                self.store.cut_after(last).await?;
            }
            Operation::Snapshot { term, index, data } => {
                let last_log_id = Some(log_id(term, index));
                let meta = SnapshotMeta { last_log_id, ..SnapshotMeta::default() };
                self.snapshots.save(meta, Box::new(move || data)).await?;
            }
            Operation::Purge { term, index } => self.store.drop_upto(log_id(term, index)).await?,
        }
        Ok(())
    }

    pub fn contents(&self) -> &Contents {
        &self.script.contents
    }

    pub fn close(self) {
        self.store.close();
    }
}

/// Opens a store as a controller would and reads all of it. An error: it is refused.
pub async fn read(directory: &Path) -> Result<Contents, String> {
    let mut store = Store::open(directory, &identity()).map_err(|error| error.to_string())?;
    let contents = read_open(&mut store, directory).await.map_err(|error| error.to_string());
    store.close();
    contents
}

async fn read_open(store: &mut Store, directory: &Path) -> io::Result<Contents> {
    let snapshots = Snapshots::open(directory.join("snapshots"), store.clone())?;
    let current = snapshots.current();
    store.check_complete(current.as_ref().and_then(|(meta, _)| meta.last_log_id))?;
    let vote = store.vote().map_or(0, |vote| vote.leader_id.term);
    let mut contents = Contents { vote, ..Contents::default() };
    contents.purged = store.ends().0.map(|id| (**id.committed_leader_id(), id.index()));
    for entry in store.read(0, u64::MAX)? {
        let id = entry.log_id();
        let EntryPayload::Normal(payload) = &entry.payload else { continue };
        contents.entries.insert(id.index(), (**id.committed_leader_id(), crc(&[&payload.0])));
    }
    if let Some((meta, file)) = current {
        let (_, data) = snapshots.read(&file).await?;
        contents.snapshot = Some((meta.last_log_id.index().unwrap_or_default(), crc(&[&data])));
    }
    Ok(contents)
}

/// Appends so many entries with a snapshot and a purge every `every`; gives the largest size of the
/// store's directory in bytes after the first of them, and at the end.
pub async fn fill(directory: &Path, entries: u64, every: u64, batch: u64) -> io::Result<(u64, u64)> {
    let store = Store::open(directory, &identity()).map_err(io::Error::other)?;
    store.write_vote(&Vote::new(1, ME)).await?;
    let (mut early, mut largest) = (0, 0);
    let mut index = 0;
    while index < entries {
        let next: Vec<Entry> = (index..index + batch)
            .map(|index| {
                let data = Bytes::from(vec![index as u8; 100]);
                Entry::new(log_id(1, index), EntryPayload::Normal(Payload(data)))
            })
            .collect();
        store.write_durably(next).await?;
        index += batch;
        if index % every < batch && index > every {
            store.note_committed(Some(log_id(1, index - 1)))?;
            store.drop_upto(log_id(1, index - every / 2)).await?;
            let size = size(directory)?;
            largest = largest.max(size);
            if index <= entries / 5 {
                early = largest;
            }
        }
    }
    store.close();
    Ok((early, largest))
}

fn size(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { size(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
