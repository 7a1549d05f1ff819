//! Points at which a test ends the process, to see what the next start finds. Built without the feature
//! `proof` they are nothing.

#[cfg(any(test, feature = "proof"))]
pub use armed::{arm, point};

#[cfg(not(any(test, feature = "proof")))]
#[inline(always)]
pub fn point() {}

#[cfg(any(test, feature = "proof"))]
mod armed {
    use std::sync::atomic::{AtomicU64, Ordering};

    static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

    /// The process ends, as by kill -9, at this many points from now.
    pub fn arm(points: u64) {
        LEFT.store(points, Ordering::Relaxed);
    }

    pub fn point() {
        if LEFT.load(Ordering::Relaxed) != u64::MAX && LEFT.fetch_sub(1, Ordering::Relaxed) <= 1 {
            std::process::abort();
        }
    }
}
