//! Mirroring on one broker: the machines of the mirror partitions it leads, and whatever runs for them.
//!
//! The metadata publisher says what is wanted, by `apply_metadata`, which only notes it down. One task
//! owns all machines; it turns changes of the image and answers of the outside into events, and hands
//! their effects to those who carry them out. An idle partition costs nothing here.

pub mod conditions;
mod effects;
mod mirrors;
mod proposals;
mod reports;
mod timers;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use common::ids::*;
use common::metadata::{MetadataDelta, MetadataImage};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::coordinator::MirrorStateService;
use super::deps::{Clock, ControllerLink, LocalPartitions, Metadata, SourceConnector, StateStore};
use super::fetcher::{FetchBudget, FetcherManager};
use super::lag::Lag;
use super::leaders::watch_leaders;
use super::metrics::MirrorMetrics;
use super::source::SourceClient;
use super::state::{MirrorEffect, MirrorEvent, MirrorFacts, MirrorPartition, Moment, RetryPolicy, step};
use super::view::MirrorView;

use effects::Batches;
pub use mirrors::Mirrors;
use timers::Timers;

/// Everything mirroring needs, put together by the broker's composition root.
#[derive(Clone)]
pub struct MirrorDeps {
    pub clock: Arc<dyn Clock>,
    pub metadata: Arc<dyn Metadata>,
    pub partitions: Arc<dyn LocalPartitions>,
    pub controller: Arc<dyn ControllerLink>,
    pub store: Arc<dyn StateStore>,
    pub connector: Arc<dyn SourceConnector>,
    /// Tells which mirrors this broker coordinates.
    pub coordination: Arc<dyn Coordination>,
}

/// Whether the work of a whole mirror is this broker's.
pub trait Coordination: Send + Sync {
    fn coordinates(&self, mirror: &str) -> bool;
}

impl Coordination for MirrorStateService {
    fn coordinates(&self, mirror: &str) -> bool {
        self.coordinates_mirror(mirror)
    }
}

#[derive(Clone, Debug)]
pub struct MirrorManagerConfig {
    pub broker: BrokerId,
    pub cluster_id: String,
    /// `mirror.num.replica.fetchers`.
    pub fetchers_per_source: i32,
    /// `mirror.fetch.memory.bytes`.
    pub fetch_memory_bytes: usize,
    /// `mirror.metadata.refresh.interval.ms`.
    pub refresh_interval: Duration,
    pub retry: RetryPolicy,
}

/// What reaches the manager's task besides metadata. Each effect under way brings one message, so the
/// queue is bounded by the number of led partitions.
pub(super) enum Message {
    Event(TopicIdPartition, MirrorEvent),
    /// The source of a mirror told its cluster id, which is not recorded yet.
    FirstContact {
        mirror: Arc<str>,
        cluster_id: String,
    },
    FirstContactDone {
        mirror: Arc<str>,
    },
    /// The controller was told of states; of those in `lost` it may not have heard.
    Reported {
        lost: Vec<TopicIdPartition>,
    },
}

/// What `apply_metadata` noted and the task has not taken yet. Merged, so it never grows beyond the
/// number of partitions.
#[derive(Default)]
struct Noted {
    image: Option<Arc<MetadataImage>>,
    touched: BTreeSet<TopicIdPartition>,
    /// Led by another broker at some point between: the machine of an earlier leadership must go.
    lost: BTreeSet<TopicIdPartition>,
    mirrors: bool,
    everything: bool,
}

/// The handle that the rest of the broker holds.
pub struct MirrorManager {
    config: MirrorManagerConfig,
    noted: Arc<Mutex<Noted>>,
    wake: Arc<Notify>,
    stop: CancellationToken,
    view: Arc<MirrorView>,
    metrics: Arc<MirrorMetrics>,
    fetchers: Arc<FetcherManager>,
    mirrors: Arc<Mirrors>,
    done: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl MirrorManager {
    /// Starts on a runtime of its own choosing (decision 23).
    pub fn start(runtime: &Handle, config: MirrorManagerConfig, deps: MirrorDeps) -> Arc<MirrorManager> {
        let (messages, queue) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let noted: Arc<Mutex<Noted>> = Arc::default();
        let wake: Arc<Notify> = Arc::default();
        let view: Arc<MirrorView> = Arc::default();
        let budget = Arc::new(FetchBudget::new(config.fetch_memory_bytes));
        let events = {
            let messages = messages.clone();
            Arc::new(move |id, event| {
                // Closed only at shutdown.
                let _ = messages.send(Message::Event(id, event));
            })
        };
        let fetchers = Arc::new(FetcherManager::new(
            config.broker,
            runtime.clone(),
            budget,
            deps.clock.clone(),
            events,
            config.fetchers_per_source,
        ));
        let metrics = Arc::new(MirrorMetrics::new(view.clone(), fetchers.metrics().clone()));
        let mirrors = Arc::new(Mirrors::new(
            config.clone(),
            deps.clone(),
            runtime.clone(),
            messages.clone(),
            metrics.clone(),
            stop.clone(),
        ));
        let task = ManagerTask {
            config: config.clone(),
            deps,
            runtime: runtime.clone(),
            noted: noted.clone(),
            wake: wake.clone(),
            stop: stop.clone(),
            queue,
            messages,
            image: Arc::default(),
            machines: HashMap::new(),
            timers: Timers::default(),
            batches: Batches::default(),
            reports: reports::Reports::default(),
            fetchers: fetchers.clone(),
            mirrors: mirrors.clone(),
            view: view.clone(),
        };
        let done = Mutex::new(Some(runtime.spawn(task.run())));
        runtime.spawn(watch_leaders(mirrors.clone(), fetchers.clone(), stop.clone()));
        Arc::new(MirrorManager { config, noted, wake, stop, view, metrics, fetchers, mirrors, done })
    }

    /// In order, by the metadata publisher. Never blocks.
    pub fn apply_metadata(&self, before: &MetadataImage, delta: &MetadataDelta, after: &Arc<MetadataImage>) {
        let mut noted = self.noted.lock();
        let me = self.config.broker;
        for id in &delta.partitions {
            noted.touched.insert(*id);
            let leader = after.partition(*id).and_then(|partition| partition.registration.leader);
            if leader != Some(me) {
                noted.lost.insert(*id);
            }
        }
        for topic in &delta.topics_deleted {
            for partition in 0..i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX) {
                let id = TopicIdPartition::new(topic.id, partition);
                noted.touched.insert(id);
                noted.lost.insert(id);
            }
        }
        for topic in delta.topics_mirror.iter().chain(&delta.topics_created) {
            let topic = after.topic_by_id(*topic).or_else(|| before.topic_by_id(*topic));
            let partitions = topic.map_or(0, |topic| topic.partitions.len());
            let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
            let id = topic.map(|topic| topic.id).unwrap_or(TopicId::ZERO);
            noted.touched.extend((0..partitions).map(|partition| TopicIdPartition::new(id, partition)));
        }
        noted.everything |= delta.everything || delta.brokers.contains(&me);
        noted.mirrors |= noted.everything
            || !delta.mirrors.is_empty()
            || delta.pending_mirror_topics
            || !delta.topics_mirror.is_empty()
            || !delta.configs.is_empty()
            || delta.partitions.iter().any(|id| is_state_partition(after, *id));
        noted.image = Some(after.clone());
        drop(noted);
        self.wake.notify_one();
    }

    pub fn view(&self) -> &Arc<MirrorView> {
        &self.view
    }

    pub fn metrics(&self) -> &Arc<MirrorMetrics> {
        &self.metrics
    }

    /// A client of a mirror's source with that mirror's credentials, whether or not a partition of it is
    /// led here.
    pub fn source(&self, mirror: &str, image: &MetadataImage) -> Option<Arc<SourceClient>> {
        self.mirrors.client_for(mirror, image)
    }

    /// Fetchers are gone and nothing is appended any more when this returns.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        let done = self.done.lock().take();
        if let Some(done) = done
            && done.await.is_err()
        {
            warn!("the mirror manager ended by a panic");
        }
        self.fetchers.shutdown();
    }
}

/// A change of `__mirror_state`'s leaders moves the work of whole mirrors.
fn is_state_partition(image: &MetadataImage, id: TopicIdPartition) -> bool {
    image.topics.by_name.get(common::mirror_state::MIRROR_STATE_TOPIC) == Some(&id.topic_id)
}

struct ManagerTask {
    config: MirrorManagerConfig,
    deps: MirrorDeps,
    runtime: Handle,
    noted: Arc<Mutex<Noted>>,
    wake: Arc<Notify>,
    stop: CancellationToken,
    queue: mpsc::UnboundedReceiver<Message>,
    messages: mpsc::UnboundedSender<Message>,
    image: Arc<MetadataImage>,
    machines: HashMap<TopicIdPartition, Entry>,
    timers: Timers,
    batches: Batches,
    reports: reports::Reports,
    fetchers: Arc<FetcherManager>,
    mirrors: Arc<Mirrors>,
    view: Arc<MirrorView>,
}

struct Entry {
    /// Taken out while it makes a step.
    machine: Option<MirrorPartition>,
    lag: Arc<Lag>,
    /// Waits for replicas or the high watermark.
    watcher: Option<AbortHandle>,
}

impl ManagerTask {
    async fn run(mut self) {
        let mut waiting = Vec::new();
        loop {
            let reports = if self.machines.is_empty() { None } else { self.reports.next() };
            let next = [self.timers.next(self.deps.clock.now_ms()), reports];
            let next = next.into_iter().flatten().min();
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = self.wake.notified() => self.take_metadata(),
                count = self.queue.recv_many(&mut waiting, 1_024) => {
                    if count == 0 {
                        break;
                    }
                    for message in waiting.drain(..) {
                        self.take_message(message);
                    }
                }
                () = sleep_until(next.unwrap_or_else(far_future)), if next.is_some() => {}
            }
            for id in self.timers.due(self.deps.clock.now_ms()) {
                self.event(id, MirrorEvent::Tick);
            }
            self.flush();
        }
        for (_, entry) in self.machines.drain() {
            if let Some(watcher) = entry.watcher {
                watcher.abort();
            }
        }
        self.mirrors.shutdown();
        self.fetchers.shutdown();
    }

    fn moment(&self) -> Moment {
        Moment {
            now_ms: self.deps.clock.now_ms(),
            random: self.deps.clock.random(),
            retry: self.config.retry,
        }
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Event(id, event) => self.event(id, event),
            Message::FirstContact { mirror, cluster_id } => self.record_first_contact(mirror, cluster_id),
            Message::FirstContactDone { mirror } => {
                self.batches.first_contacts.remove(&mirror);
            }
            Message::Reported { lost } => self.reports.answered(lost),
        }
    }

    fn may_act(&self, image: &MetadataImage) -> bool {
        conditions::may_act(image, self.config.broker, self.deps.metadata.own_broker_epoch())
    }

    fn take_metadata(&mut self) {
        let noted = std::mem::take(&mut *self.noted.lock());
        let Some(image) = noted.image else { return };
        self.image = image.clone();
        if !self.may_act(&image) {
            // What was noted comes again with the registration, which touches everything.
            let ids: Vec<_> = self.machines.keys().copied().collect();
            return ids.into_iter().for_each(|id| self.drop_machine(id));
        }
        if noted.mirrors {
            let changed = self.mirrors.reconcile(&image);
            for mirror in changed {
                self.settings_changed(&mirror);
            }
        }
        for id in &noted.lost {
            self.drop_machine(*id);
        }
        let mut touched = noted.touched;
        if noted.everything {
            touched.extend(self.machines.keys().copied());
            for topic in image.topics.by_id.values().filter(|topic| topic.mirror.is_some()) {
                let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
                touched.extend((0..partitions).map(|partition| TopicIdPartition::new(topic.id, partition)));
            }
        }
        for id in touched {
            match MirrorFacts::of(&image, self.config.broker, id) {
                None => self.drop_machine(id),
                Some(facts) if self.machines.contains_key(&id) => {
                    self.event(id, MirrorEvent::FactsChanged(facts));
                }
                Some(facts) => self.lead(id, facts),
            }
        }
    }

    fn lead(&mut self, id: TopicIdPartition, facts: MirrorFacts) {
        let lag: Arc<Lag> = Arc::default();
        let (machine, effects) = MirrorPartition::lead(id, facts, self.moment());
        self.view.set(id, machine.facts(), machine.shown(), &lag);
        self.reports.changed(id);
        self.machines.insert(id, Entry { machine: Some(machine), lag, watcher: None });
        self.run_effects(id, effects);
    }

    fn drop_machine(&mut self, id: TopicIdPartition) {
        self.fetchers.stop(id);
        if let Some(entry) = self.machines.remove(&id) {
            if let Some(watcher) = entry.watcher {
                watcher.abort();
            }
            self.view.remove(id);
        }
    }

    fn event(&mut self, id: TopicIdPartition, event: MirrorEvent) {
        let moment = self.moment();
        let Some(entry) = self.machines.get_mut(&id) else { return };
        let Some(machine) = entry.machine.take() else { return };
        let facts_changed = matches!(event, MirrorEvent::FactsChanged(_));
        let before = machine.shown().state;
        let (machine, effects) = step(machine, event, moment);
        let after = machine.shown().clone();
        if facts_changed || effects.iter().any(|effect| matches!(effect, MirrorEffect::Report(_))) {
            self.view.set(id, machine.facts(), machine.shown(), &entry.lag);
            self.reports.changed(id);
        }
        if before != after.state {
            let facts = machine.facts();
            info!(
                mirror = %facts.mirror, topic = %facts.topic, partition = id.partition,
                association = facts.association.0, epoch = facts.leader_epoch.0,
                reason = after.reason, "mirror partition {before} -> {}", after.state
            );
        }
        if let Some(at_ms) = machine.wakes_at_ms() {
            self.timers.set(id, at_ms);
        }
        entry.machine = Some(machine);
        self.run_effects(id, effects);
    }

    /// New settings or credentials: connections are rebuilt, states stay, what failed is tried at once.
    fn settings_changed(&mut self, mirror: &str) {
        let of_mirror =
            |entry: &Entry| entry.machine.as_ref().is_some_and(|machine| &*machine.facts().mirror == mirror);
        let ids: Vec<_> =
            self.machines.iter().filter(|(_, entry)| of_mirror(entry)).map(|(id, _)| *id).collect();
        for id in ids {
            self.event(id, MirrorEvent::SettingsChanged);
        }
    }
}

fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
}
