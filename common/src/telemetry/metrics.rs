//! The metrics of a process. Each part registers its own; those that both daemons have are here.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::network::NetworkMetrics;

/// All metrics of a process, with `kagami_` before their names. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: RequestMetrics,
    network: NetworkFamilies,
}

impl Metrics {
    pub fn new() -> Metrics {
        let metrics = Metrics {
            registry: Arc::new(Mutex::new(Registry::with_prefix("kagami"))),
            requests: RequestMetrics::default(),
            network: NetworkFamilies::default(),
        };
        metrics.register(|registry| {
            metrics.requests.register(registry);
            metrics.network.register(registry);
        });
        metrics
    }

    /// Adds metrics. A counter's name is given without `_total`, a unit stands in the name.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.registry.lock())
    }

    pub fn requests(&self) -> RequestMetrics {
        self.requests.clone()
    }

    /// What the connections of this listener count.
    pub fn network(&self, listener: &str) -> NetworkMetrics {
        self.network.of(listener)
    }

    /// The text that Prometheus reads.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry.lock()).is_err() {
            // Writing into a string does not fail; a metric of ours that cannot be written may.
            tracing::error!("a metric cannot be written");
        }
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

type ApiLabel = [(&'static str, &'static str); 1];

/// Requests by API: how many, and how long until their answer was ready.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    requests: Family<ApiLabel, Counter>,
    seconds: Family<ApiLabel, Histogram, fn() -> Histogram>,
    errors: Family<[(&'static str, &'static str); 2], Counter>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        RequestMetrics {
            requests: Family::default(),
            seconds: Family::new_with_constructor(new_histogram),
            errors: Family::default(),
        }
    }
}

/// From 0.1 ms, each bucket twice the former, to 26 s.
fn new_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 19))
}

impl RequestMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Requests answered", self.requests.clone());
        registry.register("request_seconds", "Time from request to answer", self.seconds.clone());
        registry.register("request_errors", "Requests answered with an error", self.errors.clone());
    }

    pub fn observe(&self, api: &'static str, took: Duration) {
        let label = [("api", api)];
        self.requests.get_or_create(&label).inc();
        self.seconds.get_or_create(&label).observe(took.as_secs_f64());
    }

    /// `error` is Kafka's name of it.
    pub fn observe_error(&self, api: &'static str, error: &'static str) {
        self.errors.get_or_create(&[("api", api), ("error", error)]).inc();
    }
}

type ListenerLabel = [(&'static str, String); 1];

#[derive(Clone, Debug, Default)]
struct NetworkFamilies {
    bytes_in: Family<ListenerLabel, Counter>,
    bytes_out: Family<ListenerLabel, Counter>,
    connections: Family<ListenerLabel, Gauge>,
    accepted: Family<ListenerLabel, Counter>,
    refused: Family<ListenerLabel, Counter>,
}

impl NetworkFamilies {
    fn register(&self, registry: &mut Registry) {
        registry.register("bytes_in", "Bytes of requests", self.bytes_in.clone());
        registry.register("bytes_out", "Bytes of answers", self.bytes_out.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register("connections_accepted", "Connections accepted", self.accepted.clone());
        registry.register("connections_refused", "Connections above a limit", self.refused.clone());
    }

    fn of(&self, listener: &str) -> NetworkMetrics {
        let label = [("listener", listener.to_owned())];
        NetworkMetrics {
            bytes_in: self.bytes_in.get_or_create(&label).clone(),
            bytes_out: self.bytes_out.get_or_create(&label).clone(),
            connections: self.connections.get_or_create(&label).clone(),
            connections_accepted: self.accepted.get_or_create(&label).clone(),
            connections_refused: self.refused.get_or_create(&label).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_bytes_show_under_their_labels() {
        let metrics = Metrics::new();
        let requests = metrics.requests();
        requests.observe("Produce", Duration::from_millis(3));
        requests.observe("Produce", Duration::from_millis(1));
        requests.observe_error("Fetch", "NOT_LEADER_OR_FOLLOWER");
        metrics.network("PLAINTEXT").bytes_in.inc_by(7);
        metrics.network("PLAINTEXT").bytes_in.inc_by(1);
        let own = metrics.register(|registry| {
            let own = Gauge::<i64>::default();
            registry.register("partitions", "Partitions here", own.clone());
            own
        });
        own.set(5);
        let text = metrics.encode();
        for line in [
            "kagami_requests_total{api=\"Produce\"} 2",
            "kagami_request_seconds_count{api=\"Produce\"} 2",
            "kagami_request_errors_total{api=\"Fetch\",error=\"NOT_LEADER_OR_FOLLOWER\"} 1",
            "kagami_bytes_in_total{listener=\"PLAINTEXT\"} 8",
            "kagami_partitions 5",
            "# EOF",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} in\n{text}");
        }
    }
}
