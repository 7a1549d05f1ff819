//! What a start needs before anything runs: directories, sockets, logs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use common::clock::{Clock, SystemClock};
use common::config::BrokerConfig;
use common::ids::{BrokerEpoch, DirectoryId};
use common::network;
use common::storage::{Directories, DirectoryLock, MetaProperties, StorageError, load_usable};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tracing::error;

use super::{StartError, topic_settings};
use crate::log::{LogManager, LogManagerConfig};

/// Of each log directory, at shutdown: syncs that wait together share the file system's journal.
const CLOSE_THREADS: usize = 8;

/// The log directories: formatted for this node, and ours alone.
pub(super) struct Storage {
    pub(super) cluster_id: String,
    pub(super) directories: Vec<(PathBuf, MetaProperties)>,
    /// Named in `log.dirs`, but their disks do not give them up.
    pub(super) unusable: Vec<PathBuf>,
    pub(super) first_directory: PathBuf,
    pub(super) locks: Vec<DirectoryLock>,
}

impl Storage {
    pub(super) fn open(config: &BrokerConfig) -> Result<Storage, StartError> {
        let Directories { usable, failed } = load_usable(&config.log_dirs, config.node_id.0)?;
        let mut unusable: Vec<PathBuf> = Vec::new();
        for (path, error) in failed {
            error!(directory = %path.display(), %error, "log directory cannot be read and stays offline");
            unusable.push(path);
        }
        let (mut directories, mut locks) = (Vec::new(), Vec::new());
        let of_all = usable.len();
        for (path, meta) in usable {
            match DirectoryLock::acquire(&path) {
                Ok(lock) => {
                    locks.push(lock);
                    directories.push((path, meta));
                }
                Err(error @ StorageError::Io { .. }) if unusable.len() + 1 < of_all => {
                    error!(directory = %path.display(), %error, "log directory cannot be written and stays offline");
                    unusable.push(path);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let (first_directory, meta) = directories.first().ok_or(StartError::NoDirectory)?;
        Ok(Storage {
            cluster_id: meta.cluster_id.clone(),
            first_directory: first_directory.clone(),
            directories,
            unusable,
            locks,
        })
    }
}

/// Listeners are bound before anything slow, so that a taken port is told at once.
pub(super) struct Bound {
    pub(super) listeners: Vec<(String, TcpListener, SocketAddr)>,
}

impl Bound {
    pub(super) async fn bind(config: &BrokerConfig) -> Result<Bound, StartError> {
        let mut listeners = Vec::with_capacity(config.listeners.len());
        for listener in &config.listeners {
            let address = &listener.address;
            let failed = |source| StartError::Listen { address: address.to_string(), source };
            let socket = network::bind(&address.host, address.port).await.map_err(failed)?;
            let local = socket.local_addr().map_err(failed)?;
            listeners.push((listener.name.clone(), socket, local));
        }
        Ok(Bound { listeners })
    }

    pub(super) fn addresses(&self) -> BTreeMap<String, SocketAddr> {
        self.listeners.iter().map(|(name, _, address)| (name.clone(), *address)).collect()
    }
}

/// A log directory that failed while the broker ran, or as its logs were opened.
pub(super) struct FailedDirectory {
    pub(super) id: DirectoryId,
    pub(super) reason: String,
}

pub(super) struct Logs {
    pub(super) manager: Arc<LogManager>,
    pub(super) previous_broker_epoch: BrokerEpoch,
    pub(super) failed_directories: mpsc::UnboundedReceiver<FailedDirectory>,
}

pub(super) async fn open_logs(config: &Arc<BrokerConfig>, storage: &Storage) -> Result<Logs, StartError> {
    // At most one message for each directory.
    let (failures, mut failed_directories) = mpsc::unbounded_channel();
    let manager_config = LogManagerConfig {
        directories: storage
            .directories
            .iter()
            .map(|(path, meta)| (path.clone(), meta.directory_id))
            .collect(),
        unusable: storage.unusable.clone(),
        default_log_config: Arc::new(topic_settings::log_config(
            &config.topic_defaults,
            config.producer_id_expiration_ms,
        )),
        recovery_threads: usize::try_from(config.num_recovery_threads_per_data_dir).unwrap_or(1).max(1),
        close_threads: CLOSE_THREADS,
        on_directory_failure: Arc::new(move |directory, error| {
            let reason = format!("{}: {error}", directory.path().display());
            let _ = failures.send(FailedDirectory { id: directory.id(), reason });
        }),
    };
    spawn_blocking(move || {
        let manager = LogManager::open(manager_config, SystemClock::new().now_ms())?;
        if !manager.directories().iter().any(|directory| directory.is_online()) {
            let reason = failed_directories.try_recv().map(|failed| failed.reason).unwrap_or_default();
            return Err(StartError::NoDirectoryLeft(reason));
        }
        Ok(Logs {
            previous_broker_epoch: manager.previous_broker_epoch().unwrap_or(BrokerEpoch(-1)),
            manager: Arc::new(manager),
            failed_directories,
        })
    })
    .await?
}
