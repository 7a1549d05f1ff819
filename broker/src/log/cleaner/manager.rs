//! Which log is cleaned next. Logs that were written since the last look are looked at; of those the
//! dirtiest is cleaned. A log that nobody writes costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use common::ids::TopicIdPartition;
use parking_lot::{Mutex, RwLock};

use super::CleanerSettings;
use super::metrics::CleanerMetrics;
use super::pass::{Pass, PassError, PassReport};
use super::plan::Cleanable;
use super::throttle::Throttle;
use crate::log::manager::LogManager;
use crate::log::shared_log::SharedLog;

/// Shared by the cleaner's workers.
pub struct LogCleaner {
    logs: Arc<LogManager>,
    settings: RwLock<Arc<CleanerSettings>>,
    throttle: Throttle,
    state: Mutex<State>,
    metrics: CleanerMetrics,
}

#[derive(Default)]
struct State {
    /// Compacted, with something closed that is not clean.
    candidates: BTreeSet<TopicIdPartition>,
    cleaning: BTreeSet<TopicIdPartition>,
    /// With the number of cuts the log had seen: after another one it may be whole again.
    uncleanable: BTreeMap<TopicIdPartition, u64>,
}

struct Chosen {
    log: Arc<SharedLog>,
    plan: Cleanable,
}

impl LogCleaner {
    pub fn new(logs: Arc<LogManager>, settings: CleanerSettings) -> LogCleaner {
        LogCleaner {
            logs,
            throttle: Throttle::new(settings.max_bytes_per_second),
            settings: RwLock::new(Arc::new(settings)),
            state: Mutex::default(),
            metrics: CleanerMetrics::default(),
        }
    }

    pub fn metrics(&self) -> &CleanerMetrics {
        &self.metrics
    }

    pub fn settings(&self) -> Arc<CleanerSettings> {
        self.settings.read().clone()
    }

    /// The number of workers is settled at start.
    pub fn set_settings(&self, settings: CleanerSettings) {
        self.throttle.set_rate(settings.max_bytes_per_second);
        *self.settings.write() = Arc::new(settings);
    }

    /// Work that goes on is given up at its next chunk.
    pub fn stop(&self) {
        self.throttle.stop();
    }

    /// Cleans the dirtiest log that is due. False: there is none, or it did not succeed.
    pub fn clean_one(&self, now_ms: i64) -> bool {
        if self.throttle.is_stopped() {
            return false;
        }
        let Some(Chosen { log, plan }) = self.choose(now_ms) else { return false };
        let pass = Pass {
            log: &log,
            settings: &self.settings(),
            throttle: &self.throttle,
            checkpoint: &|| self.logs.checkpoint_cleaned(&log),
            discard: &|files: Vec<PathBuf>| self.logs.delete_later(files, &log, now_ms),
        };
        let truncations = log.read().truncations();
        let result = pass.run(&plan, now_ms);
        let cleaned = result.is_ok();
        self.finish(&log, result, truncations, now_ms);
        self.state.lock().cleaning.remove(&log.id());
        cleaned
    }

    fn choose(&self, now_ms: i64) -> Option<Chosen> {
        let touched = self.logs.take_touched();
        let mut state = self.state.lock();
        state.candidates.extend(touched);
        let mut chosen: Option<Chosen> = None;
        let candidates: Vec<TopicIdPartition> =
            state.candidates.difference(&state.cleaning).copied().collect();
        for id in candidates {
            let Some(log) = self.logs.log(id).filter(|log| log.directory().is_online()) else {
                state.candidates.remove(&id);
                state.uncleanable.remove(&id);
                continue;
            };
            let mut guard = log.maintain();
            if let Some(truncations) = state.uncleanable.get(&id) {
                if *truncations == guard.truncations() {
                    continue;
                }
                state.uncleanable.remove(&id);
            }
            let config = guard.config().clone();
            let plan = if config.compact { guard.cleanable(log.high_watermark(), now_ms) } else { Ok(None) };
            drop(guard);
            let plan = match plan {
                Ok(Some(plan)) => plan,
                Ok(None) | Err(_) => {
                    state.candidates.remove(&id);
                    continue;
                }
            };
            // What only another write can make due is looked at when that write comes.
            let time_alone = config.min_compaction_lag_ms > 0 || config.max_compaction_lag_ms < i64::MAX;
            if !plan.is_due(&config) {
                if !plan.held_back && !time_alone {
                    state.candidates.remove(&id);
                }
                continue;
            }
            if chosen.as_ref().is_none_or(|best| plan.dirty_ratio > best.plan.dirty_ratio) {
                chosen = Some(Chosen { log, plan });
            }
        }
        if let Some(chosen) = &chosen {
            state.cleaning.insert(chosen.log.id());
        }
        self.metrics.uncleanable.set(state.uncleanable.len() as i64);
        chosen
    }

    fn finish(&self, log: &SharedLog, result: Result<PassReport, PassError>, truncations: u64, now_ms: i64) {
        let (topic, partition) = (log.topic(), log.id().partition);
        // It was deleted, or has moved: its files are elsewhere, and nothing is wrong with the disk.
        let result = result.or_else(|error| match error {
            PassError::Failed(error) => log.read().unless_retired(Err(error)).map_err(PassError::from),
            PassError::Aborted => Err(PassError::Aborted),
        });
        match result {
            Ok(report) => {
                self.metrics.runs.inc();
                self.metrics.bytes_read.inc_by(report.bytes_before);
                self.metrics.bytes_written.inc_by(report.bytes_after);
                self.metrics.records_dropped.inc_by(report.records_dropped);
                if let Err(error) = self.logs.checkpoint_cleaned(log) {
                    tracing::error!(%topic, partition, %error, "the cleaner's checkpoint was not written");
                }
                tracing::info!(%topic, partition, cleaned_to = report.end_offset,
                    bytes_before = report.bytes_before, bytes_after = report.bytes_after,
                    segments_before = report.segments_before, segments_after = report.segments_after,
                    records_dropped = report.records_dropped, "log cleaned");
            }
            Err(PassError::Aborted) => {
                tracing::debug!(%topic, partition, "cleaning given up: the log changed meanwhile");
            }
            Err(PassError::Failed(error)) => {
                self.metrics.failures.inc();
                self.metrics.last_failure_ms.set(now_ms);
                if error.is_exhausted() {
                    // Nothing was replaced; the room that cleaning needs may come back.
                    tracing::warn!(%topic, partition, %error, "no room to clean; tried again later");
                    return;
                }
                // A disk that fails takes its directory offline; damage is this log's alone.
                let _ = log.reporting(Err::<(), _>(error.clone()));
                tracing::error!(%topic, partition, %error, "the partition cannot be cleaned any more");
                self.state.lock().uncleanable.insert(log.id(), truncations);
            }
        }
    }
}

impl LogManager {
    /// The logs that were written since the last call.
    pub(in crate::log) fn take_touched(&self) -> Vec<TopicIdPartition> {
        let mut touched = Vec::new();
        for directory in self.directories() {
            touched.append(&mut directory.touched.lock());
        }
        let logs = self.logs.read();
        touched.iter().filter_map(|id| logs.get(id)).for_each(|log| log.untouch());
        touched
    }
}
