//! PURE. Which part of a log may be cleaned, how much it wants it, and which segments go together.

use super::super::config::LogConfig;

/// A segment as far as planning is concerned. The last of a log is the one that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentView {
    pub base_offset: i64,
    pub size_bytes: u64,
    pub offset_index_bytes: u64,
    pub time_index_bytes: u64,
    /// Of its records; the file's time where they have none.
    pub newest_ms: i64,
    /// Of its first batch; asked for only where `max.compaction.lag.ms` is set.
    pub first_timestamp_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cleanable {
    pub first_dirty: i64,
    /// The base of the first segment that must not be touched.
    pub first_uncleanable: i64,
    pub dirty_bytes: u64,
    /// Of all that lies below `first_uncleanable`.
    pub dirty_ratio: f64,
    /// `max.compaction.lag.ms` has passed for something.
    pub overdue: bool,
    /// The last stable offset, or a lag, holds back what is closed already: it will have to be looked at again.
    pub held_back: bool,
}

impl Cleanable {
    pub fn is_due(&self, config: &LogConfig) -> bool {
        self.dirty_bytes > 0 && (self.overdue || self.dirty_ratio > config.min_cleanable_dirty_ratio)
    }
}

/// `cleaned_to` is where the last cleaning ended; `stable` the last stable offset, which is never above
/// the high watermark.
pub(crate) fn cleanable(
    segments: &[SegmentView],
    log_start: i64,
    log_end: i64,
    cleaned_to: Option<i64>,
    stable: i64,
    config: &LogConfig,
    now_ms: i64,
) -> Option<Cleanable> {
    let (active, closed) = segments.split_last()?;
    // A checkpoint outside of the log is one of another time.
    let first_dirty = cleaned_to.filter(|offset| (log_start..=log_end).contains(offset)).unwrap_or(log_start);
    let dirty_from = closed.partition_point(|segment| segment.base_offset <= first_dirty).saturating_sub(1);
    let dirty = &closed[dirty_from.min(closed.len())..];
    let lag_ms = config.min_compaction_lag_ms;
    let young = dirty
        .iter()
        .find(|segment| lag_ms > 0 && segment.newest_ms > now_ms.saturating_sub(lag_ms))
        .map_or(i64::MAX, |segment| segment.base_offset);
    let bound = active.base_offset.min(stable).min(young).max(first_dirty);
    // Whole segments only.
    let first_uncleanable = if bound >= active.base_offset {
        active.base_offset
    } else {
        let after = closed.partition_point(|segment| segment.base_offset <= bound);
        closed.get(after.saturating_sub(1)).map_or(active.base_offset, |segment| segment.base_offset)
    };
    let (mut clean_bytes, mut dirty_bytes) = (0, 0);
    for (index, segment) in closed.iter().enumerate() {
        if segment.base_offset >= first_uncleanable {
            break;
        }
        // A segment that was cleaned in part counts as dirty.
        if index < dirty_from || segments[index + 1].base_offset <= first_dirty {
            clean_bytes += segment.size_bytes;
        } else {
            dirty_bytes += segment.size_bytes;
        }
    }
    let total = clean_bytes + dirty_bytes;
    let oldest_ms =
        dirty.iter().filter_map(|segment| segment.first_timestamp_ms.filter(|time| *time > 0)).min();
    let overdue_before = now_ms.saturating_sub(config.max_compaction_lag_ms.max(0));
    Some(Cleanable {
        first_dirty,
        first_uncleanable,
        dirty_bytes,
        dirty_ratio: if total == 0 { 0.0 } else { dirty_bytes as f64 / total as f64 },
        overdue: oldest_ms.is_some_and(|oldest| oldest < overdue_before),
        held_back: first_uncleanable < active.base_offset,
    })
}

/// Adjacent segments that become one: together not larger than a segment may be, in bytes, index
/// entries and relative offsets. Each group as a range of indexes.
pub(crate) fn group_segments(
    segments: &[SegmentView],
    end_offset: i64,
    config: &LogConfig,
) -> Vec<std::ops::Range<usize>> {
    let mut groups = Vec::new();
    let mut start = 0;
    while start < segments.len() {
        let base_offset = segments[start].base_offset;
        let (mut bytes, mut offsets, mut times) = (0, 0, 0);
        let mut end = start;
        while let Some(segment) = segments.get(end) {
            let last_offset =
                segments.get(end + 1).map_or(end_offset, |next| next.base_offset).saturating_sub(1);
            let fits = bytes + segment.size_bytes <= u64::from(config.segment_bytes)
                && offsets + segment.offset_index_bytes <= u64::from(config.segment_index_bytes)
                && times + segment.time_index_bytes <= u64::from(config.segment_index_bytes)
                && (segment.size_bytes == 0 || last_offset - base_offset <= i64::from(i32::MAX));
            // One alone is cleaned whatever its size.
            if end > start && !fits {
                break;
            }
            bytes += segment.size_bytes;
            offsets += segment.offset_index_bytes;
            times += segment.time_index_bytes;
            end += 1;
        }
        groups.push(start..end);
        start = end;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn segment(base_offset: i64, size_bytes: u64, newest_ms: i64) -> SegmentView {
        SegmentView {
            base_offset,
            size_bytes,
            offset_index_bytes: 8,
            time_index_bytes: 12,
            newest_ms,
            first_timestamp_ms: Some(newest_ms - 10),
        }
    }

    /// Bases 0, 10, 20, 30; the last is written.
    fn log() -> Vec<SegmentView> {
        (0..4).map(|number| segment(10 * number, 100, NOW - 1000 + 100 * number)).collect()
    }

    fn plan(cleaned_to: Option<i64>, stable: i64, config: &LogConfig) -> Cleanable {
        cleanable(&log(), 0, 35, cleaned_to, stable, config, NOW).unwrap()
    }

    #[test]
    fn never_above_the_stable_offset_the_active_segment_or_the_lag() {
        let config = LogConfig::default();
        let lag = |ms| LogConfig { min_compaction_lag_ms: ms, ..LogConfig::default() };
        for (cleaned_to, stable, config, expected) in [
            (None, 35, &config, (0, 30, 300)),
            (None, 30, &config, (0, 30, 300)),
            (None, 29, &config, (0, 20, 200)),
            (None, 20, &config, (0, 20, 200)),
            (None, 3, &config, (0, 0, 0)),
            (Some(20), 35, &config, (20, 30, 100)),
            // Cleaned in part: the map was full.
            (Some(15), 35, &config, (15, 30, 200)),
            (Some(30), 35, &config, (30, 30, 0)),
            // Of another time: from the start.
            (Some(36), 35, &config, (0, 30, 300)),
            // The second segment's newest record is 900 old.
            (None, 35, &lag(950), (0, 10, 100)),
            (None, 35, &lag(800), (0, 30, 300)),
            (None, 35, &lag(801), (0, 20, 200)),
        ] {
            let found = plan(cleaned_to, stable, config);
            assert_eq!(
                (found.first_dirty, found.first_uncleanable, found.dirty_bytes),
                expected,
                "cleaned to {cleaned_to:?}, stable {stable}"
            );
            assert_eq!(found.held_back, expected.1 < 30);
        }
        assert_eq!(cleanable(&[], 0, 0, None, 0, &config, NOW), None);
        let alone = cleanable(&log()[3..], 30, 35, None, 35, &config, NOW).unwrap();
        assert_eq!((alone.dirty_bytes, alone.is_due(&config)), (0, false));
    }

    #[test]
    fn due_by_ratio_or_by_the_greatest_lag() {
        let config = LogConfig::default();
        assert!(plan(None, 35, &config).is_due(&config));
        let third = plan(Some(20), 35, &config);
        assert!((third.dirty_ratio - 1.0 / 3.0).abs() < 1e-9 && !third.is_due(&config));
        let lower = LogConfig { min_cleanable_dirty_ratio: 0.3, ..LogConfig::default() };
        assert!(third.is_due(&lower));
        // The first batch of the third segment is 810 old.
        for (lag, due) in [(809, true), (810, false), (i64::MAX, false)] {
            let config = LogConfig { max_compaction_lag_ms: lag, ..LogConfig::default() };
            assert_eq!(plan(Some(20), 35, &config).is_due(&config), due, "lag {lag}");
        }
        // Nothing to clean: nothing is overdue either.
        let overdue = LogConfig { max_compaction_lag_ms: 1, ..LogConfig::default() };
        assert!(!plan(Some(30), 35, &overdue).is_due(&overdue));
    }

    #[test]
    fn groups_stay_below_the_limits_of_one_segment() {
        let config = |segment_bytes, segment_index_bytes| LogConfig {
            segment_bytes,
            segment_index_bytes,
            ..LogConfig::default()
        };
        let sizes = |sizes: &[u64]| -> Vec<SegmentView> {
            sizes.iter().enumerate().map(|(number, size)| segment(10 * number as i64, *size, 0)).collect()
        };
        for (bytes, index_bytes, segments, expected) in [
            (300, 1000, vec![100, 100, 100, 100], vec![0..3, 3..4]),
            (250, 1000, vec![100, 100, 100, 100], vec![0..2, 2..4]),
            (300, 24, vec![100, 100, 100, 100], vec![0..2, 2..4]),
            (50, 1000, vec![100, 0, 100], vec![0..1, 1..2, 2..3]),
            (100, 1000, vec![60, 0, 40, 60], vec![0..3, 3..4]),
        ] {
            let found = group_segments(&sizes(&segments), 1000, &config(bytes, index_bytes));
            assert_eq!(found, expected, "{segments:?} in {bytes}");
        }
        let far = [segment(0, 10, 0), segment(5, 10, 0), segment(3_000_000_000, 10, 0)];
        assert_eq!(group_segments(&far, 3_000_000_001, &config(1000, 1000)), [0..1, 1..2, 2..3]);
    }
}
