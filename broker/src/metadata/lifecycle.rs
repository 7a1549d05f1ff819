//! A broker's life in the eyes of the controller: registered, unfenced, alive by heartbeats, and moved
//! out of the way before it stops.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::fault;
use common::ids::{BrokerEpoch, BrokerId, DirectoryId, IncarnationId};
use common::metadata::MetadataImage;
use common::metadata::record::Endpoint;
use protocol::error_code::ErrorCode;
use protocol::proto::controller as wire;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::cache::MetadataCache;
use super::controller_channel::{ChannelError, ControllerChannel};

const REGISTER_ATTEMPT: Duration = Duration::from_secs(10);
const DUPLICATE_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Between heartbeats of a broker that waits to be unfenced, or for its leaderships to move.
const EAGER_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Error)]
pub enum LifecycleError {
    #[error("{0}")]
    Channel(#[from] ChannelError),
    #[error(
        "another process with node.id {broker_id} is registered and alive ({message}); \
         give this broker a node.id of its own or stop the other one"
    )]
    DuplicateRegistration { broker_id: BrokerId, message: String },
    #[error("the controller refused the registration: {name}: {message}")]
    Refused { name: &'static str, message: String },
    #[error("not registered within initial.broker.registration.timeout.ms ({} ms): {last}", .timeout.as_millis())]
    NotRegistered { timeout: Duration, last: ChannelError },
}

/// What a registration tells.
#[derive(Clone, Debug)]
pub struct Registration {
    pub incarnation_id: IncarnationId,
    pub endpoints: Vec<Endpoint>,
    pub inter_broker_endpoint: u32,
    pub rack: Option<String>,
    pub directories: Vec<DirectoryId>,
    /// The epoch that ended with a clean shutdown; -1 after an unclean one (KIP-966).
    pub previous_broker_epoch: BrokerEpoch,
}

pub struct Lifecycle {
    pub broker_id: BrokerId,
    pub channel: Arc<ControllerChannel>,
    pub cache: Arc<MetadataCache>,
    pub heartbeat_interval: Duration,
    pub session_timeout: Duration,
    /// How long a quorum that is not there is waited for.
    pub registration_timeout: Duration,
    pub registration: Registration,
    /// Tells the loader, which publishes nothing before its image holds the registration.
    pub registered: watch::Sender<Option<BrokerEpoch>>,
    /// Set by the loader.
    pub caught_up: watch::Receiver<bool>,
    pub controlled_shutdown: Arc<ControlledShutdown>,
    /// Log directories that failed since the start.
    pub offline_directories: watch::Receiver<Vec<DirectoryId>>,
}

/// How the server asks for a controlled shutdown and learns that leaderships have moved.
#[derive(Default)]
pub struct ControlledShutdown {
    wanted: CancellationToken,
    done: CancellationToken,
    wake: Notify,
}

impl ControlledShutdown {
    /// Asks the controller to move leaderships away; false when `deadline` passed first.
    pub async fn run(&self, deadline: Duration) -> bool {
        self.wanted.cancel();
        self.wake.notify_one();
        timeout(deadline, self.done.cancelled()).await.is_ok()
    }
}

/// Whether this process is in the image, unfenced.
pub fn is_unfenced(image: &MetadataImage, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool {
    image.brokers.get(&broker_id).is_some_and(|broker| broker.broker_epoch == broker_epoch && !broker.fenced)
}

impl Lifecycle {
    /// Registers, then sends heartbeats until the controlled shutdown is done or `shutdown` is cancelled.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), LifecycleError> {
        let epoch = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            epoch = self.register() => epoch?,
        };
        self.channel.set_broker_epoch(epoch);
        self.registered.send_replace(Some(epoch));
        tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            outcome = self.heartbeats() => outcome,
        }
    }

    async fn register(&self) -> Result<BrokerEpoch, LifecycleError> {
        let request = self.register_request();
        let mut duplicate_since: Option<Instant> = None;
        let begin = Instant::now();
        loop {
            let left = self.registration_timeout.saturating_sub(begin.elapsed());
            let response = match self.channel.register(request.clone(), REGISTER_ATTEMPT.min(left)).await {
                Ok(response) => response,
                // A quorum that is not there yet is waited for, as long as Kafka's brokers do.
                Err(last @ ChannelError::NoActiveController { .. })
                    if begin.elapsed() >= self.registration_timeout =>
                {
                    return Err(LifecycleError::NotRegistered { timeout: self.registration_timeout, last });
                }
                Err(error @ ChannelError::NoActiveController { .. }) => {
                    warn!(%error, "not registered yet");
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            match error_code(response.error_code) {
                ErrorCode::None => {
                    info!(broker_epoch = response.broker_epoch, "registered with the controller");
                    return Ok(BrokerEpoch(response.broker_epoch));
                }
                ErrorCode::DuplicateBrokerRegistration => {
                    // The other one may be our own earlier life that the controller has not given up yet.
                    let since = *duplicate_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > self.session_timeout + self.session_timeout / 2 {
                        return Err(LifecycleError::DuplicateRegistration {
                            broker_id: self.broker_id,
                            message: response.error_message,
                        });
                    }
                    sleep(DUPLICATE_RETRY_INTERVAL).await;
                }
                other => {
                    return Err(LifecycleError::Refused {
                        name: other.name(),
                        message: response.error_message,
                    });
                }
            }
        }
    }

    fn register_request(&self) -> wire::RegisterBrokerRequest {
        let registration = &self.registration;
        wire::RegisterBrokerRequest {
            incarnation_id: Bytes::copy_from_slice(registration.incarnation_id.0.as_bytes()),
            endpoints: registration
                .endpoints
                .iter()
                .map(|endpoint| wire::Endpoint {
                    name: endpoint.name.clone(),
                    host: endpoint.host.clone(),
                    port: u32::from(endpoint.port),
                    security_protocol: i32::from(endpoint.security_protocol),
                })
                .collect(),
            inter_broker_endpoint: registration.inter_broker_endpoint,
            rack: registration.rack.clone().unwrap_or_default(),
            directories: registration
                .directories
                .iter()
                .map(|directory| Bytes::copy_from_slice(directory.0.as_bytes()))
                .collect(),
            previous_broker_epoch: registration.previous_broker_epoch.0,
            // The channel fills in who we are.
            ..wire::RegisterBrokerRequest::default()
        }
    }

    async fn heartbeats(&self) -> Result<(), LifecycleError> {
        let mut caught_up = self.caught_up.clone();
        let mut offline_directories = self.offline_directories.clone();
        let mut fenced = true;
        loop {
            let want_shutdown = self.controlled_shutdown.wanted.is_cancelled();
            let is_caught_up = *caught_up.borrow_and_update();
            let request = wire::HeartbeatRequest {
                metadata_offset: if is_caught_up { self.cache.image().offset.0 } else { 0 },
                want_fence: false,
                want_shutdown,
                offline_directories: offline_directories
                    .borrow_and_update()
                    .iter()
                    .map(|directory| Bytes::copy_from_slice(directory.0.as_bytes()))
                    .collect(),
                ..wire::HeartbeatRequest::default()
            };
            fault::point("broker.heartbeat", self.broker_id).await;
            match self.channel.heartbeat(request, self.session_timeout).await {
                Ok(response) => match error_code(response.error_code) {
                    ErrorCode::None => {
                        self.channel.learn(&response.controllers);
                        if response.fenced != fenced {
                            fenced = response.fenced;
                            if fenced && want_shutdown {
                                debug!("fenced, as asked");
                            } else if fenced {
                                warn!(
                                    "fenced by the controller: this broker leads nothing until it is unfenced"
                                );
                            } else {
                                info!("unfenced by the controller");
                            }
                        }
                        if want_shutdown && response.should_shut_down {
                            info!("controlled shutdown: leaderships have moved");
                            self.controlled_shutdown.done.cancel();
                            return Ok(());
                        }
                    }
                    // STALE_BROKER_EPOCH from a controller that has not replayed our registration yet passes. Of
                    // another process that took our place the metadata log tells, which stops the loader.
                    error => debug!(error = error.name(), "heartbeat refused"),
                },
                Err(error) => warn!(%error, "heartbeat not answered"),
            }
            let pause = if want_shutdown || (fenced && is_caught_up) {
                EAGER_HEARTBEAT_INTERVAL
            } else {
                self.heartbeat_interval
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.controlled_shutdown.wake.notified() => {}
                // Others take over what a failed directory led.
                Ok(()) = offline_directories.changed() => {}
                // Unfencing waits for nothing but this.
                changed = caught_up.changed() => if changed.is_err() { sleep(pause).await },
            }
        }
    }
}

/// A code that is not Kafka's is as good as "unknown".
fn error_code(code: i32) -> ErrorCode {
    i16::try_from(code).ok().and_then(ErrorCode::from_code).unwrap_or(ErrorCode::UnknownServerError)
}
