//! Mirroring as the broker's composition root sees it: started once, told of metadata, asked by the
//! API handlers, stopped in the reverse order.

use std::sync::Arc;
use std::time::Duration;

use common::clock::Clock as SystemTime;
use common::ids::*;
use common::metadata::image::TopicImage;
use common::metadata::{MetadataDelta, MetadataImage};
use common::mirror_state::MIRROR_STATE_TOPIC;
use tokio::runtime::Handle;

use crate::coordinator::CoordinatorRuntime;
use crate::metadata::{ControllerChannel, MetadataCache, MetadataSubscriber};
use crate::replica::ReplicaManager;

use super::coordinator::{MirrorShard, MirrorStateService};
use super::glue::{
    BrokerMetadata, BrokerPartitions, BrokerPeers, PlaintextConnector, ReplicaLogs, SystemMoment,
};
use super::manager::{MirrorDeps, MirrorManager, MirrorManagerConfig};

/// How long a state record waits for its replicas (KIP-1279's `mirror.coordinator.write.timeout.ms`).
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Mirroring {
    pub broker: BrokerId,
    pub cache: Arc<MetadataCache>,
    pub replicas: Arc<ReplicaManager>,
    pub manager: Arc<MirrorManager>,
    pub coordinator: Arc<CoordinatorRuntime<MirrorShard>>,
    pub states: Arc<MirrorStateService>,
    /// For work that talks to sources.
    pub runtime: Handle,
    pub clock: Arc<dyn SystemTime>,
    /// For work within this cluster.
    tasks: Handle,
}

impl Mirroring {
    /// `runtime` runs everything that talks to a source (decision 23); the coordinator, which only
    /// appends to this cluster's own logs, runs on the caller's.
    pub fn start(
        runtime: &Handle,
        config: MirrorManagerConfig,
        cache: Arc<MetadataCache>,
        channel: Arc<ControllerChannel>,
        replicas: Arc<ReplicaManager>,
        clock: Arc<dyn SystemTime>,
    ) -> Arc<Mirroring> {
        let broker = config.broker;
        let now_ms = {
            let clock = clock.clone();
            Arc::new(move || clock.now_ms())
        };
        let logs = Arc::new(ReplicaLogs(replicas.clone()));
        let coordinator =
            CoordinatorRuntime::new(MIRROR_STATE_TOPIC, logs, Handle::current(), WRITE_TIMEOUT, now_ms);
        let metadata = Arc::new(BrokerMetadata { cache: cache.clone(), channel: channel.clone() });
        let peers = Arc::new(BrokerPeers::new(cache.clone(), broker));
        let states = Arc::new(MirrorStateService::new(broker, metadata.clone(), coordinator.clone(), peers));
        let deps = MirrorDeps {
            clock: Arc::new(SystemMoment(clock.clone())),
            metadata,
            partitions: Arc::new(BrokerPartitions(replicas.clone())),
            controller: channel,
            store: states.clone(),
            connector: Arc::new(PlaintextConnector),
            coordination: states.clone(),
        };
        let manager = MirrorManager::start(runtime, config, deps);
        let runtime = runtime.clone();
        let tasks = Handle::current();
        Arc::new(Mirroring { broker, cache, replicas, manager, coordinator, states, runtime, clock, tasks })
    }

    /// Fetchers first, so that nothing is appended any more when the logs are flushed.
    pub async fn shutdown(&self) {
        self.manager.shutdown().await;
        self.coordinator.shutdown();
    }

    fn elect_shards(&self, before: &MetadataImage, delta: &MetadataDelta, after: &MetadataImage) {
        let was = before.topic(MIRROR_STATE_TOPIC);
        let Some(topic) = after.topic(MIRROR_STATE_TOPIC) else {
            if let Some(gone) = was {
                (0..partitions_of(gone)).for_each(|partition| self.coordinator.resigned(partition));
            }
            return;
        };
        let touched = delta.everything
            || delta.topics_created.contains(&topic.id)
            || delta.partitions.iter().any(|id| id.topic_id == topic.id);
        if !touched {
            return;
        }
        for (partition, image) in (0..partitions_of(topic)).zip(topic.partitions.iter()) {
            if image.registration.leader == Some(self.broker) {
                let id = TopicIdPartition::new(topic.id, partition);
                self.coordinator.elected(id, image.registration.leader_epoch);
            } else {
                self.coordinator.resigned(partition);
            }
        }
    }
}

fn partitions_of(topic: &TopicImage) -> i32 {
    i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)
}

impl MetadataSubscriber for Mirroring {
    /// Coordinators before the machines that ask them.
    fn apply_metadata(&self, before: &MetadataImage, delta: &MetadataDelta, after: &Arc<MetadataImage>) {
        self.elect_shards(before, delta, after);
        for topic in &delta.topics_deleted {
            if let Some(mirror) = &topic.mirror {
                let (states, topic_id, association) = (self.states.clone(), topic.id, mirror.association);
                self.tasks.spawn(async move { states.forget_here(topic_id, association).await });
            }
        }
        self.manager.apply_metadata(before, delta, after);
    }
}
