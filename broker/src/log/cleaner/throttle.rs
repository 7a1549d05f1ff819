//! `log.cleaner.io.max.bytes.per.second`, over all of the cleaner's threads, and the way to stop them.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// No sleep is longer: what is not paid by then is paid with the next chunk.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct State {
    /// When what was taken so far will have been paid for.
    paid_at: Option<Instant>,
    bytes_per_second: f64,
    stopped: bool,
}

#[derive(Debug)]
pub(crate) struct Throttle {
    state: Mutex<State>,
    changed: Condvar,
}

impl Throttle {
    pub fn new(bytes_per_second: f64) -> Throttle {
        let state = State { paid_at: None, bytes_per_second, stopped: false };
        Throttle { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub fn set_rate(&self, bytes_per_second: f64) {
        self.state.lock().bytes_per_second = bytes_per_second;
    }

    /// Blocks until `bytes` more are within the rate. False: stopped.
    pub fn take(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let cost = bytes as f64 / state.bytes_per_second.max(1.0);
        // A rate that no disk reaches is no limit.
        if cost < 1e-9 || !cost.is_finite() {
            return !state.stopped;
        }
        let now = Instant::now();
        let due =
            state.paid_at.filter(|due| *due > now).unwrap_or(now) + Duration::from_secs_f64(cost.min(3600.0));
        state.paid_at = Some(due);
        let until = due.min(now + LONGEST_SLEEP);
        while !state.stopped && Instant::now() < until {
            self.changed.wait_until(&mut state, until);
        }
        !state.stopped
    }

    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_paid_with_time_until_it_is_stopped() {
        let throttle = Throttle::new(1_000_000.0);
        let begun = Instant::now();
        for _ in 0..10 {
            assert!(throttle.take(10_000));
        }
        assert!(begun.elapsed() >= Duration::from_millis(99));
        throttle.set_rate(f64::MAX);
        let begun = Instant::now();
        assert!(throttle.take(1 << 40));
        assert!(begun.elapsed() < Duration::from_millis(900));
        throttle.set_rate(1.0);
        throttle.stop();
        assert!(!throttle.take(1 << 40));
    }
}
