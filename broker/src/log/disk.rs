//! Every change that a log makes on a disk goes through these few functions, so that errors read alike
//! and tests can fail, tear or lose any one of them (`faults`). A release build has the plain calls only.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::error::LogError;

#[cfg(test)]
pub(crate) mod faults;

/// The operation that a failed sync is reported under: it is never taken for a disk that is merely full.
pub(crate) const SYNC: &str = "sync";

/// What is about to happen, for `faults`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    Write,
    SetLength,
    Sync,
    SyncDirectory,
    Rename,
    Remove,
}

#[cfg(not(test))]
#[inline(always)]
fn before(_: Step, _: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(test))]
#[inline(always)]
fn after(_: Step, _: &Path) {}

#[cfg(not(test))]
#[inline(always)]
fn before_read(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(test))]
#[inline(always)]
fn before_open(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use faults::{after, before, before_open, before_read};

/// For reading and writing; made if it is not there.
pub(crate) fn open(path: &Path) -> Result<File, LogError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let opened = match before_open(path).and_then(|()| options.open(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            before(Step::Create, path).and_then(|()| options.create(true).open(path))
        }
        other => other,
    };
    opened.map_err(|error| LogError::io("open", path, error))
}

/// For reading and writing; it was made before, so that it is gone is a failure like any other.
pub(crate) fn open_existing(path: &Path) -> Result<File, LogError> {
    let opened = before_open(path).and_then(|()| OpenOptions::new().read(true).write(true).open(path));
    opened.map_err(|error| LogError::io("open", path, error))
}

pub(crate) fn write_at(file: &File, path: &Path, bytes: &[u8], position: u64) -> Result<(), LogError> {
    let written = match before(Step::Write, path) {
        Ok(()) => file.write_all_at(bytes, position),
        Err(error) => {
            #[cfg(test)]
            faults::tear(file, bytes, position);
            Err(error)
        }
    };
    written.map_err(|error| LogError::io("write", path, error))
}

/// What a file held when it was written has to be there: an end that comes earlier is damage to that file, any
/// other failure the disk's.
pub(crate) fn read_at(file: &File, path: &Path, bytes: &mut [u8], position: u64) -> Result<(), LogError> {
    let read = before_read(path).and_then(|()| file.read_exact_at(bytes, position));
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            LogError::corrupt(path, format!("the file ends before byte {}", position + bytes.len() as u64))
        }
        _ => LogError::io("read", path, error),
    })
}

/// None: it is not there.
pub(crate) fn read_file(path: &Path) -> Result<Option<Vec<u8>>, LogError> {
    match before_read(path).and_then(|()| fs::read(path)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::io("read", path, error)),
    }
}

pub(crate) fn set_length(file: &File, path: &Path, bytes: u64) -> Result<(), LogError> {
    before(Step::SetLength, path)
        .and_then(|()| file.set_len(bytes))
        .map_err(|error| LogError::io("truncate", path, error))
}

/// A failure is final: the kernel may have dropped the pages, so a later success would prove nothing.
pub(crate) fn sync(file: &File, path: &Path) -> Result<(), LogError> {
    before(Step::Sync, path)
        .and_then(|()| file.sync_data())
        .map_err(|error| LogError::io(SYNC, path, error))?;
    after(Step::Sync, path);
    Ok(())
}

pub(crate) fn sync_directory(path: &Path) -> Result<(), LogError> {
    before(Step::SyncDirectory, path)
        .and_then(|()| File::open(path))
        .and_then(|directory| directory.sync_all())
        .map_err(|error| LogError::io(SYNC, path, error))?;
    after(Step::SyncDirectory, path);
    Ok(())
}

/// The whole file system that holds `path`.
pub(crate) fn sync_file_system(path: &Path) -> Result<(), LogError> {
    before(Step::Sync, path)
        .and_then(|()| File::open(path))
        .and_then(|file| rustix::fs::syncfs(&file).map_err(Into::into))
        .map_err(|error| LogError::io(SYNC, path, error))?;
    #[cfg(test)]
    faults::everything_synced(path);
    Ok(())
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), LogError> {
    before(Step::Rename, from)
        .and_then(|()| fs::rename(from, to))
        .map_err(|error| LogError::io("rename", from, error))
}

/// That it is not there is no error.
pub(crate) fn remove(path: &Path) -> Result<(), LogError> {
    match before(Step::Remove, path).and_then(|()| fs::remove_file(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LogError::io("delete", path, error)),
        _ => Ok(()),
    }
}

pub(crate) fn create_directory(path: &Path) -> Result<(), LogError> {
    before(Step::Create, path)
        .and_then(|()| fs::create_dir(path))
        .map_err(|error| LogError::io("create", path, error))
}
