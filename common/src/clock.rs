//! Time, handed in: pure code and everything that a simulator drives reads no other clock
//! (decision 7).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::fault;

pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch. May jump in both directions.
    fn now_ms(&self) -> i64;

    /// Milliseconds since some fixed moment. Never goes back: for deadlines and sessions.
    fn monotonic_ms(&self) -> u64;
}

/// The machine's clocks.
#[derive(Clone, Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    pub fn new() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        // A clock set before 1970 reads as 1970 rather than ending the process.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX).saturating_add(fault::clock_skew_ms())
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Moves only when told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
    monotonic_ms: AtomicU64,
}

impl ManualClock {
    pub fn new(now_ms: i64) -> ManualClock {
        ManualClock { now_ms: AtomicI64::new(now_ms), monotonic_ms: AtomicU64::new(0) }
    }

    /// Time passes: both clocks move.
    pub fn advance_ms(&self, by_ms: u64) {
        self.monotonic_ms.fetch_add(by_ms, Ordering::SeqCst);
        self.now_ms.fetch_add(i64::try_from(by_ms).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Somebody sets the wall clock: only that one moves.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ms.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_wall_clock_leaves_deadlines_alone() {
        let clock = ManualClock::new(1_000);
        clock.advance_ms(5);
        clock.set_now_ms(-7);
        assert_eq!((clock.now_ms(), clock.monotonic_ms()), (-7, 5));
    }

    #[test]
    fn the_system_clock_is_after_2020_and_does_not_go_back() {
        let clock = SystemClock::new();
        assert!(clock.now_ms() > 1_577_836_800_000);
        let first = clock.monotonic_ms();
        assert!(clock.monotonic_ms() >= first);
    }
}
