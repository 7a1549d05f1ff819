//! The task of one fetcher. It fetches while a second task appends what came before, so that the
//! source, the network and the local disk work at the same time; the order within a partition holds
//! since there is one of each.
//!
//! It keeps no knowledge of leaders: whatever it cannot go on with is handed back to the partition's
//! state machine, which asks the source and starts it again where it belongs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use common::fault;
use common::ids::*;
use protocol::api::ApiKey;
use protocol::messages::FetchResponse;
use protocol::{ErrorCode, Request, Response};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use crate::mirror::deps::{Clock, SourceConnection};
use crate::mirror::source::SourceClient;
use crate::mirror::state::{FetchStop, SourceFailure};

use super::answer::{Outcome, interpret};
use super::budget::{FetchBudget, Reserved};
use super::manager::FetcherMetrics;
use super::session::{FetchSession, Limits, Wanted};
use super::slot::FetchSlot;

/// Besides the records: headers of an answer with many partitions.
const ANSWER_OVERHEAD_BYTES: usize = 1024 * 1024;
/// A throttle time is honoured up to here; what is longer looks like a lie.
const LONGEST_THROTTLE: Duration = Duration::from_secs(60);
const FIRST_VERSION_WITH_TOPIC_ID: i16 = 13;
/// For a while after a partition came, since more may be on their way: an answer that waits for data
/// must not hold them up.
const SETTLING: Duration = Duration::from_millis(500);
const SETTLING_WAIT_MS: i32 = 20;
/// Records that trickle in are gathered for a moment before the next question: one question for each
/// record would cost the source's broker as much as the producers do.
const GATHERING: Duration = Duration::from_millis(5);
/// An answer below this is a trickle; a backlog is asked for without a pause.
const TRICKLE_BYTES: usize = 64 << 10;
/// A refusal that should pass and does not is for the state machine to look into, and to show: a
/// partition that copies nothing must not go on as MIRRORING without a word.
const MOST_REFUSALS: u32 = 10;

pub struct Worker {
    /// `host:port` of the source's broker.
    pub address: String,
    pub client_id: String,
    pub client: Arc<SourceClient>,
    pub budget: Arc<FetchBudget>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<FetcherMetrics>,
    pub added: mpsc::UnboundedReceiver<Arc<FetchSlot>>,
    pub runtime: Handle,
    pub last_added: Instant,
}

/// A partition as the fetching side sees it: ahead of the log by what is still being appended.
struct Fetching {
    slot: Arc<FetchSlot>,
    next: Offset,
    /// Not asked for before then.
    resume_at: Option<Instant>,
    /// In a row.
    refusals: u32,
}

/// What one answer brought, with the room it takes.
struct Delivery {
    parts: Vec<(Arc<FetchSlot>, Offset, Bytes)>,
    _room: Reserved,
}

enum Ended {
    /// Nobody needs it any more.
    Idle,
    Failed(SourceFailure),
}

impl Worker {
    /// Runs until it has no partitions left and no one can add any.
    pub async fn run(mut self) {
        let mut partitions: HashMap<TopicIdPartition, Fetching> = HashMap::new();
        while let Some(first) = self.added.recv().await {
            self.add(&mut partitions, first);
            match self.serve(&mut partitions).await {
                Ended::Idle => {}
                Ended::Failed(why) => {
                    debug!(mirror = %self.client.mirror, source = self.address, %why, "mirror fetcher stops");
                    self.metrics.connection_errors.fetch_add(1, Ordering::Relaxed);
                    self.take_added(&mut partitions);
                    for (_, fetching) in partitions.drain() {
                        let stop = match &why {
                            SourceFailure::CouldNotAsk(_) => FetchStop::SourceMoved { epoch: None },
                            SourceFailure::Failed(reason) => FetchStop::Failed(reason.clone()),
                        };
                        fetching.slot.stop(stop);
                    }
                }
            }
        }
    }

    fn add(&mut self, partitions: &mut HashMap<TopicIdPartition, Fetching>, slot: Arc<FetchSlot>) {
        let next = slot.start_offset();
        self.last_added = Instant::now();
        partitions.insert(slot.id, Fetching { slot, next, resume_at: None, refusals: 0 });
    }

    fn take_added(&mut self, partitions: &mut HashMap<TopicIdPartition, Fetching>) {
        while let Ok(slot) = self.added.try_recv() {
            self.add(partitions, slot);
        }
    }

    async fn serve(&mut self, partitions: &mut HashMap<TopicIdPartition, Fetching>) -> Ended {
        let largest = self.budget.total_bytes() + ANSWER_OVERHEAD_BYTES;
        let opened = self.client.open(&self.address, &self.client_id, largest).await;
        let mut connection = match opened {
            Ok(checked) => checked.connection,
            Err(why) => return Ended::Failed(why),
        };
        let Some(version) = connection.version_of(ApiKey::Fetch) else {
            return Ended::Failed(SourceFailure::CouldNotAsk("no common version of Fetch".to_owned()));
        };
        // Room for one: the next answer is fetched while this one is appended, and no further ahead.
        let (deliver, mut delivered) = mpsc::channel::<Delivery>(1);
        let appender = self.runtime.spawn(async move {
            while let Some(delivery) = delivered.recv().await {
                for (slot, from, records) in delivery.parts {
                    fault::point("mirror.append", slot.id).await;
                    slot.append(from, &records);
                    // Other tasks of this runtime get their turn between partitions.
                    tokio::task::yield_now().await;
                }
            }
        });
        let ended = self.fetch_loop(&mut *connection, version, partitions, deliver).await;
        // The sender is gone with the loop: what was delivered is still appended.
        let _ = appender.await;
        ended
    }

    async fn fetch_loop(
        &mut self,
        connection: &mut dyn SourceConnection,
        version: i16,
        partitions: &mut HashMap<TopicIdPartition, Fetching>,
        deliver: mpsc::Sender<Delivery>,
    ) -> Ended {
        let mut session = FetchSession::default();
        loop {
            self.take_added(partitions);
            partitions.retain(|_, fetching| fetching.slot.is_open());
            if partitions.is_empty() {
                return Ended::Idle;
            }
            // An idle partition is in no answer that could remind of it.
            partitions.values().for_each(|fetching| fetching.slot.follow_log_start());
            let settings = self.client.settings();
            let now = Instant::now();
            let wanted = wanted(partitions, settings.fetch_max_bytes, now);
            if wanted.is_empty() {
                self.pause(partitions).await;
                continue;
            }
            let response_max = usize::try_from(settings.fetch_response_max_bytes).unwrap_or(LEAST_RESPONSE);
            let Some(room) = self.budget.reserve(response_max).await else { return Ended::Idle };
            let wait_max_ms = i32::try_from(settings.fetch_wait_max.as_millis()).unwrap_or(i32::MAX);
            let settling = self.last_added.elapsed() < SETTLING;
            let limits = Limits {
                max_wait_ms: if settling { wait_max_ms.min(SETTLING_WAIT_MS) } else { wait_max_ms },
                min_bytes: settings.fetch_min_bytes,
                max_bytes: i32::try_from(room.bytes).unwrap_or(i32::MAX),
            };
            let request = session.request(&wanted, limits, version);
            let timeout = settings.request_timeout + settings.fetch_wait_max;
            fault::point("mirror.fetch", &self.client.mirror).await;
            let response = match connection.call(Request::Fetch(request), version, timeout).await {
                Ok(Response::Fetch(response)) => response,
                Ok(_) => return Ended::Failed(crate::mirror::source::client::unexpected("Fetch")),
                Err(error) => return Ended::Failed(SourceFailure::CouldNotAsk(error.0)),
            };
            self.metrics.requests.fetch_add(1, Ordering::Relaxed);
            match ErrorCode::from_code(response.error_code) {
                Some(ErrorCode::None) => session.answered(response.session_id),
                Some(ErrorCode::FetchSessionIdNotFound | ErrorCode::InvalidFetchSessionEpoch) => {
                    session.reset();
                    continue;
                }
                code => {
                    let code = code.map_or("an unknown error code", ErrorCode::name);
                    return Ended::Failed(SourceFailure::CouldNotAsk(format!("Fetch: {code}")));
                }
            }
            let throttle = Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
            let parts = self.take_parts(response, version, partitions);
            let bytes: usize = parts.iter().map(|(_, _, records)| records.len()).sum();
            let is_trickle = (1..TRICKLE_BYTES).contains(&bytes);
            if !parts.is_empty() && deliver.send(Delivery { parts, _room: room }).await.is_err() {
                return Ended::Failed(SourceFailure::CouldNotAsk("the appender is gone".to_owned()));
            }
            let gathering = if is_trickle { GATHERING } else { Duration::ZERO };
            let pause = throttle.min(LONGEST_THROTTLE).max(gathering);
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    }

    /// Sorts an answer into what is appended, what waits and what is handed back.
    fn take_parts(
        &self,
        response: FetchResponse,
        version: i16,
        partitions: &mut HashMap<TopicIdPartition, Fetching>,
    ) -> Vec<(Arc<FetchSlot>, Offset, Bytes)> {
        let mut parts = Vec::new();
        let mut answered = HashSet::new();
        let by_name: HashMap<Arc<str>, TopicId> = if version < FIRST_VERSION_WITH_TOPIC_ID {
            partitions
                .values()
                .map(|fetching| (fetching.slot.topic.clone(), fetching.slot.id.topic_id))
                .collect()
        } else {
            HashMap::new()
        };
        for topic in response.responses {
            let topic_id = match version < FIRST_VERSION_WITH_TOPIC_ID {
                true => by_name.get(topic.topic.0.as_str()).copied(),
                false => Some(TopicId(topic.topic_id)),
            };
            let Some(topic_id) = topic_id else { continue };
            for answer in topic.partitions {
                let id = TopicIdPartition::new(topic_id, answer.partition_index);
                // What was not asked for, or comes twice, is not looked at.
                let Some(fetching) = partitions.get_mut(&id) else { continue };
                if !answered.insert(id) {
                    continue;
                }
                match interpret(&answer, fetching.next) {
                    Outcome::Data { records, next, source } => {
                        fetching.refusals = 0;
                        fetching.slot.succeeded(source.high_watermark, source.log_start);
                        self.metrics.bytes.fetch_add(records.len() as u64, Ordering::Relaxed);
                        parts.push((fetching.slot.clone(), fetching.next, records));
                        fetching.next = next;
                    }
                    Outcome::Empty { source } => {
                        fetching.refusals = 0;
                        fetching.slot.succeeded(source.high_watermark, source.log_start)
                    }
                    Outcome::Retry(why) => {
                        fetching.refusals += 1;
                        if fetching.refusals >= MOST_REFUSALS {
                            fetching.slot.stop(FetchStop::SourceMoved { epoch: None });
                            continue;
                        }
                        warn!(mirror = %self.client.mirror, partition = %id, source = self.address, why, "mirror fetch is refused, retrying");
                        fetching.resume_at = Some(Instant::now() + self.backoff());
                    }
                    Outcome::Stop(why) => {
                        fetching.slot.stop(why);
                    }
                }
            }
        }
        parts
    }

    /// `mirror.fetch.backoff.ms`, 20 % more or less.
    fn backoff(&self) -> Duration {
        let thousandths = 800 + self.clock.random() % 401;
        self.client.settings().fetch_backoff * thousandths / 1_000
    }

    /// Until a partition may be asked for again, or one is added.
    async fn pause(&mut self, partitions: &mut HashMap<TopicIdPartition, Fetching>) {
        let earliest = partitions.values().filter_map(|fetching| fetching.resume_at).min();
        let added = tokio::select! {
            () = sleep_until(earliest.unwrap_or_else(Instant::now)) => None,
            added = self.added.recv() => added,
        };
        if let Some(slot) = added {
            self.add(partitions, slot);
        }
    }
}

const LEAST_RESPONSE: usize = 64 * 1024;

fn wanted(partitions: &mut HashMap<TopicIdPartition, Fetching>, max_bytes: i32, now: Instant) -> Vec<Wanted> {
    partitions
        .values_mut()
        .filter_map(|fetching| {
            if fetching.resume_at.is_some_and(|at| at > now) {
                return None;
            }
            fetching.resume_at = None;
            Some(Wanted {
                id: fetching.slot.id,
                topic: fetching.slot.topic.clone(),
                offset: fetching.next,
                source_epoch: fetching.slot.source_epoch,
                max_bytes,
            })
        })
        .collect()
}
