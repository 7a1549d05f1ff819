//! What an append had begun when something ran out (space, descriptors) is taken back: the log ends where
//! it ended, and goes on as soon as there is some again. Taking back needs no space.

use super::error::LogError;
use super::log::Log;
use super::segment::Segment;

/// Where a log stood before an append.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    log_end: i64,
    active_base: i64,
    unflushed_records: i64,
}

impl Log {
    pub(super) fn mark(&self) -> Mark {
        Mark {
            log_end: self.log_end,
            active_base: self.active().base_offset(),
            unflushed_records: self.unflushed_records,
        }
    }

    /// Passes a failed append on. Where something ran out the log is as before; else nothing is known of
    /// its files any more.
    pub(super) fn taking_back<T>(&mut self, mark: Mark, result: Result<T, LogError>) -> Result<T, LogError> {
        match result {
            Err(error) if error.is_exhausted() => {
                let taken_back = self.take_back(mark);
                // Also where something ran out again: what was refused may stand in the log.
                self.failed |= taken_back.is_err();
                taken_back?;
                Err(error)
            }
            other => self.failing(other),
        }
    }

    fn take_back(&mut self, mark: Mark) -> Result<(), LogError> {
        let begun = self.log_end > mark.log_end || self.active().base_offset() > mark.active_base;
        if begun {
            self.cut_end(mark.log_end)?;
        } else {
            // The common case: the write stopped half way, behind the last batch that counts.
            self.active().cut_torn_end()?;
        }
        if self.active().base_offset() > mark.log_end {
            // An empty segment had given way to one that begins where the batch would have.
            self.segments.pop();
            self.segments.push(Segment::new(self.directory.clone(), mark.log_end, self.last_flush_ms));
        }
        self.unflushed_records = mark.unflushed_records;
        Ok(())
    }
}
