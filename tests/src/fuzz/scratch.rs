//! A directory for the files that readers are given, in memory where there is such a file system.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub struct Scratch {
    directory: TempDir,
}

impl Scratch {
    pub fn new() -> Scratch {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Scratch { directory: directory.unwrap_or_else(|error| panic!("no directory for files: {error}")) }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Removes what an input has left behind.
    pub fn clear(&self) {
        for entry in fs::read_dir(self.path()).into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}
