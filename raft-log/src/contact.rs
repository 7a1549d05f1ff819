//! When the leader was last heard of. The consensus keeps naming a leader that is gone until another is
//! elected, which without a majority never happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone)]
pub(crate) struct Contact(Arc<Inner>);

struct Inner {
    begin: Instant,
    /// Since the beginning; 0: never.
    last_ms: AtomicU64,
}

impl Contact {
    pub(crate) fn new() -> Contact {
        Contact(Arc::new(Inner { begin: Instant::now(), last_ms: AtomicU64::new(0) }))
    }

    /// A message of the leader was accepted.
    pub(crate) fn heard(&self) {
        self.0.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn within(&self, limit: Duration) -> bool {
        let last_ms = self.0.last_ms.load(Ordering::Relaxed);
        last_ms > 0 && u128::from(self.now_ms() - last_ms) <= limit.as_millis()
    }

    /// Never 0.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.0.begin.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contact_is_lost_with_time() {
        let contact = Contact::new();
        assert!(!contact.within(Duration::from_secs(9)), "never heard");
        contact.heard();
        assert!(contact.within(Duration::from_secs(9)));
        std::thread::sleep(Duration::from_millis(3));
        assert!(!contact.within(Duration::ZERO));
    }
}
