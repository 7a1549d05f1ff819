//! What follows when a log directory fails: its partitions go offline, the controller hears of it, and
//! the daemon lives on as long as one directory is left.

use std::sync::Arc;

use common::ids::DirectoryId;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::opening::FailedDirectory;
use crate::replica::ReplicaManager;

pub(super) struct DirectoryWatch {
    pub(super) replicas: Arc<ReplicaManager>,
    /// For the heartbeats.
    pub(super) offline: watch::Sender<Vec<DirectoryId>>,
}

impl DirectoryWatch {
    /// Ends with an error, which stops the broker, when no directory is left.
    pub(super) async fn run(
        self,
        mut failures: mpsc::UnboundedReceiver<FailedDirectory>,
        shutdown: CancellationToken,
    ) -> Result<(), String> {
        while let Some(Some(failed)) = shutdown.run_until_cancelled(failures.recv()).await {
            let logs = self.replicas.log_manager();
            if !logs.directories().iter().any(|directory| directory.is_online()) {
                return Err(format!("no log directory is left; the last one failed: {}", failed.reason));
            }
            // First the controller: others can lead while the partitions here are still being closed.
            self.offline.send_modify(|offline| offline.push(failed.id));
            let replicas = self.replicas.clone();
            let closed = tokio::task::spawn_blocking(move || replicas.directory_failed(failed.id));
            closed.await.map_err(|error| error.to_string())?;
        }
        shutdown.cancelled().await;
        Ok(())
    }
}
