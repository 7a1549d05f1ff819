//! A file that is opened (and created) when it is first needed, and closed again when nobody has
//! asked for it for a while: 20,000 partitions must not hold 20,000 descriptors.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::disk;
use super::error::LogError;

#[derive(Debug, Default)]
pub(crate) struct LazyFile {
    handle: Mutex<Option<Arc<File>>>,
    used: AtomicBool,
}

impl LazyFile {
    /// The open file; `path` is asked only when it has to be opened.
    pub fn get(&self, path: impl FnOnce() -> std::path::PathBuf) -> Result<Arc<File>, LogError> {
        self.used.store(true, Ordering::Relaxed);
        let mut handle = self.handle.lock();
        if let Some(file) = &*handle {
            return Ok(file.clone());
        }
        let path = path();
        let file = Arc::new(disk::open(&path)?);
        *handle = Some(file.clone());
        Ok(file)
    }

    /// Closes the file if it was not asked for since the last call. Readers that still hold it go on.
    pub fn close_if_idle(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            *self.handle.lock() = None;
        }
    }

    pub fn close(&self) {
        *self.handle.lock() = None;
    }
}
