//! Fetches of consumers and followers: read what is there, else wait until enough is, or the deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::ids::*;
use parking_lot::Mutex;
use protocol::{ErrorCode, StrBytes};
use tokio::time::{Instant, sleep_until};

use super::error::PartitionError;
use super::fetch_session::*;
use super::manager::ReplicaManager;
use super::partition::Partition;
use super::purgatory::{FetchWatch, Pending};
use super::session_cache::Owner;

#[derive(Clone, Debug)]
pub struct FetchParams {
    pub reader: FetchReader,
    /// The consumer's rack, empty where it has none; `None`: it reads from leaders only (KIP-392).
    pub rack: Option<StrBytes>,
    pub min_bytes: usize,
    pub max_bytes: usize,
    pub max_wait: Duration,
}

/// The session part of a request (KIP-227). Id 0 with epoch -1: none wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionMetadata {
    pub session_id: i32,
    pub session_epoch: i32,
}

impl SessionMetadata {
    pub const NONE: SessionMetadata = SessionMetadata { session_id: 0, session_epoch: FINAL_EPOCH };
}

/// How long a new high watermark waits for records that a follower is sent anyway. At a busy leader they
/// come within it, and each append costs a follower one fetch instead of two.
const NEWS_PATIENCE: Duration = Duration::from_millis(5);

/// Opens a session, closing the one it names.
const INITIAL_EPOCH: i32 = 0;
/// Wants no session, closing the one it names.
const FINAL_EPOCH: i32 = -1;

#[derive(Debug)]
pub struct FetchAnswer {
    pub error: ErrorCode,
    pub session_id: i32,
    pub partitions: Vec<FetchedPartition>,
}

impl FetchAnswer {
    fn refused(error: ErrorCode) -> FetchAnswer {
        FetchAnswer { error, session_id: 0, partitions: Vec::new() }
    }
}

enum FetchContext {
    Single(Mutex<FetchSet>, Arc<FetchWatch>),
    Session { id: i32, session: Arc<FetchSession>, incremental: bool },
}

impl FetchContext {
    fn watch(&self) -> &Arc<FetchWatch> {
        match self {
            FetchContext::Single(_, watch) => watch,
            FetchContext::Session { session, .. } => &session.watch,
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut FetchSet) -> T) -> T {
        match self {
            FetchContext::Single(set, _) => work(&mut set.lock()),
            FetchContext::Session { session, .. } => work(&mut session.state.lock().set),
        }
    }

    fn is_incremental(&self) -> bool {
        matches!(self, FetchContext::Session { incremental: true, .. })
    }
}

impl ReplicaManager {
    /// `partitions` are those the request names, `forgotten` those it takes out of its session.
    pub async fn fetch(
        &self,
        params: FetchParams,
        session: SessionMetadata,
        partitions: Vec<FetchPartition>,
        forgotten: Vec<PartitionKey>,
    ) -> FetchAnswer {
        let context = match self.fetch_context(params.reader, session, partitions, &forgotten) {
            Ok(context) => context,
            Err(error) => return FetchAnswer::refused(error),
        };
        let mut gathered = Gathered::default();
        let deadline = Instant::now() + params.max_wait;
        let watch = context.watch().clone();
        let is_empty = context.with(|set| set.len() == 0);
        loop {
            let is_ready = self.visit_queued(&context, &params, &mut gathered);
            if is_ready || is_empty || params.max_wait.is_zero() || Instant::now() >= deadline {
                break;
            }
            context.with(FetchSet::register);
            gathered.wait(&watch, deadline).await;
        }
        self.finish(&context, gathered)
    }

    /// Reads whatever is queued; true once the answer should go out.
    fn visit_queued(&self, context: &FetchContext, params: &FetchParams, gathered: &mut Gathered) -> bool {
        let watch = context.watch();
        let nudged = watch.take_nudge();
        let mut queue = watch.take();
        let may_skip = context.is_incremental();
        let tells_news = params.reader.is_follower() && matches!(context, FetchContext::Session { .. });
        context.with(|set| {
            let mut is_ready = nudged;
            while let Some(slot) = queue.pop_front() {
                let others = gathered.bytes - gathered.bytes_of(slot);
                if others >= params.max_bytes && may_skip {
                    gathered.skipped.push(slot);
                    continue;
                }
                let room = params.max_bytes.saturating_sub(others);
                let Some(fetched) = set.visit(slot, self, params, room, others == 0) else { continue };
                if let Some(wait_ms) = fetched.throttled_ms() {
                    gathered.throttle(slot, wait_ms);
                }
                is_ready |= fetched.is_urgent();
                if tells_news && set.has_news(slot, &fetched) {
                    gathered.news();
                }
                gathered.put(slot, fetched);
            }
            is_ready || gathered.bytes >= params.min_bytes || gathered.news_are_due()
        })
    }

    fn finish(&self, context: &FetchContext, mut gathered: Gathered) -> FetchAnswer {
        let session_id = match context {
            FetchContext::Single(..) => 0,
            FetchContext::Session { id, .. } => *id,
        };
        let watch = context.watch();
        for slot in &gathered.skipped {
            watch.keep(*slot);
        }
        gathered.keep_throttled(watch);
        let mut partitions = Vec::with_capacity(gathered.fetched.len());
        context.with(|set| {
            for (slot, fetched) in gathered.fetched {
                let has_more = fetched.len() > 0 || fetched.is_urgent();
                if session_id != 0 && has_more {
                    // Looked at again with the next request, whether that names it or not.
                    watch.keep(slot);
                }
                if context.is_incremental() && !has_more && !set.has_news(slot, &fetched) {
                    continue;
                }
                set.tell(slot, &fetched);
                partitions.push(fetched);
            }
        });
        FetchAnswer { error: ErrorCode::None, session_id, partitions }
    }

    fn fetch_context(
        &self,
        reader: FetchReader,
        metadata: SessionMetadata,
        partitions: Vec<FetchPartition>,
        forgotten: &[PartitionKey],
    ) -> Result<FetchContext, ErrorCode> {
        let SessionMetadata { session_id, session_epoch } = metadata;
        if session_epoch == INITIAL_EPOCH || session_epoch == FINAL_EPOCH {
            if session_id != 0 {
                self.end_session(session_id);
            }
            let session = (session_epoch == INITIAL_EPOCH && !partitions.is_empty())
                .then(|| self.open_session(reader, &partitions))
                .flatten();
            if let Some((id, session)) = session {
                return Ok(FetchContext::Session { id, session, incremental: false });
            }
            let watch = FetchWatch::new();
            let mut set = FetchSet::new(watch.clone(), reader.interest(), false);
            partitions.into_iter().for_each(|partition| set.set(partition));
            return Ok(FetchContext::Single(Mutex::new(set), watch));
        }
        self.continue_session(metadata, partitions, forgotten)
    }

    fn open_session(
        &self,
        reader: FetchReader,
        partitions: &[FetchPartition],
    ) -> Option<(i32, Arc<FetchSession>)> {
        let owner = if reader.is_follower() { Owner::Follower } else { Owner::Consumer };
        let now_ms = self.context.clock.monotonic_ms();
        let watch = FetchWatch::new();
        let mut set = FetchSet::new(watch.clone(), reader.interest(), true);
        partitions.iter().for_each(|partition| set.set(partition.clone()));
        let state = SessionState {
            next_epoch: INITIAL_EPOCH + 1,
            uses_topic_ids: partitions.first().is_some_and(|first| first.key.topic.is_none()),
            set,
        };
        let session = Arc::new(FetchSession { watch: watch.clone(), state: Mutex::new(state) });
        let id = {
            let mut sessions = self.sessions.lock();
            if !sessions.make_room(owner, partitions.len(), now_ms) {
                return None;
            }
            let random = || uuid::Uuid::new_v4().as_u64_pair().0 as u32;
            sessions.insert(owner, partitions.len(), now_ms, random, session.clone())?
        };
        if let FetchReader::Follower { broker_id, .. } = reader {
            self.context.register_follower(broker_id, &watch);
        }
        Some((id, session))
    }

    fn continue_session(
        &self,
        metadata: SessionMetadata,
        partitions: Vec<FetchPartition>,
        forgotten: &[PartitionKey],
    ) -> Result<FetchContext, ErrorCode> {
        let SessionMetadata { session_id, session_epoch } = metadata;
        let now_ms = self.context.clock.monotonic_ms();
        let session = self.sessions.lock().get(session_id, now_ms).cloned();
        let session = session.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let size = {
            let mut state = session.state.lock();
            if state.next_epoch != session_epoch {
                return Err(ErrorCode::InvalidFetchSessionEpoch);
            }
            let uses_topic_ids = state.uses_topic_ids;
            let mixes = |key: &PartitionKey| key.topic.is_none() != uses_topic_ids;
            if partitions.iter().map(|partition| &partition.key).chain(forgotten).any(mixes) {
                return Err(ErrorCode::FetchSessionTopicIdError);
            }
            state.next_epoch = if session_epoch == i32::MAX { 1 } else { session_epoch + 1 };
            forgotten.iter().for_each(|key| state.set.forget(key));
            partitions.into_iter().for_each(|partition| state.set.set(partition));
            state.set.len()
        };
        if !self.sessions.lock().resize(session_id, size) {
            self.end_session(session_id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        Ok(FetchContext::Session { id: session_id, session, incremental: true })
    }

    fn end_session(&self, session_id: i32) {
        let ended = self.sessions.lock().remove(session_id);
        if let Some(session) = ended {
            session.watch.close();
        }
    }

    /// How many fetch sessions there are.
    pub fn fetch_sessions(&self) -> usize {
        self.sessions.lock().len()
    }

    /// The partition that a client names.
    pub fn resolve(&self, key: &PartitionKey) -> Result<Arc<Partition>, PartitionError> {
        let id = match &key.topic {
            None => {
                let id = TopicIdPartition::new(key.topic_id, key.partition);
                if let Some(partition) = self.partition(id) {
                    return Ok(partition);
                }
                let leaves = self.leaving.read().get(&id) == Some(&false);
                if leaves || self.context.image.load().topic_by_id(key.topic_id).is_none() {
                    return Err(PartitionError::UnknownTopicId);
                }
                id
            }
            Some(name) => {
                let image = self.context.image.load();
                let topic = image.topic(&name.0).ok_or(PartitionError::UnknownTopicOrPartition)?;
                TopicIdPartition::new(topic.id, key.partition)
            }
        };
        self.local_partition(id)
    }
}

/// What a fetch has read so far, by slot, in the order in which it came.
#[derive(Default)]
struct Gathered {
    fetched: Vec<(u32, FetchedPartition)>,
    places: HashMap<u32, usize>,
    skipped: Vec<u32>,
    /// Held back by a throttle until then.
    throttled: Vec<u32>,
    unthrottled_at: Option<Instant>,
    /// There is something to tell that waits for records until then.
    news_due_at: Option<Instant>,
    bytes: usize,
}

impl Gathered {
    fn bytes_of(&self, slot: u32) -> usize {
        self.places.get(&slot).and_then(|place| self.fetched.get(*place)).map_or(0, |(_, f)| f.len())
    }

    fn throttle(&mut self, slot: u32, wait_ms: u64) {
        let at = Instant::now() + Duration::from_millis(wait_ms);
        self.unthrottled_at = Some(self.unthrottled_at.map_or(at, |earlier| earlier.min(at)));
        self.throttled.push(slot);
    }

    fn news(&mut self) {
        self.news_due_at.get_or_insert_with(|| Instant::now() + NEWS_PATIENCE);
    }

    fn news_are_due(&self) -> bool {
        self.news_due_at.is_some_and(|at| at <= Instant::now())
    }

    /// Until another look is worth while.
    async fn wait(&mut self, watch: &FetchWatch, deadline: Instant) {
        loop {
            let unthrottled_at = self.unthrottled_at.unwrap_or(deadline);
            let wake_at = deadline.min(unthrottled_at).min(self.news_due_at.unwrap_or(deadline));
            tokio::select! {
                biased;
                () = watch.arrived() => match watch.pending() {
                    Pending::Due => return,
                    Pending::News => self.news(),
                    Pending::Nothing => {}
                },
                () = sleep_until(wake_at) => {
                    if Instant::now() >= unthrottled_at {
                        self.keep_throttled(watch);
                    }
                    return;
                }
            }
        }
    }

    /// Queues them for another look.
    fn keep_throttled(&mut self, watch: &FetchWatch) {
        self.unthrottled_at = None;
        self.throttled.drain(..).for_each(|slot| watch.keep(slot));
    }

    fn put(&mut self, slot: u32, fetched: FetchedPartition) {
        self.bytes = self.bytes - self.bytes_of(slot) + fetched.len();
        match self.places.get(&slot) {
            Some(place) => self.fetched[*place].1 = fetched,
            None => {
                self.places.insert(slot, self.fetched.len());
                self.fetched.push((slot, fetched));
            }
        }
    }
}
