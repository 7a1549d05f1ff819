//! Faults placed in a running daemon: the files that `common::fault` looks at.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::eventually::eventually;

/// For a point that a daemon should come to.
const LIMIT: Duration = Duration::from_secs(30);

/// The faults of one daemon. A place is a point's name, for whoever passes, or `POINT@KEY`.
#[derive(Clone, Debug)]
pub struct Faults {
    directory: PathBuf,
}

impl Faults {
    pub(crate) fn new(node: &Path) -> Faults {
        Faults { directory: node.join("faults") }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// From now on whoever comes to this place waits there.
    pub fn hold(&self, place: &str) -> Result<()> {
        self.put(place, "hold")
    }

    /// Whoever comes to this place, or waits there, dies with the whole process.
    pub fn crash(&self, place: &str) -> Result<()> {
        self.put(place, "crash")
    }

    /// The daemon's wall clock goes wrong by so much; 0 sets it right.
    pub fn skew_clock(&self, by_ms: i64) -> Result<()> {
        fs::create_dir_all(&self.directory)?;
        // Replaced as a whole: the daemon may look at any time.
        let (skew, written) = (self.directory.join("clock.skew"), self.directory.join("clock.written"));
        fs::write(&written, by_ms.to_string())?;
        fs::rename(&written, &skew).with_context(|| skew.display().to_string())
    }

    /// Lets go who waits, and forgets that anybody did.
    pub fn release(&self, place: &str) -> Result<()> {
        let hold = self.file(place, "hold");
        fs::remove_file(&hold).with_context(|| hold.display().to_string())?;
        let _ = fs::remove_file(self.file(place, "reached"));
        Ok(())
    }

    /// Waits until somebody waits at this place.
    pub async fn reached(&self, place: &str) -> Result<()> {
        self.appears(place, "reached").await
    }

    pub fn is_reached(&self, place: &str) -> bool {
        self.file(place, "reached").exists()
    }

    /// Waits until the process has died at this place.
    pub async fn crashed(&self, place: &str) -> Result<()> {
        self.appears(place, "crashed").await
    }

    fn put(&self, place: &str, what: &str) -> Result<()> {
        fs::create_dir_all(&self.directory)?;
        fs::write(self.file(place, what), [])?;
        Ok(())
    }

    async fn appears(&self, place: &str, what: &str) -> Result<()> {
        let file = self.file(place, what);
        eventually(&format!("{} {what}", file.display()), LIMIT, || {
            let found = file.exists();
            async move { Ok(found.then_some(())) }
        })
        .await
    }

    fn file(&self, place: &str, what: &str) -> PathBuf {
        self.directory.join(format!("{place}.{what}"))
    }
}
