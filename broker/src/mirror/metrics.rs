//! What mirroring counts. Gauges are computed from the view when somebody looks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::mirror_state::MirrorState;

use super::fetcher::FetcherMetrics;
use super::view::MirrorView;

/// One value for each reading of the metrics page.
#[derive(Clone, Debug, Default)]
pub struct MirrorSnapshot {
    /// Led partitions by mirror and state.
    pub partitions: HashMap<(Arc<str>, MirrorState), usize>,
    /// Largest lag of each mirror, in records.
    pub largest_lag: HashMap<Arc<str>, i64>,
    pub fetch_requests: u64,
    pub fetched_bytes: u64,
    pub fetch_connection_errors: u64,
    pub topic_metadata_refresh_errors: u64,
    pub topic_config_sync_errors: u64,
}

/// Counts real errors only.
pub struct MirrorMetrics {
    view: Arc<MirrorView>,
    fetchers: Arc<FetcherMetrics>,
    pub topic_metadata_refresh_errors: AtomicU64,
    pub topic_config_sync_errors: AtomicU64,
}

impl MirrorMetrics {
    pub fn new(view: Arc<MirrorView>, fetchers: Arc<FetcherMetrics>) -> MirrorMetrics {
        MirrorMetrics {
            view,
            fetchers,
            topic_metadata_refresh_errors: AtomicU64::new(0),
            topic_config_sync_errors: AtomicU64::new(0),
        }
    }

    pub fn snapshot(&self) -> MirrorSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MirrorSnapshot {
            partitions: self.view.counts(),
            largest_lag: self.view.largest_lags(),
            fetch_requests: read(&self.fetchers.requests),
            fetched_bytes: read(&self.fetchers.bytes),
            fetch_connection_errors: read(&self.fetchers.connection_errors),
            topic_metadata_refresh_errors: read(&self.topic_metadata_refresh_errors),
            topic_config_sync_errors: read(&self.topic_config_sync_errors),
        }
    }
}
