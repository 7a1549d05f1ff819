//! `mirror.fetch.memory.bytes`: taken before a fetch is sent, given back when its answer is appended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits are counted in KiB.
const UNIT_BYTES: usize = 1024;
/// Answers smaller than this would make a fetcher crawl.
const LEAST_ANSWER_BYTES: usize = 64 * 1024;

pub struct FetchBudget {
    total_bytes: usize,
    permits: Arc<Semaphore>,
    fetchers: AtomicUsize,
}

/// Room for one answer.
pub struct Reserved {
    pub bytes: usize,
    _permit: OwnedSemaphorePermit,
}

impl FetchBudget {
    pub fn new(total_bytes: usize) -> FetchBudget {
        let total_bytes = total_bytes.max(2 * LEAST_ANSWER_BYTES);
        let permits = Arc::new(Semaphore::new(total_bytes / UNIT_BYTES));
        FetchBudget { total_bytes, permits, fetchers: AtomicUsize::new(0) }
    }

    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    pub fn joined(&self) {
        self.fetchers.fetch_add(1, Ordering::Relaxed);
    }

    pub fn left(&self) {
        self.fetchers.fetch_sub(1, Ordering::Relaxed);
    }

    /// A fair share: each fetcher has one answer being appended and one being fetched, so that with
    /// shares of this size a waiting fetch holds up no other.
    pub fn share_bytes(&self, wanted_bytes: usize) -> usize {
        let fetchers = self.fetchers.load(Ordering::Relaxed).max(1);
        wanted_bytes.min(self.total_bytes / (2 * fetchers)).max(LEAST_ANSWER_BYTES)
    }

    /// Waits for room. `None` only at shutdown.
    pub async fn reserve(&self, wanted_bytes: usize) -> Option<Reserved> {
        let bytes = self.share_bytes(wanted_bytes);
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let permit = self.permits.clone().acquire_many_owned(units).await.ok()?;
        Some(Reserved { bytes, _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_reserved_never_passes_the_budget() {
        let budget = FetchBudget::new(1024 * 1024);
        budget.joined();
        let first = budget.reserve(10 << 20).await.unwrap();
        assert_eq!(first.bytes, 512 * 1024);
        let second = budget.reserve(10 << 20).await.unwrap();
        let third = budget.reserve(10 << 20);
        tokio::pin!(third);
        assert!(futures::poll!(&mut third).is_pending());
        drop(first);
        assert!(third.await.is_some());
        drop(second);
    }

    #[test]
    fn shares_shrink_with_the_number_of_fetchers() {
        let budget = FetchBudget::new(8 << 20);
        for _ in 0..4 {
            budget.joined();
        }
        assert_eq!(budget.share_bytes(10 << 20), 1 << 20);
        budget.left();
        assert_eq!(budget.share_bytes(100_000), 100_000);
    }
}
