//! The life of a coordinator's shards: loaded when this broker becomes leader of a partition, dropped
//! when it no longer is; in between operations become records, records are appended, and the answer
//! goes out once they are committed.
//!
//! One task owns each shard. What waits in its queue together becomes one batch. A read is answered
//! only when everything it could have seen is committed: acting on a state that is lost a moment later
//! is what coordinators must never cause.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::ids::*;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use protocol::record_batch::{BatchBuilder, batches};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::log::{CoordinatorLog, CoordinatorLogError, CoordinatorLogs};
use super::shard::{CoordinatorRecord, Replayed, Shard};

/// Operations that may wait for one shard; callers wait for room beyond it.
const QUEUE_OPERATIONS: usize = 4_096;
/// Operations and bytes that become one batch.
const BATCH_OPERATIONS: usize = 1_024;
const BATCH_BYTES: usize = 512 * 1024;
const LOAD_BYTES: usize = 1024 * 1024;
/// Records left out that are told one by one; the rest are counted.
const LEFT_OUT_TOLD: u64 = 10;
const RELOAD_PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CoordinatorError {
    #[error("this broker is not the coordinator")]
    NotCoordinator,
    #[error("the coordinator's state cannot be loaded: {0}")]
    LoadFailed(String),
    /// Whether it took effect is not known.
    #[error("not replicated in time")]
    TimedOut,
    #[error("too few replicas of the coordinator's partition are in sync")]
    NotEnoughReplicas,
    #[error("the coordinator's log: {0}")]
    Storage(String),
}

impl From<CoordinatorLogError> for CoordinatorError {
    fn from(error: CoordinatorLogError) -> Self {
        match error {
            CoordinatorLogError::NotLeader => CoordinatorError::NotCoordinator,
            CoordinatorLogError::NotEnoughReplicas => CoordinatorError::NotEnoughReplicas,
            CoordinatorLogError::TimedOut => CoordinatorError::TimedOut,
            CoordinatorLogError::Storage(why) => CoordinatorError::Storage(why),
        }
    }
}

type Reply = Box<dyn FnOnce(Result<(), CoordinatorError>) + Send>;
/// Reads the shard, leaves its records, and hands back how to answer.
type Operation<S> = Box<dyn FnOnce(&S, &mut Vec<CoordinatorRecord>) -> Reply + Send>;

/// An operation, and how to answer it where it cannot be run.
struct Request<S> {
    operation: Operation<S>,
    refused: Arc<Mutex<Option<CoordinatorError>>>,
}

struct ShardHandle<S> {
    leader_epoch: LeaderEpoch,
    sender: mpsc::Sender<Request<S>>,
    stop: CancellationToken,
}

pub struct CoordinatorRuntime<S: Shard> {
    /// Of the topic, for logs.
    name: &'static str,
    logs: Arc<dyn CoordinatorLogs>,
    runtime: Handle,
    write_timeout: Duration,
    now_ms: Arc<dyn Fn() -> i64 + Send + Sync>,
    shards: Mutex<HashMap<i32, ShardHandle<S>>>,
    left_out: Arc<AtomicU64>,
}

impl<S: Shard> CoordinatorRuntime<S> {
    pub fn new(
        name: &'static str,
        logs: Arc<dyn CoordinatorLogs>,
        runtime: Handle,
        write_timeout: Duration,
        now_ms: Arc<dyn Fn() -> i64 + Send + Sync>,
    ) -> Arc<CoordinatorRuntime<S>> {
        let (shards, left_out) = (Mutex::new(HashMap::new()), Arc::new(AtomicU64::new(0)));
        Arc::new(CoordinatorRuntime { name, logs, runtime, write_timeout, now_ms, shards, left_out })
    }

    /// Records that could not be read when shards were loaded.
    pub fn records_left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// This broker leads `partition` under `leader_epoch`. Loads its state, anew for a later epoch.
    pub fn elected(&self, partition: TopicIdPartition, leader_epoch: LeaderEpoch) {
        let mut shards = self.shards.lock();
        if let Some(running) = shards.get(&partition.partition) {
            if running.leader_epoch >= leader_epoch && !running.sender.is_closed() {
                return;
            }
            running.stop.cancel();
        }
        let (sender, receiver) = mpsc::channel(QUEUE_OPERATIONS);
        let stop = CancellationToken::new();
        let task = ShardTask::<S> {
            name: self.name,
            partition,
            leader_epoch,
            logs: self.logs.clone(),
            write_timeout: self.write_timeout,
            now_ms: self.now_ms.clone(),
            receiver,
            stop: stop.clone(),
            left_out: self.left_out.clone(),
        };
        self.runtime.spawn(task.run());
        shards.insert(partition.partition, ShardHandle { leader_epoch, sender, stop });
    }

    pub fn resigned(&self, partition: i32) {
        if let Some(shard) = self.shards.lock().remove(&partition) {
            info!(topic = self.name, partition, "coordinator shard unloaded");
            shard.stop.cancel();
        }
    }

    pub fn shutdown(&self) {
        for (_, shard) in self.shards.lock().drain() {
            shard.stop.cancel();
        }
    }

    pub fn serves(&self, partition: i32) -> bool {
        self.shards.lock().contains_key(&partition)
    }

    /// Runs `operation` on the shard; its answer comes when the records it left, and all before them,
    /// are committed. An operation that leaves none is a read.
    pub async fn run<R, F>(&self, partition: i32, operation: F) -> Result<R, CoordinatorError>
    where
        R: Send + 'static,
        F: FnOnce(&S, &mut Vec<CoordinatorRecord>) -> R + Send + 'static,
    {
        let sender = self.shards.lock().get(&partition).map(|shard| shard.sender.clone());
        let sender = sender.ok_or(CoordinatorError::NotCoordinator)?;
        let (answer, answered) = oneshot::channel();
        let refused = Arc::new(Mutex::new(None));
        let operation: Operation<S> = Box::new(move |shard, records| {
            let result = operation(shard, records);
            Box::new(move |committed| {
                // A caller that went away needs no answer.
                let _ = answer.send(committed.map(|()| result));
            })
        });
        let request = Request { operation, refused: refused.clone() };
        sender.send(request).await.map_err(|_| CoordinatorError::NotCoordinator)?;
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(refused.lock().take().unwrap_or(CoordinatorError::NotCoordinator)),
        }
    }
}

struct ShardTask<S> {
    name: &'static str,
    partition: TopicIdPartition,
    leader_epoch: LeaderEpoch,
    logs: Arc<dyn CoordinatorLogs>,
    write_timeout: Duration,
    now_ms: Arc<dyn Fn() -> i64 + Send + Sync>,
    receiver: mpsc::Receiver<Request<S>>,
    stop: CancellationToken,
    left_out: Arc<AtomicU64>,
}

/// Answers that wait for a log end to be committed.
struct Waiting {
    end: Offset,
    replies: Vec<Reply>,
}

/// Why a shard left its loop.
enum Left {
    Stopped,
    /// The state in memory is ahead of the log, since an append failed: only the log knows.
    Reload(CoordinatorLogError),
}

impl<S: Shard> ShardTask<S> {
    async fn run(mut self) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.serve() => {}
        }
    }

    async fn serve(&mut self) {
        loop {
            let (log, shard) = match self.load().await {
                Ok(loaded) => loaded,
                Err(why) => {
                    warn!(
                        topic = self.name,
                        partition = self.partition.partition,
                        why,
                        "coordinator shard cannot be loaded"
                    );
                    self.refuse_waiting(&CoordinatorError::LoadFailed(why));
                    tokio::time::sleep(RELOAD_PAUSE).await;
                    continue;
                }
            };
            match self.operate(log, shard).await {
                Left::Stopped => return,
                Left::Reload(CoordinatorLogError::NotLeader) => {
                    // The image will tell of the new leader; until then nobody is served.
                    self.refuse_waiting(&CoordinatorError::NotCoordinator);
                    tokio::time::sleep(RELOAD_PAUSE).await;
                }
                Left::Reload(why) => {
                    warn!(topic = self.name, partition = self.partition.partition, %why, "coordinator shard reloads");
                    tokio::time::sleep(RELOAD_PAUSE).await;
                }
            }
        }
    }

    fn refuse_waiting(&mut self, error: &CoordinatorError) {
        while let Ok(request) = self.receiver.try_recv() {
            *request.refused.lock() = Some(error.clone());
        }
    }

    /// Replays the log up to its end.
    async fn load(&self) -> Result<(Arc<dyn CoordinatorLog>, S), String> {
        let log = self.logs.open(self.partition).ok_or("this broker has no such partition")?;
        let mut shard = S::empty();
        // A new leader's whole log will be committed; what is read from here on is.
        let end = log.log_end_offset();
        log.committed(self.leader_epoch, end, self.write_timeout).await.map_err(|error| error.to_string())?;
        let mut next = log.log_start_offset();
        let (mut records, mut left_out) = (0_u64, 0_u64);
        while next < end {
            let bytes = log.read(next, LOAD_BYTES).map_err(|error| error.to_string())?;
            let before = next;
            for batch in batches(&bytes) {
                let batch = batch.map_err(|error| error.to_string())?;
                if !batch.header.is_control() {
                    for record in batch.records() {
                        let record = record.map_err(|error| error.to_string())?;
                        let Some(key) = record.key else { continue };
                        records += 1;
                        match shard.replay(key, record.value).map_err(|error| error.to_string())? {
                            Replayed::Taken => {}
                            Replayed::LeftOut(why) => {
                                left_out += 1;
                                self.tell_left_out(left_out, batch.header.base_offset, &why);
                            }
                        }
                    }
                }
                next = Offset(batch.header.next_offset());
            }
            if next <= before {
                return Err(format!("nothing to read at offset {before}"));
            }
            tokio::task::yield_now().await;
        }
        let partition = self.partition.partition;
        info!(
            topic = self.name,
            partition,
            records,
            left_out,
            end = next.0,
            epoch = self.leader_epoch.0,
            "coordinator shard loaded"
        );
        Ok((log, shard))
    }

    fn tell_left_out(&self, count: u64, batch_offset: i64, why: &str) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
        if count <= LEFT_OUT_TOLD {
            let partition = self.partition.partition;
            warn!(topic = self.name, partition, batch_offset, why, "a record cannot be read and is left out");
        }
    }

    async fn operate(&mut self, log: Arc<dyn CoordinatorLog>, mut shard: S) -> Left {
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        let mut committed = Offset(-1);
        let mut end = log.log_end_offset();
        let mut commit: Option<BoxFuture<'static, Result<(), CoordinatorLogError>>> = None;
        loop {
            if commit.is_none()
                && let Some(front) = waiting.front()
            {
                let (log, under, end, timeout) =
                    (log.clone(), self.leader_epoch, front.end, self.write_timeout);
                commit = Some(Box::pin(async move { log.committed(under, end, timeout).await }));
            }
            let request = tokio::select! {
                biased;
                result = pending_commit(&mut commit) => {
                    commit = None;
                    let Some(front) = waiting.pop_front() else { continue };
                    let outcome = result.map_err(CoordinatorError::from);
                    if outcome.is_ok() {
                        committed = front.end;
                    }
                    let lost = outcome == Err(CoordinatorError::NotCoordinator);
                    front.replies.into_iter().for_each(|reply| reply(outcome.clone()));
                    if lost {
                        return self.leave(waiting, CoordinatorLogError::NotLeader);
                    }
                    continue;
                }
                request = self.receiver.recv() => request,
            };
            let Some(request) = request else { return Left::Stopped };
            let (replies, records) = match self.take_batch(request, &mut shard) {
                Ok(taken) => taken,
                Err(why) => return self.leave(waiting, CoordinatorLogError::Storage(why)),
            };
            if !records.is_empty() {
                match log.append(self.leader_epoch, self.batch_of(&records)) {
                    Ok(new_end) => end = new_end,
                    Err(error) => {
                        let refusal = CoordinatorError::from(error.clone());
                        replies.into_iter().for_each(|reply| reply(Err(refusal.clone())));
                        return self.leave(waiting, error);
                    }
                }
            } else if committed >= end {
                replies.into_iter().for_each(|reply| reply(Ok(())));
                continue;
            }
            waiting.push_back(Waiting { end, replies });
        }
    }

    fn leave(&self, waiting: VecDeque<Waiting>, why: CoordinatorLogError) -> Left {
        // Appended, but whether it will stay is not known.
        for reply in waiting.into_iter().flat_map(|waiting| waiting.replies) {
            reply(Err(CoordinatorError::TimedOut));
        }
        Left::Reload(why)
    }

    /// Runs what waits, each operation on the state the one before it left.
    fn take_batch(
        &mut self,
        first: Request<S>,
        shard: &mut S,
    ) -> Result<(Vec<Reply>, Vec<CoordinatorRecord>), String> {
        let mut replies = Vec::new();
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(request) = next.take() {
            let from = records.len();
            replies.push((request.operation)(shard, &mut records));
            for record in &records[from..] {
                bytes += record.key.len() + record.value.as_ref().map_or(0, |value| value.len());
                shard.replay(&record.key, record.value.as_deref()).map_err(|error| error.to_string())?;
            }
            if replies.len() < BATCH_OPERATIONS && bytes < BATCH_BYTES {
                next = self.receiver.try_recv().ok();
            }
        }
        Ok((replies, records))
    }

    fn batch_of(&self, records: &[CoordinatorRecord]) -> Vec<u8> {
        let now_ms = (self.now_ms)();
        let mut builder = BatchBuilder::new();
        for record in records {
            builder.push(now_ms, Some(&record.key), record.value.as_deref(), &[]);
        }
        builder.build().to_vec()
    }
}

/// Never resolves while there is nothing to wait for.
async fn pending_commit(
    commit: &mut Option<BoxFuture<'static, Result<(), CoordinatorLogError>>>,
) -> Result<(), CoordinatorLogError> {
    match commit {
        Some(commit) => commit.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
