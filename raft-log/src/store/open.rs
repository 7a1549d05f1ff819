//! Opening: every entry and mark is checked, and a store that lost something is refused.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use openraft::entry::RaftEntry as _;
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::config::Identity;
use crate::error::OpenError;
use crate::store::guard::{self, UNREADABLE, caught};
use crate::store::keys::{self, EntryDecoder};
use crate::store::manifest::{MANIFEST, Manifest, Watermark};
use crate::store::memory::Memory;
use crate::store::writer::Writer;
use crate::store::{Shared, Store, damaged};

const CACHE_BYTES: u64 = 16 << 20;
/// A store of this process that was just closed may hold its lock a moment longer.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Beside the store from its creation on. sled takes a file it cannot read for an empty one; with
/// this mark an empty store is known to have been emptied.
pub(crate) const CREATED_MARK: &str = "store.created";
/// The number of the last durable batch.
const WATERMARK: &str = "store.watermark";

pub fn open(directory: &Path, identity: &Identity) -> Result<Store, OpenError> {
    let path = directory.join("store");
    let io_error = |source| OpenError::Io { path: path.clone(), source };
    fs::create_dir_all(&path).map_err(io_error)?;
    let database = open_database(&path)?;
    let checked = caught(|| check(directory, &path, identity, &database));
    let Checked { file, manifest, watermark, memory } =
        match checked.unwrap_or_else(|| Err(unreadable(&path))) {
            Ok(checked) => checked,
            Err(error) => {
                guard::close(Some(database));
                return Err(error);
            }
        };
    let durable_end = Arc::new(AtomicU64::new(memory.end_index()));
    let (failed, failure) = watch::channel(None);
    let (queue, jobs) = mpsc::channel();
    let writer = Writer::new(database.clone(), file, durable_end.clone(), failed, (manifest, watermark));
    let writer = thread::Builder::new()
        .name("quorum-writer".into())
        .spawn(move || writer.run(&jobs))
        .map_err(io_error)?;
    let shared = Shared {
        path,
        memory: RwLock::new(memory),
        database: RwLock::new(Some(database)),
        queue: Mutex::new(Some(queue)),
        writer: Mutex::new(Some(writer)),
        durable_end,
        failure,
    };
    Ok(Store { shared: Arc::new(shared) })
}

/// What a store that is whole holds.
struct Checked {
    /// sled's own file.
    file: File,
    manifest: Manifest,
    watermark: Watermark,
    memory: Memory,
}

/// Reads all of the store; a new one gets its identity.
fn check(
    directory: &Path,
    path: &Path,
    identity: &Identity,
    database: &sled::Db,
) -> Result<Checked, OpenError> {
    let io_error = |source| OpenError::Io { path: path.to_owned(), source };
    let damage = |reason: String| OpenError::Damaged { path: path.to_owned(), reason };
    let read_error = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => damage(error.to_string()),
        _ => io_error(error),
    };
    let created = directory.join(CREATED_MARK);
    match read_mark::<Identity>(database, keys::IDENTITY).map_err(read_error)? {
        Some(stored) if stored == *identity => {}
        Some(stored) => {
            return Err(OpenError::NotOurs {
                path: path.to_owned(),
                stored: stored.voter,
                stored_cluster_id: stored.cluster_id,
            });
        }
        None if created.exists() || !database.is_empty() => {
            return Err(damage("it has lost its identity, and so perhaps its log and its vote".into()));
        }
        None => {
            let sealed = keys::seal(keys::IDENTITY, identity).map_err(io_error)?;
            let mut manifest = Manifest::default();
            manifest.put(keys::IDENTITY, &sealed);
            let mut first = sled::Batch::default();
            first.insert(keys::IDENTITY, sealed);
            first.insert(MANIFEST, keys::seal(MANIFEST, &manifest).map_err(io_error)?);
            database.apply_batch(first).map_err(|error| io_error(error.into()))?;
            database.flush().map_err(|error| io_error(error.into()))?;
        }
    }
    let file = File::open(path.join("db")).map_err(io_error)?;
    if !created.exists() {
        file.sync_all().map_err(io_error)?;
        File::create(&created).and_then(|mark| mark.sync_all()).map_err(io_error)?;
        sync_directories(path).map_err(io_error)?;
    }

    let manifest = Manifest::load(database).map_err(read_error)?;
    let watermark = Watermark::open(&directory.join(WATERMARK)).map_err(io_error)?;
    if watermark.read().map_err(read_error)?.is_some_and(|durable| durable > manifest.number) {
        return Err(damage("what was written last is missing".into()));
    }
    let memory = load(database).map_err(read_error)?;
    manifest.check_log(memory.first_index(), memory.end_index()).map_err(read_error)?;
    if let Some(recovery) = memory.given_up {
        return Err(OpenError::GivenUp { path: path.to_owned(), recovery });
    }
    Ok(Checked { file, manifest, watermark, memory })
}

fn open_database(path: &Path) -> Result<sled::Db, OpenError> {
    let started = Instant::now();
    loop {
        let config = sled::Config::new().path(path).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let error = match caught(|| config.open()) {
            Some(Ok(database)) => return Ok(database),
            Some(Err(error)) => error,
            None => return Err(unreadable(path)),
        };
        let locked = matches!(&error, sled::Error::Io(error) if is_locked(error));
        if locked && started.elapsed() < LOCK_PATIENCE {
            thread::sleep(Duration::from_millis(20));
            continue;
        }
        let path = path.to_owned();
        return Err(match error {
            _ if locked => OpenError::InUse { path },
            sled::Error::Io(source) => OpenError::Io { path, source },
            error => OpenError::Damaged { path, reason: error.to_string() },
        });
    }
}

fn unreadable(path: &Path) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), reason: UNREADABLE.into() }
}

fn is_locked(error: &io::Error) -> bool {
    // sled wraps the error of the lock in one of its own making.
    error.kind() == io::ErrorKind::WouldBlock || error.to_string().contains("could not acquire lock")
}

fn load(database: &sled::Db) -> io::Result<Memory> {
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
    for item in database.range(keys::entry_key(0, 0).as_slice()..keys::entries_end().as_slice()) {
        let (key, value) = item?;
        let Some((index, entry)) = decoder.push(&key, &value)? else { continue };
        if index != memory.end_index() || entry.log_id().index != index {
            return Err(damaged(format!("entry {} is missing", memory.end_index())));
        }
        memory.push(entry, u64::MAX);
    }
    decoder.finish()?;
    Ok(memory)
}

fn read_mark<T: DeserializeOwned>(database: &sled::Db, name: &[u8]) -> io::Result<Option<T>> {
    database.get(name)?.map(|sealed| keys::unseal(name, &sealed)).transpose()
}

/// Makes the entries of the store's files durable, up to the formatted directory.
fn sync_directories(path: &Path) -> io::Result<()> {
    path.ancestors().take(3).try_for_each(|directory| File::open(directory)?.sync_all())
}
