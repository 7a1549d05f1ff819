//! The log cleaner's workers: each waits, and cleans on a thread that may block.

use std::sync::Arc;
use std::time::Duration;

use common::clock::{Clock, SystemClock};
use common::config::BrokerConfig;
use common::task::TaskGroup;
use common::telemetry::Metrics;
use tracing::error;

use crate::log::{CleanerSettings, LogCleaner, LogManager};
use crate::metadata::DynamicBrokerConfig;

/// Kafka's default of `log.cleaner.io.buffer.load.factor`.
const DEDUPE_LOAD_FACTOR: f64 = 0.9;
const MIN_BACKOFF: Duration = Duration::from_millis(10);

pub struct Cleaning {
    cleaner: Arc<LogCleaner>,
    tasks: TaskGroup,
}

impl Cleaning {
    pub fn start(logs: &Arc<LogManager>, config: &Arc<DynamicBrokerConfig>, metrics: &Metrics) -> Cleaning {
        let now = config.current();
        let cleaner = Arc::new(LogCleaner::new(logs.clone(), settings(&now)));
        metrics.register(|registry| cleaner.metrics().register(registry));
        let tasks = TaskGroup::new();
        if now.log_cleaner_enable {
            for number in 0..now.log_cleaner_threads.max(0) {
                let worker = work(cleaner.clone(), config.clone(), tasks.clone());
                tasks.spawn(format!("log-cleaner-{number}"), worker);
            }
        }
        Cleaning { cleaner, tasks }
    }

    /// What is being cleaned is given up; nothing is lost but the work.
    pub async fn shutdown(&self, deadline: Duration) {
        self.cleaner.stop();
        self.tasks.shutdown(deadline).await;
    }
}

async fn work(cleaner: Arc<LogCleaner>, config: Arc<DynamicBrokerConfig>, tasks: TaskGroup) {
    let token = tasks.shutdown_token();
    while !token.is_cancelled() {
        let now = settings(&config.current());
        let backoff = now.backoff.max(MIN_BACKOFF);
        if *cleaner.settings() != now {
            cleaner.set_settings(now);
        }
        let cleaning = cleaner.clone();
        let cleaned =
            tokio::task::spawn_blocking(move || cleaning.clean_one(SystemClock::new().now_ms())).await;
        if let Err(error) = &cleaned {
            error!(%error, "cleaning a log panicked");
        }
        if !cleaned.unwrap_or(false) && token.run_until_cancelled(tokio::time::sleep(backoff)).await.is_none()
        {
            return;
        }
    }
}

fn settings(config: &BrokerConfig) -> CleanerSettings {
    CleanerSettings {
        threads: usize::try_from(config.log_cleaner_threads).unwrap_or(1),
        backoff: Duration::from_millis(u64::try_from(config.log_cleaner_backoff_ms).unwrap_or(0)),
        dedupe_buffer_bytes: usize::try_from(config.log_cleaner_dedupe_buffer_size).unwrap_or(0),
        dedupe_load_factor: DEDUPE_LOAD_FACTOR,
        io_buffer_bytes: usize::try_from(config.log_cleaner_io_buffer_size).unwrap_or(0),
        max_bytes_per_second: config.log_cleaner_io_max_bytes_per_second,
    }
}
