//! Files that the cleaner replaced, until `file.delete.delay.ms` has passed. A start deletes them at once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::disk;
use super::manager::LogManager;
use super::shared_log::SharedLog;

/// By the time at which they are due.
#[derive(Debug, Default)]
pub(super) struct ReplacedFiles {
    due: Mutex<BTreeMap<i64, Vec<PathBuf>>>,
}

impl LogManager {
    pub(super) fn delete_later(&self, files: Vec<PathBuf>, log: &SharedLog, now_ms: i64) {
        let delay_ms = log.read().config().file_delete_delay_ms;
        self.replaced.due.lock().entry(now_ms.saturating_add(delay_ms)).or_default().extend(files);
    }

    pub(super) fn delete_due(&self, now_ms: i64) {
        let due = {
            let mut waiting = self.replaced.due.lock();
            let later = waiting.split_off(&now_ms.saturating_add(1));
            std::mem::replace(&mut *waiting, later)
        };
        for path in due.into_values().flatten() {
            // A log that was deleted meanwhile has taken its files along.
            if let Err(error) = disk::remove(&path) {
                tracing::warn!(%error, "a replaced file could not be deleted; the next start does it");
            }
        }
    }
}
