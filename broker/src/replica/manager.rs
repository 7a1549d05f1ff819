//! The partitions that this broker holds, and the way in for everybody who uses them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use common::clock::Clock;
use common::ids::*;
use common::metadata::MetadataImage;
use common::task::TaskGroup;
use parking_lot::{Mutex, RwLock};
use protocol::ErrorCode;
use tokio::time::Instant;

use super::alter_partition::{IsrQueue, isr_outcome};
use super::append::{Append, Replicated};
use super::deps::{IsrProposalItem, ReplicaDeps};
use super::error::{AppendFailure, PartitionError, WaitFailure};
use super::fetch_session::FetchSession;
use super::partition::Partition;
use super::purgatory::{FetchWatch, ProduceWait};
use super::session_cache::{SessionCache, SessionLimits};
use super::state::{IsrOutcome, ReplicaEvent};
use super::throttle::{Throttle, ThrottledReplicas, UNLIMITED};
use crate::fetcher::leader_endpoint::LeaderConnector;
use crate::fetcher::{FetcherConfig, FetcherManager};
use crate::log::{AppendInfo, AppendOrigin, LogConfig, LogManager};

/// What a topic's resolved configuration says to its replicas.
#[derive(Clone, Debug)]
pub struct TopicSettings {
    pub log: Arc<LogConfig>,
    pub min_insync_replicas: usize,
    /// `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`
    pub leader_throttled: Arc<ThrottledReplicas>,
    pub follower_throttled: Arc<ThrottledReplicas>,
}

/// Bytes a second of throttled replicas, as this broker's dynamic configuration has them now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicationRates {
    pub leader: i64,
    pub follower: i64,
    /// Between this broker's log directories.
    pub moves: i64,
}

impl Default for ReplicationRates {
    fn default() -> Self {
        ReplicationRates { leader: UNLIMITED, follower: UNLIMITED, moves: UNLIMITED }
    }
}

pub type ResolveReplicationRates = Arc<dyn Fn(&MetadataImage) -> ReplicationRates + Send + Sync>;

/// Resolves a topic's configuration (topic, then dynamic and static broker configs).
pub type ResolveTopicSettings = Arc<dyn Fn(&MetadataImage, &str) -> TopicSettings + Send + Sync>;

pub struct ReplicaManagerConfig {
    pub broker_id: BrokerId,
    /// `replica.lag.time.max.ms`
    pub replica_lag_time_max_ms: i64,
    /// `produce.validation=relaxed`
    pub relaxed_validation: bool,
    pub fetcher: FetcherConfig,
    /// `max.incremental.fetch.session.cache.slots`
    pub max_fetch_sessions: usize,
    /// `min.incremental.fetch.session.eviction.ms`
    pub fetch_session_eviction_ms: u64,
    /// `replica.high.watermark.checkpoint.interval.ms`
    pub checkpoint_interval: Duration,
    /// `log.retention.check.interval.ms`
    pub retention_check_interval: Duration,
    pub topic_settings: ResolveTopicSettings,
    pub replication_rates: ResolveReplicationRates,
    /// `replica.selector.class` sends consumers to replicas in their rack (KIP-392).
    pub rack_aware_reads: bool,
}

/// Partitions over all fetch sessions: bounds their memory at some tens of MiB.
const MAX_SESSION_PARTITIONS: usize = 200_000;

/// What partitions share.
pub(super) struct Context {
    pub(super) local: BrokerId,
    pub(super) config: ReplicaManagerConfig,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) deps: Arc<dyn ReplicaDeps>,
    /// The newest image that has been applied to the partitions.
    pub(super) image: ArcSwap<MetadataImage>,
    pub(super) isr_queue: IsrQueue,
    pub(super) leader_throttle: Mutex<Throttle>,
    pub(super) follower_throttle: Mutex<Throttle>,
    /// Of moves between log directories.
    pub(super) move_throttle: Mutex<Throttle>,
    /// Fetch sessions of followers, to be woken when one should ask again.
    followers: Mutex<HashMap<BrokerId, Vec<Weak<FetchWatch>>>>,
}

impl Context {
    pub(super) fn propose_isr(&self, item: IsrProposalItem) {
        if let Some(batch) = self.isr_queue.push(item) {
            self.deps.alter_partition(batch);
        }
    }

    /// What lag and ISR are reckoned by: somebody who sets this machine's clock moves no ISR.
    pub(super) fn steady_ms(&self) -> i64 {
        i64::try_from(self.clock.monotonic_ms()).unwrap_or(i64::MAX)
    }

    /// The epoch of this broker's registration; -1 (not checked) for another broker.
    pub(super) fn own_broker_epoch(&self, broker_id: BrokerId) -> BrokerEpoch {
        let image = self.image.load();
        match image.brokers.get(&broker_id) {
            Some(broker) if broker_id == self.local => broker.broker_epoch,
            _ => BrokerEpoch(-1),
        }
    }

    /// May join the partition's ISR: the process that is registered, unfenced and staying.
    pub(super) fn is_eligible(
        &self,
        id: TopicIdPartition,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> bool {
        let registered = self.active_broker(id, broker_id);
        registered.is_some_and(|(_, registered)| broker_epoch.0 < 0 || registered == broker_epoch)
    }

    /// A broker that may join the partition's ISR, with the epoch of its registration. As the controller sees
    /// it, which refuses a replica whose directory is lost, too.
    pub(super) fn active_broker(
        &self,
        id: TopicIdPartition,
        broker_id: BrokerId,
    ) -> Option<(BrokerId, BrokerEpoch)> {
        let image = self.image.load();
        let broker = image.brokers.get(&broker_id).filter(|broker| broker.is_active())?;
        has_replica_directory(&image, id, broker_id).then_some((broker_id, broker.broker_epoch))
    }

    /// Holds a replica of the partition that can be asked for something.
    pub(super) fn is_alive(&self, id: TopicIdPartition, broker_id: BrokerId) -> bool {
        let image = self.image.load();
        let is_unfenced = image.brokers.get(&broker_id).is_some_and(|broker| !broker.fenced);
        is_unfenced && has_replica_directory(&image, id, broker_id)
    }

    pub(super) fn register_follower(&self, broker_id: BrokerId, watch: &Arc<FetchWatch>) {
        let mut followers = self.followers.lock();
        let watches = followers.entry(broker_id).or_default();
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(watch));
    }

    /// Has the parked fetches of these brokers answered, so that they ask again with what is new.
    pub(super) fn nudge(&self, brokers: &[BrokerId]) {
        if brokers.is_empty() {
            return;
        }
        let followers = self.followers.lock();
        for watch in brokers.iter().filter_map(|broker| followers.get(broker)).flatten() {
            if let Some(watch) = watch.upgrade() {
                watch.nudge();
            }
        }
    }
}

fn has_replica_directory(image: &MetadataImage, id: TopicIdPartition, broker_id: BrokerId) -> bool {
    let partition = image.partition(id);
    partition.is_none_or(|partition| image.has_replica_directory(&partition.registration, broker_id))
}

pub struct ReplicaManager {
    pub(super) context: Arc<Context>,
    pub(super) log_manager: Arc<LogManager>,
    pub(super) partitions: RwLock<HashMap<TopicIdPartition, Arc<Partition>>>,
    pub(super) fetchers: FetcherManager,
    pub(super) sessions: Mutex<SessionCache<Arc<FetchSession>>>,
    pub(super) tasks: TaskGroup,
    /// Serialises changes of metadata; true once the directories have been compared with an image.
    pub(super) applying: Mutex<bool>,
    /// A step of a move between log directories goes on.
    pub(super) moving: Arc<Mutex<()>>,
    /// Replicas for which there was no space.
    pub(super) unhosted: Mutex<BTreeSet<TopicIdPartition>>,
    /// Replicas that a change takes away which the image does not show yet, and whether their topics stay.
    pub(super) leaving: RwLock<HashMap<TopicIdPartition, bool>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOptions {
    /// -1, 0 or 1; -1 wants `min.insync.replicas` in sync before anything is written.
    pub acks: i16,
    pub origin: AppendOrigin,
    pub expected_leader_epoch: Option<LeaderEpoch>,
}

#[derive(Debug)]
pub struct Appended {
    pub info: AppendInfo,
    pub partition: Arc<Partition>,
    pub leader_epoch: LeaderEpoch,
}

/// An append that is acknowledged once the high watermark has reached `offset`, its end.
#[derive(Debug)]
pub struct Waiting {
    pub partition: Arc<Partition>,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

impl Appended {
    pub fn waiting(&self) -> Waiting {
        Waiting {
            partition: self.partition.clone(),
            offset: self.info.last_offset.plus(1),
            leader_epoch: self.leader_epoch,
        }
    }
}

/// The controller's answer to one proposed ISR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrAnswer {
    pub id: TopicIdPartition,
    pub error: ErrorCode,
    /// As committed; looked at only without an error.
    pub isr: Vec<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
}

impl ReplicaManager {
    pub fn new(
        config: ReplicaManagerConfig,
        log_manager: Arc<LogManager>,
        deps: Arc<dyn ReplicaDeps>,
        connector: Arc<dyn LeaderConnector>,
        clock: Arc<dyn Clock>,
    ) -> Arc<ReplicaManager> {
        let tasks = TaskGroup::new();
        let limits = SessionLimits {
            max_sessions: config.max_fetch_sessions,
            max_partitions: MAX_SESSION_PARTITIONS,
            eviction_ms: config.fetch_session_eviction_ms,
        };
        let fetchers = FetcherManager::new(config.fetcher, connector, log_manager.clone(), tasks.clone());
        let context = Arc::new(Context {
            local: config.broker_id,
            config,
            clock,
            deps,
            image: ArcSwap::from_pointee(MetadataImage::default()),
            isr_queue: IsrQueue::default(),
            leader_throttle: Mutex::default(),
            follower_throttle: Mutex::default(),
            move_throttle: Mutex::default(),
            followers: Mutex::new(HashMap::new()),
        });
        Arc::new(ReplicaManager {
            context,
            log_manager,
            partitions: RwLock::new(HashMap::new()),
            fetchers,
            sessions: Mutex::new(SessionCache::new(limits)),
            tasks,
            applying: Mutex::new(false),
            moving: Arc::default(),
            unhosted: Mutex::default(),
            leaving: RwLock::default(),
        })
    }

    pub fn broker_id(&self) -> BrokerId {
        self.context.local
    }

    /// The newest image that has been applied here: what it says of this broker's partitions holds.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.context.image.load_full()
    }

    pub fn log_manager(&self) -> &Arc<LogManager> {
        &self.log_manager
    }

    pub fn partition(&self, id: TopicIdPartition) -> Option<Arc<Partition>> {
        self.partitions.read().get(&id).cloned()
    }

    /// All partitions with a replica here.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.read().values().cloned().collect()
    }

    /// The partition, or why there is none: not known at all, or led elsewhere.
    pub fn local_partition(&self, id: TopicIdPartition) -> Result<Arc<Partition>, PartitionError> {
        let Some(partition) = self.partition(id) else { return Err(self.why_none(id)) };
        Ok(partition)
    }

    fn why_none(&self, id: TopicIdPartition) -> PartitionError {
        // Asked before the image: once it is not leaving any more, the image knows.
        match self.leaving.read().get(&id) {
            Some(true) => return PartitionError::NotLeader,
            Some(false) => return PartitionError::UnknownTopicOrPartition,
            None => {}
        }
        match self.context.image.load().partition(id) {
            // Its log could not be opened, or its directory has failed.
            Some(partition) if partition.registration.leader == Some(self.context.local) => {
                PartitionError::Offline
            }
            Some(_) => PartitionError::NotLeader,
            None => PartitionError::UnknownTopicOrPartition,
        }
    }

    /// Appends to a partition that this broker leads. Never waits: the order of calls is the order in
    /// the log.
    pub fn append(
        &self,
        id: TopicIdPartition,
        records: &mut [u8],
        options: AppendOptions,
    ) -> Result<Appended, AppendFailure> {
        let partition = self.local_partition(id)?;
        let append = Append {
            all_in_sync: options.acks == -1,
            origin: options.origin,
            expected_leader_epoch: options.expected_leader_epoch,
        };
        let (info, leader_epoch) = partition.append(records, append)?;
        Ok(Appended { info, partition, leader_epoch })
    }

    /// Resolves when every append is replicated or has failed to be, at the latest at the deadline.
    pub async fn wait_replicated(
        &self,
        waiting: Vec<Waiting>,
        deadline: Instant,
    ) -> Vec<Result<(), WaitFailure>> {
        let ask = |waiting: &Waiting| match waiting.partition.wait_for(
            waiting.offset,
            waiting.leader_epoch,
            None,
        ) {
            Replicated::Known(result) => Some(result),
            Replicated::Open(_) => None,
        };
        let known: Vec<Option<Result<(), WaitFailure>>> = waiting.iter().map(ask).collect();
        if known.iter().all(Option::is_some) {
            return known.into_iter().flatten().collect();
        }
        let open: Vec<usize> = (0..known.len()).filter(|index| known[*index].is_none()).collect();
        let wait = ProduceWait::new(known);
        let mut registered = Registered { keys: Vec::with_capacity(open.len()) };
        for index in open {
            let Waiting { partition, offset, leader_epoch } = &waiting[index];
            match partition.wait_for(*offset, *leader_epoch, Some((&wait, index))) {
                Replicated::Known(result) => wait.complete(index, result),
                Replicated::Open(Some(key)) => registered.keys.push((partition.clone(), key)),
                Replicated::Open(None) => {}
            }
        }
        let _ = tokio::time::timeout_at(deadline, wait.all_done()).await;
        drop(registered);
        wait.results()
    }

    /// The answer to `ReplicaDeps::alter_partition`: `Err` when there was none.
    pub fn alter_partition_done(&self, answers: Result<Vec<IsrAnswer>, String>) {
        let finished = self.context.isr_queue.answered(answers.is_ok());
        match answers {
            Ok(answers) => {
                let mut by_id: HashMap<TopicIdPartition, IsrAnswer> =
                    answers.into_iter().map(|answer| (answer.id, answer)).collect();
                for item in finished {
                    match by_id.remove(&item.id).and_then(isr_outcome) {
                        Some(outcome) => self.isr_answered(&item, outcome),
                        None => self.context.isr_queue.again(item),
                    }
                }
                if let Some(batch) = self.context.isr_queue.next_batch() {
                    self.context.deps.alter_partition(batch);
                }
            }
            // Whether it was committed is not known: it is sent again with the next tick.
            Err(error) => {
                tracing::warn!(%error, partitions = finished.len(), "AlterPartition went unanswered")
            }
        }
    }

    fn isr_answered(&self, item: &IsrProposalItem, outcome: IsrOutcome) {
        let Some(partition) = self.partition(item.id) else { return };
        if outcome == IsrOutcome::Refused {
            tracing::info!(%partition, "the controller refused the proposed ISR");
        }
        let event = ReplicaEvent::IsrAnswered {
            leader_epoch: item.leader_epoch,
            partition_epoch: item.partition_epoch,
            outcome,
            now_ms: self.context.steady_ms(),
        };
        partition.apply(&mut partition.lock(), event);
    }
}

/// Takes the waits away again, also when the waiting future is dropped.
struct Registered {
    keys: Vec<(Arc<Partition>, super::purgatory::WaitKey)>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        for (partition, key) in &self.keys {
            partition.cancel_wait(*key);
        }
    }
}
