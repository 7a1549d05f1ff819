//! One fetcher: pulls from one leader, in one fetch session, until it has no partitions left.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::fault;
use common::ids::*;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::backoff::pause_ms;
use super::leader_endpoint::{EndpointError, LeaderEndpoint, LeaderResponse};
use super::manager::FetcherContext;
use super::session::FetchSession;
use crate::replica::Partition;
use crate::replica::follower::FollowerOutcome;

/// The first pause after an error: what is wrong is mostly that one side is a moment behind in metadata.
const FIRST_PAUSE_MS: u64 = 20;

pub(super) enum Command {
    Follow { partition: Arc<Partition>, leader_epoch: LeaderEpoch },
    Forget(TopicIdPartition),
}

/// How the manager talks to a fetcher. Bounded by the number of partitions: what is not taken yet is
/// one command for each change of metadata.
pub(super) struct Inbox {
    commands: Mutex<Vec<Command>>,
    arrived: Notify,
    stopped: CancellationToken,
}

impl Inbox {
    pub(super) fn new(stopped: CancellationToken) -> Inbox {
        Inbox { commands: Mutex::new(Vec::new()), arrived: Notify::new(), stopped }
    }

    pub(super) fn send(&self, command: Command) {
        self.commands.lock().push(command);
        self.arrived.notify_one();
    }

    pub(super) fn stop(&self) {
        self.stopped.cancel();
    }
}

struct Followed {
    partition: Arc<Partition>,
    leader_epoch: LeaderEpoch,
    /// What the leader's session holds of it: an answer belongs to this, and to nothing that metadata
    /// said since.
    asked: Option<(LeaderEpoch, Offset)>,
    attempt: u32,
    resume_at: Option<Instant>,
}

pub(super) struct Fetcher {
    leader: BrokerId,
    context: Arc<FetcherContext>,
    inbox: Arc<Inbox>,
    session: FetchSession,
    followed: HashMap<TopicIdPartition, Followed>,
    paused: usize,
    endpoint: Option<Box<dyn LeaderEndpoint>>,
    failures: u32,
}

impl Fetcher {
    pub(super) fn new(leader: BrokerId, context: Arc<FetcherContext>, inbox: Arc<Inbox>) -> Fetcher {
        Fetcher {
            leader,
            context,
            inbox,
            session: FetchSession::default(),
            followed: HashMap::new(),
            paused: 0,
            endpoint: None,
            failures: 0,
        }
    }

    pub(super) async fn run(mut self) {
        let stopped = self.inbox.stopped.clone();
        let _ = stopped.run_until_cancelled(self.fetch_forever()).await;
    }

    async fn fetch_forever(&mut self) {
        loop {
            self.take_commands();
            self.resume_paused();
            if self.session.is_empty() {
                self.wait_for_work().await;
                continue;
            }
            match self.fetch_once().await {
                Ok(response) => {
                    if self.failures > 0 {
                        info!(leader = %self.leader, "fetching again");
                    }
                    self.failures = 0;
                    for answered in &response.partitions {
                        fault::point("replica.fetched.apply", answered.id).await;
                    }
                    self.apply(response);
                }
                Err(error) => self.failed(&error).await,
            }
        }
    }

    fn take_commands(&mut self) {
        let commands = std::mem::take(&mut *self.inbox.commands.lock());
        for command in commands {
            match command {
                Command::Follow { partition, leader_epoch } => self.follow(partition, leader_epoch),
                Command::Forget(id) => self.forget(id),
            }
        }
    }

    fn follow(&mut self, partition: Arc<Partition>, leader_epoch: LeaderEpoch) {
        let id = partition.id();
        self.forget(id);
        // A later command is on its way where it no longer follows under that epoch.
        let Some(position) = partition.fetch_position(leader_epoch) else { return };
        self.followed
            .insert(id, Followed { partition, leader_epoch, asked: None, attempt: 0, resume_at: None });
        self.session.set(id, position);
    }

    fn forget(&mut self, id: TopicIdPartition) {
        if let Some(followed) = self.followed.remove(&id) {
            self.paused -= usize::from(followed.resume_at.is_some());
        }
        self.session.remove(id);
    }

    fn resume_paused(&mut self) {
        if self.paused == 0 {
            return;
        }
        let now = Instant::now();
        let is_due = |followed: &Followed| followed.resume_at.is_some_and(|at| at <= now);
        let due: Vec<TopicIdPartition> =
            self.followed.iter().filter(|(_, followed)| is_due(followed)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(followed) = self.followed.get_mut(&id) else { continue };
            followed.resume_at = None;
            self.paused -= 1;
            match followed.partition.fetch_position(followed.leader_epoch) {
                Some(position) => self.session.set(id, position),
                None => self.forget(id),
            }
        }
    }

    fn next_resume(&self) -> Option<Instant> {
        if self.paused == 0 {
            return None;
        }
        self.followed.values().filter_map(|followed| followed.resume_at).min()
    }

    /// Everything is paused, or there is nothing yet.
    async fn wait_for_work(&mut self) {
        match self.next_resume() {
            Some(at) => {
                tokio::select! {
                    () = self.inbox.arrived.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                }
            }
            None => self.inbox.arrived.notified().await,
        }
    }

    async fn fetch_once(&mut self) -> Result<LeaderResponse, EndpointError> {
        // Whoever is paused must not wait for the others' long poll.
        let wait_ms = self.next_resume().map(|at| {
            let wait = at.saturating_duration_since(Instant::now());
            i32::try_from(wait.as_millis()).unwrap_or(i32::MAX).max(1)
        });
        let endpoint = match &mut self.endpoint {
            Some(endpoint) => endpoint,
            None => {
                let address = self.context.address(self.leader).ok_or(EndpointError::NoAddress)?;
                self.endpoint.insert(self.context.connector.connect(self.leader, address).await?)
            }
        };
        let request = self.session.next_request();
        for (id, position) in &request.partitions {
            if let Some(followed) = self.followed.get_mut(id) {
                followed.asked = Some((position.leader_epoch, position.fetch_offset));
            }
        }
        let mut identity = self.context.identity();
        if let Some(wait_ms) = wait_ms {
            identity.max_wait_ms = identity.max_wait_ms.min(wait_ms);
        }
        endpoint.fetch(identity, &request).await
    }

    async fn failed(&mut self, error: &EndpointError) {
        // The first is news; after that the leader is simply away.
        if self.failures == 0 {
            warn!(leader = %self.leader, %error, partitions = self.followed.len(), "cannot fetch from the leader");
        }
        self.session.lost();
        self.endpoint = None;
        let pause = pause_ms(self.failures, FIRST_PAUSE_MS, self.context.config.backoff_ms, random());
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    fn apply(&mut self, response: LeaderResponse) {
        self.session.answered(response.error, response.session_id);
        // Metadata that came while the fetch was out decides before its answer does.
        self.take_commands();
        for answered in response.partitions {
            let Some(followed) = self.followed.get_mut(&answered.id) else { continue };
            let Some((epoch, offset)) = followed.asked else { continue };
            let outcome =
                followed.partition.apply_fetched(epoch, offset, &answered.answer, &answered.records);
            match outcome {
                FollowerOutcome::Continue(position) => {
                    followed.attempt = 0;
                    self.session.set(answered.id, position);
                }
                FollowerOutcome::Pause(_) => self.pause(answered.id),
                FollowerOutcome::Throttled(wait) => self.pause_for(answered.id, wait),
                FollowerOutcome::Stop => self.forget(answered.id),
            }
        }
        // Once for all that were cut, and before the next fetch brings them records.
        if let Err(error) = self.context.log_manager.checkpoint_lowered_recovery_points() {
            warn!(%error, "recovery points are not lowered on disk after a truncation");
        }
    }

    fn pause(&mut self, id: TopicIdPartition) {
        let Some(followed) = self.followed.get_mut(&id) else { return };
        let pause = pause_ms(followed.attempt, FIRST_PAUSE_MS, self.context.config.backoff_ms, random());
        followed.attempt = followed.attempt.saturating_add(1);
        self.pause_for(id, Duration::from_millis(pause));
    }

    fn pause_for(&mut self, id: TopicIdPartition, pause: Duration) {
        self.session.remove(id);
        let Some(followed) = self.followed.get_mut(&id) else { return };
        followed.asked = None;
        if followed.resume_at.replace(Instant::now() + pause).is_none() {
            self.paused += 1;
        }
    }
}

/// Jitter: any number will do.
fn random() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
