//! Where a mirror partition's source and destination stand: written by its fetcher, read by Describe,
//! reports and metrics. Soft state of the partition's leader, lost with it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use common::ids::*;

/// -1: not known.
#[derive(Debug)]
pub struct Lag {
    source_high_watermark: AtomicI64,
    destination_end: AtomicI64,
    fetched_bytes: AtomicU64,
}

impl Default for Lag {
    fn default() -> Lag {
        Lag {
            source_high_watermark: AtomicI64::new(-1),
            destination_end: AtomicI64::new(-1),
            fetched_bytes: AtomicU64::new(0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagReading {
    /// The source's high watermark: records of open transactions, which are not copied yet, count.
    pub source: Option<Offset>,
    pub destination: Option<Offset>,
}

impl LagReading {
    pub fn lag(self) -> Option<i64> {
        Some((self.source?.0 - self.destination?.0).max(0))
    }
}

impl Lag {
    pub fn source_is_at(&self, high_watermark: Offset) {
        self.source_high_watermark.store(high_watermark.0, Ordering::Relaxed);
    }

    pub fn destination_is_at(&self, log_end: Offset) {
        self.destination_end.store(log_end.0, Ordering::Relaxed);
    }

    pub fn fetched(&self, bytes: u64) {
        self.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes.load(Ordering::Relaxed)
    }

    pub fn reading(&self) -> LagReading {
        let known = |value: i64| (value >= 0).then_some(Offset(value));
        LagReading {
            source: known(self.source_high_watermark.load(Ordering::Relaxed)),
            destination: known(self.destination_end.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_known_only_with_both_ends_and_never_negative() {
        let lag = Lag::default();
        assert_eq!(lag.reading().lag(), None);
        lag.source_is_at(Offset(10));
        assert_eq!(lag.reading().lag(), None);
        lag.destination_is_at(Offset(4));
        assert_eq!(lag.reading().lag(), Some(6));
        lag.destination_is_at(Offset(12));
        assert_eq!(lag.reading().lag(), Some(0));
    }
}
