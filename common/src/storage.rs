//! The identity of a log directory: `meta.properties`, written when it is formatted, and the lock that
//! keeps a second process out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;
use uuid::Uuid;

use crate::config::{ConfigError, Properties, PropertiesError};
use crate::ids::DirectoryId;

const META_PROPERTIES: &str = "meta.properties";
const LOCK_FILE: &str = ".lock";
/// Kafka's number for the keys below.
const VERSION: &str = "1";

/// Who a log directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub cluster_id: String,
    pub node_id: i32,
    pub directory_id: DirectoryId,
}

#[derive(Debug, Error)]
pub enum StorageError {
    #[error("Log directory {} is already formatted. Use --ignore-formatted to ignore this directory and format the others.", .0.display())]
    AlreadyFormatted(PathBuf),
    #[error("Log directory {} is formatted for {key} {found}, not {wanted}", dir.display())]
    OtherIdentity { dir: PathBuf, key: &'static str, found: String, wanted: String },
    #[error("Log directory {} is not formatted. Run `kagami storage format` first.", .0.display())]
    NotFormatted(PathBuf),
    #[error("{} is not usable: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "Cluster id {0:?} does not appear to be a valid UUID: allowed are 16 bytes in URL-safe base64, as `kagami storage random-uuid` prints them"
    )]
    ClusterId(String),
    #[error("Failed to acquire lock on file {LOCK_FILE} in {}. Another process is using this directory.", .0.display())]
    Locked(PathBuf),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl StorageError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> StorageError {
        let path = path.to_owned();
        move |source| StorageError::Io { path, source }
    }
}

/// What `format` did with a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formatted {
    New(PathBuf, MetaProperties),
    /// It was formatted before, for this very cluster and node.
    Before(PathBuf, MetaProperties),
}

/// A new random id in Kafka's notation. It never begins with a dash, so that command lines take it.
pub fn random_uuid() -> DirectoryId {
    loop {
        let id = DirectoryId(Uuid::new_v4());
        if !id.to_string().starts_with('-') {
            return id;
        }
    }
}

/// Gives each directory its identity. Nothing is written where one of them cannot be formatted.
pub fn format(
    dirs: &[PathBuf],
    cluster_id: &str,
    node_id: i32,
    ignore_formatted: bool,
) -> Result<Vec<Formatted>, StorageError> {
    if DirectoryId::parse(cluster_id).is_none() {
        return Err(StorageError::ClusterId(cluster_id.to_owned()));
    }
    let mut outcome = Vec::with_capacity(dirs.len());
    for dir in dirs {
        match load(dir) {
            Ok(_) if !ignore_formatted => return Err(StorageError::AlreadyFormatted(dir.clone())),
            Ok(found) => {
                found.check(dir, cluster_id, node_id)?;
                outcome.push(Formatted::Before(dir.clone(), found));
            }
            Err(StorageError::NotFormatted(_)) => {
                let directory_id = random_uuid();
                let meta = MetaProperties { cluster_id: cluster_id.to_owned(), node_id, directory_id };
                outcome.push(Formatted::New(dir.clone(), meta));
            }
            Err(error) => return Err(error),
        }
    }
    for formatted in &outcome {
        if let Formatted::New(dir, meta) = formatted {
            create_dir_durably(dir)?;
            write(dir, meta)?;
        }
    }
    Ok(outcome)
}

/// Formats the directories that a node's properties file names, a broker's or a controller's. Returns a
/// line for each.
pub fn format_node(
    properties_file: &Path,
    cluster_id: &str,
    ignore_formatted: bool,
) -> Result<Vec<String>, FormatError> {
    let properties = Properties::load(properties_file)?;
    let (node_id, dirs) = crate::config::broker::node_id_and_log_dirs(&properties)?;
    let outcome = format(&dirs, cluster_id, node_id, ignore_formatted)?;
    Ok(outcome
        .into_iter()
        .map(|formatted| match formatted {
            Formatted::New(dir, meta) => {
                format!("Formatted {} for node {node_id}, directory id {}.", dir.display(), meta.directory_id)
            }
            Formatted::Before(dir, _) => format!("{} is already formatted.", dir.display()),
        })
        .collect())
}

/// Why a node's directories were not formatted.
#[derive(Debug, Error)]
pub enum FormatError {
    #[error(transparent)]
    Properties(#[from] PropertiesError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Reads the identity of a directory.
pub fn load(dir: &Path) -> Result<MetaProperties, StorageError> {
    let path = dir.join(META_PROPERTIES);
    let properties = match Properties::load(&path) {
        Ok(properties) => properties,
        Err(PropertiesError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(StorageError::NotFormatted(dir.to_owned()));
        }
        Err(PropertiesError::Read { path, source }) => return Err(StorageError::Io { path, source }),
        Err(error) => return Err(StorageError::Damaged { path, reason: error.to_string() }),
    };
    parse(&properties).map_err(|reason| StorageError::Damaged { path, reason })
}

/// The directories of a node that are there, and those that their disks do not give up.
#[derive(Debug, Default)]
pub struct Directories {
    pub usable: Vec<(PathBuf, MetaProperties)>,
    pub failed: Vec<(PathBuf, StorageError)>,
}

/// Reads all directories of a node; one that cannot be read is left out as long as another can.
pub fn load_usable(dirs: &[PathBuf], node_id: i32) -> Result<Directories, StorageError> {
    let mut directories = Directories::default();
    let mut readable = Vec::with_capacity(dirs.len());
    for dir in dirs {
        match load(dir) {
            Err(error @ StorageError::Io { .. }) => directories.failed.push((dir.clone(), error)),
            _ => readable.push(dir.clone()),
        }
    }
    if readable.is_empty()
        && let Some((_, error)) = directories.failed.pop()
    {
        return Err(error);
    }
    let all = load_all(&readable, node_id)?;
    directories.usable = readable.into_iter().zip(all).collect();
    Ok(directories)
}

/// Reads all directories of a node and checks that they belong to it and to one cluster.
pub fn load_all(dirs: &[PathBuf], node_id: i32) -> Result<Vec<MetaProperties>, StorageError> {
    let mut all: Vec<MetaProperties> = Vec::with_capacity(dirs.len());
    for dir in dirs {
        let meta = load(dir)?;
        let cluster_id = all.first().map_or(meta.cluster_id.as_str(), |first| first.cluster_id.as_str());
        meta.check(dir, cluster_id, node_id)?;
        if all.iter().any(|other| other.directory_id == meta.directory_id) {
            return Err(StorageError::Damaged {
                path: dir.join(META_PROPERTIES),
                reason: format!("directory.id {} is that of another directory", meta.directory_id),
            });
        }
        all.push(meta);
    }
    Ok(all)
}

impl MetaProperties {
    /// Whether the directory is the one of this cluster and node.
    pub fn check(&self, dir: &Path, cluster_id: &str, node_id: i32) -> Result<(), StorageError> {
        let other = |key, found: String, wanted: String| {
            Err(StorageError::OtherIdentity { dir: dir.to_owned(), key, found, wanted })
        };
        if self.cluster_id != cluster_id {
            return other("cluster.id", self.cluster_id.clone(), cluster_id.to_owned());
        }
        if self.node_id != node_id {
            return other("node.id", self.node_id.to_string(), node_id.to_string());
        }
        Ok(())
    }
}

fn parse(properties: &Properties) -> Result<MetaProperties, String> {
    let get = |key: &str| properties.get(key).ok_or_else(|| format!("it has no {key}"));
    let version = get("version")?;
    if version != VERSION {
        return Err(format!("its version is {version}, known is {VERSION}"));
    }
    let cluster_id = get("cluster.id")?;
    let node_id = get("node.id")?;
    let directory_id = get("directory.id")?;
    Ok(MetaProperties {
        cluster_id: Some(cluster_id).filter(|id| !id.is_empty()).ok_or("its cluster.id is empty")?.to_owned(),
        node_id: node_id
            .parse()
            .ok()
            .filter(|id| *id >= 0)
            .ok_or_else(|| format!("its node.id is {node_id}"))?,
        directory_id: DirectoryId::parse(directory_id)
            .filter(|id| !id.is_zero())
            .ok_or_else(|| format!("its directory.id is {directory_id}"))?,
    })
}

/// Whole or not at all: written beside, synced, renamed, and the directory synced.
fn write(dir: &Path, meta: &MetaProperties) -> Result<(), StorageError> {
    let text = format!(
        "cluster.id={}\ndirectory.id={}\nnode.id={}\nversion={VERSION}\n",
        meta.cluster_id, meta.directory_id, meta.node_id
    );
    let path = dir.join(META_PROPERTIES);
    let temporary = dir.join(format!("{META_PROPERTIES}.tmp"));
    let mut file = File::create(&temporary).map_err(StorageError::io(&temporary))?;
    file.write_all(text.as_bytes()).map_err(StorageError::io(&temporary))?;
    file.sync_all().map_err(StorageError::io(&temporary))?;
    fs::rename(&temporary, &path).map_err(StorageError::io(&path))?;
    sync_dir(dir)
}

fn create_dir_durably(dir: &Path) -> Result<(), StorageError> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(StorageError::io(dir))?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => Ok(()),
    }
}

fn sync_dir(dir: &Path) -> Result<(), StorageError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(StorageError::io(dir))
}

/// Held while a process uses a directory. The system takes it back however the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Fails at once where another process, or another owner in this one, has the directory.
    pub fn acquire(dir: &Path) -> Result<DirectoryLock, StorageError> {
        let path = dir.join(LOCK_FILE);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(StorageError::io(&path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(DirectoryLock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StorageError::Locked(dir.to_owned())),
            Err(error) => Err(StorageError::Io { path, source: error.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";

    fn message<T: std::fmt::Debug>(result: Result<T, StorageError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_formatted_directory_is_read_back_in_kafkas_format() {
        let root = tempfile::tempdir().unwrap();
        let dirs = [root.path().join("a/b"), root.path().join("c")];
        let outcome = format(&dirs, CLUSTER, 3, false).unwrap();
        let all = load_all(&dirs, 3).unwrap();
        for ((formatted, dir), meta) in outcome.iter().zip(&dirs).zip(&all) {
            assert_eq!(formatted, &Formatted::New(dir.clone(), meta.clone()));
            assert_eq!((meta.cluster_id.as_str(), meta.node_id), (CLUSTER, 3));
            let text = fs::read_to_string(dir.join(META_PROPERTIES)).unwrap();
            let expected =
                format!("cluster.id={CLUSTER}\ndirectory.id={}\nnode.id=3\nversion=1\n", meta.directory_id);
            assert_eq!(text, expected);
            assert!(!dir.join("meta.properties.tmp").exists());
        }
    }

    #[test]
    fn formatting_twice_needs_to_be_asked_for_and_keeps_the_identity() {
        let root = tempfile::tempdir().unwrap();
        let old = root.path().join("old");
        let new = root.path().join("new");
        format(std::slice::from_ref(&old), CLUSTER, 1, false).unwrap();
        let before = load(&old).unwrap();
        let both = [new.clone(), old.clone()];
        let refused = message(format(&both, CLUSTER, 1, false));
        assert!(refused.contains("already formatted. Use --ignore-formatted"), "{refused}");
        assert!(!new.exists(), "nothing was written");
        let outcome = format(&both, CLUSTER, 1, true).unwrap();
        assert!(
            matches!(outcome.as_slice(), [Formatted::New(..), Formatted::Before(_, meta)] if *meta == before)
        );
        assert!(
            message(format(&both, "AAAAAAAAAAAAAAAAAAAAAA", 1, true)).contains("formatted for cluster.id")
        );
        assert!(message(format(&both, CLUSTER, 2, true)).contains("formatted for node.id 1, not 2"));
        assert!(message(format(&both, "my cluster", 1, true)).contains("valid UUID"));
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        assert!(message(load(dir)).contains("is not formatted"));
        let good = ["cluster.id=c", "node.id=1", "directory.id=MkU3OEVBNTcwNTJENDM2Qg", "version=1"];
        for missing in 0..good.len() {
            let mut lines = good.to_vec();
            lines.remove(missing);
            fs::write(dir.join(META_PROPERTIES), lines.join("\n")).unwrap();
            assert!(message(load(dir)).contains("it has no"));
        }
        for (line, wrong) in [(0, "cluster.id="), (1, "node.id=-1"), (2, "directory.id=x"), (3, "version=2")]
        {
            let mut lines = good.to_vec();
            lines[line] = wrong;
            fs::write(dir.join(META_PROPERTIES), lines.join("\n")).unwrap();
            assert!(matches!(load(dir), Err(StorageError::Damaged { .. })), "{wrong}");
        }
    }

    #[test]
    fn directories_of_two_clusters_or_copies_do_not_start() {
        let root = tempfile::tempdir().unwrap();
        let dirs = [root.path().join("a"), root.path().join("b")];
        format(&dirs[..1], CLUSTER, 1, false).unwrap();
        format(&dirs[1..], "AAAAAAAAAAAAAAAAAAAAAA", 1, false).unwrap();
        assert!(message(load_all(&dirs, 1)).contains("cluster.id"));
        assert!(message(load_all(&dirs[..1], 2)).contains("node.id"));
        fs::copy(dirs[0].join(META_PROPERTIES), dirs[1].join(META_PROPERTIES)).unwrap();
        assert!(message(load_all(&dirs, 1)).contains("that of another directory"));
    }

    #[test]
    fn a_nodes_file_says_what_to_format() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        let file = root.path().join("node.properties");
        fs::write(&file, format!("node.id=7\nquorum.listener=x:1\nlog.dirs={}\n", data.display())).unwrap();
        let lines = format_node(&file, CLUSTER, false).unwrap();
        assert_eq!(lines.len(), 1);
        assert_eq!(load(&data).unwrap().node_id, 7);
        assert!(format_node(&file, CLUSTER, false).unwrap_err().to_string().contains("already formatted"));
        assert!(format_node(&file, CLUSTER, true).unwrap()[0].ends_with("is already formatted."));
        fs::write(&file, "log.dirs=/x\n").unwrap();
        assert!(format_node(&file, CLUSTER, false).unwrap_err().to_string().contains("node.id"));
        assert!(format_node(&root.path().join("none"), CLUSTER, false).is_err());
    }

    #[test]
    fn a_directory_has_one_user() {
        let root = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::acquire(root.path()).unwrap();
        assert!(
            message(DirectoryLock::acquire(root.path())).contains("Failed to acquire lock on file .lock")
        );
        drop(lock);
        DirectoryLock::acquire(root.path()).unwrap();
    }

    #[test]
    fn random_ids_never_look_like_options() {
        assert!((0..1000).all(|_| !random_uuid().to_string().starts_with('-')));
    }
}
