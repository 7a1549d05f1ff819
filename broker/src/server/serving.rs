//! The sockets that others speak to: Kafka's protocol on each listener, and the metrics.

use std::net::SocketAddr;
use std::sync::Arc;

use common::config::BrokerConfig;
use common::ids::{BrokerEpoch, BrokerId};
use common::network::{self, InFlightBytes, Limits};
use common::task::TaskGroup;
use common::telemetry::{Metrics, Status, serve_http};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::StartError;
use crate::api::KafkaApi;
use crate::metadata::lifecycle::is_unfenced;
use crate::metadata::{ControllerChannel, MetadataCache};

pub(super) fn serve_listeners(
    config: &BrokerConfig,
    bound: Vec<(String, TcpListener, SocketAddr)>,
    api: KafkaApi,
    metrics: &Metrics,
    caught_up: watch::Receiver<bool>,
    group: &TaskGroup,
) {
    let in_flight_bytes =
        InFlightBytes::new(usize::try_from(config.queued_max_request_bytes).unwrap_or(usize::MAX));
    let count = |number: i32| usize::try_from(number).unwrap_or(usize::MAX);
    let api = Arc::new(api);
    for (name, listener, _) in bound {
        let limits = Limits {
            max_frame_bytes: count(config.socket_request_max_bytes),
            max_connections: count(config.max_connections),
            max_connections_per_ip: count(config.max_connections_per_ip),
            in_flight_bytes: in_flight_bytes.clone(),
            idle_timeout: config.idle_timeout(),
            metrics: metrics.network(&name),
            ..Limits::default()
        };
        let (api, shutdown) = (api.clone(), group.shutdown_token());
        let mut caught_up = caught_up.clone();
        group.spawn(format!("listener-{name}"), async move {
            // Before that an answer would come from an empty image: clients wait in the backlog.
            let wait = async { caught_up.wait_for(|caught_up| *caught_up).await.is_ok() };
            if shutdown.run_until_cancelled(wait).await == Some(true) {
                network::serve(listener, name, api, limits, shutdown).await;
            }
        });
    }
}

pub(super) async fn serve_metrics(
    config: &BrokerConfig,
    metrics: Metrics,
    cache: &Arc<MetadataCache>,
    channel: &Arc<ControllerChannel>,
    group: &TaskGroup,
) -> Result<Option<SocketAddr>, StartError> {
    let Some(address) = &config.metrics_listener else { return Ok(None) };
    let failed = |source| StartError::Listen { address: address.to_string(), source };
    let listener = network::bind(&address.host, address.port).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let status = StatusPages { cache: cache.clone(), channel: channel.clone(), broker_id: config.node_id };
    group.spawn("metrics-http", serve_http(listener, metrics, status, group.shutdown_token()));
    Ok(Some(local))
}

struct StatusPages {
    cache: Arc<MetadataCache>,
    channel: Arc<ControllerChannel>,
    broker_id: BrokerId,
}

impl Status for StatusPages {
    fn readiness(&self) -> Result<(), String> {
        let epoch = self.channel.broker_epoch();
        if epoch == BrokerEpoch(-1) {
            return Err("not registered with a controller yet".to_owned());
        }
        let image = self.cache.image();
        if image.offset.0 < epoch.0 {
            return Err("catching up with the metadata".to_owned());
        }
        if is_unfenced(&image, self.broker_id, epoch) {
            Ok(())
        } else {
            Err("fenced by the controller".to_owned())
        }
    }

    fn metadata(&self) -> String {
        self.cache.image().describe_position()
    }
}
