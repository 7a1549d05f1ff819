//! Inputs in files: `tests/fuzz/corpus/TARGET/NAME`. Every input that ever failed stands there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// In the source tree.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

/// The inputs of a target, in the order of their names.
pub fn inputs(corpus: &Path, target: &str) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut paths: Vec<PathBuf> = match fs::read_dir(corpus.join(target)) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    paths.sort();
    paths.into_iter().map(|path| fs::read(&path).map(|bytes| (path, bytes))).collect()
}

/// The target whose input a file is: the name of its folder.
pub fn target_of(path: &Path) -> Option<&str> {
    path.parent()?.file_name()?.to_str()
}

/// Keeps an input that failed, in the folder of its target.
pub fn keep(failures: &Path, target: &str, name: &str, input: &[u8]) -> io::Result<PathBuf> {
    let directory = failures.join(target);
    fs::create_dir_all(&directory)?;
    let path = directory.join(name);
    fs::write(&path, input)?;
    Ok(path)
}
