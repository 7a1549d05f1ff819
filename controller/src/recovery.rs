//! The store of a controller that is stopped: what `kagami quorum recover` works on.

use std::path::{Path, PathBuf};

use common::config::{ConfigError, ControllerConfig, Properties, PropertiesError};
use common::storage::{self, DirectoryLock, MetaProperties, StorageError};
pub use raft_log::VoterId;
use raft_log::recovery;
pub use raft_log::recovery::{Plan, Position, RecoveryError, StoppedVoter, check};
use thiserror::Error;

use crate::server::{quorum_directory, voter_id};

#[derive(Debug, Error)]
pub enum StoppedError {
    #[error(transparent)]
    Properties(#[from] PropertiesError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("the directory is formatted for node {formatted}, node.id is {configured}")]
    NodeId { formatted: i32, configured: i32 },
}

/// A controller's directory that no process uses: this one holds its lock.
#[derive(Debug)]
pub struct StoppedController {
    directory: PathBuf,
    cluster_id: String,
    voter: VoterId,
    _lock: DirectoryLock,
}

impl StoppedController {
    /// By its properties file.
    pub fn configured(file: &Path) -> Result<StoppedController, StoppedError> {
        let properties = Properties::load(file)?;
        let (config, _) = ControllerConfig::from_properties(&properties)?;
        let meta = storage::load(&config.log_dir)?;
        if meta.node_id != config.node_id.0 {
            return Err(StoppedError::NodeId { formatted: meta.node_id, configured: config.node_id.0 });
        }
        Ok(StoppedController::of(&config.log_dir, meta)?)
    }

    /// A directory alone, as of another survivor.
    pub fn in_directory(directory: &Path) -> Result<StoppedController, StoppedError> {
        Ok(StoppedController::of(directory, storage::load(directory)?)?)
    }

    fn of(directory: &Path, meta: MetaProperties) -> Result<StoppedController, StorageError> {
        let lock = DirectoryLock::acquire(directory)?;
        let voter = voter_id(&meta);
        Ok(StoppedController {
            directory: quorum_directory(directory),
            cluster_id: meta.cluster_id,
            voter,
            _lock: lock,
        })
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    pub async fn inspect(&self) -> Result<StoppedVoter, RecoveryError> {
        recovery::inspect(&self.directory, &self.cluster_id, self.voter).await
    }

    /// Makes this one the only voter, as planned.
    pub async fn recover(&self, plan: &Plan, now_ms: i64) -> Result<StoppedVoter, RecoveryError> {
        recovery::recover(&self.directory, &self.cluster_id, self.voter, plan, now_ms).await
    }
}
