//! Reads both sides of one partition, a few batches at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::ids::*;
use protocol::api::ApiKey;
use protocol::messages::FetchRequest;
use protocol::record_batch::{BatchError, batches};
use protocol::{ErrorCode, Request, Response};

use crate::mirror::deps::{LocalPartition, SourceConnection};
use crate::mirror::fetcher::session::{FetchSession, Limits, Wanted};
use crate::mirror::source::SourceClient;
use crate::mirror::source::lineage::{self, At};
use crate::mirror::state::{SourceFailure, SourceLeader};

use super::compaction::CompactionRules;
use super::compare::{Comparison, Need, Side, Tally};

/// Read at once from each side; a batch that is larger comes alone.
const CHUNK_BYTES: usize = 1024 * 1024;
const LARGEST_ANSWER_BYTES: usize = 128 * 1024 * 1024;
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Empty answers in a row where data was promised.
const EMPTY_ANSWERS: u32 = 10;

#[derive(Clone, Debug)]
pub struct Verified {
    pub from: Offset,
    pub to: Offset,
    pub tally: Tally,
}

#[derive(Clone, Debug)]
pub struct VerifyTarget {
    pub id: TopicIdPartition,
    pub topic: Arc<str>,
    /// Where either side may have compacted its log.
    pub compaction: Option<CompactionRules>,
    /// A released copy is compared up to here: what comes after was written by clients.
    pub until: Option<Offset>,
}

/// Compares from the higher log start to the lower end: what the source serves to readers of committed
/// data, and what is on all in-sync replicas here.
pub async fn verify_partition(
    client: &SourceClient,
    partition: Arc<dyn LocalPartition>,
    target: VerifyTarget,
) -> Result<Verified, String> {
    let metadata = client.metadata(Some(std::slice::from_ref(&target.topic))).await.map_err(text)?;
    let leader = metadata.leader_of(&target.topic, target.id).map_err(text)?;
    let address = format!("{}:{}", leader.host, leader.port);
    let at = At { topic: target.topic.clone(), partition: target.id.partition, epoch: leader.epoch };
    let bounds = lineage::bounds(client, &address, &[at]).await.into_iter().next();
    let bounds = bounds.ok_or("the source told no offsets")?.map_err(text)?;
    let here = partition.status();
    let from = here.log_start_offset.max(bounds.log_start);
    let mut to = here.high_watermark.min(bounds.log_end);
    if let Some(until) = target.until {
        to = to.min(until);
    }
    if from >= to {
        return Ok(Verified { from, to: from, tally: Tally::default() });
    }
    let client_id = format!("broker-mirror-verifier-{}", client.mirror);
    let opened = client.open(&address, &client_id, LARGEST_ANSWER_BYTES).await.map_err(text)?;
    let mut source =
        SourceReader { connection: opened.connection, leader, target: target.clone(), next: from };
    let mut local_next = from;
    let mut comparison = Comparison::new(from.0, to.0, target.compaction);
    let ends = match target.compaction {
        Some(_) => (here.high_watermark, bounds.log_end),
        None => (to, to),
    };
    loop {
        match comparison.advance()? {
            Need::Done => return Ok(Verified { from, to, tally: comparison.tally() }),
            Need::More(Side::Local) => {
                let bytes = match local_next < ends.0 {
                    true => {
                        partition.read(local_next, ends.0, CHUNK_BYTES).map_err(|error| error.to_string())?
                    }
                    false => Bytes::new(),
                };
                local_next = feed(&mut comparison, Side::Local, &bytes, local_next)?;
            }
            Need::More(Side::Source) => {
                let bytes = if source.next < ends.1 { source.read().await? } else { Bytes::new() };
                source.next = feed(&mut comparison, Side::Source, &bytes, source.next)?;
            }
        }
        tokio::task::yield_now().await;
    }
}

fn text(failure: SourceFailure) -> String {
    failure.to_string()
}

/// Hands whole batches over; none left means that the side has ended. Returns the offset behind them.
fn feed(comparison: &mut Comparison, side: Side, bytes: &Bytes, next: Offset) -> Result<Offset, String> {
    let mut after = next;
    for batch in batches(bytes) {
        let batch = match batch {
            Ok(batch) => batch,
            Err(BatchError::Incomplete { .. }) => break,
            Err(error) => return Err(error.to_string()),
        };
        if batch.header.next_offset() <= after.0 {
            return Err(format!("a batch up to {} where {after} is next", batch.header.last_offset()));
        }
        after = Offset(batch.header.next_offset());
        comparison.push(side, batch.header, bytes.slice_ref(batch.bytes));
    }
    if after == next {
        comparison.end(side);
    }
    Ok(after)
}

struct SourceReader {
    connection: Box<dyn SourceConnection>,
    leader: SourceLeader,
    target: VerifyTarget,
    next: Offset,
}

impl SourceReader {
    async fn read(&mut self) -> Result<Bytes, String> {
        for _ in 0..EMPTY_ANSWERS {
            let records = self.fetch().await?;
            if !records.is_empty() {
                return Ok(records);
            }
        }
        // An open transaction keeps the rest from readers of committed data.
        Ok(Bytes::new())
    }

    async fn fetch(&mut self) -> Result<Bytes, String> {
        let version = self.connection.version_of(ApiKey::Fetch).ok_or("no common version of Fetch")?;
        let wanted = Wanted {
            id: self.target.id,
            topic: self.target.topic.clone(),
            offset: self.next,
            source_epoch: self.leader.epoch,
            max_bytes: i32::try_from(CHUNK_BYTES).unwrap_or(i32::MAX),
        };
        let limits = Limits { max_wait_ms: 100, min_bytes: 1, max_bytes: wanted.max_bytes };
        let request = without_session(FetchSession::default().request(&[wanted], limits, version));
        let answer = self.connection.call(Request::Fetch(request), version, READ_TIMEOUT).await;
        let answer = match answer.map_err(|error| error.to_string())? {
            Response::Fetch(answer) => answer,
            _ => return Err("unexpected answer to Fetch".to_owned()),
        };
        let error = |code: i16| {
            ErrorCode::from_code(code).map_or_else(|| format!("error {code}"), |code| code.name().to_owned())
        };
        if answer.error_code != 0 {
            return Err(error(answer.error_code));
        }
        let partition = answer.responses.into_iter().flat_map(|topic| topic.partitions).next();
        let partition = partition.ok_or("the answer leaves the partition out")?;
        if partition.error_code != 0 {
            return Err(error(partition.error_code));
        }
        Ok(partition.records.unwrap_or_default())
    }
}

/// A full request that opens no session.
fn without_session(mut request: FetchRequest) -> FetchRequest {
    request.session_id = 0;
    request.session_epoch = -1;
    request
}
