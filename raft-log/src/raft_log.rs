//! The handle: open, append, lead, read, shut down.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use openraft::async_runtime::{Instant as _, WatchReceiver as _};
use openraft::errors::{ClientWriteError, LinearizableReadError, RaftError};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use openraft::{ReadPolicy, ServerState};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::announce::Announcer;
use crate::config::{Identity, RaftLogConfig, VoterId};
use crate::contact::Contact;
use crate::error::{AppendError, MembershipError, OpenError, RaftLogError, ReadIndexError};
use crate::founding::Founding;
use crate::gate::Gate;
use crate::leadership::{self, Leadership};
use crate::lineage::Lineage;
use crate::listener::Listener;
use crate::membership::Changer;
use crate::network::client::{PeerFactory, Peers};
use crate::network::server::{self, QuorumServer};
use crate::snapshot::Snapshots;
use crate::state_machine::StateMachine;
use crate::status::{self, QuorumStatus};
use crate::store::Store;
use crate::type_config::{Payload, Raft, TypeConfig, Types};

/// After so many election timeouts without a sign of the others, contact is lost.
const CONTACT_TIMEOUTS: u32 = 5;
const SNAPSHOT_PATIENCE: Duration = Duration::from_millis(250);
const SNAPSHOT_ATTEMPTS: u32 = 120;

/// A voter's replicated log. Clones share it. It ends by [`RaftLog::shutdown`], not by being dropped:
/// the consensus works on tasks of its own.
#[derive(Clone)]
pub struct RaftLog {
    inner: Arc<Inner>,
}

struct Inner {
    raft: Raft,
    store: Store,
    gate: Gate,
    me: VoterId,
    max_payload_bytes: usize,
    election_timeout: Duration,
    service: QuorumServer,
    contact: Contact,
    changer: Changer,
    lineage: Lineage,
    appends: Mutex<Option<mpsc::UnboundedSender<Append>>>,
    leadership: watch::Receiver<Leadership>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    running: Mutex<Option<watch::Sender<()>>>,
}

struct Append {
    term: u64,
    payload: Bytes,
    responder: ProgressResponder<TypeConfig, ClientWriteResult<TypeConfig>>,
}

impl RaftLog {
    /// Opens the log, replays snapshot and committed entries into the listener, and begins to take
    /// part. It does not wait for a quorum: the others need [`RaftLog::service`] for that.
    pub async fn open(config: RaftLogConfig, listener: Arc<dyn Listener>) -> Result<RaftLog, OpenError> {
        let raft_config = Arc::new(config.consensus()?);
        let identity = Identity { cluster_id: config.cluster_id.clone(), voter: config.voter };
        let directory = config.data_dir.join("quorum");
        let (store, snapshots) = {
            let (directory, identity) = (directory.clone(), identity.clone());
            let opened = tokio::task::spawn_blocking(move || open_files(&directory, &identity));
            opened.await.map_err(|error| OpenError::Consensus(error.to_string()))??
        };

        let gate = Gate::new(listener);
        let (applied_sender, applied) = watch::channel(None);
        let machine = StateMachine::new(gate.clone(), snapshots.clone(), applied_sender);
        let lineage = Lineage::new(store.clone());
        lineage.tell();
        let peers = Peers::new(identity.clone(), lineage.clone(), &config.voters, config.max_payload_bytes);
        let factory = PeerFactory(peers.clone());
        let raft = match Raft::new(config.voter, raft_config, factory, store.clone(), machine).await {
            Ok(raft) => raft,
            Err(error) => {
                gate.close();
                store.close();
                return Err(OpenError::Consensus(error.to_string()));
            }
        };

        let (leadership_sender, leadership) = watch::channel(Leadership::default());
        let members = peers.clone();
        let set_members = move |all, voters| members.set_members(all, voters);
        let following =
            leadership::follow(raft.clone(), applied, leadership_sender, gate.clone(), set_members);
        let (appends, queue) = mpsc::unbounded_channel();
        let mut tasks = vec![tokio::spawn(following), tokio::spawn(write(raft.clone(), queue))];
        if store.has_log() {
            elect_if_alone(&raft, config.voter).await;
        } else {
            let founding = Founding {
                me: config.voter,
                voters: config.voters.clone(),
                raft: raft.clone(),
                store: store.clone(),
                peers: peers.clone(),
            };
            tasks.push(tokio::spawn(founding.run()));
        }
        let (running_sender, running) = watch::channel(());
        let contact = Contact::new();
        let silence = Duration::from_millis(config.election_timeout_ms) * CONTACT_TIMEOUTS;
        let changer = Changer::new(raft.clone(), config.voter, silence);
        tasks.push(tokio::spawn(changer.clone().tend()));
        if let Some(address) = config.address.clone() {
            let (me, raft, contact) = (config.voter, raft.clone(), contact.clone());
            tasks.push(tokio::spawn(Announcer { me, address, raft, peers, contact, silence }.run()));
        }
        let service = server::quorum_server(
            identity,
            raft.clone(),
            store.clone(),
            snapshots,
            contact.clone(),
            changer.clone(),
            lineage.clone(),
            running,
            config.max_payload_bytes,
        );
        Ok(RaftLog {
            inner: Arc::new(Inner {
                raft,
                store,
                gate,
                me: config.voter,
                max_payload_bytes: config.max_payload_bytes,
                election_timeout: Duration::from_millis(config.election_timeout_ms),
                service,
                contact,
                changer,
                lineage,
                appends: Mutex::new(Some(appends)),
                leadership,
                tasks: Mutex::new(tasks),
                running: Mutex::new(Some(running_sender)),
            }),
        })
    }

    /// The gRPC service that the other voters call.
    pub fn service(&self) -> QuorumServer {
        self.inner.service.clone()
    }

    pub fn voter(&self) -> VoterId {
        self.inner.me
    }

    /// Appends an entry under `term` and gives its index once it is committed and applied here. The
    /// order of calls is the order in the log; any number may be under way.
    pub fn append(
        &self,
        term: u64,
        payload: Bytes,
    ) -> impl Future<Output = Result<u64, AppendError>> + Send + 'static {
        let sent = self.send(term, payload);
        let leadership = self.inner.leadership.clone();
        async move {
            // Without an answer the consensus has stopped; the entry may have reached others.
            let result = sent?.await.map_err(|_| AppendError::Shutdown)?;
            result.map(|response| response.log_id.index()).map_err(|error| match error {
                ClientWriteError::ForwardToLeader(forward) => {
                    let now = *leadership.borrow();
                    if now.is_leader && now.term != term {
                        return AppendError::TermChanged;
                    }
                    AppendError::NotLeader { leader: forward.leader_id }
                }
                _ => AppendError::Unknown,
            })
        }
    }

    fn send(
        &self,
        term: u64,
        payload: Bytes,
    ) -> Result<oneshot::Receiver<ClientWriteResult<TypeConfig>>, AppendError> {
        let limit = self.inner.max_payload_bytes;
        if payload.len() > limit {
            return Err(AppendError::TooLarge { bytes: payload.len(), limit });
        }
        let (responder, answer) = ProgressResponder::complete_only();
        let appends = self.inner.appends.lock();
        let sent = appends.as_ref().map(|appends| appends.send(Append { term, payload, responder }));
        if matches!(sent, Some(Ok(()))) { Ok(answer) } else { Err(AppendError::Shutdown) }
    }

    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// Confirms with a majority that this node leads, and gives an index at or above all that was
    /// acknowledged before the call; it is applied here on return.
    pub async fn read_index(&self) -> Result<u64, ReadIndexError> {
        match self.inner.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(read) => Ok(read.log_id().index()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                Err(ReadIndexError::NotLeader { leader: forward.leader_id })
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => {
                Err(ReadIndexError::NoQuorum)
            }
            Err(RaftError::Fatal(_)) => Err(ReadIndexError::Shutdown),
        }
    }

    /// Whether this node leads and a majority answers it, or follows a leader that it hears of. Of now,
    /// for health checks; nothing may be decided on it.
    pub fn has_contact(&self) -> bool {
        self.has_contact_within(self.inner.election_timeout * CONTACT_TIMEOUTS)
    }

    /// The same, with another limit for how long ago the last sign was.
    pub fn has_contact_within(&self, limit: Duration) -> bool {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        if metrics.state != ServerState::Leader {
            return metrics.current_leader.is_some() && self.inner.contact.within(limit);
        }
        let alone = metrics.membership_config.membership().voter_ids().eq([self.inner.me]);
        alone || metrics.last_quorum_acked.as_ref().is_some_and(|acked| acked.elapsed() <= limit)
    }

    pub fn status(&self) -> QuorumStatus {
        status::status(&self.inner.raft, SystemTime::now())
    }

    /// Writes a snapshot of what is applied now.
    pub async fn snapshot_now(&self) -> Result<(), RaftLogError> {
        let raft = &self.inner.raft;
        let target = raft.metrics().borrow_watched().last_applied;
        // A request is ignored while a snapshot of an earlier state is being written: ask again.
        for _ in 0..SNAPSHOT_ATTEMPTS {
            raft.trigger().snapshot().await.map_err(|_| RaftLogError::Shutdown)?;
            let wait = raft.wait(Some(SNAPSHOT_PATIENCE));
            if wait.metrics(|metrics| metrics.snapshot >= target, "snapshot").await.is_ok() {
                return Ok(());
            }
        }
        Err(RaftLogError::TimedOut)
    }

    /// Hands leadership to another voter, as before a controlled shutdown.
    pub async fn transfer_leader(&self, node_id: u64) -> Result<(), RaftLogError> {
        let raft = &self.inner.raft;
        if !self.inner.leadership.borrow().is_leader {
            return Err(RaftLogError::NotLeader);
        }
        let target = raft.voter_ids().find(|voter| voter.node_id == node_id);
        let target = target.ok_or(RaftLogError::NotAVoter(node_id))?;
        self.inner.changer.begin_hand_over(target).await.map_err(|_| RaftLogError::Shutdown)?;
        let wait = raft.wait(Some(self.inner.election_timeout * 4));
        let moved = wait.metrics(|metrics| metrics.current_leader == Some(target), "transfer").await;
        moved.map(drop).map_err(|_| RaftLogError::TimedOut)
    }

    /// Makes an observer a voter; see [`MembershipError`] for what stands against it.
    pub async fn add_voter(&self, voter: VoterId, patience: Duration) -> Result<(), MembershipError> {
        self.check_ready()?;
        self.inner.changer.add_voter(voter, patience).await
    }

    /// Removes a voter; the leader hands over instead, and the new one must be asked.
    pub async fn remove_voter(&self, voter: VoterId, patience: Duration) -> Result<(), MembershipError> {
        self.check_ready()?;
        self.inner.changer.remove_voter(voter, patience).await
    }

    /// Gives a member another address.
    pub async fn update_voter(
        &self,
        voter: VoterId,
        address: &str,
        patience: Duration,
    ) -> Result<(), MembershipError> {
        self.check_ready()?;
        self.inner.changer.update_address(voter, address, patience).await
    }

    fn check_ready(&self) -> Result<(), MembershipError> {
        let ready = self.inner.leadership.borrow().ready;
        if ready { Ok(()) } else { Err(MembershipError::NotLeader) }
    }

    /// Resolves when this node cannot go on: its disk or its listener failed, or the quorum was recovered
    /// without it. The process should end; what it had acknowledged is on disk or with the others.
    pub async fn failed(&self) -> String {
        let mut store = self.inner.store.failure();
        let mut metrics = self.inner.raft.metrics();
        let mut given_up = self.inner.lineage.given_up();
        loop {
            let recovery = *given_up.borrow_and_update();
            if let Some(recovery) = recovery {
                return self.inner.lineage.retire(recovery).await;
            }
            if let Some(reason) = store.borrow_and_update().clone() {
                return reason;
            }
            if let Err(fatal) = &metrics.borrow_and_update().running_state {
                return fatal.to_string();
            }
            let alive = tokio::select! {
                changed = store.changed() => changed.is_ok(),
                changed = given_up.changed() => changed.is_ok(),
                changed = metrics.changed() => changed.is_ok(),
            };
            if !alive {
                return "the log was shut down".into();
            }
        }
    }

    /// Ends everything: no call of the listener after it, all that was acknowledged on disk, and the
    /// directory free for the next owner. Hand over leadership first, if there is somebody to take it.
    pub async fn shutdown(&self) {
        let inner = &self.inner;
        drop(inner.appends.lock().take());
        if let Err(error) = inner.raft.shutdown().await {
            tracing::error!(%error, "the consensus did not end well");
        }
        drop(inner.running.lock().take());
        let tasks = std::mem::take(&mut *inner.tasks.lock());
        for (number, task) in tasks.into_iter().enumerate() {
            // The first tells the listener of the lost leadership and then ends by itself.
            if number > 0 {
                task.abort();
            }
            drop(task.await);
        }
        let (gate, store) = (inner.gate.clone(), inner.store.clone());
        let closed = tokio::task::spawn_blocking(move || {
            gate.close();
            store.close();
        });
        drop(closed.await);
    }
}

fn open_files(directory: &std::path::Path, identity: &Identity) -> Result<(Store, Snapshots), OpenError> {
    let store = Store::open(directory, identity)?;
    let path = directory.join("snapshots");
    let damaged = |reason: String| OpenError::Damaged { path: directory.to_owned(), reason };
    let snapshots = match Snapshots::open(path.clone(), store.clone()) {
        Ok(snapshots) => snapshots,
        Err(error) => {
            store.close();
            return Err(match error.kind() {
                std::io::ErrorKind::InvalidData => damaged(error.to_string()),
                _ => OpenError::Io { path, source: error },
            });
        }
    };
    let covered = snapshots.current().and_then(|(meta, _)| meta.last_log_id);
    if let Err(error) = store.check_complete(covered) {
        store.close();
        return Err(damaged(error.to_string()));
    }
    Ok((store, snapshots))
}

/// Hands the entries to the consensus in the order of the calls.
async fn write(raft: Raft, mut queue: mpsc::UnboundedReceiver<Append>) {
    while let Some(Append { term, payload, responder }) = queue.recv().await {
        let request = raft.write(Payload(payload)).with_leader(term).responder(responder);
        if request.await.is_err() {
            break;
        }
    }
}

/// A quorum of one need not wait for an election timeout: nobody else can be the leader.
pub(crate) async fn elect_if_alone<C: Types>(raft: &Raft<C>, me: VoterId) {
    if raft.voter_ids().eq([me])
        && let Err(error) = raft.trigger().elect(false).await
    {
        tracing::error!(%error, "the consensus has stopped");
    }
}
