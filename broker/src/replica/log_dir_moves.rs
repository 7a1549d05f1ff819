//! AlterReplicaLogDirs: replicas move between this broker's directories while they serve (KIP-113).
//!
//! One worker copies, a step for each moving replica in turn. The switch holds the lock under which metadata
//! is applied, then the partition's: nothing is appended, cut or deleted meanwhile. Only after it the controller
//! hears where the replica lies; should the broker stop in between, it hears of it at the next start (KIP-858).

use std::sync::Arc;
use std::time::Duration;

use common::ids::*;
use parking_lot::MutexGuard;
use protocol::ErrorCode;
use tracing::{debug, error, info, warn};

use super::manager::ReplicaManager;
use super::partition::Partition;
use super::state::{LeaderState, Role};
use crate::log::{CopyStep, LogDirectory, LogError, MoveError, SharedLog, is_movable};

/// Where nothing moves, how often the worker looks whether something does.
pub(super) const IDLE: Duration = Duration::from_millis(200);
/// After a full disk.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of one replica before the next one has its turn.
const TURN_BYTES: usize = 16 << 20;
/// What comes while the copy is synced is copied and synced once more: little is left to do while nobody may append.
const ROUNDS: usize = 2;
/// Steps under the partition's lock; what is left after them is tried again without it.
const LAST_STEPS: usize = 4;

impl ReplicaManager {
    /// Asks for a replica to lie in the directory with this path. Whatever it was on its way to before is given up.
    pub fn alter_log_dir(&self, topic: &str, partition: i32, path: &str) -> Result<(), ErrorCode> {
        let directories = self.log_manager.directories();
        let directory = directories.iter().find(|directory| directory.path().as_os_str() == path);
        let is_unusable = || self.log_manager.unusable().iter().any(|unusable| unusable.as_os_str() == path);
        let directory = match directory {
            Some(directory) if directory.is_online() => directory,
            Some(_) => return Err(ErrorCode::KafkaStorageError),
            None if is_unusable() => return Err(ErrorCode::KafkaStorageError),
            None => return Err(ErrorCode::LogDirNotFound),
        };
        if !is_movable(topic, partition) {
            return Err(ErrorCode::InvalidTopicException);
        }
        let _applying = self.applying.lock();
        let image = self.context.image.load();
        let known = image
            .topic(topic)
            .filter(|found| usize::try_from(partition).is_ok_and(|index| index < found.partitions.len()));
        let id = TopicIdPartition::new(known.ok_or(ErrorCode::UnknownTopicOrPartition)?.id, partition);
        let Some(hosted) = self.partition(id) else {
            // As with Kafka: should it come here, it is made there.
            self.log_manager.prefer_directory(topic, partition, directory.id());
            return Err(ErrorCode::ReplicaNotAvailable);
        };
        self.move_hosted(&hosted, directory).map_err(|error| {
            warn!(partition = %hosted, %error, "cannot be moved to {path}");
            ErrorCode::KafkaStorageError
        })
    }

    fn move_hosted(&self, partition: &Partition, directory: &Arc<LogDirectory>) -> Result<(), LogError> {
        let current = {
            let inner = partition.lock();
            if inner.offline {
                return Err(LogError::Offline { path: inner.log.directory().path().to_path_buf() });
            }
            inner.log.clone()
        };
        if current.directory().id() == directory.id() {
            if self.log_manager.cancel_future(partition.id())? {
                info!(%partition, "stays in its log directory");
            }
            return Ok(());
        }
        let is_on_its_way = |future: Arc<SharedLog>| future.directory().id() == directory.id();
        if self.log_manager.future(partition.id()).is_some_and(is_on_its_way) {
            return Ok(());
        }
        self.log_manager.create_future(&current, directory, self.context.clock.now_ms())
    }

    /// One round over all moves. Returns how long to wait until the next.
    pub(super) fn advance_moves(&self) -> Duration {
        let mut pause = IDLE;
        let moving: Vec<_> = {
            // Whoever is hosted has its settings, throttles among them.
            let _applying = self.applying.lock();
            let hosted = |future: Arc<SharedLog>| Some((self.partition(future.id())?, future));
            self.log_manager.futures().into_iter().filter_map(hosted).collect()
        };
        for (partition, future) in moving {
            match self.advance_move(&partition, &future) {
                Ok(Some(wait)) => pause = pause.min(wait),
                Ok(None) => {}
                Err(MoveError::Future(error)) if error.is_exhausted() => {
                    warn!(%partition, %error, "no room to move the replica; tried again later");
                    pause = pause.max(PAUSE);
                }
                Err(error) => match self.log_manager.give_up_future(&future) {
                    Ok(true) => error!(%partition, %error, "the replica is not moved"),
                    Ok(false) if self.log_manager.is_under_way(&future) => {
                        error!(%partition, %error, "the move was not finished; the next start does it");
                    }
                    Ok(false) => debug!(%partition, %error, "given up meanwhile"),
                    Err(failed) => {
                        error!(%partition, %error, %failed, "the replica is not moved, and its copy not deleted");
                    }
                },
            }
        }
        pause
    }

    /// Held during each step of a move. None: the broker stops, and what it closes must not be written any more.
    fn may_move(&self) -> Option<MutexGuard<'_, ()>> {
        let moving = self.moving.lock();
        (!self.tasks.shutdown_token().is_cancelled()).then_some(moving)
    }

    /// Some: worth another look after that time. None: it has moved, or cannot now.
    fn advance_move(
        &self,
        partition: &Partition,
        future: &Arc<SharedLog>,
    ) -> Result<Option<Duration>, MoveError> {
        let mut copied = 0;
        for _ in 0..ROUNDS {
            loop {
                let Some(_moving) = self.may_move() else { return Ok(None) };
                // Given up meanwhile, perhaps with the replica.
                if !self.log_manager.is_under_way(future) {
                    return Ok(None);
                }
                let current = {
                    let inner = partition.lock();
                    if inner.offline { return Ok(None) } else { inner.log.clone() }
                };
                if let Some(wait_ms) = self.move_throttle_wait_ms() {
                    return Ok(Some(Duration::from_millis(wait_ms)));
                }
                match self.log_manager.copy_to_future(&current, future, self.context.clock.now_ms())? {
                    CopyStep::Copied { bytes } => {
                        let now_ms = self.context.clock.monotonic_ms();
                        self.context.move_throttle.lock().record(bytes, now_ms);
                        copied += bytes;
                        if copied >= TURN_BYTES {
                            return Ok(Some(Duration::ZERO));
                        }
                    }
                    CopyStep::CaughtUp => break,
                }
            }
            let Some(_moving) = self.may_move() else { return Ok(None) };
            self.log_manager.make_future_durable(future)?;
        }
        let Some(_moving) = self.may_move() else { return Ok(None) };
        let moved = self.switch(partition, future)?;
        Ok((!moved).then_some(IDLE))
    }

    fn move_throttle_wait_ms(&self) -> Option<u64> {
        self.context.move_throttle.lock().wait_ms(self.context.clock.monotonic_ms())
    }

    /// False: not now.
    fn switch(&self, partition: &Partition, future: &Arc<SharedLog>) -> Result<bool, MoveError> {
        let _applying = self.applying.lock();
        if !self.log_manager.is_under_way(future) {
            // Given up meanwhile.
            return Ok(true);
        }
        let mut inner = partition.lock();
        // A LOSS cut names the directory whose tail it spares, and who is suspended is being cut.
        let is_settled = match inner.state.role() {
            Role::Leader(leader) => !LeaderState::is_recovering(leader),
            Role::Follower { .. } => true,
            Role::None | Role::Suspended { .. } => false,
        };
        if inner.offline || !is_settled {
            return Ok(false);
        }
        let current = inner.log.clone();
        let now_ms = self.context.clock.now_ms();
        let mut steps = 0;
        while self.log_manager.copy_to_future(&current, future, now_ms)? != CopyStep::CaughtUp {
            steps += 1;
            if steps == LAST_STEPS {
                return Ok(false);
            }
        }
        if let Err(error) = self.log_manager.replace_by_future(&current, future) {
            if !current.directory().is_online() || current.read().is_offline() {
                partition.go_offline(&mut inner);
            }
            return Err(error);
        }
        inner.log = future.clone();
        partition.visible_change(&mut inner);
        drop(inner);
        self.context.deps.assign_directories(vec![(partition.id(), future.directory().id())]);
        Ok(true)
    }

    /// Replicas on their way to another directory, with the distance to the current log's end.
    pub fn moving_replicas(&self) -> Vec<(Arc<SharedLog>, i64)> {
        let futures = self.log_manager.futures();
        let behind = |future: Arc<SharedLog>| {
            let end = self.log_manager.log(future.id())?.read().log_end_offset();
            let lag = end.0 - future.read().log_end_offset().0;
            Some((future, lag.max(0)))
        };
        futures.into_iter().filter_map(behind).collect()
    }
}
