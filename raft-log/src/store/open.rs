//! Opening: every entry and mark is checked, and a store that lost something is refused.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use openraft::entry::RaftEntry as _;
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use crate::config::Identity;
use crate::error::OpenError;
use crate::store::database::{Batch, Database};
use crate::store::disk::{self, Disk};
use crate::store::keys::{self, EntryDecoder};
use crate::store::manifest::{MANIFEST, Manifest};
use crate::store::memory::Memory;
use crate::store::writer::{Job, Writer};
use crate::store::{Shared, Store, damaged};

/// On the disk, with its writer on a thread of its own. Refused once its voter was given up.
pub fn open(directory: &Path, identity: &Identity) -> Result<Store, OpenError> {
    let store = open_any(directory, identity)?;
    match store.given_up() {
        0 => Ok(store),
        recovery => {
            let path = store.shared.path.clone();
            store.close();
            Err(OpenError::GivenUp { path, recovery })
        }
    }
}

/// Also that of a voter that was given up.
pub fn open_any(directory: &Path, identity: &Identity) -> Result<Store, OpenError> {
    let path = disk::store_path(directory);
    let io_error = |source| OpenError::Io { path: path.clone(), source };
    let disk = Disk::open(directory)?;
    let used = disk.is_used(directory).map_err(damage_in(&path))?;
    check_identity(&path, &disk, identity, used)?;
    disk.mark_created(directory).map_err(io_error)?;
    let (store, writer, mut jobs) = open_on(&path, Arc::new(disk))?;
    let writer = thread::Builder::new()
        .name("quorum-writer".into())
        .spawn(move || writer.run(&mut jobs))
        .map_err(io_error)?;
    *store.shared.writer.lock() = Some(writer);
    Ok(store)
}

/// A new database gets its identity; a used one must have it.
pub fn check_identity(
    path: &Path,
    database: &dyn Database,
    identity: &Identity,
    used: bool,
) -> Result<(), OpenError> {
    let io_error = |source| OpenError::Io { path: path.to_owned(), source };
    match read_mark::<Identity>(database, keys::IDENTITY).map_err(damage_in(path))? {
        Some(stored) if stored == *identity => Ok(()),
        Some(stored) => Err(OpenError::NotOurs {
            path: path.to_owned(),
            stored: stored.voter,
            stored_cluster_id: stored.cluster_id,
        }),
        None if used => {
            let reason = "it has lost its identity, and so perhaps its log and its vote".into();
            Err(OpenError::Damaged { path: path.to_owned(), reason })
        }
        None => {
            let sealed = keys::seal(keys::IDENTITY, identity).map_err(io_error)?;
            let mut manifest = Manifest::default();
            manifest.put(keys::IDENTITY, &sealed);
            let mut first = Batch::default();
            first.put(keys::IDENTITY, sealed);
            first.put(MANIFEST, keys::seal(MANIFEST, &manifest).map_err(io_error)?);
            database.apply(first).and_then(|()| database.sync(manifest.number)).map_err(io_error)
        }
    }
}

/// The store of what is in the database, and its writer, which works once somebody hands it the jobs.
pub fn open_on(
    path: &Path,
    database: Arc<dyn Database>,
) -> Result<(Store, Writer, mpsc::UnboundedReceiver<Job>), OpenError> {
    let check = damage_in(path);
    let manifest = Manifest::load(database.as_ref()).map_err(&check)?;
    if database.durable_number().map_err(&check)?.is_some_and(|durable| durable > manifest.number) {
        return Err(check(damaged("what was written last is missing")));
    }
    let memory = load(database.as_ref()).map_err(&check)?;
    manifest.check_log(memory.first_index(), memory.end_index()).map_err(&check)?;
    let durable_end = Arc::new(AtomicU64::new(memory.end_index()));
    let (failed, failure) = watch::channel(None);
    let (queue, jobs) = mpsc::unbounded_channel();
    let writer = Writer::new(database.clone(), durable_end.clone(), failed, manifest);
    let shared = Shared {
        path: path.to_owned(),
        memory: RwLock::new(memory),
        database: RwLock::new(Some(database)),
        queue: Mutex::new(Some(queue)),
        writer: Mutex::new(None),
        durable_end,
        failure,
    };
    Ok((Store { shared: Arc::new(shared) }, writer, jobs))
}

fn damage_in(path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |error| match error.kind() {
        io::ErrorKind::InvalidData => OpenError::Damaged { path: path.to_owned(), reason: error.to_string() },
        _ => OpenError::Io { path: path.to_owned(), source: error },
    }
}

pub fn load(database: &dyn Database) -> io::Result<Memory> {
    let mut memory = Memory::default();
    memory.vote = read_mark(database, keys::VOTE)?;
    memory.committed = read_mark(database, keys::COMMITTED)?;
    memory.founding = read_mark(database, keys::FOUNDING)?.unwrap_or_default();
    memory.snapshot_name = read_mark(database, keys::SNAPSHOT)?;
    memory.recovered = read_mark(database, keys::RECOVERED)?;
    memory.given_up = read_mark(database, keys::GIVEN_UP)?;
    if let Some(purged) = read_mark(database, keys::PURGED)? {
        memory.purge(purged);
    }
    let mut decoder = EntryDecoder::new();
    database.scan(&keys::entry_key(0, 0), &keys::entries_end(), &mut |key, value| {
        let Some((index, entry)) = decoder.push(key, value)? else { return Ok(true) };
        if index != memory.end_index() || entry.log_id().index != index {
            return Err(damaged(format!("entry {} is missing", memory.end_index())));
        }
        memory.push(entry, u64::MAX);
        Ok(true)
    })?;
    decoder.finish()?;
    Ok(memory)
}

fn read_mark<T: DeserializeOwned>(database: &dyn Database, name: &[u8]) -> io::Result<Option<T>> {
    database.get(name)?.map(|sealed| keys::unseal(name, &sealed)).transpose()
}
