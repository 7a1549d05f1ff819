//! What the partitions here look like, counted when somebody asks: an idle partition costs nothing.

use std::fmt;
use std::sync::Arc;

use common::ids::BrokerId;
use common::metadata::MetadataImage;
use common::telemetry::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::metadata::MetadataCache;

pub fn register(metrics: &Metrics, broker_id: BrokerId, cache: &Arc<MetadataCache>) {
    let collector = ImageMetrics { broker_id, cache: cache.clone() };
    metrics.register(|registry| registry.register_collector(Box::new(collector)));
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
