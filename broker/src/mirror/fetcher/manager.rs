//! Which partition is copied by which fetcher.
//!
//! Keyed by slot number, host and port of the source's broker, and mirror: node ids of two clusters
//! overlap, and mirrors never share a connection, since each has its own credentials (KIP-1279).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use common::ids::*;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::coordinator::java_hash;
use crate::mirror::deps::{Clock, LocalPartition};
use crate::mirror::lag::Lag;
use crate::mirror::source::SourceClient;
use crate::mirror::state::{FetchStop, SourceLeader, Token};

use super::budget::FetchBudget;
use super::slot::{EventSink, FetchSlot};
use super::worker::Worker;

/// Over all fetchers of this broker.
#[derive(Debug, Default)]
pub struct FetcherMetrics {
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
    pub connection_errors: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FetcherKey {
    slot: i32,
    host: Arc<str>,
    port: u16,
    mirror: Arc<str>,
}

struct Fetcher {
    added: mpsc::UnboundedSender<Arc<FetchSlot>>,
    task: AbortHandle,
    partitions: usize,
}

#[derive(Clone, Debug)]
pub struct Copied {
    pub id: TopicIdPartition,
    pub topic: Arc<str>,
    pub epoch: LeaderEpoch,
}

struct Running {
    slot: Arc<FetchSlot>,
    key: FetcherKey,
}

pub struct FetcherManager {
    broker: BrokerId,
    runtime: Handle,
    budget: Arc<FetchBudget>,
    clock: Arc<dyn Clock>,
    metrics: Arc<FetcherMetrics>,
    events: EventSink,
    fetchers_per_source: i32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    fetchers: HashMap<FetcherKey, Fetcher>,
    running: HashMap<TopicIdPartition, Running>,
}

impl FetcherManager {
    pub fn new(
        broker: BrokerId,
        runtime: Handle,
        budget: Arc<FetchBudget>,
        clock: Arc<dyn Clock>,
        events: EventSink,
        fetchers_per_source: i32,
    ) -> FetcherManager {
        FetcherManager {
            broker,
            runtime,
            budget,
            clock,
            metrics: Arc::default(),
            events,
            fetchers_per_source: fetchers_per_source.max(1),
            state: Mutex::default(),
        }
    }

    pub fn metrics(&self) -> &Arc<FetcherMetrics> {
        &self.metrics
    }

    pub fn fetchers(&self) -> usize {
        self.state.lock().fetchers.len()
    }

    /// Starts copying from the local log end; a fetch of the same partition that still runs is closed.
    pub fn start(
        &self,
        client: &Arc<SourceClient>,
        id: TopicIdPartition,
        topic: Arc<str>,
        token: Token,
        source: &SourceLeader,
        leader_epoch: LeaderEpoch,
        partition: Arc<dyn LocalPartition>,
        lag: Arc<Lag>,
    ) {
        self.stop(id);
        let key = FetcherKey {
            slot: self.slot_of(&topic, id.partition),
            host: source.host.clone(),
            port: source.port,
            mirror: client.mirror.clone(),
        };
        let slot = Arc::new(FetchSlot::new(
            id,
            topic,
            token,
            source.epoch,
            leader_epoch,
            partition,
            lag,
            self.events.clone(),
        ));
        let mut state = self.state.lock();
        let fetcher = state.fetchers.entry(key.clone()).or_insert_with(|| self.spawn(&key, client));
        fetcher.partitions += 1;
        // The task lives as long as its sender.
        let _ = fetcher.added.send(slot.clone());
        state.running.insert(id, Running { slot, key });
    }

    fn spawn(&self, key: &FetcherKey, client: &Arc<SourceClient>) -> Fetcher {
        let (added, receiver) = mpsc::unbounded_channel();
        let worker = Worker {
            address: format!("{}:{}", key.host, key.port),
            client_id: format!("broker-{}-fetcher-{}-mirror-{}", self.broker, key.slot, key.mirror),
            client: client.clone(),
            budget: self.budget.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            added: receiver,
            runtime: self.runtime.clone(),
            last_added: Instant::now(),
        };
        self.budget.joined();
        let budget = self.budget.clone();
        let task = self.runtime.spawn(async move {
            worker.run().await;
            budget.left();
        });
        Fetcher { added, task: task.abort_handle(), partitions: 0 }
    }

    fn slot_of(&self, topic: &str, partition: i32) -> i32 {
        let hash = java_hash(topic).wrapping_mul(31).wrapping_add(partition);
        (hash & i32::MAX) % self.fetchers_per_source
    }

    /// Returns when nothing of the partition is being appended, and nothing will be. A fetcher whose
    /// last partition leaves ends by itself.
    pub fn stop(&self, id: TopicIdPartition) {
        let mut state = self.state.lock();
        let Some(running) = state.running.remove(&id) else { return };
        if let Some(fetcher) = state.fetchers.get_mut(&running.key) {
            fetcher.partitions -= 1;
            if fetcher.partitions == 0 {
                state.fetchers.remove(&running.key);
            }
        }
        drop(state);
        running.slot.close();
    }

    pub fn append_under(&self, id: TopicIdPartition, leader_epoch: LeaderEpoch) {
        if let Some(running) = self.state.lock().running.get(&id) {
            running.slot.append_under(leader_epoch);
        }
    }

    /// What a mirror copies here, and from which epoch of the source.
    pub fn sources_of(&self, mirror: &str) -> Vec<Copied> {
        let state = self.state.lock();
        let of_mirror = state.running.iter().filter(|(_, running)| &*running.key.mirror == mirror);
        of_mirror
            .map(|(id, running)| Copied {
                id: *id,
                topic: running.slot.topic.clone(),
                epoch: running.slot.source_epoch,
            })
            .collect()
    }

    /// The source has a later leader than the one fetched from.
    pub fn source_moved(&self, id: TopicIdPartition, epoch: LeaderEpoch) {
        let slot = self.state.lock().running.get(&id).map(|running| running.slot.clone());
        if let Some(slot) = slot.filter(|slot| slot.source_epoch < epoch) {
            slot.stop(FetchStop::SourceMoved { epoch: Some(epoch) });
        }
    }

    pub fn shutdown(&self) {
        let mut state = self.state.lock();
        let running: Vec<Running> = state.running.drain().map(|(_, running)| running).collect();
        let fetchers: Vec<Fetcher> = state.fetchers.drain().map(|(_, fetcher)| fetcher).collect();
        drop(state);
        running.iter().for_each(|running| running.slot.close());
        fetchers.iter().for_each(|fetcher| fetcher.task.abort());
    }
}
