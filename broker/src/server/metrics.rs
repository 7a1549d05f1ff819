//! What the partitions here look like, counted when somebody asks: an idle partition costs nothing.

use std::fmt;
use std::sync::Arc;

use common::ids::BrokerId;
use common::metadata::MetadataImage;
use common::telemetry::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};

use crate::coordinator::CoordinatorRuntime;
use crate::metadata::MetadataCache;
use crate::mirror::Mirroring;
use crate::mirror::coordinator::MirrorShard;
use crate::mirror::metrics::MirrorMetrics;

pub fn register(metrics: &Metrics, broker_id: BrokerId, cache: &Arc<MetadataCache>, mirroring: &Mirroring) {
    let image = ImageMetrics { broker_id, cache: cache.clone() };
    let metrics_of_mirrors = mirroring.manager.metrics().clone();
    let mirror = MirrorCollector { metrics: metrics_of_mirrors, states: mirroring.coordinator.clone() };
    metrics.register(|registry| {
        registry.register_collector(Box::new(image));
        registry.register_collector(Box::new(mirror));
    });
}

struct ImageMetrics {
    broker_id: BrokerId,
    cache: Arc<MetadataCache>,
}

impl fmt::Debug for ImageMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageMetrics").field("broker_id", &self.broker_id).finish_non_exhaustive()
    }
}

/// Of the partitions with a replica on this broker.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    replicas: i64,
    leaders: i64,
    /// Led here, with replicas out of sync.
    under_replicated: i64,
    /// Nobody leads them.
    offline: i64,
}

impl Counts {
    fn of(image: &MetadataImage, broker_id: BrokerId) -> Counts {
        let mut counts = Counts::default();
        let partitions = image.topics.by_id.values().flat_map(|topic| topic.partitions.iter());
        for registration in partitions.map(|partition| &partition.registration) {
            if !registration.replicas.contains(&broker_id) {
                continue;
            }
            counts.replicas += 1;
            match registration.leader {
                None => counts.offline += 1,
                Some(leader) if leader == broker_id => {
                    counts.leaders += 1;
                    counts.under_replicated +=
                        i64::from(registration.isr.len() < registration.replicas.len());
                }
                Some(_) => {}
            }
        }
        counts
    }
}

impl Collector for ImageMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let image = self.cache.image();
        let counts = Counts::of(&image, self.broker_id);
        let fenced = image.brokers.get(&self.broker_id).is_none_or(|broker| broker.fenced);
        let gauges = [
            ("partitions", "Replicas on this broker", counts.replicas),
            ("leader_partitions", "Partitions led by this broker", counts.leaders),
            ("under_replicated_partitions", "Led here, with replicas out of sync", counts.under_replicated),
            ("offline_partitions", "Replicas here of partitions without a leader", counts.offline),
            ("metadata_offset", "Last metadata batch applied", image.offset.0),
            ("broker_fenced", "1 while the controller fences this broker", i64::from(fenced)),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

/// Mirrors whose partitions this broker leads.
struct MirrorCollector {
    metrics: Arc<MirrorMetrics>,
    states: Arc<CoordinatorRuntime<MirrorShard>>,
}

impl fmt::Debug for MirrorCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorCollector").finish_non_exhaustive()
    }
}

type StateLabels = [(&'static str, String); 2];
type MirrorLabel = [(&'static str, String); 1];

impl Collector for MirrorCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let seen = self.metrics.snapshot();
        let partitions = Family::<StateLabels, Gauge>::default();
        for ((mirror, state), count) in &seen.partitions {
            let labels = [("mirror", mirror.to_string()), ("state", state.name().to_owned())];
            partitions.get_or_create(&labels).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        let help = "Mirror partitions led here, by mirror and state";
        partitions.encode(encoder.encode_descriptor(
            "mirror_partitions",
            help,
            None,
            partitions.metric_type(),
        )?)?;

        let lag = Family::<MirrorLabel, Gauge>::default();
        for (mirror, records) in &seen.largest_lag {
            lag.get_or_create(&[("mirror", mirror.to_string())]).set(*records);
        }
        let help = "Largest lag of a mirror's partitions led here, in records";
        lag.encode(encoder.encode_descriptor("mirror_lag_records", help, None, lag.metric_type())?)?;

        let counters = [
            ("mirror_fetch_requests", "Fetches sent to sources", seen.fetch_requests),
            ("mirror_fetched_bytes", "Bytes of batches from sources", seen.fetched_bytes),
            (
                "mirror_fetch_connection_errors",
                "Connections to sources that failed",
                seen.fetch_connection_errors,
            ),
            (
                "mirror_metadata_refresh_errors",
                "Listings of a source that failed",
                seen.topic_metadata_refresh_errors,
            ),
            (
                "mirror_config_sync_errors",
                "Configs not taken over from a source",
                seen.topic_config_sync_errors,
            ),
            (
                "mirror_state_records_left_out",
                "Records of __mirror_state that could not be read, at each loading",
                self.states.records_left_out(),
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}
