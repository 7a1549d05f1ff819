//! What can happen in a run: messages that arrive, times that come.

use broker::fetcher::fetch_state::LeaderAnswer;
use broker::mirror::deps::StateWrite;
use broker::mirror::source::position::Recorded;
use broker::mirror::state::{MirrorEvent, ProposalError, SourceLeader, Token};
use broker::replica::IsrProposalItem;
use broker::replica::manager::IsrAnswer;
use common::ids::*;
use controller::control::mirror::propose::Proposal;

use super::log::Batch;

impl Event {
    /// The node at which it happens.
    pub fn node(&self) -> Option<Node> {
        match self {
            Event::Response { to, .. }
            | Event::Metadata { to, .. }
            | Event::Fetch { to, .. }
            | Event::FetchAnswer { to, .. }
            | Event::MirrorFetch { to, .. }
            | Event::MirrorFetched { to, .. }
            | Event::Produce { to, .. }
            | Event::Mirror { to, .. } => Some(*to),
            Event::Timer(timer) => timer.node(),
            _ => None,
        }
    }
}

impl Timer {
    fn node(&self) -> Option<Node> {
        match self {
            Timer::Heartbeat { node, .. }
            | Timer::Tick { node, .. }
            | Timer::Checkpoint { node, .. }
            | Timer::Park { node, .. }
            | Timer::FetchAgain { node, .. }
            | Timer::MirrorMetadata { node, .. }
            | Timer::MirrorWake { node, .. }
            | Timer::MirrorFetchAgain { node, .. }
            | Timer::AskExpired { node, .. }
            | Timer::ProposalsExpired { node, .. } => Some(*node),
            _ => None,
        }
    }
}

/// A broker of a cluster, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    pub cluster: usize,
    pub broker: usize,
}

impl Node {
    pub fn id(self) -> BrokerId {
        BrokerId(self.broker as i32 + 1)
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", (b'A' + self.cluster as u8) as char, self.broker + 1)
    }
}

#[derive(Clone, Debug)]
pub enum Event {
    /// A request reaches the active controller of the sender's cluster.
    Request {
        from: Node,
        process: u32,
        request: Box<Request>,
    },
    /// The controller's answer reaches the process that asked.
    Response {
        to: Node,
        process: u32,
        response: Box<Response>,
    },
    /// The broker's stream has the metadata log up to here.
    Metadata {
        to: Node,
        process: u32,
        offset: i64,
    },
    Fetch {
        to: Node,
        process: u32,
        fetch: FollowerRequest,
    },
    FetchAnswer {
        to: Node,
        process: u32,
        answer: Box<FollowerAnswer>,
    },
    MirrorFetch {
        to: Node,
        process: u32,
        fetch: MirrorFetch,
    },
    MirrorFetched {
        to: Node,
        process: u32,
        answer: Box<MirrorFetched>,
    },
    Produce {
        to: Node,
        process: u32,
        produce: Produce,
    },
    Produced {
        cluster: usize,
        producer: usize,
        number: u64,
        result: Result<i64, ProduceError>,
    },
    /// A question to a source, on its way through its stations.
    Ask {
        ask: Box<Ask>,
    },
    /// Something for the machine of a mirror partition.
    Mirror {
        to: Node,
        process: u32,
        partition: usize,
        event: Box<MirrorEvent>,
    },
    ReadState {
        from: Node,
        process: u32,
        partition: usize,
        token: Token,
        mirror: usize,
    },
    WriteState {
        from: Node,
        process: u32,
        partition: usize,
        token: Token,
        write: Box<StateWrite>,
    },
    Timer(Timer),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Timer {
    Start(Node),
    Drill {
        until_ms: i64,
    },
    Heartbeat {
        node: Node,
        process: u32,
    },
    /// Lag, unanswered proposals.
    Tick {
        node: Node,
        process: u32,
    },
    /// High-watermark checkpoint and, now and then, a flush.
    Checkpoint {
        node: Node,
        process: u32,
    },
    Park {
        node: Node,
        process: u32,
        partition: usize,
    },
    FetchAgain {
        node: Node,
        process: u32,
        partition: usize,
        number: u64,
    },
    MirrorMetadata {
        node: Node,
        process: u32,
    },
    MirrorWake {
        node: Node,
        process: u32,
        partition: usize,
    },
    MirrorFetchAgain {
        node: Node,
        process: u32,
        partition: usize,
        number: u64,
    },
    AskExpired {
        node: Node,
        process: u32,
        partition: usize,
        number: u64,
    },
    ProposalsExpired {
        node: Node,
        process: u32,
        number: u64,
    },
    Commit {
        cluster: usize,
        activation: u64,
    },
    Activate {
        cluster: usize,
    },
    ControllerTick {
        cluster: usize,
        activation: u64,
    },
    Client {
        cluster: usize,
        producer: usize,
    },
    Fault,
    Operator,
}

#[derive(Clone, Debug)]
pub enum Request {
    Register { previous_broker_epoch: Option<BrokerEpoch> },
    Heartbeat { broker_epoch: BrokerEpoch, metadata_offset: i64, want_shutdown: bool },
    AlterPartition { broker_epoch: BrokerEpoch, number: u64, proposals: Vec<IsrProposalItem> },
    Propose { broker_epoch: BrokerEpoch, partition: usize, token: Option<Token>, proposal: Proposal },
}

#[derive(Clone, Debug)]
pub enum Response {
    Registered(BrokerEpoch),
    Heartbeat {
        should_shut_down: bool,
    },
    /// The sender is not, or no longer, registered under its epoch.
    Stale,
    AlterPartition {
        number: u64,
        answers: Result<Vec<IsrAnswer>, String>,
    },
    Proposed {
        partition: usize,
        token: Token,
        result: Result<MetadataOffset, ProposalError>,
    },
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub struct FollowerRequest {
    pub from: Node,
    pub from_process: u32,
    pub partition: usize,
    pub number: u64,
    pub under: LeaderEpoch,
    pub broker_epoch: BrokerEpoch,
    pub fetch_offset: i64,
    pub log_start_offset: i64,
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// What the leader has told of its high watermark: news end a long poll.
    pub known_high_watermark: i64,
}

#[derive(Clone, Debug)]
pub struct FollowerAnswer {
    pub partition: usize,
    pub number: u64,
    pub under: LeaderEpoch,
    pub fetched_from: i64,
    pub answer: LeaderAnswer,
    pub batches: Vec<Batch>,
}

#[derive(Clone, Copy, Debug)]
pub struct MirrorFetch {
    pub from: Node,
    pub from_process: u32,
    pub partition: usize,
    pub token: Token,
    pub number: u64,
    pub source_epoch: LeaderEpoch,
    pub offset: i64,
}

#[derive(Clone, Debug)]
pub struct MirrorFetched {
    pub partition: usize,
    pub token: Token,
    pub number: u64,
    pub fetched_from: i64,
    pub error_code: i16,
    pub told_epoch: Option<LeaderEpoch>,
    pub batches: Vec<Batch>,
    /// For the oracle: what the source held just before the first batch.
    pub source_previous: Option<Batch>,
    /// For the oracle: served under the newest epoch, and all of it decided and committed there.
    pub undecided: Option<Batch>,
}

#[derive(Clone, Copy, Debug)]
pub struct Produce {
    pub producer: usize,
    pub number: u64,
    pub partition: usize,
    pub acks_all: bool,
    pub batch: Batch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProduceError {
    /// Not the leader, not enough replicas: somebody may answer better.
    Retriable,
    ReadOnly,
    /// The producer must begin anew.
    Sequence,
}

#[derive(Clone, Debug)]
pub struct Ask {
    pub asker: Node,
    pub process: u32,
    pub partition: usize,
    pub token: Token,
    pub number: u64,
    pub source: usize,
    pub seen: Option<CutId>,
    pub kind: AskKind,
    pub station: Station,
    pub leader: Option<SourceLeader>,
    pub recorded: Option<Recorded>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskKind {
    Position { recopy: bool },
    Check { bounds: bool, local_end: Offset, last_epoch: Option<LeaderEpoch> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Station {
    Metadata,
    Controller,
    Leader,
}
