use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;

use super::super::shard::ReplayError;
use super::*;

/// Counts what each key was set to.
struct Counters(BTreeMap<Vec<u8>, Vec<u8>>);

impl Shard for Counters {
    fn empty() -> Counters {
        Counters(BTreeMap::new())
    }

    fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<Replayed, ReplayError> {
        if key == b"bad" {
            return Err(ReplayError("bad key".to_owned()));
        }
        if key == b"odd" {
            return Ok(Replayed::LeftOut("odd key".to_owned()));
        }
        match value {
            Some(value) => self.0.insert(key.to_vec(), value.to_vec()),
            None => self.0.remove(key),
        };
        Ok(Replayed::Taken)
    }
}

#[derive(Default)]
struct FakeLog {
    batches: Mutex<Vec<u8>>,
    end: Mutex<i64>,
    high_watermark: Mutex<i64>,
    advanced: Notify,
    appends: Mutex<usize>,
    refuse: AtomicBool,
}

impl FakeLog {
    fn commit_all(&self) {
        *self.high_watermark.lock() = *self.end.lock();
        self.advanced.notify_waiters();
    }
}

impl CoordinatorLog for FakeLog {
    fn log_start_offset(&self) -> Offset {
        Offset(0)
    }

    fn log_end_offset(&self) -> Offset {
        Offset(*self.end.lock())
    }

    fn read(&self, from: Offset, _: usize) -> Result<Bytes, CoordinatorLogError> {
        let stored = self.batches.lock().clone();
        let found = batches(&stored).flatten().find(|batch| batch.header.base_offset == from.0);
        Ok(found.map_or(Bytes::new(), |batch| Bytes::copy_from_slice(batch.bytes)))
    }

    fn append(&self, _: LeaderEpoch, mut batch: Vec<u8>) -> Result<Offset, CoordinatorLogError> {
        if self.refuse.load(Ordering::SeqCst) {
            return Err(CoordinatorLogError::NotEnoughReplicas);
        }
        let mut end = self.end.lock();
        let count = batches(&batch).flatten().map(|batch| i64::from(batch.header.records_count)).sum::<i64>();
        protocol::record_batch::set_base_offset(&mut batch, *end);
        *end += count;
        *self.appends.lock() += 1;
        self.batches.lock().extend(batch);
        Ok(Offset(*end))
    }

    fn committed(
        &self,
        _: LeaderEpoch,
        end: Offset,
        _: Duration,
    ) -> BoxFuture<'_, Result<(), CoordinatorLogError>> {
        Box::pin(async move {
            loop {
                let advanced = self.advanced.notified();
                if *self.high_watermark.lock() >= end.0 {
                    return Ok(());
                }
                advanced.await;
            }
        })
    }
}

struct OneLog(Arc<FakeLog>);

impl CoordinatorLogs for OneLog {
    fn open(&self, _: TopicIdPartition) -> Option<Arc<dyn CoordinatorLog>> {
        Some(self.0.clone())
    }
}

fn runtime(log: &Arc<FakeLog>) -> Arc<CoordinatorRuntime<Counters>> {
    let logs = Arc::new(OneLog(log.clone()));
    CoordinatorRuntime::new("test", logs, Handle::current(), Duration::from_secs(5), Arc::new(|| 0))
}

const PARTITION: TopicIdPartition = TopicIdPartition { topic_id: TopicId::ZERO, partition: 0 };

fn set(key: &'static [u8], value: &'static [u8]) -> impl FnOnce(&Counters, &mut Vec<CoordinatorRecord>) {
    move |_, records| {
        records
            .push(CoordinatorRecord { key: Bytes::from_static(key), value: Some(Bytes::from_static(value)) });
    }
}

fn get(key: &'static [u8]) -> impl FnOnce(&Counters, &mut Vec<CoordinatorRecord>) -> Option<Vec<u8>> {
    move |shard, _| shard.0.get(key).cloned()
}

#[tokio::test]
async fn an_answer_waits_for_the_commit_and_reads_wait_for_what_they_saw() {
    let log = Arc::new(FakeLog::default());
    let runtime = runtime(&log);
    assert_eq!(runtime.run(0, get(b"k")).await, Err(CoordinatorError::NotCoordinator));
    runtime.elected(PARTITION, LeaderEpoch(1));
    let write = runtime.run(0, set(b"k", b"1"));
    tokio::pin!(write);
    assert!(futures::poll!(&mut write).is_pending());
    while *log.appends.lock() == 0 {
        tokio::task::yield_now().await;
    }
    let read = runtime.run(0, get(b"k"));
    tokio::pin!(read);
    assert!(futures::poll!(&mut read).is_pending());
    tokio::task::yield_now().await;
    assert!(futures::poll!(&mut write).is_pending(), "not committed yet");
    assert!(futures::poll!(&mut read).is_pending(), "saw what is not committed yet");
    log.commit_all();
    assert_eq!(write.await, Ok(()));
    assert_eq!(read.await, Ok(Some(b"1".to_vec())));
}

#[tokio::test]
async fn a_new_leader_loads_what_the_old_one_wrote() {
    let log = Arc::new(FakeLog::default());
    let first = runtime(&log);
    first.elected(PARTITION, LeaderEpoch(1));
    let write = tokio::spawn({
        let first = first.clone();
        async move { first.run(0, set(b"k", b"1")).await }
    });
    while *log.appends.lock() == 0 {
        tokio::task::yield_now().await;
    }
    log.commit_all();
    assert_eq!(write.await.unwrap(), Ok(()));
    first.resigned(0);
    assert_eq!(first.run(0, get(b"k")).await, Err(CoordinatorError::NotCoordinator));
    let second = runtime(&log);
    second.elected(PARTITION, LeaderEpoch(2));
    assert_eq!(second.run(0, get(b"k")).await, Ok(Some(b"1".to_vec())));
}

#[tokio::test]
async fn a_refused_append_leaves_nothing_in_the_state() {
    let log = Arc::new(FakeLog::default());
    let runtime = runtime(&log);
    runtime.elected(PARTITION, LeaderEpoch(1));
    assert_eq!(runtime.run(0, get(b"k")).await, Ok(None));
    log.refuse.store(true, Ordering::SeqCst);
    assert_eq!(runtime.run(0, set(b"k", b"1")).await, Err(CoordinatorError::NotEnoughReplicas));
    log.refuse.store(false, Ordering::SeqCst);
    assert_eq!(runtime.run(0, get(b"k")).await, Ok(None));
}

/// One record that nobody can read takes nothing from the others, and is counted.
#[tokio::test]
async fn a_record_that_is_left_out_blocks_nothing() {
    let log = Arc::new(FakeLog::default());
    for (key, value) in [(b"odd", b"0"), (b"key", b"1")] {
        let batch = BatchBuilder::new().record(0, Some(key), Some(value)).build().to_vec();
        log.append(LeaderEpoch(1), batch).unwrap();
    }
    log.commit_all();
    let runtime = runtime(&log);
    runtime.elected(PARTITION, LeaderEpoch(1));
    assert_eq!(runtime.run(0, get(b"key")).await, Ok(Some(b"1".to_vec())));
    assert_eq!(runtime.records_left_out(), 1);
}

#[tokio::test]
async fn a_log_that_cannot_be_replayed_is_not_served() {
    let log = Arc::new(FakeLog::default());
    let batch = BatchBuilder::new().record(0, Some(b"bad"), None).build().to_vec();
    log.append(LeaderEpoch(1), batch).unwrap();
    log.commit_all();
    let runtime = runtime(&log);
    runtime.elected(PARTITION, LeaderEpoch(1));
    let refused = runtime.run(0, get(b"k")).await;
    assert_eq!(refused, Err(CoordinatorError::LoadFailed("bad key".to_owned())));
}
