//! A node's disk: the database and the files of the store in memory. What was not synced may be gone after a
//! crash, all of it or from some point on.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::base::BoxFuture;
use openraft::entry::RaftEntry as _;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::executor;
use super::mutation::Mutation;
use super::oracle::{Oracle, Position, position};
use super::random::Random;
use super::runtime::Sleep;
use crate::config::VoterId;
use crate::files::{Contents, Files};
use crate::store::damaged;
use crate::store::database::{Batch, Database, Key, Visit};
use crate::store::keys::{self, EntryDecoder};
use crate::type_config::Vote;

/// Clones are the same disk.
#[derive(Clone)]
pub struct Disk {
    pub voter: VoterId,
    oracle: Oracle,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<Vec<u8>, Vec<u8>>,
    durable: BTreeMap<Vec<u8>, Vec<u8>>,
    unsynced: Vec<Batch>,
    durable_number: Option<u64>,
    /// Position of each entry of `live`.
    log: BTreeMap<u64, u64>,
    names: BTreeMap<String, Inode>,
    durable_names: BTreeMap<String, Inode>,
    changes: Vec<Change>,
    files_made: u64,
    /// Of a sync.
    latency_us: u64,
    /// The next sync fails, and with it the process.
    broken: bool,
}

type Inode = Arc<Mutex<File>>;

#[derive(Default)]
struct File {
    bytes: Vec<u8>,
    synced: usize,
}

enum Change {
    Put(String, Inode),
    Rename(String, String),
    Remove(String),
}

impl Disk {
    pub fn new(voter: VoterId, oracle: Oracle, latency_us: u64) -> Disk {
        let state = State { latency_us, ..State::default() };
        Disk { voter, oracle, state: Arc::new(Mutex::new(state)) }
    }

    pub fn set_latency_us(&self, latency_us: u64) {
        self.state.lock().latency_us = latency_us;
    }

    pub fn break_once(&self) {
        self.state.lock().broken = true;
    }

    pub fn is_used(&self) -> bool {
        !self.state.lock().live.is_empty()
    }

    /// How long a sync takes.
    pub fn latency(&self) -> Duration {
        let latency_us = self.state.lock().latency_us;
        Duration::from_micros(executor::random(|random| random.between(latency_us / 4, latency_us * 2)))
    }

    /// The power is gone.
    pub fn crash(&self, random: &mut Random) {
        let state = &mut *self.state.lock();
        let kept = random.below(state.unsynced.len() + 1);
        for batch in std::mem::take(&mut state.unsynced).into_iter().take(kept) {
            write(&mut state.durable, batch);
        }
        state.live = state.durable.clone();
        let log = state.live.iter().filter_map(|(key, value)| entry_position(key, value));
        state.log = log.collect();
        let kept = random.below(state.changes.len() + 1);
        let changes = std::mem::take(&mut state.changes);
        changes.into_iter().take(kept).for_each(|change| change.make(&mut state.durable_names));
        state.names = state.durable_names.clone();
        for inode in state.names.values() {
            let mut file = inode.lock();
            let kept = file.synced + random.below(file.bytes.len() - file.synced + 1);
            file.bytes.truncate(kept);
            file.synced = kept;
        }
        state.broken = false;
    }

    pub fn durable_vote(&self) -> Option<Vote> {
        self.state.lock().durable_mark(keys::VOTE)
    }

    /// Whether this entry is durable here, in the log or in the snapshot that counts.
    pub fn holds(&self, (index, term): Position) -> bool {
        let state = self.state.lock();
        let stored = state.durable.get(keys::entry_key(index, 0).as_slice());
        if stored.and_then(|value| entry_position(&keys::entry_key(index, 0), value)) == Some((index, term)) {
            return true;
        }
        let snapshot: Option<String> = state.durable_mark(keys::SNAPSHOT);
        snapshot.and_then(|name| name.get(..20)?.parse::<u64>().ok()).is_some_and(|upto| upto >= index)
    }
}

impl State {
    fn durable_mark<T: DeserializeOwned>(&self, name: &[u8]) -> Option<T> {
        keys::unseal(name, self.durable.get(name)?).ok()
    }
}

fn write(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, batch: Batch) {
    for (key, value) in batch.writes {
        match value {
            Some(value) => drop(map.insert(key.as_ref().to_vec(), value)),
            None => drop(map.remove(key.as_ref())),
        }
    }
}

/// Of an entry's first part. Entries of the simulation have no other.
fn entry_position(key: &[u8], value: &[u8]) -> Option<Position> {
    let (_, entry) = EntryDecoder::new().push(key, value).ok()??;
    Some(position(&entry.log_id()))
}

impl Change {
    fn make(self, names: &mut BTreeMap<String, Inode>) {
        match self {
            Change::Put(name, inode) => drop(names.insert(name, inode)),
            Change::Remove(name) => drop(names.remove(&name)),
            Change::Rename(from, to) => {
                if let Some(inode) = names.remove(&from) {
                    names.insert(to, inode);
                }
            }
        }
    }
}

impl Database for Disk {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state.lock().live.get(key).cloned())
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> io::Result<()> {
        let state = self.state.lock();
        for (key, value) in state.live.range(start.to_vec()..end.to_vec()) {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, batch: Batch) -> io::Result<()> {
        let state = &mut *self.state.lock();
        for (key, value) in &batch.writes {
            match (key, value) {
                (Key::Mark(name), Some(sealed)) if *name == keys::VOTE => {
                    self.oracle.vote_written(self.voter, keys::unseal(name, sealed)?);
                }
                (Key::Mark(_), _) => {}
                (Key::Entry(key), None) => {
                    state.log.remove(&keys::parse_entry_key(key)?.0);
                }
                (Key::Entry(key), Some(value)) => {
                    let Some((index, entry)) = EntryDecoder::new().push(key, value)? else {
                        return Err(damaged("an entry of the simulation has one part"));
                    };
                    let before = index.checked_sub(1).and_then(|index| state.log.get_key_value(&index));
                    let before = before.map(|(index, term)| (*index, *term));
                    self.oracle.entry_written(self.voter, &entry, before);
                    state.log.insert(index, position(&entry.log_id()).1);
                }
            }
        }
        for (key, value) in &batch.writes {
            match value {
                Some(value) => drop(state.live.insert(key.as_ref().to_vec(), value.clone())),
                None => drop(state.live.remove(key.as_ref())),
            }
        }
        state.unsynced.push(batch);
        Ok(())
    }

    fn sync(&self, number: u64) -> io::Result<()> {
        let state = &mut *self.state.lock();
        if state.broken {
            return Err(io::Error::other("the disk has failed"));
        }
        for batch in std::mem::take(&mut state.unsynced) {
            write(&mut state.durable, batch);
        }
        state.durable_number = Some(number);
        if let Some(vote) = state.durable_mark(keys::VOTE) {
            self.oracle.vote_durable(self.voter, vote);
        }
        Ok(())
    }

    fn durable_number(&self) -> io::Result<Option<u64>> {
        Ok(self.state.lock().durable_number)
    }
}

impl Files for Disk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Contents>> {
        let state = self.state.lock();
        let inode = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(Open(inode.clone())))
    }

    fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let bytes = parts.concat();
        let synced = bytes.len();
        let mut state = self.state.lock();
        state.change(Change::Put(name.to_owned(), Arc::new(Mutex::new(File { bytes, synced }))));
        Ok(())
    }

    fn append(&self, name: &str, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.names.contains_key(name) {
            state.change(Change::Put(name.to_owned(), Inode::default()));
        }
        if let Some(inode) = state.names.get(name) {
            inode.lock().bytes.extend_from_slice(data);
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state.lock().change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        if self.oracle.mutation() == Some(Mutation::SnapshotNameNotSynced) {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        state.changes.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state.lock().change(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn run(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static> {
        let latency = self.latency();
        Box::pin(async move {
            Sleep::truly(latency).await;
            work();
        })
    }

    fn stamp(&self) -> u128 {
        let mut state = self.state.lock();
        state.files_made += 1;
        u128::from(state.files_made)
    }
}

impl State {
    fn change(&mut self, change: Change) {
        match &change {
            Change::Put(name, inode) => drop(self.names.insert(name.clone(), inode.clone())),
            Change::Remove(name) => drop(self.names.remove(name)),
            Change::Rename(from, to) => {
                if let Some(inode) = self.names.remove(from) {
                    self.names.insert(to.clone(), inode);
                }
            }
        }
        self.changes.push(change);
    }
}

struct Open(Inode);

impl Contents for Open {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let file = self.0.lock();
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let bytes = start.checked_add(buffer.len()).and_then(|end| file.bytes.get(start..end));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut file = self.0.lock();
        file.synced = file.bytes.len();
        Ok(())
    }
}
