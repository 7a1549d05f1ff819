//! Points at which a test ends the process, to see what the next start finds. Nothing but a counter that
//! is never read, unless a test arms it.

use std::sync::atomic::{AtomicU64, Ordering};

static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

#[cfg(any(test, feature = "proof"))]
/// The process ends, as by kill -9, at this many points from now.
pub fn arm(points: u64) {
    LEFT.store(points, Ordering::Relaxed);
}

pub(crate) fn point() {
    if LEFT.load(Ordering::Relaxed) != u64::MAX && LEFT.fetch_sub(1, Ordering::Relaxed) <= 1 {
        std::process::abort();
    }
}
