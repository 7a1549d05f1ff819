//! Cleaned segments take the place of old ones, so that a crash at any point leaves the old or the new,
//! never a mixture: `.cleaned` becomes `.swap`, the old files become `.deleted`, `.swap` loses its
//! suffix. A start drops `.cleaned` and completes `.swap` (Kafka's LogLoader).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::log::disk;
use crate::log::error::LogError;
use crate::log::scanner::{HeaderScanner, SWEEP_BYTES};
use crate::log::segment::{LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, segment_path};

pub(crate) const CLEANED: &str = "cleaned";
pub(crate) const SWAP: &str = "swap";
pub(crate) const DELETED: &str = "deleted";

const EXTENSIONS: [&str; 4] = [LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX];

/// `00000000000000000007.log` with a suffix behind it.
pub(crate) fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileStep {
    Rename(PathBuf, PathBuf),
    SyncDirectory(PathBuf),
}

impl FileStep {
    pub fn run(&self) -> Result<(), LogError> {
        match self {
            FileStep::Rename(from, to) => disk::rename(from, to),
            FileStep::SyncDirectory(path) => disk::sync_directory(path),
        }
    }
}

/// The steps by which the cleaned segment `new_base` takes the place of the segments in `old_bases`,
/// in order, and the files that are to be deleted later.
pub(crate) fn replacement(
    directory: &Path,
    old_bases: &[i64],
    new_base: i64,
    exists: impl Fn(&Path) -> bool,
) -> (Vec<FileStep>, Vec<PathBuf>) {
    let mut steps = Vec::new();
    let mut deleted = Vec::new();
    let new: Vec<PathBuf> = EXTENSIONS
        .iter()
        .map(|extension| segment_path(directory, new_base, extension))
        .filter(|path| exists(&suffixed(path, CLEANED)))
        .collect();
    for path in &new {
        steps.push(FileStep::Rename(suffixed(path, CLEANED), suffixed(path, SWAP)));
    }
    // From here on it is done, whatever happens.
    steps.push(FileStep::SyncDirectory(directory.to_path_buf()));
    for base in old_bases {
        for extension in EXTENSIONS {
            let path = segment_path(directory, *base, extension);
            if exists(&path) {
                let aside = suffixed(&path, DELETED);
                steps.push(FileStep::Rename(path, aside.clone()));
                deleted.push(aside);
            }
        }
    }
    for path in new {
        steps.push(FileStep::Rename(suffixed(&path, SWAP), path));
    }
    steps.push(FileStep::SyncDirectory(directory.to_path_buf()));
    (steps, deleted)
}

/// Of a replacement that is given up before anything was replaced.
pub(crate) fn remove_unfinished(directory: &Path, base_offset: i64) -> Result<(), LogError> {
    for extension in EXTENSIONS {
        let path = segment_path(directory, base_offset, extension);
        for suffix in [SWAP, CLEANED] {
            disk::remove(&suffixed(&path, suffix))?;
        }
    }
    Ok(())
}

/// A file of a segment by its name without suffix.
fn base_of(path: &Path) -> Option<i64> {
    let name = path.file_name()?.to_str()?;
    let (digits, rest) = name.split_at_checked(20)?;
    rest.starts_with('.').then(|| digits.parse().ok()).flatten()
}

/// Completes what an interrupted cleaning had begun to swap in, and drops what it had not. `cleaned`
/// and `swaps` are all such files of the directory. Returns whether the directory's files changed.
pub(crate) fn complete_interrupted(
    directory: &Path,
    cleaned: &[PathBuf],
    swaps: &[PathBuf],
) -> Result<bool, LogError> {
    // Files are renamed from the highest base down: a swap above something only cleaned is incomplete.
    let lowest_cleaned = cleaned.iter().filter_map(|path| base_of(path)).min().unwrap_or(i64::MAX);
    for path in cleaned {
        disk::remove(path)?;
    }
    let (incomplete, valid): (Vec<&PathBuf>, Vec<&PathBuf>) =
        swaps.iter().partition(|path| base_of(path).is_none_or(|base| base >= lowest_cleaned));
    for path in incomplete {
        disk::remove(path)?;
    }
    let mut replaced = BTreeSet::new();
    for path in &valid {
        let Some(base) = base_of(path) else { continue };
        if path.with_extension("") == segment_path(directory, base, LOG) {
            replaced.insert((base, next_offset(path, base)?.max(base + 1)));
        }
    }
    if let (Some((first, _)), Some(end)) = (replaced.first(), replaced.iter().map(|range| range.1).max()) {
        remove_between(directory, *first, end)?;
    }
    for path in &valid {
        let complete = path.with_extension("");
        tracing::info!(path = %complete.display(), "completes an interrupted cleaning");
        FileStep::Rename(path.to_path_buf(), complete).run()?;
    }
    if !valid.is_empty() {
        FileStep::SyncDirectory(directory.to_path_buf()).run()?;
    }
    Ok(!valid.is_empty())
}

/// Segments whose base lies in first..end were replaced but not renamed any more.
fn remove_between(directory: &Path, first: i64, end: i64) -> Result<(), LogError> {
    let failed = |error| LogError::io("list", directory, error);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_part = path
            .extension()
            .and_then(|extension| extension.to_str())
            .is_some_and(|extension| EXTENSIONS.contains(&extension));
        if is_part && base_of(&path).is_some_and(|base| (first..end).contains(&base)) {
            disk::remove(&path)?;
        }
    }
    Ok(())
}

fn next_offset(path: &Path, base: i64) -> Result<i64, LogError> {
    let io = |error| LogError::io("open", path, error);
    let file = fs::File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let mut scanner = HeaderScanner::new(file.into(), path.to_path_buf(), 0, size, SWEEP_BYTES);
    let mut next = base;
    while let Some((_, header)) = scanner.next()? {
        next = header.next_offset();
    }
    Ok(next)
}
