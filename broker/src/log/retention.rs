//! Deleting old segments: by time, by size, and below the log start.

use common::ids::Offset;

use super::error::LogError;
use super::log::Log;
use super::producer_snapshot;

impl Log {
    /// Deletes what the topic's retention gives up, oldest first and never above the high watermark.
    /// Returns the number of segments that went.
    pub fn delete_old_segments(&mut self, now_ms: i64, high_watermark: Offset) -> Result<usize, LogError> {
        self.check_online()?;
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms);
        let count = self.deletable(now_ms, high_watermark.0)?;
        if count == 0 {
            return Ok(0);
        }
        let result = self.delete_first(count, now_ms);
        self.failing(result)
    }

    /// How many segments at the front may go.
    fn deletable(&self, now_ms: i64, high_watermark: i64) -> Result<usize, LogError> {
        let mut excess = match self.config.retention_bytes {
            limit if limit >= 0 && self.config.delete => self.size_bytes() as i64 - limit,
            _ => -1,
        };
        let mut count = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            let end = self.segment_end(index);
            // An empty active segment has nothing to give; deleting it would only make another.
            let is_active = index + 1 == self.segments.len();
            if (segment.size_bytes() == 0 && is_active) || end > high_watermark {
                break;
            }
            // One that the cleaner emptied goes with what follows it.
            if segment.size_bytes() == 0 && end > self.log_start {
                continue;
            }
            let below_start = end <= self.log_start && !is_active;
            let expired = || -> Result<bool, LogError> {
                if !self.config.delete || self.config.retention_ms < 0 {
                    return Ok(false);
                }
                let newest =
                    segment.max_timestamp()?.map(|max| max.timestamp_ms).filter(|newest| *newest >= 0);
                Ok(now_ms.saturating_sub(newest.unwrap_or(segment.created_ms())) > self.config.retention_ms)
            };
            let too_large = excess >= segment.size_bytes() as i64;
            if !(below_start || too_large || expired()?) {
                break;
            }
            excess -= segment.size_bytes() as i64;
            count = index + 1;
        }
        Ok(count)
    }

    /// Returns how many went: on a full disk the last segment stays, since its successor needs a file.
    fn delete_first(&mut self, mut count: usize, now_ms: i64) -> Result<usize, LogError> {
        if count == self.segments.len() {
            // The new segment stands for the log from now on, so it has to be found.
            match self.roll(self.end_of_batches(), now_ms).and_then(|()| self.active().create_file()) {
                Err(error) if error.is_exhausted() => count -= 1,
                other => other?,
            }
        }
        let start = self.segments[count].base_offset();
        for segment in self.segments.drain(..count) {
            segment.delete()?;
        }
        self.directory_changed = true;
        if start > self.log_start {
            self.log_start = start;
            self.epochs.truncate_from_start(Offset(start));
        }
        self.recovery_point = self.recovery_point.max(start);
        // Snapshots below the first segment can no longer be begun with.
        let below = self.snapshots.partition_point(|offset| offset.0 < start);
        for offset in self.snapshots.drain(..below) {
            producer_snapshot::remove(&self.directory, offset)?;
        }
        Ok(count)
    }
}
