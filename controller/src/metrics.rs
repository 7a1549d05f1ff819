//! What `/metrics` shows of the quorum and of the cluster, read from the committed image when asked.

use std::sync::Arc;

use common::telemetry::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

use crate::api::ApiContext;

/// Counts over the image; walking it is cheap next to a scrape's interval.
struct ClusterCollector {
    context: Arc<ApiContext>,
}

impl std::fmt::Debug for ClusterCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterCollector")
    }
}

pub fn register(metrics: &Metrics, context: &Arc<ApiContext>) {
    let collector = ClusterCollector { context: context.clone() };
    metrics.register(|registry| registry.register_collector(Box::new(collector)));
}

#[derive(Default)]
struct Counts {
    topics: i64,
    partitions: i64,
    offline: i64,
    under_replicated: i64,
    recovering: i64,
    mirror_topics: i64,
}

impl Collector for ClusterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let image = self.context.image();
        let status = *self.context.controller.status().borrow();
        let quorum = self.context.raft.status();
        let mut counts = Counts { topics: image.topics.by_id.len() as i64, ..Counts::default() };
        for topic in image.topics.by_id.values() {
            counts.mirror_topics += i64::from(topic.mirror.is_some());
            for partition in &topic.partitions {
                let registration = &partition.registration;
                counts.partitions += 1;
                counts.offline += i64::from(registration.leader.is_none());
                counts.under_replicated += i64::from(registration.isr.len() < registration.replicas.len());
                counts.recovering += i64::from(
                    registration.leader_recovery_state
                        == common::metadata::record::LeaderRecoveryState::Recovering,
                );
            }
        }
        let fenced = image.brokers.values().filter(|broker| broker.fenced).count() as i64;
        let index = |index: u64| i64::try_from(index).unwrap_or(i64::MAX);
        let gauges: &[(&str, &str, i64)] = &[
            ("controller_active", "1 on the active controller", i64::from(status.active)),
            ("quorum_term", "Term of the quorum", index(status.term)),
            ("quorum_leader", "Node id of the quorum's leader, -1 none", status.leader.map_or(-1, index)),
            ("quorum_voters", "Voters of the quorum", quorum.voters.len() as i64),
            ("quorum_log_end", "End of the quorum's log here", index(quorum.log_end_index)),
            ("quorum_committed", "End of what is committed", index(quorum.committed_end_index)),
            ("metadata_offset", "Last metadata batch replayed", image.offset.0),
            ("brokers_active", "Unfenced brokers", image.brokers.len() as i64 - fenced),
            ("brokers_fenced", "Fenced brokers", fenced),
            ("topics", "Topics", counts.topics),
            ("partitions", "Partitions", counts.partitions),
            ("partitions_offline", "Partitions without a leader", counts.offline),
            ("partitions_under_replicated", "Partitions whose ISR misses replicas", counts.under_replicated),
            ("partitions_recovering", "Partitions after an unclean election", counts.recovering),
            ("mirrors", "Mirrors", image.mirrors.len() as i64),
            ("mirror_topics", "Topics that belong to a mirror", counts.mirror_topics),
            (
                "mirror_topics_pending",
                "Topics that wait to be created",
                image.pending_mirror_topics.len() as i64,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(*value);
            gauge.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                prometheus_client::metrics::MetricType::Gauge,
            )?)?;
        }
        Ok(())
    }
}
