//! The single writer. Everything that changes metadata passes through its loop, one event at a time:
//! operations run on the draft, those that wait together become one entry of the log, several entries
//! are in flight, and an answer goes out when its entry is committed.
//!
//! When leadership is lost, or at the first entry that had no effect, the draft and all replies are
//! dropped; nothing is proposed twice. The writer is active again only after the fate of every entry in
//! flight is known.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use common::clock::Clock;
use common::fault;
use common::ids::Term;
use common::metadata::{MetadataBatch, codec};
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, FuturesUnordered, StreamExt};
use protocol::error_code::ErrorCode;
use raft_log::{AppendError, Leadership, RaftLog};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::dial;
use super::listener::MetadataListener;
use super::narrate;
use super::operation::{
    Committed, Operation, OperationContext, Prepared, Reply, SystemRandomness, WriteError,
};
use super::pending::Pending;
use super::state::Draft;
use crate::control::fast_detection::{self, Evidence, Suspect};
use crate::control::heartbeat::{ConnectionId, Heartbeats};
use crate::control::{
    ControlError, ControlSettings, ControllerResult, activation, broker, election, feature, mirror,
};

/// Requests that may wait for the writer.
const QUEUE: usize = 4096;
/// Entries that may be in flight; further requests wait and share an entry.
const MAX_IN_FLIGHT: usize = 16;
const MAX_OPERATIONS_PER_ENTRY: usize = 512;
const MAX_ENTRY_BYTES: usize = 1 << 20;
/// A leader that has not heard of a majority for so long stops answering, so that brokers and clients look
/// for another one. Far above what a busy machine takes for a heartbeat.
const QUORUM_PATIENCE: Duration = Duration::from_secs(3);
/// The largest single request.
pub const MAX_PAYLOAD_BYTES: usize = 24 << 20;

/// What others may know of the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus {
    pub active: bool,
    pub term: u64,
    /// Node id of the quorum's leader.
    pub leader: Option<u64>,
}

/// Handle of the writer. Clones share it.
#[derive(Clone)]
pub struct QuorumController {
    operations: mpsc::Sender<Operation>,
    closed_connections: mpsc::UnboundedSender<ConnectionId>,
    status: watch::Receiver<ControllerStatus>,
}

impl QuorumController {
    /// The handle, and the loop to be spawned.
    pub fn new(
        raft: RaftLog,
        listener: Arc<MetadataListener>,
        settings: ControlSettings,
        rebalance_interval: Option<Duration>,
        clock: Arc<dyn Clock>,
        shutdown: CancellationToken,
    ) -> (QuorumController, impl Future<Output = Result<(), String>> + Send + 'static) {
        let (operations, receiver) = mpsc::channel(QUEUE);
        let (closed_connections, closed) = mpsc::unbounded_channel();
        let (status, status_receiver) = watch::channel(ControllerStatus::default());
        let writer = Writer {
            heartbeats: Heartbeats::new(settings.session_timeout_ms),
            raft,
            listener,
            settings,
            clock,
            status,
            draft: None,
            pending: Pending::default(),
            in_flight: FuturesOrdered::new(),
            suspects: Vec::new(),
            dials: FuturesUnordered::new(),
            entry: Entry::default(),
            fatal: None,
        };
        let handle = QuorumController { operations, closed_connections, status: status_receiver };
        (handle, writer.run(receiver, closed, rebalance_interval, shutdown))
    }

    pub fn status(&self) -> watch::Receiver<ControllerStatus> {
        self.status.clone()
    }

    pub fn is_active(&self) -> bool {
        self.status.borrow().active
    }

    /// Runs an operation on the draft; gives its response once it is committed.
    pub async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        decide: impl FnOnce(&mut OperationContext<'_>) -> Result<ControllerResult<T>, ControlError>
        + Send
        + 'static,
    ) -> Result<Committed<T>, WriteError> {
        if !self.is_active() {
            return Err(WriteError::NotController);
        }
        let (operation, answer) = Operation::new(name, decide);
        self.operations.send(operation).await.map_err(|_| WriteError::NotController)?;
        answer.await.unwrap_or(Err(WriteError::NotController))
    }

    /// Looks at the draft and the soft state; `None` where this controller is not active.
    pub async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        look: impl FnOnce(&OperationContext<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        if !self.is_active() {
            return None;
        }
        let (operation, answer) = Operation::read(name, look);
        self.operations.send(operation).await.ok()?;
        answer.await.ok()
    }

    /// A connection to the quorum listener ended. Never waits: it is called where a socket is dropped.
    pub fn connection_closed(&self, connection: ConnectionId) {
        let _ = self.closed_connections.send(connection);
    }
}

type InFlight = FuturesOrdered<BoxFuture<'static, Result<u64, AppendError>>>;

/// The entry that is being filled.
#[derive(Default)]
struct Entry {
    payload: BytesMut,
    replies: Vec<Waiting>,
}

/// A reply, and the lines for the log once it is true.
struct Waiting {
    reply: Reply,
    offset: common::ids::MetadataOffset,
    lines: Vec<String>,
}

struct Writer {
    raft: RaftLog,
    listener: Arc<MetadataListener>,
    settings: ControlSettings,
    clock: Arc<dyn Clock>,
    status: watch::Sender<ControllerStatus>,
    heartbeats: Heartbeats,
    /// Present while active.
    draft: Option<Draft>,
    pending: Pending<Waiting>,
    in_flight: InFlight,
    /// Brokers that are being dialled.
    suspects: Vec<Suspect>,
    dials: FuturesUnordered<BoxFuture<'static, (Suspect, Option<Evidence>)>>,
    entry: Entry,
    /// Why this process must not go on.
    fatal: Option<String>,
}

impl Writer {
    async fn run(
        mut self,
        mut operations: mpsc::Receiver<Operation>,
        mut closed: mpsc::UnboundedReceiver<ConnectionId>,
        rebalance_interval: Option<Duration>,
        shutdown: CancellationToken,
    ) -> Result<(), String> {
        let mut leadership = self.raft.leadership();
        let mut tick =
            tokio::time::interval(Duration::from_millis((self.settings.session_timeout_ms / 8).max(10)));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let period = rebalance_interval.unwrap_or(Duration::from_secs(3600));
        let mut balance = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        self.follow(*leadership.borrow_and_update());
        loop {
            let room = self.in_flight.len() < MAX_IN_FLIGHT;
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                changed = leadership.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    self.follow(*leadership.borrow_and_update());
                }
                Some(ended) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.entry_ended(ended);
                    if self.draft.is_none() && self.in_flight.is_empty() {
                        self.follow(*leadership.borrow());
                    }
                }
                Some(connection) = closed.recv() => self.connection_closed(connection),
                Some((suspect, evidence)) = self.dials.next(), if !self.dials.is_empty() => {
                    self.dialled(&suspect, evidence);
                }
                _ = tick.tick() => {
                    self.follow(*leadership.borrow());
                    self.tick();
                }
                _ = balance.tick(), if rebalance_interval.is_some() => {
                    self.run_operation(Operation::internal("preferred leader", |context| {
                        election::elect_preferred(context.image, context.settings)
                    }));
                },
                operation = operations.recv(), if room => {
                    let Some(operation) = operation else { break };
                    fault::point("controller.operation", operation.name).await;
                    self.run_operation(operation);
                    for _ in 1..MAX_OPERATIONS_PER_ENTRY {
                        if self.entry.payload.len() >= MAX_ENTRY_BYTES {
                            break;
                        }
                        let Ok(operation) = operations.try_recv() else { break };
                        self.run_operation(operation);
                    }
                }
            }
            self.append_entry();
            if self.fatal.is_some() {
                break;
            }
        }
        self.deactivate("shutting down");
        self.fatal.map_or(Ok(()), Err)
    }

    /// Takes over what the quorum says about leadership.
    fn follow(&mut self, now: Leadership) {
        let ready = now.is_leader && now.ready;
        let leads = ready && self.raft.has_contact_within(QUORUM_PATIENCE);
        match &self.draft {
            Some(draft) if leads && draft.term() == Term(now.term) => {}
            Some(_) if ready && !leads => self.deactivate("a majority of the quorum does not answer"),
            Some(_) => self.deactivate("leadership lost"),
            None => {}
        }
        // Entries of an earlier draft may still become true: the new one begins after them.
        if leads && self.draft.is_none() && self.in_flight.is_empty() {
            self.activate(now.term);
        }
        self.status.send_if_modified(|status| {
            let next = ControllerStatus {
                active: self.draft.is_some(),
                term: now.term,
                leader: now.leader.map(|leader| leader.node_id),
            };
            let changed = *status != next;
            *status = next;
            changed
        });
    }

    fn activate(&mut self, term: u64) {
        let image = self.listener.image();
        if let Some(problem) = feature::unsupported(&image) {
            self.fatal = Some(format!("this controller cannot be active: {problem}"));
            return;
        }
        tracing::info!(term, offset = image.offset.0, "this controller is active");
        self.heartbeats.restart(&image, self.clock.monotonic_ms());
        self.draft = Some(Draft::new(Term(term), (*image).clone()));
        self.run_operation(Operation::internal("activation", |context| {
            activation::activate(context.image, context.settings, context.random)
        }));
        self.append_entry();
    }

    fn deactivate(&mut self, reason: &str) {
        if self.draft.take().is_some() {
            tracing::info!(reason, "this controller is no longer active");
        }
        let unsent = std::mem::take(&mut self.entry);
        for waiting in unsent.replies.into_iter().chain(self.pending.take_replies()) {
            (waiting.reply)(Err(WriteError::NotController));
        }
        self.status.send_if_modified(|status| std::mem::replace(&mut status.active, false));
    }

    fn run_operation(&mut self, operation: Operation) {
        let Some(draft) = &mut self.draft else { return (operation.inactive)() };
        let mut random = SystemRandomness;
        let mut context = OperationContext {
            image: draft.image(),
            settings: &self.settings,
            heartbeats: &mut self.heartbeats,
            now_ms: self.clock.monotonic_ms(),
            random: &mut random,
        };
        let Prepared { records, reply } = match (operation.decide)(&mut context) {
            Ok(prepared) => prepared,
            Err(refusal) => return refusal(),
        };
        let mut waiting = Waiting { reply, offset: draft.offset(), lines: Vec::new() };
        if records.is_empty() {
            if self.entry.replies.is_empty() {
                if let Some(waiting) = self.pending.wait_for_newest(waiting) {
                    (waiting.reply)(Ok(waiting.offset));
                }
            } else {
                self.entry.replies.push(waiting);
            }
            return;
        }
        let batch = draft.batch(records, self.clock.now_ms());
        let bytes = codec::encode_batches(std::slice::from_ref(&batch));
        if bytes.len() > MAX_PAYLOAD_BYTES {
            let error = ControlError::new(ErrorCode::PolicyViolation, "the request changes too much at once");
            return (waiting.reply)(Err(WriteError::Refused(error)));
        }
        if let Err(error) = draft.replay(&batch) {
            // Never from a request alone: `control` and `replay` disagree, which is a bug.
            tracing::error!(operation = operation.name, "operation gives records that do not fit: {error}");
            let error = ControlError::new(ErrorCode::UnknownServerError, error.to_string());
            return (waiting.reply)(Err(WriteError::Refused(error)));
        }
        waiting.offset = batch.offset;
        waiting.lines = self.lines(operation.name, &batch);
        if self.entry.payload.len() + bytes.len() > MAX_PAYLOAD_BYTES {
            self.append_entry();
        }
        self.entry.payload.extend_from_slice(&bytes);
        self.entry.replies.push(waiting);
    }

    fn lines(&self, reason: &str, batch: &MetadataBatch) -> Vec<String> {
        match &self.draft {
            Some(draft) if tracing::enabled!(tracing::Level::INFO) => {
                narrate::lines(reason, &batch.records, draft.image())
            }
            _ => Vec::new(),
        }
    }

    fn append_entry(&mut self) {
        let Some(draft) = &self.draft else { return };
        if self.entry.replies.is_empty() {
            return;
        }
        let Entry { payload, replies } = std::mem::take(&mut self.entry);
        let term = draft.term().0;
        let append = self.raft.append(term, payload.freeze());
        self.in_flight.push_back(Box::pin(async move {
            fault::point("controller.appended", term).await;
            let ended = append.await;
            fault::point("controller.answer", term).await;
            ended
        }));
        self.pending.appended(replies);
    }

    fn entry_ended(&mut self, ended: Result<u64, AppendError>) {
        let replies = self.pending.ended();
        let applied = match &ended {
            Ok(index) => self.listener.applied(*index) == Some(true),
            Err(_) => false,
        };
        if applied {
            for waiting in replies {
                for line in waiting.lines {
                    tracing::info!("{line}");
                }
                (waiting.reply)(Ok(waiting.offset));
            }
            return;
        }
        for waiting in replies {
            (waiting.reply)(Err(WriteError::NotController));
        }
        match ended {
            Ok(_) => self.deactivate("an entry had no effect"),
            Err(error) => self.deactivate(&format!("an entry was refused: {error}")),
        }
    }

    fn connection_closed(&mut self, connection: ConnectionId) {
        let now_ms = self.clock.monotonic_ms();
        let Some(draft) = &self.draft else {
            self.heartbeats.connection_closed(connection);
            return;
        };
        for suspect in fast_detection::suspects(draft.image(), &mut self.heartbeats, connection, now_ms) {
            if !self.suspects.contains(&suspect) {
                tracing::info!(broker = suspect.broker_id.0, "connection of a broker ended: dialling it");
                self.suspects.push(suspect.clone());
                self.dials.push(Box::pin(dial::dial_until_clear(suspect, self.clock.clone())));
            }
        }
    }

    fn dialled(&mut self, suspect: &Suspect, evidence: Option<Evidence>) {
        self.suspects.retain(|other| other != suspect);
        let Some(evidence) = evidence else { return };
        self.run_operation(Operation::internal("connection refused", move |context| {
            let (image, now_ms) = (context.image, context.now_ms);
            fast_detection::fence_refused(image, context.settings, context.heartbeats, evidence, now_ms)
        }));
    }

    /// Sessions that lapsed, and what could not be done before.
    fn tick(&mut self) {
        let Some(draft) = &self.draft else { return };
        let lapsed = self.heartbeats.lapsed(draft.image(), self.clock.monotonic_ms());
        let wants_state_topic = !draft.image().mirrors.is_empty()
            && !draft.image().topics.by_name.contains_key(common::mirror_state::MIRROR_STATE_TOPIC);
        for broker_id in lapsed {
            self.run_operation(Operation::internal("session lapsed", move |context| {
                broker::fence(context.image, context.settings, broker_id)
            }));
        }
        if wants_state_topic {
            self.run_operation(Operation::internal("mirror state topic", |context| {
                mirror::create::mirror_state_topic(context.image, context.settings, context.random)
            }));
        }
    }
}
