//! The composition root: opens what is on disk, starts the parts in the order in which they need each
//! other, and stops them in reverse.

mod cleaning;
mod directory_watch;
mod endpoints;
mod metrics;
mod mirroring;
mod opening;
mod replica_controller;
mod serving;
mod subscribers;
pub mod topic_settings;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::clock::SystemClock;
use common::config::BrokerConfig;
use common::ids::{BrokerEpoch, BrokerId, IncarnationId};
use common::storage::{DirectoryLock, StorageError};
use common::task::TaskGroup;
use common::telemetry::Metrics;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::timeout;
use tracing::{info, warn};
use uuid::Uuid;

use self::cleaning::Cleaning;
use self::directory_watch::DirectoryWatch;
use self::mirroring::MirrorRuntime;
use self::opening::{Bound, Storage, open_logs};
use self::replica_controller::ReplicaController;
use self::serving::{serve_listeners, serve_metrics};
use crate::api::init_producer_id::ProducerIds;
use crate::api::{BrokerContext, KafkaApi};
use crate::client::ConnectOptions;
use crate::fetcher::FetcherConfig;
use crate::fetcher::leader_endpoint::BrokerConnector;
use crate::log::{LogError, LogManager};
use crate::metadata::lifecycle::{ControlledShutdown, Lifecycle, Registration, is_unfenced};
use crate::metadata::loader::{AHEAD_PATIENCE, MetadataLoader};
use crate::metadata::store::MetadataStore;
use crate::metadata::{
    ChannelError, ControllerChannel, DynamicBrokerConfig, MetadataCache, MetadataPublisher, QuorumVoter,
};
use crate::mirror::subsystem::Mirroring;
use crate::replica::{ReplicaManager, ReplicaManagerConfig};

/// Shares of the 10 s that a shutdown may take: leaders are moved, then what runs ends, then there has to be
/// time left to close the logs, without which the next start scans them.
const CONTROLLED_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);
const TASK_TIMEOUT: Duration = Duration::from_millis(2_500);
const TASKS_TIMEOUT: Duration = Duration::from_millis(5_500);
const LEAST_TASK_TIMEOUT: Duration = Duration::from_millis(200);
/// Kafka's `min.incremental.fetch.session.eviction.ms`.
const FETCH_SESSION_EVICTION_MS: u64 = 120_000;

#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("cannot open the logs: {0}")]
    Logs(#[from] LogError),
    #[error("controller.quorum.voters: {0}")]
    Voters(#[from] ChannelError),
    #[error("log.dirs names no directory")]
    NoDirectory,
    #[error("no log directory is left; the last one failed: {0}")]
    NoDirectoryLeft(String),
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    #[error("opening the logs failed: {0}")]
    Panicked(#[from] JoinError),
}

/// A running broker.
pub struct BrokerServer {
    broker_id: BrokerId,
    /// Where each listener really listens, by its name.
    addresses: BTreeMap<String, SocketAddr>,
    metrics_address: Option<SocketAddr>,
    controlled_shutdown_enable: bool,
    controlled_shutdown: Arc<ControlledShutdown>,
    channel: Arc<ControllerChannel>,
    applied: Arc<MetadataCache>,
    replicas: Arc<ReplicaManager>,
    cleaning: Cleaning,
    mirroring: Arc<Mirroring>,
    _mirror_runtime: MirrorRuntime,
    listeners: TaskGroup,
    control: TaskGroup,
    http: TaskGroup,
    _locks: Vec<DirectoryLock>,
}

impl BrokerServer {
    /// Returns when everything is started; [`BrokerServer::ready`] tells when it serves.
    pub async fn start(config: BrokerConfig) -> Result<BrokerServer, StartError> {
        let config = Arc::new(config);
        let storage = Storage::open(&config)?;
        info!(
            broker = config.node_id.0,
            cluster = storage.cluster_id,
            directories = ?config.log_dirs,
            version = env!("CARGO_PKG_VERSION"),
            "starting"
        );
        let metrics = Metrics::new();
        let bound = Bound::bind(&config).await?;
        let logs = open_logs(&config, &storage).await?;

        let channel = Arc::new(channel(&config, &storage.cluster_id)?);
        let cache = Arc::new(MetadataCache::new(Arc::default()));
        let applied = Arc::new(MetadataCache::new(Arc::default()));
        let control = TaskGroup::new();
        let replicas = start_replicas(&config, &logs.manager, &channel, &control);
        let mirror_runtime = MirrorRuntime::new().map_err(StartError::Threads)?;
        let mirroring =
            mirroring::start(&mirror_runtime, &config, &storage.cluster_id, &cache, &channel, &replicas);
        metrics::register(&metrics, config.node_id, &applied, &mirroring);
        let dynamic_config = Arc::new(DynamicBrokerConfig::new(config.clone()));
        let cleaning = Cleaning::start(&logs.manager, &dynamic_config, &metrics);

        // Coordinators and mirror last: they append to partitions that must lead by then.
        let publisher = MetadataPublisher::new(
            cache.clone(),
            vec![replicas.clone(), dynamic_config.clone(), mirroring.clone()],
            applied.clone(),
        );
        let (registered, registered_receiver) = watch::channel(None);
        let (caught_up_sender, caught_up) = watch::channel(false);
        let loader = MetadataLoader {
            broker_id: config.node_id,
            channel: channel.clone(),
            store: MetadataStore::new(&storage.first_directory),
            publisher: Arc::new(publisher),
            registered: registered_receiver,
            caught_up: caught_up_sender,
            ahead_patience: AHEAD_PATIENCE,
        };
        let (offline_sender, offline_directories) = watch::channel(Vec::new());
        let controlled_shutdown = Arc::new(ControlledShutdown::default());
        let lifecycle = Lifecycle {
            broker_id: config.node_id,
            channel: channel.clone(),
            cache: applied.clone(),
            heartbeat_interval: milliseconds(config.broker_heartbeat_interval_ms),
            session_timeout: milliseconds(config.broker_session_timeout_ms),
            registration_timeout: milliseconds(config.initial_broker_registration_timeout_ms),
            registration: registration(&config, &logs.manager, &bound, logs.previous_broker_epoch),
            registered,
            caught_up: caught_up.clone(),
            controlled_shutdown: controlled_shutdown.clone(),
            offline_directories,
        };
        spawn_control(&control, loader, lifecycle);
        let watch = DirectoryWatch { replicas: replicas.clone(), offline: offline_sender };
        control
            .spawn_critical("log-directories", watch.run(logs.failed_directories, control.shutdown_token()));

        let context = Arc::new(BrokerContext {
            broker_id: config.node_id,
            cluster_id: storage.cluster_id.as_str().into(),
            config: dynamic_config,
            metadata: applied.clone(),
            controller: channel.clone(),
            replicas: replicas.clone(),
            mirroring: mirroring.clone(),
            producer_ids: ProducerIds::new(channel.clone()),
            auto_creation: Default::default(),
            request_metrics: metrics.requests(),
        });
        let listeners = TaskGroup::new();
        let addresses = bound.addresses();
        serve_listeners(&config, bound.listeners, KafkaApi::new(context), &metrics, caught_up, &listeners);
        let http = TaskGroup::new();
        let metrics_address = serve_metrics(&config, metrics, &applied, &channel, &http).await?;

        for (name, address) in &addresses {
            info!(broker = config.node_id.0, listener = %name, %address, "listening");
        }
        Ok(BrokerServer {
            broker_id: config.node_id,
            addresses,
            metrics_address,
            controlled_shutdown_enable: config.controlled_shutdown_enable,
            controlled_shutdown,
            channel,
            applied,
            replicas,
            cleaning,
            mirroring,
            _mirror_runtime: mirror_runtime,
            listeners,
            control,
            http,
            _locks: storage.locks,
        })
    }

    pub fn broker_id(&self) -> BrokerId {
        self.broker_id
    }

    /// Where each listener really listens, by its name.
    pub fn addresses(&self) -> &BTreeMap<String, SocketAddr> {
        &self.addresses
    }

    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Resolves when the controller has unfenced this broker: clients are told of it from then on.
    pub async fn ready(&self) {
        let mut images = self.applied.watch();
        let ready = images.wait_for(|image| is_unfenced(image, self.broker_id, self.channel.broker_epoch()));
        // The cache lives as long as the server.
        let _ = ready.await;
    }

    /// Resolves with the reason when the broker cannot go on.
    pub async fn failed(&self) -> String {
        self.control.failed().await
    }

    /// Moves leaderships away, then stops everything in the reverse order of its start.
    pub async fn shutdown(self) {
        let tasks_end = Instant::now() + TASKS_TIMEOUT;
        let task_timeout = || {
            let left = tasks_end.saturating_duration_since(Instant::now());
            left.clamp(LEAST_TASK_TIMEOUT, TASK_TIMEOUT)
        };
        let is_registered = self.channel.broker_epoch() != BrokerEpoch(-1);
        if self.controlled_shutdown_enable && is_registered && !self.control.shutdown_token().is_cancelled() {
            info!("controlled shutdown: asking the controller to move leaderships");
            if !self.controlled_shutdown.run(CONTROLLED_SHUTDOWN_TIMEOUT).await {
                warn!("controlled shutdown not confirmed in time, stopping all the same");
            }
        }
        self.listeners.shutdown(task_timeout()).await;
        if timeout(task_timeout(), self.mirroring.shutdown()).await.is_err() {
            warn!("mirroring did not end in time");
        }
        self.control.shutdown(task_timeout()).await;
        self.cleaning.shutdown(task_timeout()).await;
        self.replicas.shutdown(task_timeout()).await;
        self.http.shutdown(task_timeout()).await;
        info!("stopped");
    }
}

fn channel(config: &BrokerConfig, cluster_id: &str) -> Result<ControllerChannel, ChannelError> {
    let voters: Vec<QuorumVoter> = config
        .controller_quorum_voters
        .iter()
        .map(|voter| QuorumVoter { node_id: voter.node_id, address: voter.address.to_string() })
        .collect();
    ControllerChannel::new(cluster_id.to_owned(), config.node_id, &voters)
}

fn start_replicas(
    config: &Arc<BrokerConfig>,
    logs: &Arc<LogManager>,
    channel: &Arc<ControllerChannel>,
    control: &TaskGroup,
) -> Arc<ReplicaManager> {
    let fetcher = FetcherConfig {
        broker_id: config.node_id,
        num_fetchers: usize::try_from(config.num_replica_fetchers).unwrap_or(1).max(1),
        wait_max_ms: config.replica_fetch_wait_max_ms,
        min_bytes: config.replica_fetch_min_bytes,
        partition_max_bytes: config.replica_fetch_max_bytes,
        response_max_bytes: config.replica_fetch_response_max_bytes,
        backoff_ms: u64::try_from(config.replica_fetch_backoff_ms).unwrap_or(1_000),
    };
    let connector = BrokerConnector {
        client_id: format!("broker-{}-fetcher", config.node_id),
        options: ConnectOptions {
            request_timeout: milliseconds(config.replica_socket_timeout_ms),
            // One batch may be larger than the response's limit, as Kafka allows it.
            max_response_bytes: usize::try_from(config.replica_fetch_response_max_bytes)
                .unwrap_or(0)
                .saturating_add(usize::try_from(config.socket_request_max_bytes).unwrap_or(0)),
            keep_buffer: true,
            ..ConnectOptions::default()
        },
    };
    let manager_config = ReplicaManagerConfig {
        broker_id: config.node_id,
        replica_lag_time_max_ms: config.replica_lag_time_max_ms,
        relaxed_validation: config.produce_validation == common::config::broker::ProduceValidation::Relaxed,
        fetcher,
        max_fetch_sessions: usize::try_from(config.max_incremental_fetch_session_cache_slots).unwrap_or(0),
        fetch_session_eviction_ms: FETCH_SESSION_EVICTION_MS,
        checkpoint_interval: Duration::from_millis(
            u64::try_from(config.replica_high_watermark_checkpoint_interval_ms).unwrap_or(5_000),
        ),
        retention_check_interval: Duration::from_millis(
            u64::try_from(config.log_retention_check_interval_ms).unwrap_or(300_000),
        ),
        topic_settings: topic_settings::resolver(config.clone()),
        replication_rates: topic_settings::replication_rates(config.clone()),
        rack_aware_reads: config.replica_selector_is_rack_aware,
    };
    let deps = ReplicaController::new(channel.clone(), control.clone());
    let replicas = ReplicaManager::new(
        manager_config,
        logs.clone(),
        deps.clone(),
        Arc::new(connector),
        Arc::new(SystemClock::new()),
    );
    deps.set_replicas(&replicas);
    replicas.start();
    replicas
}

fn registration(
    config: &BrokerConfig,
    logs: &LogManager,
    bound: &Bound,
    previous_broker_epoch: BrokerEpoch,
) -> Registration {
    let endpoints = endpoints::advertised(config, &bound.addresses());
    let inter_broker =
        endpoints.iter().position(|endpoint| endpoint.name == config.inter_broker_listener_name).unwrap_or(0);
    Registration {
        incarnation_id: IncarnationId(Uuid::new_v4()),
        inter_broker_endpoint: u32::try_from(inter_broker).unwrap_or(0),
        endpoints,
        rack: config.broker_rack.clone(),
        directories: logs
            .directories()
            .iter()
            .filter(|directory| directory.is_online())
            .map(|directory| directory.id())
            .collect(),
        previous_broker_epoch,
    }
}

fn spawn_control(control: &TaskGroup, loader: MetadataLoader, lifecycle: Lifecycle) {
    let shutdown = control.shutdown_token();
    control.spawn_critical("metadata-loader", loader.run(shutdown.clone()));
    let token = shutdown.clone();
    control.spawn_critical("lifecycle", async move {
        lifecycle.run(token.clone()).await?;
        // After a controlled shutdown there is nothing left to say.
        token.cancelled().await;
        Ok::<(), crate::metadata::lifecycle::LifecycleError>(())
    });
}

fn milliseconds(number: i32) -> Duration {
    Duration::from_millis(u64::try_from(number).unwrap_or(0))
}
