//! Mirroring on a runtime of its own: a hung or flooding source never slows local replication
//! (decision 23).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use common::clock::SystemClock;
use common::config::BrokerConfig;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::metadata::{ControllerChannel, MetadataCache};
use crate::mirror::manager::MirrorManagerConfig;
use crate::mirror::state::RetryPolicy;
use crate::mirror::subsystem::Mirroring;
use crate::replica::ReplicaManager;

/// Fetching from a source is I/O and a checksum; two threads take more than one network brings.
const THREADS: usize = 2;

/// Ends in the background: a runtime must not be dropped where its drop would block.
pub struct MirrorRuntime(Option<Runtime>);

impl MirrorRuntime {
    pub fn new() -> io::Result<MirrorRuntime> {
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("mirror").enable_all().build()?;
        Ok(MirrorRuntime(Some(runtime)))
    }

    fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for MirrorRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

pub fn start(
    runtime: &MirrorRuntime,
    config: &BrokerConfig,
    cluster_id: &str,
    cache: &Arc<MetadataCache>,
    channel: &Arc<ControllerChannel>,
    replicas: &Arc<ReplicaManager>,
) -> Arc<Mirroring> {
    let manager_config = MirrorManagerConfig {
        broker: config.node_id,
        cluster_id: cluster_id.to_owned(),
        fetchers_per_source: config.mirror_num_replica_fetchers,
        fetch_memory_bytes: usize::try_from(config.mirror_fetch_memory_bytes).unwrap_or(usize::MAX),
        refresh_interval: Duration::from_millis(
            u64::try_from(config.mirror_metadata_refresh_interval_ms).unwrap_or(5_000),
        ),
        retry: RetryPolicy {
            initial_ms: config.mirror_failed_retry_initial_backoff_ms,
            maximum_ms: config.mirror_failed_retry_max_backoff_ms,
        },
    };
    let clock = Arc::new(SystemClock::new());
    Mirroring::start(
        &runtime.handle(),
        manager_config,
        cache.clone(),
        channel.clone(),
        replicas.clone(),
        clock,
    )
}
