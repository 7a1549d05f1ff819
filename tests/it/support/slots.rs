//! Tests run in parallel; this bounds the processes that they have at the same time, so that a machine with
//! two cores is busy and not overwhelmed.

use std::sync::{Arc, LazyLock};

use anyhow::Result;
use kagami_tests::cluster::ClusterSpec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Two clusters of the usual size.
const PROCESSES: u32 = 12;

static FREE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(PROCESSES as usize)));

/// Room for these clusters, all at once: a test that waited for its second while it holds its first could
/// wait for ever.
pub async fn take(specs: &[&ClusterSpec]) -> Result<OwnedSemaphorePermit> {
    let processes: i32 = specs.iter().map(|spec| spec.controllers + spec.brokers).sum();
    Ok(FREE.clone().acquire_many_owned((processes as u32).min(PROCESSES)).await?)
}
