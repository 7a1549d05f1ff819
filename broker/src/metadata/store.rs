//! What a broker has learned of the metadata log, kept on disk (decision 2): a restart then asks the
//! quorum only for what came since, and a broker that is ahead of its quorum notices.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use common::metadata::{MetadataImage, snapshot};
use thiserror::Error;
use tracing::{info, warn};

const FILE_NAME: &str = "metadata.snapshot";

#[derive(Debug, Error)]
#[error("cannot write {path}: {source}")]
pub struct StoreError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// One file in the first log directory; the offset and term stand in its head.
#[derive(Clone, Debug)]
pub struct MetadataStore {
    path: PathBuf,
}

impl MetadataStore {
    pub fn new(directory: &Path) -> MetadataStore {
        MetadataStore { path: directory.join(FILE_NAME) }
    }

    /// The image of the last run. A damaged file is no reason to stay down: the quorum has it all.
    pub fn load(&self) -> MetadataImage {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return MetadataImage::default(),
            Err(error) => {
                warn!(path = %self.path.display(), %error, "cannot read the metadata snapshot, starting without it");
                return MetadataImage::default();
            }
        };
        match snapshot::read(&bytes) {
            Ok(image) => {
                info!(offset = image.offset.0, term = image.term.0, "metadata of the last run loaded");
                image
            }
            Err(error) => {
                warn!(path = %self.path.display(), %error, "the metadata snapshot is damaged, starting without it");
                MetadataImage::default()
            }
        }
    }

    /// Blocking. The old file stays whole until the new one is.
    pub fn save(&self, image: &MetadataImage) -> Result<(), StoreError> {
        let failed = |source| StoreError { path: self.path.clone(), source };
        let temporary = self.path.with_extension("snapshot.tmp");
        let mut file = File::create(&temporary).map_err(failed)?;
        file.write_all(&snapshot::write(image)).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        fs::rename(&temporary, &self.path).map_err(failed)?;
        if let Some(directory) = self.path.parent() {
            File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ids::{MetadataOffset, Term};

    #[test]
    fn what_was_learned_survives_and_damage_does_not_matter() {
        let directory = tempfile::tempdir().expect("directory");
        let store = MetadataStore::new(directory.path());
        assert_eq!(store.load(), MetadataImage::default());

        let image = MetadataImage { offset: MetadataOffset(7), term: Term(3), ..MetadataImage::default() };
        store.save(&image).expect("saved");
        assert_eq!(store.load(), image);

        let mut bytes = fs::read(&store.path).expect("file");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&store.path, &bytes).expect("damage");
        assert_eq!(store.load(), MetadataImage::default());
    }
}
