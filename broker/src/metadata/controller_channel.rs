//! Calls to the active controller.
//!
//! An inactive controller names the active one in the metadata of its refusal; a dead one is passed
//! over for the next address. Each call goes on trying until its own deadline, so callers see one
//! answer or one error, never which controller it was.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use common::ids::{BrokerEpoch, BrokerId};
use parking_lot::RwLock;
use protocol::proto::controller::controller_client::ControllerClient;
use protocol::proto::controller::*;
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::transport::{Channel, Endpoint as TransportEndpoint};
use tonic::{Code, Status};
use tracing::debug;

/// Metadata key of a refusal: the node id of the active controller, -1 when none is known.
pub const LEADER_KEY: &str = "kagami-leader";
/// And the voters, `id@host:port` each, with commas between.
pub const MEMBERS_KEY: &str = "kagami-members";
/// Forwarded answers may list many topics.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_000);
/// Of one attempt: a controller that hangs must not eat the whole deadline of a call, nor a session.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Of one attempt at a client's request, which may create thousands of partitions.
const FORWARD_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a client's request looks for an active controller: an election takes less than a second.
const FORWARD_SEARCH_TIMEOUT: Duration = Duration::from_secs(8);
/// Between two rounds over all controllers: short, since an election takes less than a second.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Controllers beside the configured ones; a quorum has a handful.
const MAX_LEARNED: usize = 32;

/// One entry of `controller.quorum.voters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumVoter {
    pub node_id: i32,
    /// `host:port` of its `quorum.listener`.
    pub address: String,
}

#[derive(Debug, Error)]
pub enum ChannelError {
    #[error(
        "no active controller among {voters} within {} ms (last: {last}); check that a majority of controllers runs, and that these are their quorum.listener addresses",
        .timeout.as_millis()
    )]
    NoActiveController { voters: String, timeout: Duration, last: String },

    #[error("the controller refused the call: {0}")]
    Refused(String),

    #[error("controller.quorum.voters names no usable address: {0}")]
    Address(String),
}

#[derive(Clone)]
struct Voter {
    node_id: i32,
    address: String,
    client: ControllerClient<Channel>,
    channel: Channel,
}

pub struct ControllerChannel {
    cluster_id: String,
    broker_id: BrokerId,
    /// Of the newest registration; -1 before the first.
    broker_epoch: AtomicI64,
    /// As configured, and after them the members that the active controller has told of.
    voters: RwLock<Arc<Vec<Voter>>>,
    configured: usize,
    /// Index of the voter that answered last.
    active: AtomicUsize,
}

impl ControllerChannel {
    /// Connects lazily: no controller needs to be there yet.
    pub fn new(
        cluster_id: String,
        broker_id: BrokerId,
        voters: &[QuorumVoter],
    ) -> Result<ControllerChannel, ChannelError> {
        if voters.is_empty() {
            return Err(ChannelError::Address("the list is empty".to_owned()));
        }
        let voters = voters
            .iter()
            .map(|voter| Voter::new(voter.node_id, &voter.address))
            .collect::<Result<Vec<_>, ChannelError>>()?;
        Ok(ControllerChannel {
            cluster_id,
            broker_id,
            broker_epoch: AtomicI64::new(-1),
            configured: voters.len(),
            voters: RwLock::new(Arc::new(voters)),
            active: AtomicUsize::new(0),
        })
    }

    /// The quorum's members, as the active controller has them: the configured addresses stay, new ones
    /// are added, and those that have left are dropped.
    pub fn learn(&self, members: &[QuorumMember]) {
        let known = self.voters();
        let (configured, learned) = known.split_at(self.configured.min(known.len()));
        let is_new = |member: &&QuorumMember| {
            !configured.iter().any(|voter| voter.node_id == member.node_id && voter.address == member.address)
        };
        let wanted: Vec<&QuorumMember> = members.iter().filter(is_new).take(MAX_LEARNED).collect();
        let same = wanted.len() == learned.len()
            && wanted
                .iter()
                .zip(learned)
                .all(|(member, voter)| member.node_id == voter.node_id && member.address == voter.address);
        if members.is_empty() || same {
            return;
        }
        let mut voters = configured.to_vec();
        for member in wanted {
            let kept = learned
                .iter()
                .find(|voter| member.node_id == voter.node_id && member.address == voter.address);
            match kept.cloned().map_or_else(|| Voter::new(member.node_id, &member.address), Ok) {
                Ok(voter) => voters.push(voter),
                Err(error) => debug!(%error, "address of a controller"),
            }
        }
        *self.voters.write() = Arc::new(voters);
    }

    /// Adds what a refusal names of the quorum, and drops nothing: it may be an old member's.
    fn learn_from(&self, refusal: &Status) {
        let known = self.voters();
        let mut voters = known.to_vec();
        for (node_id, address) in named_members(refusal) {
            let is_known = voters.iter().any(|voter| voter.node_id == node_id && voter.address == address);
            if is_known || voters.len() >= self.configured + MAX_LEARNED {
                continue;
            }
            match Voter::new(node_id, address) {
                Ok(voter) => voters.push(voter),
                Err(error) => debug!(%error, "address of a controller"),
            }
        }
        if voters.len() > known.len() {
            *self.voters.write() = Arc::new(voters);
        }
    }

    fn voters(&self) -> Arc<Vec<Voter>> {
        self.voters.read().clone()
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    pub fn broker_id(&self) -> BrokerId {
        self.broker_id
    }

    /// The epoch of the newest registration, -1 before the first.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch.load(Ordering::Acquire))
    }

    pub fn set_broker_epoch(&self, epoch: BrokerEpoch) {
        self.broker_epoch.store(epoch.0, Ordering::Release);
    }

    /// The transports to all controllers, for the metadata subscription, which any of them serves.
    pub fn channels(&self) -> Vec<(String, Channel)> {
        self.voters().iter().map(|voter| (voter.address.clone(), voter.channel.clone())).collect()
    }

    pub async fn register(
        &self,
        mut request: RegisterBrokerRequest,
        timeout: Duration,
    ) -> Result<RegisterBrokerResponse, ChannelError> {
        request.cluster_id.clone_from(&self.cluster_id);
        request.broker_id = self.broker_id.0;
        self.call(
            "RegisterBroker",
            timeout,
            (ATTEMPT_TIMEOUT, timeout),
            request,
            |mut client, request| async move { client.register_broker(request).await },
        )
        .await
    }

    pub async fn heartbeat(
        &self,
        mut request: HeartbeatRequest,
        timeout: Duration,
    ) -> Result<HeartbeatResponse, ChannelError> {
        request.cluster_id.clone_from(&self.cluster_id);
        request.broker_id = self.broker_id.0;
        request.broker_epoch = self.broker_epoch().0;
        self.call(
            "Heartbeat",
            timeout,
            (ATTEMPT_TIMEOUT, timeout),
            request,
            |mut client, request| async move { client.heartbeat(request).await },
        )
        .await
    }

    /// The three identity fields are filled in here, as in all calls below.
    pub async fn alter_partition(
        &self,
        mut request: AlterPartitionRequest,
        timeout: Duration,
    ) -> Result<AlterPartitionResponse, ChannelError> {
        request.cluster_id.clone_from(&self.cluster_id);
        request.broker_id = self.broker_id.0;
        request.broker_epoch = self.broker_epoch().0;
        self.call(
            "AlterPartition",
            timeout,
            (ATTEMPT_TIMEOUT, timeout),
            request,
            |mut client, request| async move { client.alter_partition(request).await },
        )
        .await
    }

    pub async fn assign_replicas_to_dirs(
        &self,
        mut request: AssignReplicasToDirsRequest,
        timeout: Duration,
    ) -> Result<AssignReplicasToDirsResponse, ChannelError> {
        request.cluster_id.clone_from(&self.cluster_id);
        request.broker_id = self.broker_id.0;
        request.broker_epoch = self.broker_epoch().0;
        self.call(
            "AssignReplicasToDirs",
            timeout,
            (ATTEMPT_TIMEOUT, timeout),
            request,
            |mut client, request| async move { client.assign_replicas_to_dirs(request).await },
        )
        .await
    }

    pub async fn allocate_producer_ids(
        &self,
        timeout: Duration,
    ) -> Result<AllocateProducerIdsResponse, ChannelError> {
        let request = AllocateProducerIdsRequest {
            cluster_id: self.cluster_id.clone(),
            broker_id: self.broker_id.0,
            broker_epoch: self.broker_epoch().0,
        };
        self.call(
            "AllocateProducerIds",
            timeout,
            (ATTEMPT_TIMEOUT, timeout),
            request,
            |mut client, request| async move { client.allocate_producer_ids(request).await },
        )
        .await
    }

    /// Hands a client's request on, its body as it came. Where no controller is active for a while the client
    /// is told so: its own patience is hardly longer.
    pub async fn forward(
        &self,
        mut request: ForwardRequest,
        timeout: Duration,
    ) -> Result<ForwardResponse, ChannelError> {
        request.cluster_id.clone_from(&self.cluster_id);
        request.broker_id = self.broker_id.0;
        request.broker_epoch = self.broker_epoch().0;
        let patience = (FORWARD_ATTEMPT_TIMEOUT, FORWARD_SEARCH_TIMEOUT);
        self.call("Forward", timeout, patience, request, |mut client, request| async move {
            client.forward(request).await
        })
        .await
    }

    pub async fn propose_mirror(
        &self,
        mut request: ProposeMirrorRequest,
        timeout: Duration,
    ) -> Result<ProposeMirrorResponse, ChannelError> {
        request.cluster_id.clone_from(&self.cluster_id);
        request.broker_id = self.broker_id.0;
        request.broker_epoch = self.broker_epoch().0;
        self.call(
            "ProposeMirror",
            timeout,
            (ATTEMPT_TIMEOUT, timeout),
            request,
            |mut client, request| async move { client.propose_mirror(request).await },
        )
        .await
    }

    pub async fn report_mirror(
        &self,
        mut request: ReportMirrorRequest,
        timeout: Duration,
    ) -> Result<ReportMirrorResponse, ChannelError> {
        request.cluster_id.clone_from(&self.cluster_id);
        request.broker_id = self.broker_id.0;
        request.broker_epoch = self.broker_epoch().0;
        self.call(
            "ReportMirror",
            timeout,
            (ATTEMPT_TIMEOUT, timeout),
            request,
            |mut client, request| async move { client.report_mirror(request).await },
        )
        .await
    }

    /// Tries the controller that answered last, the one a refusal names, and the others in turn.
    async fn call<Request, Response, Call, Answer>(
        &self,
        name: &'static str,
        timeout: Duration,
        (attempt_timeout, search): (Duration, Duration),
        request: Request,
        call: Call,
    ) -> Result<Response, ChannelError>
    where
        Request: Clone,
        Call: Fn(ControllerClient<Channel>, Request) -> Answer,
        Answer: Future<Output = Result<tonic::Response<Response>, Status>>,
    {
        let deadline = Instant::now() + timeout;
        let search_deadline = Instant::now() + search.min(timeout);
        let mut voters = self.voters();
        let mut index = self.active.load(Ordering::Relaxed) % voters.len();
        let mut failures = 0_usize;
        let mut followed_hint = false;
        loop {
            let voter = &voters[index];
            let attempt_deadline = deadline.min(Instant::now() + attempt_timeout);
            let (attempt, asked) = (call(voter.client.clone(), request.clone()), voter.address.clone());
            let failure = match timeout_at(attempt_deadline, attempt).await {
                Ok(Ok(response)) => {
                    self.active.store(index, Ordering::Relaxed);
                    return Ok(response.into_inner());
                }
                Ok(Err(status)) => {
                    self.learn_from(&status);
                    voters = self.voters();
                    index %= voters.len();
                    if let Some(next) = named_leader(&voters, &status).filter(|next| *next != index)
                        && !followed_hint
                    {
                        // Follow a hint once, at once; a second one in a row may be two that name each other.
                        followed_hint = true;
                        debug!(
                            call = name,
                            leader = voters[next].node_id,
                            "following to the active controller"
                        );
                        index = next;
                        continue;
                    }
                    if !is_retriable(&status) {
                        return Err(ChannelError::Refused(status.message().to_owned()));
                    }
                    status.message().to_owned()
                }
                Err(_) => "no answer in time".to_owned(),
            };
            followed_hint = false;
            debug!(call = name, controller = %asked, %failure, "trying the next controller");
            failures += 1;
            index = (index + 1) % voters.len();
            let next_round = failures.is_multiple_of(voters.len());
            let resume_at = if next_round { Instant::now() + RETRY_INTERVAL } else { Instant::now() };
            if resume_at >= search_deadline {
                return Err(ChannelError::NoActiveController {
                    voters: describe_voters(&voters),
                    timeout: search.min(timeout),
                    last: failure,
                });
            }
            if next_round {
                sleep_until(resume_at).await;
                voters = self.voters();
                (index, failures) = (index % voters.len(), 0);
            }
        }
    }
}

impl Voter {
    fn new(node_id: i32, address: &str) -> Result<Voter, ChannelError> {
        let channel = lazy_channel(address)?;
        let client = ControllerClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Voter { node_id, address: address.to_owned(), client, channel })
    }
}

/// Where the membership has another address than the configuration, that one counts: it comes later.
fn named_leader(voters: &[Voter], status: &Status) -> Option<usize> {
    let node_id: i32 = status.metadata().get(LEADER_KEY)?.to_str().ok()?.parse().ok()?;
    voters.iter().rposition(|voter| voter.node_id == node_id)
}

fn named_members(status: &Status) -> impl Iterator<Item = (i32, &str)> {
    let members = status.metadata().get(MEMBERS_KEY).and_then(|members| members.to_str().ok());
    members.unwrap_or_default().split(',').filter_map(|member| {
        let (node_id, address) = member.split_once('@')?;
        Some((node_id.parse().ok()?, address))
    })
}

fn describe_voters(voters: &[Voter]) -> String {
    let voters = voters.iter().map(|voter| format!("{}@{}", voter.node_id, voter.address));
    voters.collect::<Vec<_>>().join(",")
}

/// FAILED_PRECONDITION is "not the active one"; the rest is how tonic reports a transport that fails.
fn is_retriable(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::FailedPrecondition
            | Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Aborted
            | Code::Unknown
            | Code::Internal
    )
}

fn lazy_channel(address: &str) -> Result<Channel, ChannelError> {
    let endpoint = TransportEndpoint::from_shared(format!("http://{address}"))
        .map_err(|error| ChannelError::Address(format!("{address}: {error}")))?;
    Ok(endpoint
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        // Notices a controller whose machine is gone, which TCP alone would not for minutes.
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(2))
        .keep_alive_while_idle(true)
        .connect_lazy())
}
