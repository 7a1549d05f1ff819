//! Desired and running fetchers: one task for each (leader, fetcher id) that has partitions.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use common::ids::*;
use common::metadata::MetadataImage;
use common::task::TaskGroup;
use parking_lot::Mutex;

use super::fetcher::{Command, Fetcher, Inbox};
use super::leader_endpoint::{FollowerIdentity, LeaderConnector};
use crate::log::LogManager;
use crate::replica::Partition;

#[derive(Clone, Copy, Debug)]
pub struct FetcherConfig {
    pub broker_id: BrokerId,
    /// `num.replica.fetchers`: per leader.
    pub num_fetchers: usize,
    /// `replica.fetch.wait.max.ms`
    pub wait_max_ms: i32,
    /// `replica.fetch.min.bytes`
    pub min_bytes: i32,
    /// `replica.fetch.max.bytes`, of one partition.
    pub partition_max_bytes: i32,
    /// `replica.fetch.response.max.bytes`
    pub response_max_bytes: i32,
    /// `replica.fetch.backoff.ms`: the longest pause after an error.
    pub backoff_ms: u64,
}

/// What fetchers read of the newest metadata.
pub(super) struct FetcherContext {
    pub(super) config: FetcherConfig,
    pub(super) connector: Arc<dyn LeaderConnector>,
    pub(super) log_manager: Arc<LogManager>,
    pub(super) image: ArcSwap<MetadataImage>,
}

impl FetcherContext {
    pub(super) fn identity(&self) -> FollowerIdentity {
        let image = self.image.load();
        let own = image.brokers.get(&self.config.broker_id);
        FollowerIdentity {
            broker_id: self.config.broker_id,
            broker_epoch: own.map_or(BrokerEpoch(-1), |broker| broker.broker_epoch),
            max_wait_ms: self.config.wait_max_ms,
            min_bytes: self.config.min_bytes,
            max_bytes: self.config.response_max_bytes,
            partition_max_bytes: self.config.partition_max_bytes,
        }
    }

    /// `host:port` of a broker's inter-broker listener.
    pub(super) fn address(&self, broker: BrokerId) -> Option<String> {
        let image = self.image.load();
        let endpoint = image.brokers.get(&broker)?.inter_broker()?;
        Some(format!("{}:{}", endpoint.host, endpoint.port))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FetcherKey {
    leader: BrokerId,
    fetcher_id: usize,
}

struct Running {
    inbox: Arc<Inbox>,
    partitions: usize,
}

#[derive(Default)]
struct State {
    assigned: HashMap<TopicIdPartition, FetcherKey>,
    running: HashMap<FetcherKey, Running>,
}

/// A partition that is to be fetched; no leader: it waits for one.
pub struct FetchAssignment {
    pub partition: Arc<Partition>,
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
}

pub struct FetcherManager {
    context: Arc<FetcherContext>,
    tasks: TaskGroup,
    state: Mutex<State>,
}

impl FetcherManager {
    pub fn new(
        config: FetcherConfig,
        connector: Arc<dyn LeaderConnector>,
        log_manager: Arc<LogManager>,
        tasks: TaskGroup,
    ) -> FetcherManager {
        let image = ArcSwap::from_pointee(MetadataImage::default());
        FetcherManager {
            context: Arc::new(FetcherContext { config, connector, log_manager, image }),
            tasks,
            state: Mutex::new(State::default()),
        }
    }

    /// Addresses and broker epochs are read from this image from now on.
    pub fn set_image(&self, image: Arc<MetadataImage>) {
        self.context.image.store(image);
    }

    pub fn assign(&self, assignments: Vec<FetchAssignment>) {
        let mut state = self.state.lock();
        for FetchAssignment { partition, leader, leader_epoch } in assignments {
            let id = partition.id();
            let key = leader.map(|leader| self.key(leader, id));
            let before = state.assigned.get(&id).copied();
            if before != key {
                self.unassign(&mut state, id);
            }
            let Some(key) = key else { continue };
            if state.assigned.insert(id, key).is_none() {
                let running = state.running.entry(key).or_insert_with(|| self.start(key));
                running.partitions += 1;
            }
            if let Some(running) = state.running.get(&key) {
                running.inbox.send(Command::Follow { partition, leader_epoch });
            }
        }
    }

    pub fn remove(&self, ids: impl IntoIterator<Item = TopicIdPartition>) {
        let mut state = self.state.lock();
        for id in ids {
            self.unassign(&mut state, id);
        }
    }

    fn unassign(&self, state: &mut State, id: TopicIdPartition) {
        let Some(key) = state.assigned.remove(&id) else { return };
        let Some(running) = state.running.get_mut(&key) else { return };
        running.inbox.send(Command::Forget(id));
        running.partitions -= 1;
        if running.partitions == 0 {
            running.inbox.stop();
            state.running.remove(&key);
        }
    }

    fn key(&self, leader: BrokerId, id: TopicIdPartition) -> FetcherKey {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let fetchers = self.context.config.num_fetchers.max(1) as u64;
        FetcherKey { leader, fetcher_id: (hasher.finish() % fetchers) as usize }
    }

    fn start(&self, key: FetcherKey) -> Running {
        let inbox = Arc::new(Inbox::new(self.tasks.shutdown_token().child_token()));
        let fetcher = Fetcher::new(key.leader, self.context.clone(), inbox.clone());
        let name = format!("replica-fetcher-{}-{}", key.leader, key.fetcher_id);
        self.tasks.spawn(name, fetcher.run());
        Running { inbox, partitions: 0 }
    }

    pub fn running(&self) -> usize {
        self.state.lock().running.len()
    }
}
