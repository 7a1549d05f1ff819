//! One segment: a file of batches named by its first offset, with its indexes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::record_batch::BatchHeader;

use super::disk::{self, remove};
use super::error::LogError;
use super::lazy_file::LazyFile;
use super::offset_index::{OffsetEntry, OffsetIndex};
use super::recent_batches::BatchPlace;
use super::scanner::{HeaderScanner, LOOKUP_BYTES};
use super::time_index::{TimeEntry, TimeIndex};
use super::transaction_index::{AbortedTransaction, TransactionIndex};

pub(crate) const LOG: &str = "log";
pub(crate) const OFFSET_INDEX: &str = "index";
pub(crate) const TIME_INDEX: &str = "timeindex";
pub(crate) const TRANSACTION_INDEX: &str = "txnindex";

/// Positions in the offset index and relative offsets have 31 bits, as in Kafka.
pub(crate) const MAX_RELATIVE: i64 = i32::MAX as i64;

pub(crate) fn segment_path(log_directory: &Path, base_offset: i64, extension: &str) -> PathBuf {
    log_directory.join(format!("{base_offset:020}.{extension}"))
}

/// The greatest timestamp in a segment, and the last offset of the first batch that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxTimestamp {
    pub timestamp_ms: i64,
    pub offset: i64,
}

#[derive(Debug)]
pub(crate) struct Segment {
    directory: Arc<Path>,
    base_offset: i64,
    size_bytes: u64,
    log: LazyFile,
    offsets: OffsetIndex,
    times: TimeIndex,
    transactions: TransactionIndex,
    /// Known for the segment that is being written; of closed ones the time index tells.
    max_timestamp: Option<MaxTimestamp>,
    /// The time index does not have it yet.
    times_behind: bool,
    bytes_since_entry: u64,
    /// Timestamp of the first batch, from which `segment.ms` counts.
    first_timestamp_ms: Option<i64>,
    created_ms: i64,
}

impl Segment {
    /// A segment without a file; that comes with the first batch.
    pub fn new(directory: Arc<Path>, base_offset: i64, now_ms: i64) -> Segment {
        Segment {
            directory,
            base_offset,
            size_bytes: 0,
            log: LazyFile::default(),
            offsets: OffsetIndex::default(),
            times: TimeIndex::default(),
            transactions: TransactionIndex::default(),
            max_timestamp: None,
            times_behind: false,
            bytes_since_entry: 0,
            first_timestamp_ms: None,
            created_ms: now_ms,
        }
    }

    /// Takes up an existing segment. The flag tells that an index is missing or torn.
    pub fn open(directory: Arc<Path>, base_offset: i64, now_ms: i64) -> Result<(Segment, bool), LogError> {
        let mut segment = Segment::new(directory, base_offset, now_ms);
        let path = segment.path(LOG);
        let metadata = fs::metadata(&path).map_err(|error| LogError::io("stat", &path, error))?;
        segment.size_bytes = metadata.len();
        if let Ok(modified) = metadata.modified()
            && let Ok(age) = modified.duration_since(std::time::UNIX_EPOCH)
        {
            segment.created_ms = age.as_millis() as i64;
        }
        let mut damaged = segment.size_bytes > 0
            && !(segment.path(OFFSET_INDEX).exists() && segment.path(TIME_INDEX).exists());
        fn take<T: Default>(opened: Result<T, LogError>, damaged: &mut bool) -> Result<T, LogError> {
            match opened {
                Err(LogError::Corrupt { .. }) => {
                    *damaged = true;
                    Ok(T::default())
                }
                other => other,
            }
        }
        segment.offsets = take(OffsetIndex::open(&segment.path(OFFSET_INDEX)), &mut damaged)?;
        segment.times = take(TimeIndex::open(&segment.path(TIME_INDEX)), &mut damaged)?;
        segment.transactions = take(TransactionIndex::open(&segment.path(TRANSACTION_INDEX)), &mut damaged)?;
        // Closing a segment leaves at least one time in the index.
        damaged |= segment.size_bytes > 0 && segment.times.len() == 0;
        // An index that points past the end is one of another time.
        if let Some(last) = segment.offsets.last(|| segment.path(OFFSET_INDEX))? {
            damaged |= u64::from(last.position) >= segment.size_bytes;
        }
        Ok((segment, damaged))
    }

    pub fn path(&self, extension: &str) -> PathBuf {
        segment_path(&self.directory, self.base_offset, extension)
    }

    /// The directory was renamed; what is open stays open.
    pub fn relocate(&mut self, directory: Arc<Path>) {
        self.directory = directory;
    }

    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn offset_entries(&self) -> u32 {
        self.offsets.len()
    }

    pub fn time_entries(&self) -> u32 {
        self.times.len()
    }

    pub fn file(&self) -> Result<Arc<File>, LogError> {
        // One that was deleted behind our back must not begin again with a hole.
        if self.size_bytes > 0 {
            return self.log.get_existing(|| self.path(LOG));
        }
        self.log.get(|| self.path(LOG))
    }

    pub fn scanner(&self, position: u64, buffer_bytes: usize) -> Result<HeaderScanner, LogError> {
        // A segment without bytes may have no file either, and shall get none by being read.
        Ok(HeaderScanner::new(self.file()?, self.path(LOG), position, self.size_bytes, buffer_bytes))
    }

    /// Writes `bytes`, which are exactly `batches`, behind what is there.
    pub fn append<'a>(
        &mut self,
        bytes: &[u8],
        batches: impl Iterator<Item = &'a BatchHeader>,
        index_interval_bytes: u32,
    ) -> Result<(), LogError> {
        let file = self.file()?;
        disk::write_at(&file, &self.path(LOG), bytes, self.size_bytes)?;
        for header in batches {
            self.note_batch(header, index_interval_bytes)?;
        }
        Ok(())
    }

    /// Takes a batch that stands at the end of the file into size, indexes and timestamps.
    pub fn note_batch(&mut self, header: &BatchHeader, index_interval_bytes: u32) -> Result<(), LogError> {
        if self.size_bytes == 0 {
            self.first_timestamp_ms = Some(header.max_timestamp);
        }
        self.note_timestamp(header);
        let relative_offset = (header.last_offset() - self.base_offset).clamp(0, MAX_RELATIVE) as u32;
        if self.bytes_since_entry > u64::from(index_interval_bytes) {
            let Segment { directory, base_offset, offsets, times, .. } = self;
            let position = self.size_bytes.min(MAX_RELATIVE as u64) as u32;
            offsets.push(OffsetEntry { relative_offset, position }, || {
                segment_path(directory, *base_offset, OFFSET_INDEX)
            })?;
            if let Some(max) = self.max_timestamp {
                let relative_offset = (max.offset - *base_offset).clamp(0, MAX_RELATIVE) as u32;
                times.push(TimeEntry { timestamp_ms: max.timestamp_ms, relative_offset }, || {
                    segment_path(directory, *base_offset, TIME_INDEX)
                })?;
            }
            self.bytes_since_entry = 0;
        }
        self.size_bytes += header.size_bytes() as u64;
        self.bytes_since_entry += header.size_bytes() as u64;
        Ok(())
    }

    fn note_timestamp(&mut self, header: &BatchHeader) {
        if self.max_timestamp.is_none_or(|max| header.max_timestamp > max.timestamp_ms) {
            self.max_timestamp =
                Some(MaxTimestamp { timestamp_ms: header.max_timestamp, offset: header.last_offset() });
            self.times_behind = true;
        }
    }

    pub fn push_aborted(&mut self, aborted: AbortedTransaction) -> Result<(), LogError> {
        let path = self.path(TRANSACTION_INDEX);
        self.transactions.push(&path, aborted)
    }

    pub fn aborted(&self) -> Result<Vec<AbortedTransaction>, LogError> {
        if self.transactions.is_empty() {
            Ok(Vec::new())
        } else {
            self.transactions.read(&self.path(TRANSACTION_INDEX))
        }
    }

    /// The next offset after a clean stop: what follows the last index entry is read, and the state of
    /// a segment that is being written is taken up again. An error: this is no clean end.
    pub fn resume(&mut self) -> Result<i64, LogError> {
        let last_time = self.times.last(|| self.path(TIME_INDEX))?;
        self.times_behind = false;
        self.max_timestamp = last_time.map(|last| MaxTimestamp {
            timestamp_ms: last.timestamp_ms,
            offset: self.base_offset + i64::from(last.relative_offset),
        });
        let start = self.offsets.last(|| self.path(OFFSET_INDEX))?.map_or(0, |last| u64::from(last.position));
        let mut next_offset = self.base_offset;
        if self.size_bytes > 0 {
            let mut scanner = self.scanner(start, LOOKUP_BYTES)?;
            while let Some((position, header)) = scanner.next()? {
                if header.base_offset < next_offset {
                    return Err(LogError::corrupt(
                        &self.path(LOG),
                        format!("at byte {position}: offsets fall"),
                    ));
                }
                next_offset = header.next_offset();
                self.note_timestamp(&header);
            }
        }
        self.bytes_since_entry = self.size_bytes - start;
        Ok(next_offset)
    }

    /// The first batch whose last offset is at or above `offset`.
    pub fn holding(&self, offset: i64) -> Result<Option<BatchPlace>, LogError> {
        if self.size_bytes == 0 {
            return Ok(None);
        }
        let relative = (offset - self.base_offset).clamp(0, MAX_RELATIVE) as u32;
        let entry = match self.offsets.floor_offset(relative, || self.path(OFFSET_INDEX)) {
            // Its file lost something; the batches are all there.
            Err(LogError::Corrupt { .. }) => None,
            other => other?,
        };
        // An entry past the end is a damaged one.
        let start = entry.map_or(0, |entry| u64::from(entry.position)).min(self.size_bytes);
        let start = if start == self.size_bytes { 0 } else { start };
        match self.scan_for(start, offset) {
            // A batch at an entry's place begins at or below the entry's offset. If it does not, or if
            // there is no batch, then the index is damaged; the batches themselves are the truth.
            Ok(Some(place)) if start > 0 && place.position == start && place.first_offset > offset => {
                self.scan_for(0, offset)
            }
            Err(LogError::Corrupt { .. }) if start > 0 => self.scan_for(0, offset),
            other => other,
        }
    }

    fn scan_for(&self, start: u64, offset: i64) -> Result<Option<BatchPlace>, LogError> {
        let mut scanner = self.scanner(start, LOOKUP_BYTES)?;
        while let Some((position, header)) = scanner.next()? {
            if header.last_offset() >= offset {
                return Ok(Some(place_of(position, &header)));
            }
        }
        Ok(None)
    }

    /// The last batch that begins at or below `limit`, which lies inside the file; `known` is the place
    /// of a batch at or below it.
    pub fn beginning_by(&self, limit: u64, known: BatchPlace) -> Result<BatchPlace, LogError> {
        let entry = self.offsets.floor_position(limit, || self.path(OFFSET_INDEX))?;
        let start = entry.map_or(0, |entry| u64::from(entry.position)).max(known.position);
        match self.last_by(start, limit, known) {
            Err(LogError::Corrupt { .. }) if start > known.position => {
                self.last_by(known.position, limit, known)
            }
            other => other,
        }
    }

    fn last_by(&self, start: u64, limit: u64, known: BatchPlace) -> Result<BatchPlace, LogError> {
        let mut scanner = self.scanner(start, LOOKUP_BYTES)?;
        let mut last = known;
        while let Some((position, header)) = scanner.next()? {
            if position > limit {
                break;
            }
            if position > known.position && header.base_offset <= known.last_offset {
                return Err(LogError::corrupt(&self.path(LOG), format!("at byte {position}: offsets fall")));
            }
            last = place_of(position, &header);
            if position + last.bytes > limit {
                break;
            }
        }
        Ok(last)
    }

    /// The greatest timestamp; None for a segment without batches.
    pub fn max_timestamp(&self) -> Result<Option<MaxTimestamp>, LogError> {
        if self.max_timestamp.is_some() {
            return Ok(self.max_timestamp);
        }
        Ok(self.times.last(|| self.path(TIME_INDEX))?.map(|last| MaxTimestamp {
            timestamp_ms: last.timestamp_ms,
            offset: self.base_offset + i64::from(last.relative_offset),
        }))
    }

    /// Position from which on batches may reach `timestamp_ms`.
    pub fn position_by_time(&self, timestamp_ms: i64) -> Result<u64, LogError> {
        let Some(below) = self.times.last_below(timestamp_ms, || self.path(TIME_INDEX))? else {
            return Ok(0);
        };
        let entry = self.offsets.floor_offset(below.relative_offset, || self.path(OFFSET_INDEX))?;
        Ok(entry.map_or(0, |entry| u64::from(entry.position)))
    }

    /// Since when the segment is being written, for `segment.ms`.
    pub fn begun_ms(&mut self) -> Result<i64, LogError> {
        if self.first_timestamp_ms.is_none() && self.size_bytes > 0 {
            self.first_timestamp_ms =
                self.scanner(0, LOOKUP_BYTES)?.next()?.map(|(_, header)| header.max_timestamp);
        }
        Ok(self.first_timestamp_ms.filter(|timestamp| *timestamp >= 0).unwrap_or(self.created_ms))
    }

    /// `finish` has something to add, without which a start would take the index for one that is missing.
    pub fn times_behind(&self) -> bool {
        self.times_behind
    }

    pub fn created_ms(&self) -> i64 {
        self.created_ms
    }

    /// Puts the greatest timestamp at the end of the time index, as Kafka does when a segment is closed.
    pub fn finish(&mut self) -> Result<(), LogError> {
        if let Some(max) = self.max_timestamp {
            let relative_offset = (max.offset - self.base_offset).clamp(0, MAX_RELATIVE) as u32;
            let Segment { directory, base_offset, times, .. } = self;
            times.push(TimeEntry { timestamp_ms: max.timestamp_ms, relative_offset }, || {
                segment_path(directory, *base_offset, TIME_INDEX)
            })?;
            self.times_behind = false;
        }
        match self.write_out() {
            // They wait in memory for space; what a crash takes of them is built anew.
            Err(error) if error.is_exhausted() => Ok(()),
            other => other,
        }
    }

    /// Index entries in memory go to their files.
    pub fn write_out(&mut self) -> Result<(), LogError> {
        if self.size_bytes == 0 {
            return Ok(());
        }
        let Segment { directory, base_offset, offsets, times, .. } = self;
        offsets.write_out(|| segment_path(directory, *base_offset, OFFSET_INDEX))?;
        times.write_out(|| segment_path(directory, *base_offset, TIME_INDEX))
    }

    /// The files to be synced to make the segment durable; the transaction index is synced here.
    pub fn files(&self) -> Result<Vec<(PathBuf, Arc<File>)>, LogError> {
        if self.size_bytes == 0 {
            // Either it never had a batch, or it was cut down to nothing.
            let path = self.path(LOG);
            return if path.exists() { Ok(vec![(path, self.file()?)]) } else { Ok(Vec::new()) };
        }
        self.transactions.sync(&self.path(TRANSACTION_INDEX))?;
        let offsets = self.path(OFFSET_INDEX);
        let times = self.path(TIME_INDEX);
        Ok(vec![
            (self.path(LOG), self.file()?),
            (offsets.clone(), self.offsets.file().get(|| offsets)?),
            (times.clone(), self.times.file().get(|| times)?),
        ])
    }

    /// Makes the log file exist: a log that begins above 0 must be found so again.
    pub fn create_file(&self) -> Result<(), LogError> {
        self.file().map(|_| ())
    }

    /// Drops the batches from `position` on; `end_offset` is the first offset that goes.
    pub fn truncate(&mut self, position: u64, end_offset: i64) -> Result<i64, LogError> {
        let path = self.path(LOG);
        disk::set_length(&*self.file()?, &path, position)?;
        self.size_bytes = position;
        let relative = (end_offset - self.base_offset).clamp(0, MAX_RELATIVE) as u32;
        let Segment { directory, base_offset, offsets, times, .. } = self;
        offsets.truncate_to_position(position, || segment_path(directory, *base_offset, OFFSET_INDEX))?;
        times.truncate_to(relative, || segment_path(directory, *base_offset, TIME_INDEX))?;
        let path = self.path(TRANSACTION_INDEX);
        self.transactions.truncate_to(&path, common::ids::Offset(end_offset))?;
        self.first_timestamp_ms = None;
        self.resume()
    }

    /// Empties the indexes, before they are built anew from the batches.
    pub fn clear_indexes(&mut self) -> Result<(), LogError> {
        let Segment { directory, base_offset, offsets, times, .. } = self;
        offsets.clear(|| segment_path(directory, *base_offset, OFFSET_INDEX))?;
        times.clear(|| segment_path(directory, *base_offset, TIME_INDEX))?;
        let path = self.path(TRANSACTION_INDEX);
        self.transactions.clear(&path)?;
        for extension in [OFFSET_INDEX, TIME_INDEX] {
            remove(&self.path(extension))?;
        }
        self.offsets = OffsetIndex::default();
        self.times = TimeIndex::default();
        self.max_timestamp = None;
        self.first_timestamp_ms = None;
        self.bytes_since_entry = 0;
        self.size_bytes = 0;
        Ok(())
    }

    /// What a write that stopped half way has left behind the last batch goes.
    pub fn cut_torn_end(&self) -> Result<(), LogError> {
        let path = self.path(LOG);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > self.size_bytes => self.cut_file_to_size(),
            _ => Ok(()),
        }
    }

    /// After the indexes were built anew: bytes that are no batch go.
    pub fn cut_file_to_size(&self) -> Result<(), LogError> {
        let path = self.path(LOG);
        disk::set_length(&*self.file()?, &path, self.size_bytes)
    }

    /// Deletes the files, the log first: indexes without a log are swept away at the next start.
    /// Readers that hold the file go on.
    pub fn delete(&self) -> Result<(), LogError> {
        for extension in [LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX] {
            remove(&self.path(extension))?;
        }
        Ok(())
    }

    pub fn close_idle_files(&self) {
        for file in [&self.log, self.offsets.file(), self.times.file()] {
            file.close_if_idle();
        }
    }

    pub fn close_files(&self) {
        for file in [&self.log, self.offsets.file(), self.times.file()] {
            file.close();
        }
    }
}

fn place_of(position: u64, header: &BatchHeader) -> BatchPlace {
    BatchPlace {
        first_offset: header.base_offset,
        last_offset: header.last_offset(),
        position,
        bytes: header.size_bytes() as u64,
    }
}
