//! What replicas do by the clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::log_dir_moves::IDLE;
use super::manager::ReplicaManager;
use super::state::ReplicaEvent;

/// Lag, unanswered proposals. Kafka checks lag at half of `replica.lag.time.max.ms`; a shorter interval
/// lets a high watermark that waited for a joiner go on (see `state::leader`).
const TICK: Duration = Duration::from_secs(1);

impl ReplicaManager {
    /// Starts the periodic work; ends with `shutdown`.
    pub fn start(self: &Arc<Self>) {
        let config = &self.context.config;
        self.every("replica-tick", TICK, false, |manager| manager.tick());
        self.every("replica-checkpoint", config.checkpoint_interval, true, |manager| {
            manager.log_manager.checkpoint(manager.context.clock.now_ms());
            manager.host_what_had_no_room();
        });
        self.move_replicas();
        self.every("log-retention", config.retention_check_interval, true, |manager| {
            manager.log_manager.maintain(manager.context.clock.now_ms());
            manager.notice_log_starts();
        });
    }

    /// Copies replicas that move between log directories; nothing else is to wait for it.
    fn move_replicas(self: &Arc<Self>) {
        let manager = Arc::downgrade(self);
        let token = self.tasks.shutdown_token();
        self.tasks.spawn("log-dir-moves", async move {
            let mut pause = IDLE;
            while token.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
                let Some(manager) = manager.upgrade() else { return };
                if !manager.log_manager.has_futures() {
                    pause = IDLE;
                    continue;
                }
                match tokio::task::spawn_blocking(move || manager.advance_moves()).await {
                    Ok(next) => pause = next,
                    Err(error) => {
                        error!(%error, "moving replicas failed");
                        pause = IDLE;
                    }
                }
            }
        });
    }

    fn every(
        self: &Arc<Self>,
        name: &'static str,
        period: Duration,
        blocking: bool,
        work: fn(&ReplicaManager),
    ) {
        let manager = Arc::downgrade(self);
        let token = self.tasks.shutdown_token();
        self.tasks.spawn(name, async move {
            let mut ticks = interval(period.max(Duration::from_millis(10)));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            while token.run_until_cancelled(ticks.tick()).await.is_some() {
                let Some(manager) = manager.upgrade() else { return };
                if blocking {
                    if let Err(error) = tokio::task::spawn_blocking(move || work(&manager)).await {
                        error!(task = name, %error, "periodic work failed");
                    }
                } else {
                    work(&manager);
                }
            }
        });
    }

    /// Only leaders with followers have anything to look at.
    pub(super) fn tick(&self) {
        let now_ms = self.context.steady_ms();
        for partition in self.partitions() {
            let mut inner = partition.lock();
            let Some(leader) = inner.state.leader() else { continue };
            if leader.has_followers() || leader.is_recovering() {
                let absent = leader.absent(inner.state.isr());
                let active =
                    absent.filter_map(|broker| self.context.active_broker(partition.id, broker)).collect();
                partition.apply(&mut inner, ReplicaEvent::LagCheck { now_ms, active });
            }
        }
        if let Some(batch) = self.context.isr_queue.tick() {
            self.context.deps.alter_partition(batch);
        }
    }

    /// Retention raised log starts behind the partitions' backs.
    fn notice_log_starts(&self) {
        for partition in self.partitions() {
            let mut inner = partition.lock();
            let log_start_offset = inner.log.read().log_start_offset();
            partition.apply(&mut inner, ReplicaEvent::LogStartRaised { log_start_offset });
        }
    }

    /// Stops fetching and the periodic work, flushes everything, leaves clean-shutdown files.
    pub async fn shutdown(&self, task_timeout: Duration) {
        let late = self.tasks.shutdown(task_timeout).await;
        if !late.is_empty() {
            warn!(?late, "replica tasks were aborted");
        }
        let (begun, logs) = (Instant::now(), self.partitions.read().len());
        let (log_manager, moving) = (self.log_manager.clone(), self.moving.clone());
        let broker_epoch = self.context.own_broker_epoch(self.context.local);
        let close = move || {
            // A step that outlived its task; none follows it.
            let _moving = moving.lock();
            log_manager.close(broker_epoch)
        };
        match tokio::task::spawn_blocking(close).await {
            Ok(Ok(())) => info!(logs, took = ?begun.elapsed(), "logs closed"),
            Ok(Err(error)) => {
                error!(%error, "logs were not closed cleanly; the next start recovers their tails")
            }
            Err(error) => error!(%error, "closing the logs failed"),
        }
    }
}
