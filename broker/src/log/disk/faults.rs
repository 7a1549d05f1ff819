//! Tests only: counts the steps below a directory, fails one of them, and models what a power cut leaves.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Step;

static WATCHED: Mutex<Vec<Arc<Watched>>> = Mutex::new(Vec::new());

thread_local! {
    /// The write that was just refused leaves half of its bytes.
    static TEARS: Cell<bool> = const { Cell::new(false) };
}

/// What happens at the chosen step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// This step fails with EIO; the process lives.
    Broken,
    /// This step and so many after it, as far as they need space, fail with ENOSPC.
    Full { steps: usize },
    /// The process ends here.
    Died,
}

/// What another thread does just before a step.
type Meanwhile = Arc<dyn Fn() + Send + Sync>;

struct Watched {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: usize,
    syncs: usize,
    fault: Option<(usize, Fault)>,
    dead: bool,
    reads_fail: bool,
    /// How many files can still be opened.
    opens_left: Option<usize>,
    meanwhile: Option<(usize, Meanwhile)>,
    power: Option<Durable>,
}

/// What is on the disk whatever happens: contents as of the last sync of each file, names as of the last
/// sync of each directory.
#[derive(Default)]
struct Durable {
    contents: HashMap<u64, (File, Vec<u8>)>,
    names: HashMap<PathBuf, u64>,
}

/// Watches a directory until it is dropped.
pub(crate) struct Faults(Arc<Watched>);

impl Faults {
    pub(crate) fn watch(root: &Path) -> Faults {
        let watched = Arc::new(Watched { root: root.to_path_buf(), state: Mutex::default() });
        WATCHED.lock().push(watched.clone());
        Faults(watched)
    }

    /// What stands there now counts as durable; from now on only what is synced does.
    pub(crate) fn model_power(&self) {
        let mut durable = Durable::default();
        durable.take_everything(&self.0.root);
        self.0.state.lock().power = Some(durable);
    }

    pub(crate) fn at(&self, step: usize, fault: Fault) {
        self.0.state.lock().fault = Some((step, fault));
    }

    /// Reads fail with EIO, or no longer do. They are no steps: they leave nothing behind.
    pub(crate) fn fail_reads(&self, fail: bool) {
        self.0.state.lock().reads_fail = fail;
    }

    /// No descriptors are left to open files with, or there are again. No steps, either.
    pub(crate) fn fail_opens(&self, fail: bool) {
        self.leave_opens(fail.then_some(0));
    }

    /// So many files can be opened, and then no descriptors are left.
    pub(crate) fn leave_opens(&self, opens: Option<usize>) {
        self.0.state.lock().opens_left = opens;
    }

    /// Done before the chosen step, in the midst of what comes to it.
    pub(crate) fn meanwhile(&self, step: usize, work: impl Fn() + Send + Sync + 'static) {
        self.0.state.lock().meanwhile = Some((step, Arc::new(work)));
    }

    pub(crate) fn steps(&self) -> usize {
        self.0.state.lock().steps
    }

    pub(crate) fn syncs(&self) -> usize {
        self.0.state.lock().syncs
    }

    /// The process is gone; a new one starts on what it left.
    pub(crate) fn revive(&self) {
        let mut state = self.0.state.lock();
        state.dead = false;
        state.fault = None;
    }

    /// Leaves on the disk what was synced, and nothing else.
    pub(crate) fn cut_power(&self) {
        let durable = self.0.state.lock().power.take().unwrap();
        for entry in fs::read_dir(&self.0.root).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        let mut names: Vec<_> = durable.names.iter().collect();
        names.sort();
        for (path, inode) in names {
            if !path.parent().is_some_and(Path::exists) {
                // Its directory's own name was never synced.
                continue;
            }
            match durable.contents.get(inode) {
                Some((file, bytes)) if file.metadata().unwrap().is_file() => fs::write(path, bytes).unwrap(),
                _ => drop(fs::create_dir(path)),
            }
        }
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        WATCHED.lock().retain(|watched| !Arc::ptr_eq(watched, &self.0));
    }
}

impl Durable {
    fn take_everything(&mut self, directory: &Path) {
        self.take_names(directory);
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { self.take_everything(&path) } else { self.take_content(&path) }
        }
    }

    fn take_names(&mut self, directory: &Path) {
        let before = self.names.clone();
        self.names.retain(|path, _| path.parent() != Some(directory));
        let Ok(entries) = fs::read_dir(directory) else { return };
        for entry in entries {
            let path = entry.unwrap().path();
            let file = File::open(&path).unwrap();
            let inode = file.metadata().unwrap().ino();
            // A renamed directory takes what is in it along.
            let old = before.iter().find(|(old, known)| **known == inode && **old != path);
            if let Some(old) = old.map(|(old, _)| old.clone())
                && path.is_dir()
            {
                let moved: Vec<_> =
                    self.names.keys().filter(|name| name.starts_with(&old)).cloned().collect();
                for name in moved {
                    let inode = self.names.remove(&name).unwrap();
                    self.names.insert(path.join(name.strip_prefix(&old).unwrap()), inode);
                }
            }
            self.names.insert(path, inode);
            // Open, so that no other file gets its number.
            self.contents.entry(inode).or_insert((file, Vec::new()));
        }
    }

    fn take_content(&mut self, path: &Path) {
        let file = File::open(path).unwrap();
        let metadata = file.metadata().unwrap();
        let mut bytes = vec![0; metadata.len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        self.contents.insert(metadata.ino(), (file, bytes));
    }
}

fn watched(path: &Path) -> Option<Arc<Watched>> {
    WATCHED.lock().iter().find(|watched| path.starts_with(&watched.root)).cloned()
}

pub(super) fn before(step: Step, path: &Path) -> io::Result<()> {
    let Some(watched) = watched(path) else { return Ok(()) };
    let mut state = watched.state.lock();
    let number = state.steps;
    state.steps += 1;
    if let Some((_, work)) = state.meanwhile.take_if(|(at, _)| *at == number) {
        // It makes steps of its own.
        drop(state);
        work();
        state = watched.state.lock();
    }
    state.syncs += usize::from(matches!(step, Step::Sync | Step::SyncDirectory));
    if state.dead {
        return Err(rustix::io::Errno::IO.into());
    }
    match state.fault {
        Some((at, Fault::Broken)) if at == number => {
            TEARS.set(true);
            Err(rustix::io::Errno::IO.into())
        }
        Some((at, Fault::Died)) if at == number => {
            TEARS.set(true);
            state.dead = true;
            Err(rustix::io::Errno::IO.into())
        }
        Some((at, Fault::Full { steps }))
            if (at..at + steps).contains(&number) && matches!(step, Step::Create | Step::Write) =>
        {
            TEARS.set(true);
            Err(rustix::io::Errno::NOSPC.into())
        }
        _ => Ok(()),
    }
}

pub(super) fn before_read(path: &Path) -> io::Result<()> {
    match watched(path) {
        Some(watched) if watched.state.lock().reads_fail => Err(rustix::io::Errno::IO.into()),
        _ => Ok(()),
    }
}

pub(super) fn before_open(path: &Path) -> io::Result<()> {
    let Some(watched) = watched(path) else { return Ok(()) };
    match &mut watched.state.lock().opens_left {
        Some(0) => return Err(rustix::io::Errno::MFILE.into()),
        Some(left) => *left -= 1,
        None => {}
    }
    Ok(())
}

pub(super) fn after(step: Step, path: &Path) {
    let Some(watched) = watched(path) else { return };
    let mut state = watched.state.lock();
    if let Some(durable) = &mut state.power {
        match step {
            Step::SyncDirectory => durable.take_names(path),
            _ => durable.take_content(path),
        }
    }
}

pub(super) fn everything_synced(path: &Path) {
    let Some(watched) = watched(path) else { return };
    let mut state = watched.state.lock();
    if let Some(durable) = &mut state.power {
        durable.take_everything(path);
    }
}

/// A write that was refused may have written some.
pub(super) fn tear(file: &File, bytes: &[u8], position: u64) {
    if TEARS.take() {
        file.write_all_at(&bytes[..bytes.len() / 2], position).unwrap();
    }
}
