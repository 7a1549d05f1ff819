//! How a copy of a log becomes the log (see `future`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::ids::Offset;

use super::checkpoint::Durability;
use super::disk;
use super::error::LogError;
use super::future::{COMPLETE, MoveError};
use super::log::Log;
use super::manager::LogManager;
use super::producer_snapshot;
use super::shared_log::SharedLog;
use super::startup::aside_name;

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

impl LogManager {
    /// The copy takes the current log's place. The caller has caught it up and lets nobody append. On an error
    /// the current log is as it was, unless it was given up already or its directory failed: then it is offline,
    /// and a complete copy is left to the next start (`give_up_future`).
    pub fn replace_by_future(
        &self,
        current: &Arc<SharedLog>,
        future: &Arc<SharedLog>,
    ) -> Result<(), MoveError> {
        let (from, to, id) = (current.directory(), future.directory(), current.id());
        // Before the new log can be found by a start, which would take an older one for what is committed. And
        // before the locks of the logs: whoever writes checkpoints takes those last.
        future.set_high_watermark(current.high_watermark());
        to.reporting(self.write_high_watermarks(to)).map_err(MoveError::Future)?;
        let mut old = current.write();
        let mut new = future.write();
        let name = format!("{}-{}", current.topic(), id.partition);
        let (complete, live) = (to.path().join(aside_name(&name, COMPLETE)), to.path().join(&name));
        let prepared = (|| {
            new.take_over(&old)?;
            let end = new.log_end_offset().0;
            let job = new.begin_flush(end, true)?;
            let synced = job.run();
            new.finish_flush(&job, synced)?;
            let applied = from.cuts.lock().get(id);
            match applied {
                Some(cut) => to.cuts.lock().note([(id, cut)])?,
                None => to.cuts.lock().forget(id)?,
            }
            if live.exists() {
                // Of another topic, or half made when the broker died.
                self.set_aside(to, &live, "stray")?;
            }
            disk::rename(new.directory(), &complete)?;
            new.relocate(&complete);
            disk::sync_directory(to.path())
        })();
        to.reporting(prepared).map_err(MoveError::Future)?;
        let retired = from.path().join(aside_name(&name, "delete"));
        let given_up = disk::rename(old.directory(), &retired).and_then(|()| {
            old.set_offline();
            disk::sync_directory(from.path())
        });
        from.reporting(given_up).map_err(MoveError::Current)?;
        let named = disk::rename(&complete, &live).and_then(|()| {
            new.relocate(&live);
            disk::sync_directory(to.path())
        });
        to.reporting(named).map_err(MoveError::Future)?;
        drop((old, new));
        from.logs.fetch_sub(1, Ordering::Relaxed);
        self.logs.write().insert(id, future.clone());
        self.futures.write().remove(&id);
        // What was written while it was a copy stands on nobody's list any more.
        future.untouch();
        future.touch();
        self.deleted.lock().push(retired);
        // Should it fail: it is forgotten before a log is made under this id (`create_in`).
        let forgotten = from.cuts.lock().forget(id);
        drop(from.reporting(forgotten));
        tracing::info!(topic = %current.topic(), partition = id.partition,
            from = %from.path().display(), to = %to.path().display(), "the replica has moved");
        Ok(())
    }
}
