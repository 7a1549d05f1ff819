//! Snapshots as plain files: written beside, synced, renamed, and the directory synced. A file says
//! itself what it holds and carries a CRC; which one counts stands in the store.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::store::{Store, crc};
use crate::type_config::SnapshotMeta;

const MAGIC: &[u8; 8] = b"KAGAMIS1";
/// Magic, length of the meta, length of the data, CRC-32C of both.
const HEADER_BYTES: usize = 8 + 4 + 8 + 4;
const META_LIMIT_BYTES: usize = 1 << 20;

/// openraft's handle of a snapshot. Holding the file open keeps it readable while it is sent, even if
/// a newer one replaces it.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotFile {
    pub path: PathBuf,
    pub file: Arc<File>,
}

/// The directory of snapshots; one of them counts.
#[derive(Clone)]
pub(crate) struct Snapshots {
    directory: Arc<PathBuf>,
    store: Store,
    next_temporary: Arc<AtomicU64>,
    current: Arc<Mutex<Option<(SnapshotMeta, SnapshotFile)>>>,
}

impl Snapshots {
    /// Removes what a crash left over. The snapshot that counts must be there and whole.
    pub fn open(directory: PathBuf, store: Store) -> io::Result<Snapshots> {
        fs::create_dir_all(&directory)?;
        let name = store.snapshot_name();
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if name.as_deref() != entry.file_name().to_str() {
                fs::remove_file(entry.path())?;
            }
        }
        let current = match name {
            None => None,
            Some(name) => {
                let path = directory.join(name);
                let missing = |error: io::Error| invalid(format!("snapshot {}: {error}", path.display()));
                let file = File::open(&path).map_err(missing)?;
                let (meta, _) = read(&file).map_err(missing)?;
                Some((meta, SnapshotFile { path: path.clone(), file: Arc::new(file) }))
            }
        };
        Ok(Snapshots {
            directory: Arc::new(directory),
            store,
            next_temporary: Arc::default(),
            current: Arc::new(Mutex::new(current)),
        })
    }

    pub fn current(&self) -> Option<(SnapshotMeta, SnapshotFile)> {
        self.current.lock().clone()
    }

    /// A path for a file under construction.
    pub fn temporary(&self) -> PathBuf {
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        self.directory.join(format!("incoming-{number}.tmp"))
    }

    /// Writes a snapshot made here and makes it the current one.
    pub async fn save(&self, meta: SnapshotMeta, data: Vec<u8>) -> io::Result<SnapshotFile> {
        let path = self.temporary();
        let (file, written_meta) = (path.clone(), meta.clone());
        blocking(move || write(&file, &written_meta, &data)).await?;
        self.adopt(meta, path).await
    }

    /// Makes a complete file the current snapshot, unless there is a newer one by now.
    pub async fn adopt(&self, meta: SnapshotMeta, temporary: PathBuf) -> io::Result<SnapshotFile> {
        let position = meta.last_log_id.map_or_else(
            || "empty".to_owned(),
            |log_id| format!("{:020}-{:020}", log_id.index(), **log_id.committed_leader_id()),
        );
        // Never under the name of the one that counts: that one stays until the store names this one.
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let unique = unique.map_or(0, |since| since.as_micros());
        let name = format!("{position}-{unique}-{number}.snapshot");
        let path = self.directory.join(&name);
        let (directory, target) = (self.directory.clone(), path.clone());
        let file = blocking(move || {
            let file = File::open(&temporary)?;
            file.sync_all()?;
            fs::rename(&temporary, &target)?;
            File::open(directory.as_path())?.sync_all()?;
            Ok(file)
        })
        .await?;
        let adopted = SnapshotFile { path, file: Arc::new(file) };
        let newer = self.current().is_some_and(|(current, _)| current.last_log_id > meta.last_log_id);
        let obsolete = if newer {
            Some(adopted.clone())
        } else {
            self.store.save_snapshot_name(name).await?;
            self.current.lock().replace((meta, adopted.clone())).map(|(_, old)| old)
        };
        if let Some(obsolete) = obsolete {
            blocking(move || fs::remove_file(&obsolete.path)).await?;
        }
        Ok(adopted)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn write(path: &Path, meta: &SnapshotMeta, data: &[u8]) -> io::Result<()> {
    let meta = postcard::to_allocvec(meta).map_err(io::Error::other)?;
    let meta_length = u32::try_from(meta.len()).map_err(io::Error::other)?;
    let mut file = File::create(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&meta_length.to_be_bytes())?;
    file.write_all(&(data.len() as u64).to_be_bytes())?;
    file.write_all(&crc(&[&meta, data]).to_be_bytes())?;
    file.write_all(&meta)?;
    file.write_all(data)?;
    file.sync_all()
}

/// Reads and checks a whole snapshot.
pub(crate) fn read(file: &File) -> io::Result<(SnapshotMeta, Vec<u8>)> {
    use std::os::unix::fs::FileExt as _;

    let length = file.metadata()?.len();
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    let mut fields = header.as_slice();
    let mut magic = [0; 8];
    let mut meta_length = [0; 4];
    let mut data_length = [0; 8];
    let mut expected = [0; 4];
    fields.read_exact(&mut magic)?;
    fields.read_exact(&mut meta_length)?;
    fields.read_exact(&mut data_length)?;
    fields.read_exact(&mut expected)?;
    if &magic != MAGIC {
        return Err(invalid("not a snapshot of ours"));
    }
    let meta_length = u32::from_be_bytes(meta_length) as usize;
    let data_length = u64::from_be_bytes(data_length);
    // Lengths are believed only where the file really is that long.
    let whole =
        (HEADER_BYTES as u64).checked_add(meta_length as u64).and_then(|sum| sum.checked_add(data_length));
    if meta_length > META_LIMIT_BYTES || whole != Some(length) {
        return Err(invalid("it is cut off"));
    }
    let mut meta = vec![0; meta_length];
    file.read_exact_at(&mut meta, HEADER_BYTES as u64)?;
    let mut data = vec![0; usize::try_from(data_length).map_err(io::Error::other)?];
    file.read_exact_at(&mut data, (HEADER_BYTES + meta_length) as u64)?;
    if crc(&[&meta, &data]) != u32::from_be_bytes(expected) {
        return Err(invalid("it does not match its checksum"));
    }
    let meta = postcard::from_bytes(&meta).map_err(|error| invalid(error.to_string()))?;
    Ok((meta, data))
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom};

    use super::*;

    #[test]
    fn a_damaged_or_shortened_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one");
        write(&path, &SnapshotMeta::default(), b"state").unwrap();
        let (meta, data) = read(&File::open(&path).unwrap()).unwrap();
        assert_eq!((meta, data.as_slice()), (SnapshotMeta::default(), b"state".as_slice()));

        let length = fs::metadata(&path).unwrap().len();
        for position in [0, 9, 13, 21, HEADER_BYTES as u64, length - 1] {
            write(&path, &SnapshotMeta::default(), b"state").unwrap();
            let mut file = File::options().read(true).write(true).open(&path).unwrap();
            let mut byte = [0];
            file.seek(SeekFrom::Start(position)).unwrap();
            file.read_exact(&mut byte).unwrap();
            file.seek(SeekFrom::Start(position)).unwrap();
            file.write_all(&[!byte[0]]).unwrap();
            assert!(read(&file).is_err(), "byte {position} changed");
        }
        write(&path, &SnapshotMeta::default(), b"state").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(length - 1).unwrap();
        assert!(read(&file).is_err());
    }
}
