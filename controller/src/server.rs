//! The composition root: opens, binds, spawns, and stops in reverse.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::clock::SystemClock;
use common::config::ControllerConfig;
use common::metadata::record::Endpoint;
use common::network::{self, InFlightBytes, Limits};
use common::storage::{self, DirectoryLock, StorageError};
use common::task::TaskGroup;
use common::telemetry::{Metrics, Status, serve_http};
use protocol::frame::MAX_REQUEST_BYTES;
use protocol::proto::controller::controller_server::ControllerServer as ControllerService;
use protocol::proto::controller::peers_server::PeersServer;
use protocol::proto::metadata::metadata_server::MetadataServer;
use raft_log::{OpenError, RaftLog, RaftLogConfig, VoterId};
use thiserror::Error;
use tokio::net::TcpListener;

use crate::api::ApiContext;
use crate::api::connection::incoming;
use crate::api::kafka::KafkaHandler;
use crate::api::mirror_reports::MirrorReports;
use crate::api::peers::Peers;
use crate::api::service::Services;
use crate::control::ControlSettings;
use crate::metrics;
use crate::quorum::controller::MAX_PAYLOAD_BYTES;
use crate::quorum::{ControllerStatus, MetadataListener, QuorumController};

const MAX_MESSAGE_BYTES: usize = 64 << 20;
const TASKS_DEADLINE: Duration = Duration::from_secs(4);
const TRANSFER_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("log directory is formatted for node {formatted}, node.id is {configured}")]
    NodeId { formatted: i32, configured: i32 },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
}

/// Where a running controller is reached; ports that were given as 0 are filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// gRPC: raft, brokers.
    pub quorum: SocketAddr,
    /// Kafka's protocol, one for each of `listeners`.
    pub listeners: Vec<SocketAddr>,
    pub metrics: Option<SocketAddr>,
}

/// A running controller.
pub struct ControllerServer {
    addresses: Addresses,
    context: Arc<ApiContext>,
    tasks: TaskGroup,
    // Held until the end.
    _lock: DirectoryLock,
}

/// A listener bound before the server starts: tests and the embedded clusters must know the ports of
/// all voters first.
pub struct BoundQuorumListener(pub TcpListener);

async fn bind(host: &str, port: u16) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address: format!("{host}:{port}"), source };
    let listener = network::bind(host, port).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

impl ControllerServer {
    /// Opens the log and serves; it does not wait for a quorum.
    pub async fn start(config: ControllerConfig) -> Result<ControllerServer, StartError> {
        let quorum = bind(&config.quorum_listener.host, config.quorum_listener.port).await?;
        ControllerServer::start_on(config, BoundQuorumListener(quorum.0)).await
    }

    /// As [`ControllerServer::start`], on a quorum listener that is bound already.
    pub async fn start_on(
        config: ControllerConfig,
        quorum: BoundQuorumListener,
    ) -> Result<ControllerServer, StartError> {
        let meta = storage::load(&config.log_dir)?;
        let lock = DirectoryLock::acquire(&config.log_dir)?;
        if meta.node_id != config.node_id.0 {
            return Err(StartError::NodeId { formatted: meta.node_id, configured: config.node_id.0 });
        }
        let quorum_address = quorum
            .0
            .local_addr()
            .map_err(|source| StartError::Listen { address: config.quorum_listener.to_string(), source })?;
        let mut kafka = Vec::new();
        for endpoint in &config.listeners {
            let bound = bind(&endpoint.address.host, endpoint.address.port).await?;
            kafka.push((endpoint.clone(), bound.0, bound.1));
        }
        let http = match &config.metrics_listener {
            Some(address) => Some(bind(&address.host, address.port).await?),
            None => None,
        };

        let listener = MetadataListener::new();
        let raft = RaftLog::open(raft_config(&config, &meta), listener.clone()).await?;
        let tasks = TaskGroup::new();
        let shutdown = tasks.shutdown_token();
        let settings = ControlSettings::new(meta.cluster_id.clone(), &config);
        let rebalance_interval = config.auto_leader_rebalance_enable.then(|| {
            let seconds = u64::try_from(config.leader_imbalance_check_interval_seconds).unwrap_or(300);
            Duration::from_secs(seconds.max(1))
        });
        let (controller, writer) = QuorumController::new(
            raft.clone(),
            listener.clone(),
            settings.clone(),
            rebalance_interval,
            Arc::new(SystemClock::new()),
            shutdown.clone(),
        );
        let all_metrics = Metrics::new();
        let context = Arc::new(ApiContext {
            cluster_id: meta.cluster_id.clone(),
            node_id: config.node_id,
            peers: Peers::new(meta.cluster_id, config.node_id.0),
            settings,
            controller: controller.clone(),
            listener: listener.clone(),
            raft: raft.clone(),
            reports: MirrorReports::default(),
            endpoints: kafka.iter().map(|(endpoint, _, address)| reached_at(endpoint, *address)).collect(),
            metrics: all_metrics.requests(),
            shutdown: shutdown.clone(),
            config: Arc::new(config),
        });
        metrics::register(&all_metrics, &context);

        tasks.spawn_critical("metadata writer", writer);
        tasks.spawn_critical("metadata log", log_watch(raft.clone(), listener.clone(), shutdown.clone()));
        let services = Services { context: context.clone() };
        tasks.spawn_critical(
            "quorum listener",
            serve_quorum(quorum.0, raft.clone(), services, controller, shutdown.clone()),
        );
        let addresses = Addresses {
            quorum: quorum_address,
            listeners: kafka.iter().map(|(_, _, address)| *address).collect(),
            metrics: http.as_ref().map(|(_, address)| *address),
        };
        let in_flight = InFlightBytes::new(in_flight_bytes(&context.config));
        for (endpoint, bound, _) in kafka {
            let limits = limits(&context.config, in_flight.clone(), all_metrics.network(&endpoint.name));
            let handler = Arc::new(KafkaHandler { context: context.clone() });
            let serving = network::serve(bound, endpoint.name.clone(), handler, limits, shutdown.clone());
            tasks.spawn_critical(format!("listener {}", endpoint.name), async move {
                serving.await;
                Ok::<(), String>(())
            });
        }
        if let Some((bound, _)) = http {
            let status = StatusPages { context: context.clone() };
            tasks.spawn("metrics listener", serve_http(bound, all_metrics, status, shutdown));
        }
        tracing::info!(
            node = context.node_id.0,
            cluster = context.cluster_id,
            quorum = %addresses.quorum,
            listeners = ?addresses.listeners,
            "controller started"
        );
        Ok(ControllerServer { addresses, context, tasks, _lock: lock })
    }

    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Leadership as this controller sees it.
    pub fn status(&self) -> tokio::sync::watch::Receiver<ControllerStatus> {
        self.context.controller.status()
    }

    /// The committed image.
    pub fn image(&self) -> Arc<common::metadata::MetadataImage> {
        self.context.image()
    }

    /// Waits until a part fails that nothing works without; says which.
    pub async fn failed(&self) -> String {
        self.tasks.failed().await
    }

    /// Hands leadership over, answers what is waiting, stops.
    pub async fn shutdown(&self) {
        self.hand_over().await;
        self.tasks.shutdown(TASKS_DEADLINE).await;
        self.context.raft.shutdown().await;
        tracing::info!(node = self.context.node_id.0, "controller stopped");
    }

    async fn hand_over(&self) {
        let raft = &self.context.raft;
        let status = raft.status();
        if !status.is_leader {
            return;
        }
        let me = raft.voter().node_id;
        // The most advanced of the others that answers.
        let next = status
            .voters
            .iter()
            .filter(|replica| replica.voter.node_id != me && replica.log_end_index.is_some())
            .max_by_key(|replica| (replica.last_caught_up_ms, replica.log_end_index));
        if let Some(next) = next {
            let transfer = raft.transfer_leader(next.voter.node_id);
            match tokio::time::timeout(TRANSFER_DEADLINE, transfer).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::info!("leadership not handed over: {error}"),
                Err(_) => tracing::info!("leadership not handed over in time"),
            }
        }
    }
}

struct StatusPages {
    context: Arc<ApiContext>,
}

impl Status for StatusPages {
    fn readiness(&self) -> Result<(), String> {
        ready(&self.context.controller.status().borrow(), self.context.raft.has_contact())
    }

    fn metadata(&self) -> String {
        self.context.image().describe_position()
    }
}

fn ready(status: &ControllerStatus, has_contact: bool) -> Result<(), String> {
    if !status.active && status.leader.is_none() {
        return Err("the quorum has no leader".to_owned());
    }
    if !has_contact {
        let what = if status.active { "a majority of the quorum" } else { "the leader of the quorum" };
        return Err(format!("no contact with {what}"));
    }
    Ok(())
}

fn node_id(id: i32) -> u64 {
    u64::try_from(id).unwrap_or_default()
}

/// Who the owner of a formatted directory is in the quorum.
pub(crate) fn voter_id(meta: &storage::MetaProperties) -> VoterId {
    VoterId { node_id: node_id(meta.node_id), directory_id: meta.directory_id.0 }
}

/// Where in a log directory the quorum's store is.
pub(crate) fn quorum_directory(log_dir: &std::path::Path) -> std::path::PathBuf {
    log_dir.join("quorum")
}

fn raft_config(config: &ControllerConfig, meta: &storage::MetaProperties) -> RaftLogConfig {
    let directory = quorum_directory(&config.log_dir);
    let mut raft = RaftLogConfig::new(voter_id(meta), meta.cluster_id.clone(), directory);
    raft.voters = config
        .controller_quorum_voters
        .iter()
        .map(|voter| (node_id(voter.node_id), voter.address.to_string()))
        .collect();
    raft.address = announced_address(config);
    raft.heartbeat_ms = config.quorum_heartbeat_interval_ms;
    raft.election_timeout_ms = config.quorum_election_timeout_ms;
    raft.max_payload_bytes = MAX_PAYLOAD_BYTES;
    raft
}

/// Where the other controllers reach this one: as `controller.quorum.voters` lists it, else at
/// `quorum.listener`, unless that is every address of the machine.
fn announced_address(config: &ControllerConfig) -> Option<String> {
    let listed = config.controller_quorum_voters.iter().find(|voter| voter.node_id == config.node_id.0);
    if let Some(listed) = listed {
        return Some(listed.address.to_string());
    }
    let own = &config.quorum_listener;
    if own.port == 0 || ["", "0.0.0.0", "::"].contains(&own.host.as_str()) {
        tracing::warn!(
            quorum_listener = %own,
            "this controller cannot tell the others where it is: give quorum.listener a host, or list it in \
             controller.quorum.voters"
        );
        return None;
    }
    Some(own.to_string())
}

/// How a listener's endpoint is told to others: the host as configured, the port as bound.
fn reached_at(endpoint: &common::config::ListenerEndpoint, bound: SocketAddr) -> Endpoint {
    let mut reached = endpoint.to_endpoint();
    reached.port = bound.port();
    if reached.host.is_empty() || reached.host == "0.0.0.0" || reached.host == "::" {
        reached.host =
            if bound.ip().is_unspecified() { "localhost".to_owned() } else { bound.ip().to_string() };
    }
    reached
}

/// Ends with an error as soon as the log cannot be written or replayed.
async fn log_watch(
    raft: RaftLog,
    listener: Arc<MetadataListener>,
    shutdown: tokio_util::sync::CancellationToken,
) -> Result<(), String> {
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        reason = raft.failed() => Err(reason),
        reason = listener.failed() => Err(reason),
    }
}

fn serve_quorum(
    listener: TcpListener,
    raft: RaftLog,
    services: Services,
    controller: QuorumController,
    shutdown: tokio_util::sync::CancellationToken,
) -> impl Future<Output = Result<(), String>> + Send + 'static {
    let stop = shutdown.clone();
    let served = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(5)))
        .http2_keepalive_timeout(Some(Duration::from_secs(5)))
        .add_service(raft.service())
        .add_service(
            ControllerService::new(services.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        )
        .add_service(MetadataServer::new(services.clone()).max_encoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(PeersServer::new(services))
        .serve_with_incoming_shutdown(incoming(listener, controller), async move { stop.cancelled().await });
    async move {
        // Peers that keep their connections open must not keep the process.
        tokio::select! {
            result = served => result.map_err(|error| error.to_string()),
            () = async {
                shutdown.cancelled().await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            } => Ok(()),
        }
    }
}

fn in_flight_bytes(config: &ControllerConfig) -> usize {
    // Admin requests are small; without a configured bound a fixed one keeps the memory flat.
    usize::try_from(config.queued_max_request_bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(64 << 20)
}

fn limits(
    config: &ControllerConfig,
    in_flight_bytes: InFlightBytes,
    metrics: network::NetworkMetrics,
) -> Limits {
    Limits {
        max_frame_bytes: MAX_REQUEST_BYTES
            .min(usize::try_from(config.socket_request_max_bytes).unwrap_or(MAX_REQUEST_BYTES)),
        max_connections: usize::try_from(config.max_connections).unwrap_or(usize::MAX),
        max_connections_per_ip: usize::try_from(config.max_connections_per_ip).unwrap_or(usize::MAX),
        in_flight_bytes,
        idle_timeout: config.idle_timeout(),
        metrics,
        ..Limits::default()
    }
}
