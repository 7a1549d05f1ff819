//! The database on a real disk: sled, synced by us.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::crash;
use crate::error::OpenError;
use crate::store::damaged;
use crate::store::database::{Batch, Database, Visit};
use crate::store::guard::{self, UNREADABLE, caught, guarded};
use crate::store::manifest::Watermark;

const CACHE_BYTES: u64 = 16 << 20;
/// A store of this process that was just closed may hold its lock a moment longer.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Beside the store from its creation on. sled takes a file it cannot read for an empty one; with
/// this mark an empty store is known to have been emptied.
pub(crate) const CREATED_MARK: &str = "store.created";
/// The number of the last durable batch.
const WATERMARK: &str = "store.watermark";

pub struct Disk {
    /// There until it is dropped.
    database: Option<sled::Db>,
    /// sled's own file, opened a second time: its `flush` does not reach the disk on Linux.
    file: File,
    watermark: Watermark,
}

impl Disk {
    pub fn open(directory: &Path) -> Result<Disk, OpenError> {
        let path = store_path(directory);
        let io_error = |source| OpenError::Io { path: path.clone(), source };
        fs::create_dir_all(&path).map_err(io_error)?;
        let database = open_database(&path)?;
        let file = File::open(path.join("db")).map_err(io_error)?;
        let watermark = Watermark::open(&directory.join(WATERMARK)).map_err(io_error)?;
        Ok(Disk { database: Some(database), file, watermark })
    }

    fn database(&self) -> io::Result<&sled::Db> {
        self.database.as_ref().ok_or_else(|| damaged(UNREADABLE))
    }

    /// Whether there is, or was, something in it.
    pub fn is_used(&self, directory: &Path) -> io::Result<bool> {
        guarded(|| Ok(directory.join(CREATED_MARK).exists() || !self.database()?.is_empty()))
    }

    /// Its files, and that they were created, are durable on return.
    pub fn mark_created(&self, directory: &Path) -> io::Result<()> {
        let created = directory.join(CREATED_MARK);
        if created.exists() {
            return Ok(());
        }
        self.file.sync_all()?;
        File::create(&created)?.sync_all()?;
        sync_directories(&store_path(directory))
    }
}

pub fn store_path(directory: &Path) -> PathBuf {
    directory.join("store")
}

impl Drop for Disk {
    fn drop(&mut self) {
        guard::close(self.database.take());
    }
}

impl Database for Disk {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        guarded(|| Ok(self.database()?.get(key)?.map(|value| value.to_vec())))
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> io::Result<()> {
        guarded(|| {
            for item in self.database()?.range(start..end) {
                let (key, value) = item?;
                if !visit(&key, &value)? {
                    break;
                }
            }
            Ok(())
        })
    }

    fn apply(&self, batch: Batch) -> io::Result<()> {
        let mut all = sled::Batch::default();
        for (key, value) in batch.writes {
            match value {
                Some(value) => all.insert(key.as_ref(), value),
                None => all.remove(key.as_ref()),
            }
        }
        crash::point();
        guarded(|| Ok(self.database()?.apply_batch(all)?))
    }

    /// sled's flush alone is safe against a crash of the process, not of the machine.
    fn sync(&self, number: u64) -> io::Result<()> {
        crash::point();
        guarded(|| Ok(self.database()?.flush().map(drop)?))?;
        crash::point();
        self.file.sync_data()?;
        crash::point();
        self.watermark.write(number)
    }

    fn durable_number(&self) -> io::Result<Option<u64>> {
        self.watermark.read()
    }
}

fn open_database(path: &Path) -> Result<sled::Db, OpenError> {
    let started = Instant::now();
    loop {
        let config = sled::Config::new().path(path).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let error = match caught(|| config.open()) {
            Some(Ok(database)) => return Ok(database),
            Some(Err(error)) => error,
            None => {
                let reason = UNREADABLE.into();
                return Err(OpenError::Damaged { path: path.to_owned(), reason });
            }
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

fn is_locked(error: &io::Error) -> bool {
    // sled wraps the error of the lock in one of its own making.
    error.kind() == io::ErrorKind::WouldBlock || error.to_string().contains("could not acquire lock")
}

/// Makes the entries of the store's files durable, up to the formatted directory.
fn sync_directories(path: &Path) -> io::Result<()> {
    path.ancestors().take(3).try_for_each(|directory| File::open(directory)?.sync_all())
}
