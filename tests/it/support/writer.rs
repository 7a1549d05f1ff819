//! acks=all load: one idempotent writer that goes on whatever happens and remembers what was acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kagami_tests::client::{Client, error_name};
use protocol::ErrorCode;
use protocol::record_batch::BatchBuilder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{LIMIT, now_ms, values_of};

const RECORDS_PER_BATCH: usize = 5;
const PAUSE: Duration = Duration::from_millis(3);

pub struct Writer {
    acknowledged: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<()>>,
}

impl Writer {
    /// The only one that writes to this partition.
    pub fn start(bootstrap: &str, topic: &str, partition: i32) -> Writer {
        let (acknowledged, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let load =
            write(Client::new(bootstrap), topic.to_owned(), partition, acknowledged.clone(), stop.clone());
        Writer { acknowledged, stop, task: tokio::spawn(load) }
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits for so many more acknowledged records.
    pub async fn more(&self, records: usize) -> Result<()> {
        let wanted = self.acknowledged() + records;
        let deadline = Instant::now() + LIMIT;
        while self.acknowledged() < wanted {
            ensure!(!self.task.is_finished(), "the writer has ended");
            ensure!(Instant::now() < deadline, "no {records} records acknowledged within {LIMIT:?}");
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Ends the load; how many records were acknowledged.
    pub async fn finish(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await??;
        Ok(self.acknowledged.load(Ordering::Relaxed))
    }

    /// The log is what was written, in order, each once; everything acknowledged is in it.
    pub fn check(acknowledged: usize, log: &[u8]) -> Result<()> {
        let found = values_of(log)?;
        for (number, value) in found.iter().enumerate() {
            ensure!(*value == format!("record-{number}"), "place {number} holds {value}");
        }
        ensure!(found.len() >= acknowledged, "{acknowledged} were acknowledged, {} are there", found.len());
        // The last may be there without an answer.
        ensure!(
            found.len() <= acknowledged + RECORDS_PER_BATCH,
            "{acknowledged} sent, {} there",
            found.len()
        );
        Ok(())
    }
}

async fn write(
    mut client: Client,
    topic: String,
    partition: i32,
    acknowledged: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    let identity = client.init_producer_id().await?;
    while !stop.load(Ordering::Relaxed) {
        let first = acknowledged.load(Ordering::Relaxed);
        let mut builder = BatchBuilder::new().producer(identity.id, identity.epoch, first as i32);
        for number in first..first + RECORDS_PER_BATCH {
            builder.push(now_ms(), None, Some(format!("record-{number}").as_bytes()), &[]);
        }
        let batch = builder.build();
        let deadline = Instant::now() + LIMIT;
        loop {
            match client.produce(&topic, partition, batch.clone()).await {
                Ok(produced) if produced.error_code == 0 => break,
                Ok(produced) => {
                    let error = ErrorCode::from_code(produced.error_code).context("an unknown code")?;
                    if error == ErrorCode::DuplicateSequenceNumber {
                        break;
                    }
                    ensure!(error.retriable(), "record {first}: {}", error_name(produced.error_code));
                }
                Err(_) => {}
            }
            client.forget_leaders();
            ensure!(Instant::now() < deadline, "record {first} is not acknowledged within {LIMIT:?}");
            sleep(PAUSE).await;
        }
        acknowledged.fetch_add(RECORDS_PER_BATCH, Ordering::Relaxed);
        sleep(PAUSE).await;
    }
    Ok(())
}
