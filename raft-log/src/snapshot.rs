//! Snapshots as plain files: written beside, synced, renamed, and the directory synced. A file says
//! itself what it holds and carries a CRC; which one counts stands in the store.

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::files::{Contents, Directory, Files};
use crate::listener::SnapshotWork;
use crate::store::{Store, crc};
use crate::type_config::SnapshotMeta;

const MAGIC: &[u8; 8] = b"KAGAMIS1";
/// Magic, length of the meta, length of the data, CRC-32C of both.
const HEADER_BYTES: usize = 8 + 4 + 8 + 4;
const META_LIMIT_BYTES: usize = 1 << 20;

/// openraft's handle of a snapshot. Holding its contents open keeps it readable while it is sent, even if
/// a newer one replaces it.
#[derive(Clone)]
pub(crate) struct SnapshotFile {
    pub name: String,
    pub contents: Arc<dyn Contents>,
}

impl fmt::Debug for SnapshotFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The snapshots of a voter; one of them counts.
#[derive(Clone)]
pub(crate) struct Snapshots {
    files: Arc<dyn Files>,
    store: Store,
    next_temporary: Arc<AtomicU64>,
    current: Arc<Mutex<Option<(SnapshotMeta, SnapshotFile)>>>,
}

impl Snapshots {
    pub fn open(directory: PathBuf, store: Store) -> io::Result<Snapshots> {
        Snapshots::open_in(Arc::new(Directory::create(directory)?), store)
    }

    /// Removes what a crash left over. The snapshot that counts must be there and whole.
    pub fn open_in(files: Arc<dyn Files>, store: Store) -> io::Result<Snapshots> {
        let counting = store.snapshot_name();
        for name in files.names()? {
            if counting.as_ref() != Some(&name) {
                files.remove(&name)?;
            }
        }
        let current = match counting {
            None => None,
            Some(name) => {
                let missing = |error: io::Error| invalid(format!("snapshot {name}: {error}"));
                let contents = files.open(&name).map_err(missing)?;
                let (meta, _) = read(contents.as_ref()).map_err(missing)?;
                Some((meta, SnapshotFile { name, contents }))
            }
        };
        Ok(Snapshots { files, store, next_temporary: Arc::default(), current: Arc::new(Mutex::new(current)) })
    }

    pub fn current(&self) -> Option<(SnapshotMeta, SnapshotFile)> {
        self.current.lock().clone()
    }

    /// A name for a file under construction.
    fn temporary(&self) -> String {
        format!("incoming-{}.tmp", self.next_temporary.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes a snapshot made here and makes it the current one.
    pub async fn save(&self, meta: SnapshotMeta, work: SnapshotWork) -> io::Result<SnapshotFile> {
        let name = self.temporary();
        let (file, written_meta) = (name.clone(), meta.clone());
        self.blocking(move |files| write(files, &file, &written_meta, &work())).await?;
        self.adopt(meta, name).await
    }

    /// Takes in the bytes of a snapshot that another voter sends. It counts for nothing before it is adopted,
    /// and is to be discarded if that does not happen.
    pub async fn receive(
        &self,
        length: u64,
        mut chunks: impl Stream<Item = io::Result<Bytes>> + Unpin,
    ) -> io::Result<SnapshotFile> {
        let name = self.temporary();
        let received = async {
            let mut missing = length;
            while let Some(data) = chunks.next().await {
                let data = data?;
                missing = missing
                    .checked_sub(data.len() as u64)
                    .ok_or_else(|| io::Error::other("more data than announced"))?;
                let file = name.clone();
                self.blocking(move |files| files.append(&file, &data)).await?;
            }
            if missing > 0 {
                return Err(io::Error::other("cut off"));
            }
            let file = name.clone();
            self.blocking(move |files| files.open(&file)).await
        };
        match received.await {
            Ok(contents) => Ok(SnapshotFile { name, contents }),
            Err(error) => {
                self.discard(name).await;
                Err(error)
            }
        }
    }

    /// Installed, it has another name by now.
    pub async fn discard(&self, name: String) {
        drop(self.blocking(move |files| files.remove(&name)).await);
    }

    /// Makes a snapshot that was read the current one: the file that was received, or a new one where it is
    /// not in this directory.
    pub async fn take_in(&self, meta: SnapshotMeta, name: String, data: Vec<u8>) -> io::Result<SnapshotFile> {
        let file = name.clone();
        if self.blocking(move |files| files.open(&file)).await.is_ok() {
            return self.adopt(meta, name).await;
        }
        self.save(meta, Box::new(move || data)).await
    }

    /// Makes a complete file the current snapshot, unless there is a newer one by now.
    async fn adopt(&self, meta: SnapshotMeta, temporary: String) -> io::Result<SnapshotFile> {
        let position = meta.last_log_id.map_or_else(
            || "empty".to_owned(),
            |log_id| format!("{:020}-{:020}", log_id.index(), **log_id.committed_leader_id()),
        );
        // Never under the name of the one that counts: that one stays until the store names this one.
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        let name = format!("{position}-{}-{number}.snapshot", self.files.stamp());
        let target = name.clone();
        let contents = self
            .blocking(move |files| {
                let contents = files.open(&temporary)?;
                contents.sync()?;
                files.rename(&temporary, &target)?;
                files.sync_names()?;
                Ok(contents)
            })
            .await?;
        let adopted = SnapshotFile { name: name.clone(), contents };
        let newer = self.current().is_some_and(|(current, _)| current.last_log_id > meta.last_log_id);
        let obsolete = if newer {
            Some(adopted.clone())
        } else {
            self.store.save_snapshot_name(name).await?;
            self.current.lock().replace((meta, adopted.clone())).map(|(_, old)| old)
        };
        if let Some(obsolete) = obsolete {
            self.blocking(move |files| files.remove(&obsolete.name)).await?;
        }
        Ok(adopted)
    }

    /// Reads and checks a whole snapshot.
    pub async fn read(&self, snapshot: &SnapshotFile) -> io::Result<(SnapshotMeta, Vec<u8>)> {
        let contents = snapshot.contents.clone();
        self.blocking(move |_| read(contents.as_ref())).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Files) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (done, result) = oneshot::channel();
        let files = self.files.clone();
        // Whoever asked may have gone.
        self.files.run(Box::new(move || drop(done.send(work(files.as_ref()))))).await;
        result.await.unwrap_or_else(|_| Err(io::Error::other("it was given up")))
    }
}

fn write(files: &dyn Files, name: &str, meta: &SnapshotMeta, data: &[u8]) -> io::Result<()> {
    let meta = postcard::to_allocvec(meta).map_err(io::Error::other)?;
    let meta_length = u32::try_from(meta.len()).map_err(io::Error::other)?;
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&meta_length.to_be_bytes());
    header[12..20].copy_from_slice(&(data.len() as u64).to_be_bytes());
    header[20..].copy_from_slice(&crc(&[&meta, data]).to_be_bytes());
    files.write(name, &[&header, &meta, data])
}

/// Reads and checks a whole snapshot.
pub(crate) fn read(contents: &dyn Contents) -> io::Result<(SnapshotMeta, Vec<u8>)> {
    let length = contents.length()?;
    let mut header = [0; HEADER_BYTES];
    contents.read_at(&mut header, 0)?;
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
    contents.read_at(&mut meta, HEADER_BYTES as u64)?;
    let mut data = vec![0; usize::try_from(data_length).map_err(io::Error::other)?];
    contents.read_at(&mut data, (HEADER_BYTES + meta_length) as u64)?;
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
    use std::fs::File;
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;

    #[test]
    fn a_damaged_or_shortened_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let files = Directory::create(directory.path().to_owned()).unwrap();
        let path = directory.path().join("one");
        write(&files, "one", &SnapshotMeta::default(), b"state").unwrap();
        let (meta, data) = read(files.open("one").unwrap().as_ref()).unwrap();
        assert_eq!((meta, data.as_slice()), (SnapshotMeta::default(), b"state".as_slice()));

        let length = std::fs::metadata(&path).unwrap().len();
        for position in [0, 9, 13, 21, HEADER_BYTES as u64, length - 1] {
            write(&files, "one", &SnapshotMeta::default(), b"state").unwrap();
            let mut file = File::options().read(true).write(true).open(&path).unwrap();
            let mut byte = [0];
            file.seek(SeekFrom::Start(position)).unwrap();
            file.read_exact(&mut byte).unwrap();
            file.seek(SeekFrom::Start(position)).unwrap();
            file.write_all(&[!byte[0]]).unwrap();
            assert!(read(&file).is_err(), "byte {position} changed");
        }
        write(&files, "one", &SnapshotMeta::default(), b"state").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(length - 1).unwrap();
        assert!(read(&file).is_err());
    }

    #[tokio::test]
    async fn a_transfer_that_is_cut_off_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let identity = crate::config::Identity { cluster_id: "test".into(), voter: Default::default() };
        let store = Store::open(directory.path(), &identity).unwrap();
        let snapshots = Snapshots::open(directory.path().join("snapshots"), store.clone()).unwrap();
        let chunks = |bytes: usize| futures::stream::iter([Ok(Bytes::from(vec![7; bytes]))]);
        assert!(snapshots.receive(9, chunks(8)).await.is_err());
        assert!(snapshots.receive(9, chunks(10)).await.is_err());
        assert_eq!(snapshots.files.names().unwrap(), Vec::<String>::new());
        let received = snapshots.receive(9, chunks(9)).await.unwrap();
        assert_eq!(snapshots.files.names().unwrap(), [received.name]);
        store.close();
    }
}
