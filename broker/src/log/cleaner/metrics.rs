//! What the cleaner has done, for `/metrics`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Default)]
pub struct CleanerMetrics {
    pub runs: Counter,
    pub failures: Counter,
    pub bytes_read: Counter,
    pub bytes_written: Counter,
    pub records_dropped: Counter,
    /// Partitions that are not cleaned until somebody looks at them.
    pub uncleanable: Gauge,
    /// 0: none yet.
    pub last_failure_ms: Gauge,
}

impl CleanerMetrics {
    pub fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("log_cleaner_runs", "Logs that were cleaned", &self.runs),
            ("log_cleaner_failures", "Cleanings that failed", &self.failures),
            ("log_cleaner_read_bytes", "Bytes of segments that were cleaned", &self.bytes_read),
            ("log_cleaner_written_bytes", "Bytes that were left of them", &self.bytes_written),
            ("log_cleaner_records_dropped", "Records that were taken out", &self.records_dropped),
        ] {
            registry.register(name, help, counter.clone());
        }
        for (name, help, gauge) in [
            ("log_cleaner_uncleanable_partitions", "Partitions that cannot be cleaned", &self.uncleanable),
            (
                "log_cleaner_last_failure_milliseconds",
                "When a cleaning failed last, since the epoch; 0: never",
                &self.last_failure_ms,
            ),
        ] {
            registry.register(name, help, gauge.clone());
        }
    }
}
