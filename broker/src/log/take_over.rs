//! How a copy of a log becomes the log (see `future`).

use std::path::Path;
use std::sync::Arc;

use common::ids::Offset;

use super::checkpoint::Durability;
use super::error::LogError;
use super::log::Log;
use super::producer_snapshot;

/// Stands for a log that was emptied: nothing that was copied of it counts.
const EVERYTHING: i64 = i64::MIN;

impl Log {
    /// The lowest offset to which the log was cut since this was asked last.
    pub(super) fn take_cut_since(&mut self) -> Option<Offset> {
        self.cut_since.take().map(Offset)
    }

    pub(super) fn note_cut(&mut self, end: i64) {
        self.cut_since = Some(self.cut_since.map_or(end, |lowest| lowest.min(end)));
    }

    pub(super) fn note_emptied(&mut self) {
        self.cut_since = Some(EVERYTHING);
    }

    /// A copy that holds the same batches takes what is not in them: where the log starts, epochs that brought no
    /// batch, producers whose batches are gone, how far the cleaner has been.
    pub(super) fn take_over(&mut self, old: &Log) -> Result<(), LogError> {
        old.check_online()?;
        self.increase_log_start_offset(old.log_start_offset());
        if self.end_of_batches() != old.end_of_batches() || self.log_start != old.log_start {
            return Err(LogError::corrupt(
                &self.directory,
                format!(
                    "the copy holds {}..{}, the log {}..{}",
                    self.log_start,
                    self.end_of_batches(),
                    old.log_start,
                    old.end_of_batches()
                ),
            ));
        }
        self.log_end = old.log_end;
        self.gap_start = old.gap_start;
        self.config = old.config.clone();
        self.epochs.take_over(&old.epochs);
        self.producers = old.producers.clone();
        self.note_compacted(old.compacted_end)?;
        self.cleaned_to = old.cleaned_to;
        let end = Offset(self.log_end);
        if self.snapshots.last() == Some(&end) {
            self.snapshots.pop();
            producer_snapshot::remove(&self.directory, end)?;
        }
        self.producers.end_offset = end;
        self.write_producer_snapshot(Durability::Power)?;
        self.active_mut().finish()?;
        if self.active().size_bytes() == 0 {
            // An empty log that begins above 0 must be found so again.
            self.active().create_file()?;
        }
        self.directory_changed = true;
        Ok(())
    }

    /// The directory was renamed.
    pub(super) fn relocate(&mut self, directory: &Path) {
        self.directory = Arc::from(directory);
        for segment in &mut self.segments {
            segment.relocate(self.directory.clone());
        }
    }
}
