//! Waiting for a condition with a deadline; no test sleeps for luck.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// Calls `probe` until it gives a value, or fails with the last thing it said.
pub async fn eventually<T, F, Fut>(what: &str, within: Duration, mut probe: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let deadline = Instant::now() + within;
    let mut last = String::from("it gave nothing");
    loop {
        match probe().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => {}
            Err(error) => last = format!("{error:#}"),
        }
        if Instant::now() >= deadline {
            bail!("{what}: not within {within:?}; last: {last}");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
