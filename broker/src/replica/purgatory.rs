//! Those who wait: fetches for data, produces for the high watermark. Nobody polls. A partition tells
//! the watches that are registered with it, and an idle partition does nothing at all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use common::ids::*;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::WaitFailure;

/// What a fetch is told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Followers read up to the log end, and want to know the high watermark.
    LogEnd,
    /// Consumers read what is committed.
    Committed,
}

/// The partitions of one fetch, or of one fetch session, that have something new. Partitions are
/// numbered by slots of the owner's choice; each is queued at most once.
#[derive(Debug, Default)]
pub struct FetchWatch {
    state: Mutex<WatchState>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct WatchState {
    queue: VecDeque<u32>,
    queued: Vec<bool>,
    pending: Pending,
    nudged: bool,
    closed: bool,
}

/// What has been queued since the last `take`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pending {
    #[default]
    Nothing,
    /// Only what may travel with the next records: a high watermark, for a follower.
    News,
    /// To be looked at now.
    Due,
}

impl FetchWatch {
    pub fn new() -> Arc<FetchWatch> {
        Arc::new(FetchWatch::default())
    }

    /// Something happened at the partition in this slot.
    pub fn mark(&self, slot: u32) {
        self.enqueue(slot, Pending::Due);
    }

    /// Something happened that can wait a little for company.
    pub fn mark_news(&self, slot: u32) {
        self.enqueue(slot, Pending::News);
    }

    /// Queues a slot for the next request without waking anybody.
    pub fn keep(&self, slot: u32) {
        self.enqueue(slot, Pending::Nothing);
    }

    fn enqueue(&self, slot: u32, pending: Pending) {
        let mut state = self.state.lock();
        let index = slot as usize;
        if state.closed {
            return;
        }
        if state.queued.len() <= index {
            state.queued.resize(index + 1, false);
        }
        if !std::mem::replace(&mut state.queued[index], true) {
            state.queue.push_back(slot);
        }
        if pending > state.pending {
            state.pending = pending;
            drop(state);
            self.arrived.notify_one();
        }
    }

    /// Takes what is queued, oldest first. What happens from now on queues anew, so the taker reads
    /// after this and misses nothing.
    pub fn take(&self) -> VecDeque<u32> {
        let mut state = self.state.lock();
        let taken = std::mem::take(&mut state.queue);
        state.pending = Pending::Nothing;
        for slot in &taken {
            if let Some(queued) = state.queued.get_mut(*slot as usize) {
                *queued = false;
            }
        }
        taken
    }

    /// Has the fetch answered, whatever there is.
    pub fn nudge(&self) {
        self.state.lock().nudged = true;
        self.arrived.notify_one();
    }

    pub fn take_nudge(&self) -> bool {
        std::mem::take(&mut self.state.lock().nudged)
    }

    /// Returns once something may have been queued since the last `take`.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub fn pending(&self) -> Pending {
        let state = self.state.lock();
        if state.nudged { Pending::Due } else { state.pending }
    }

    /// Partitions drop their registration when they next look at it.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue = VecDeque::new();
        state.queued = Vec::new();
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

/// Registrations of watches with one partition.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    entries: Vec<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    watch: Arc<FetchWatch>,
    slot: u32,
    interest: Interest,
}

impl Watchers {
    pub(super) fn add(&mut self, watch: &Arc<FetchWatch>, slot: u32, interest: Interest) {
        // Sessions come and go at idle partitions too: here is where the gone ones are swept.
        self.entries.retain(|entry| !entry.watch.is_closed());
        self.entries.push(Watcher { watch: watch.clone(), slot, interest });
    }

    pub(super) fn remove(&mut self, watch: &Arc<FetchWatch>, slot: u32) {
        self.entries.retain(|entry| entry.slot != slot || !Arc::ptr_eq(&entry.watch, watch));
    }

    /// Records were appended that are not committed yet: only followers care.
    pub(super) fn log_end_moved(&self) {
        self.mark(|entry| entry.interest == Interest::LogEnd);
    }

    /// What is committed is what consumers wait for. A follower has no use for it that could not wait for
    /// the next records: to answer its fetch for this alone would cost two messages more for each append.
    pub(super) fn high_watermark_moved(&self) {
        for entry in &self.entries {
            match entry.interest {
                Interest::Committed => entry.watch.mark(entry.slot),
                Interest::LogEnd => entry.watch.mark_news(entry.slot),
            }
        }
    }

    /// The log start or the leadership moved: everybody cares.
    pub(super) fn changed(&self) {
        self.mark(|_| true);
    }

    fn mark(&self, wants: impl Fn(&Watcher) -> bool) {
        for entry in self.entries.iter().filter(|entry| wants(entry)) {
            entry.watch.mark(entry.slot);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// One request that waits for several partitions.
#[derive(Debug)]
pub(super) struct ProduceWait {
    state: Mutex<ProduceWaitState>,
    done: Notify,
}

#[derive(Debug)]
struct ProduceWaitState {
    results: Vec<Option<Result<(), WaitFailure>>>,
    open: usize,
}

impl ProduceWait {
    pub(super) fn new(results: Vec<Option<Result<(), WaitFailure>>>) -> Arc<ProduceWait> {
        let open = results.iter().filter(|result| result.is_none()).count();
        Arc::new(ProduceWait { state: Mutex::new(ProduceWaitState { results, open }), done: Notify::new() })
    }

    pub(super) fn complete(&self, index: usize, result: Result<(), WaitFailure>) {
        let mut state = self.state.lock();
        let Some(slot @ None) = state.results.get_mut(index) else { return };
        *slot = Some(result);
        state.open -= 1;
        if state.open == 0 {
            drop(state);
            self.done.notify_one();
        }
    }

    pub(super) async fn all_done(&self) {
        loop {
            if self.state.lock().open == 0 {
                return;
            }
            self.done.notified().await;
        }
    }

    /// What is still open has timed out.
    pub(super) fn results(&self) -> Vec<Result<(), WaitFailure>> {
        let state = self.state.lock();
        state.results.iter().map(|result| result.unwrap_or(Err(WaitFailure::TimedOut))).collect()
    }
}

/// Names a registered wait, so that whoever gives up takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitKey {
    offset: Offset,
    number: u64,
}

/// Produces that wait at one partition for the high watermark.
#[derive(Debug, Default)]
pub(super) struct ProduceWaiters {
    waiting: BTreeMap<WaitKey, (Arc<ProduceWait>, usize)>,
    next_number: u64,
}

impl ProduceWaiters {
    pub(super) fn add(&mut self, offset: Offset, wait: &Arc<ProduceWait>, index: usize) -> WaitKey {
        let key = WaitKey { offset, number: self.next_number };
        self.next_number += 1;
        self.waiting.insert(key, (wait.clone(), index));
        key
    }

    pub(super) fn remove(&mut self, key: WaitKey) {
        self.waiting.remove(&key);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Answers all that wait for an offset at or below the high watermark.
    pub(super) fn reached(&mut self, high_watermark: Offset, result: Result<(), WaitFailure>) {
        while let Some(entry) = self.waiting.first_entry() {
            if entry.key().offset > high_watermark {
                return;
            }
            let (wait, index) = entry.remove();
            wait.complete(index, result);
        }
    }

    /// Fails all that wait for an offset above `log_end_offset`.
    pub(super) fn cut(&mut self, log_end_offset: Offset, failure: WaitFailure) {
        let above = WaitKey { offset: log_end_offset.plus(1), number: 0 };
        for (wait, index) in self.waiting.split_off(&above).into_values() {
            wait.complete(index, Err(failure));
        }
    }

    pub(super) fn fail_all(&mut self, failure: WaitFailure) {
        for (wait, index) in std::mem::take(&mut self.waiting).into_values() {
            wait.complete(index, Err(failure));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_queues_each_slot_once_in_the_order_of_events() {
        let watch = FetchWatch::new();
        for slot in [3, 1, 3, 2, 1] {
            watch.mark(slot);
        }
        assert_eq!(watch.take(), [3, 1, 2]);
        assert!(watch.take().is_empty());
        watch.mark(1);
        assert_eq!(watch.take(), [1]);
    }

    #[test]
    fn closed_watches_leave_the_partition_with_the_next_registration() {
        let mut watchers = Watchers::default();
        let (gone, here) = (FetchWatch::new(), FetchWatch::new());
        watchers.add(&gone, 0, Interest::Committed);
        gone.close();
        watchers.changed();
        assert!(gone.take().is_empty());
        watchers.add(&here, 4, Interest::LogEnd);
        assert_eq!(watchers.len(), 1);
        watchers.remove(&here, 5);
        assert_eq!(watchers.len(), 1);
        watchers.remove(&here, 4);
        assert_eq!(watchers.len(), 0);
    }

    #[test]
    fn followers_hear_of_the_log_end_and_consumers_of_what_is_committed() {
        let mut watchers = Watchers::default();
        let (follower, consumer) = (FetchWatch::new(), FetchWatch::new());
        watchers.add(&follower, 0, Interest::LogEnd);
        watchers.add(&consumer, 0, Interest::Committed);
        watchers.log_end_moved();
        assert_eq!((follower.take().len(), consumer.take().len()), (1, 0));
        watchers.changed();
        assert_eq!((follower.take().len(), consumer.take().len()), (1, 1));
        watchers.high_watermark_moved();
        assert_eq!((follower.pending(), consumer.pending()), (Pending::News, Pending::Due));
        watchers.log_end_moved();
        assert_eq!(follower.pending(), Pending::Due, "queued already, and still worth waking for");
        assert_eq!((follower.take().len(), follower.pending()), (1, Pending::Nothing));
    }

    #[tokio::test]
    async fn a_request_is_answered_when_all_its_partitions_are() {
        let mut waiters = ProduceWaiters::default();
        let wait = ProduceWait::new(vec![None, Some(Ok(())), None]);
        waiters.add(Offset(10), &wait, 0);
        waiters.add(Offset(20), &wait, 2);
        waiters.reached(Offset(9), Ok(()));
        waiters.reached(Offset(10), Ok(()));
        assert_eq!(wait.results(), vec![Ok(()), Ok(()), Err(WaitFailure::TimedOut)]);
        waiters.cut(Offset(20), WaitFailure::NotLeader);
        assert!(!waiters.is_empty());
        waiters.cut(Offset(19), WaitFailure::NotLeader);
        assert!(waiters.is_empty());
        wait.all_done().await;
        assert_eq!(wait.results(), vec![Ok(()), Ok(()), Err(WaitFailure::NotLeader)]);
    }
}
