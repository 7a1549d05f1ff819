//! A file that is opened (and created) when it is first needed. Open ones share a budget: beyond it
//! the one that was not used for longest gives its descriptor back, as do those that nobody asked for
//! in a while. 20,000 partitions must not hold 20,000 descriptors, nor must as many that are all written.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

use super::disk;
use super::error::LogError;

/// Of the process' descriptors; the rest is for sockets and short-lived files.
const SHARE_OF_DESCRIPTORS: usize = 2;
const MOST_OPEN_FILES: usize = 1 << 16;

static OPEN_FILES: LazyLock<OpenFiles> = LazyLock::new(|| {
    let soft = getrlimit(Resource::Nofile).current.and_then(|soft| usize::try_from(soft).ok());
    OpenFiles::new(soft.unwrap_or(MOST_OPEN_FILES) / SHARE_OF_DESCRIPTORS)
});

#[derive(Debug, Default)]
pub(crate) struct LazyFile {
    /// Made with the first use: most files of a large broker are never touched.
    slot: OnceLock<Arc<Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    handle: Mutex<Option<Arc<File>>>,
    used: AtomicBool,
    /// Stands in the queue of open files.
    queued: AtomicBool,
}

impl LazyFile {
    /// The open file; `path` is asked only when it has to be opened.
    pub fn get(&self, path: impl FnOnce() -> PathBuf) -> Result<Arc<File>, LogError> {
        self.get_by(|| disk::open(&path()))
    }

    /// The same of a file that must not be made anew.
    pub fn get_existing(&self, path: impl FnOnce() -> PathBuf) -> Result<Arc<File>, LogError> {
        self.get_by(|| disk::open_existing(&path()))
    }

    fn get_by(&self, open: impl FnOnce() -> Result<File, LogError>) -> Result<Arc<File>, LogError> {
        let slot = self.slot.get_or_init(Arc::default);
        slot.used.store(true, Ordering::Relaxed);
        if let Some(file) = &*slot.handle.lock() {
            return Ok(file.clone());
        }
        OPEN_FILES.make_room();
        let mut handle = slot.handle.lock();
        if let Some(file) = &*handle {
            return Ok(file.clone());
        }
        let file = Arc::new(open()?);
        *handle = Some(file.clone());
        drop(handle);
        OPEN_FILES.opened(slot);
        Ok(file)
    }

    /// Closes the file if it was not asked for since the last call. Readers that still hold it go on.
    pub fn close_if_idle(&self) {
        if let Some(slot) = self.slot.get()
            && !slot.used.swap(false, Ordering::Relaxed)
        {
            slot.close(&OPEN_FILES);
        }
    }

    pub fn close(&self) {
        if let Some(slot) = self.slot.get() {
            slot.close(&OPEN_FILES);
        }
    }
}

impl Slot {
    fn close(&self, files: &OpenFiles) {
        if self.handle.lock().take().is_some() {
            files.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.close(&OPEN_FILES);
    }
}

/// Second chance: whoever was used since it was last looked at goes to the end of the queue.
struct OpenFiles {
    limit: usize,
    open: AtomicUsize,
    queue: Mutex<VecDeque<Weak<Slot>>>,
}

impl OpenFiles {
    fn new(limit: usize) -> OpenFiles {
        OpenFiles {
            limit: limit.clamp(8, MOST_OPEN_FILES),
            open: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }

    fn opened(&self, slot: &Arc<Slot>) {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        if slot.queued.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut queue = self.queue.lock();
        queue.push_back(Arc::downgrade(slot));
        if queue.len() > 2 * open + 1024 {
            // Files that were closed otherwise leave their places behind.
            queue.retain(|slot| {
                slot.upgrade().is_some_and(|slot| {
                    let is_open = slot.handle.lock().is_some();
                    slot.queued.store(is_open, Ordering::Relaxed);
                    is_open
                })
            });
        }
    }

    /// Closes one file if there are as many as there may be. Holds no file's lock.
    fn make_room(&self) {
        if self.open.load(Ordering::Relaxed) < self.limit {
            return;
        }
        let mut queue = self.queue.lock();
        for _ in 0..2 * queue.len() {
            let Some(slot) = queue.pop_front() else { return };
            let Some(strong) = slot.upgrade() else { continue };
            if strong.used.swap(false, Ordering::Relaxed) {
                queue.push_back(slot);
                continue;
            }
            strong.queued.store(false, Ordering::Relaxed);
            if strong.handle.lock().is_some() {
                // The last reference may go with `strong`, whose drop takes no lock that is held here.
                strong.close(self);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_was_not_used_for_longest_gives_way() {
        let directory = tempfile::tempdir().unwrap();
        let files = OpenFiles::new(8);
        let slots: Vec<Arc<Slot>> = (0..40).map(|_| Arc::default()).collect();
        let is_open = |index: usize| slots[index].handle.lock().is_some();
        for (index, slot) in slots.iter().enumerate() {
            files.make_room();
            let file = disk::open(&directory.path().join(index.to_string())).unwrap();
            *slot.handle.lock() = Some(Arc::new(file));
            files.opened(slot);
            // The first is used again and again.
            slots[0].used.store(true, Ordering::Relaxed);
        }
        assert_eq!(files.open.load(Ordering::Relaxed), 8);
        assert_eq!((0..40).filter(|index| is_open(*index)).count(), 8);
        assert!(is_open(0) && is_open(39) && !is_open(1) && !is_open(20));
        for slot in &slots {
            slot.close(&files);
        }
        assert_eq!(files.open.load(Ordering::Relaxed), 0);
    }
}
