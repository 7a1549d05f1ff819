//! Where snapshots are kept: a directory in the product, memory with a power switch in the simulation.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use openraft::base::BoxFuture;

/// All of it blocks, and is called where `run` puts it.
pub(crate) trait Files: Send + Sync {
    fn names(&self) -> io::Result<Vec<String>>;

    fn open(&self, name: &str) -> io::Result<Arc<dyn Contents>>;

    /// A new file. Its contents are durable on return, its name is not.
    fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()>;

    /// Neither contents nor name are durable on return.
    fn append(&self, name: &str, data: &[u8]) -> io::Result<()>;

    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// All names, as they are now, are durable on return.
    fn sync_names(&self) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    /// Runs work that may take long.
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static>;

    /// Part of a name that no other file has, even one from before a restart.
    fn stamp(&self) -> u128;
}

pub(crate) trait Contents: Send + Sync {
    fn length(&self) -> io::Result<u64>;

    /// Fills the buffer from there.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()>;

    fn sync(&self) -> io::Result<()>;
}

impl Contents for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.read_exact_at(buffer, position)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A directory of the file system.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub fn create(path: PathBuf) -> io::Result<Directory> {
        fs::create_dir_all(&path)?;
        Ok(Directory(path))
    }
}

impl Files for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.0)?.map(|entry| entry.map(|entry| entry.file_name()));
        names.map(|name| Ok(name?.to_string_lossy().into_owned())).collect()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Contents>> {
        Ok(Arc::new(File::open(self.0.join(name))?))
    }

    fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let mut file = File::create(self.0.join(name))?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.sync_all()
    }

    fn append(&self, name: &str, data: &[u8]) -> io::Result<()> {
        File::options().create(true).append(true).open(self.0.join(name))?.write_all(data)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn run(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static> {
        // A panic of the work shows in what it was to send.
        Box::pin(async move { drop(tokio::task::spawn_blocking(work).await) })
    }

    fn stamp(&self) -> u128 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_micros())
    }
}
