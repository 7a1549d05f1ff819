//! Requests from outside: gRPC from brokers and other controllers, Kafka's protocol from admin clients.
//! Each file reads one kind of request, asks the one writer or the committed image, and answers.

pub mod alter_partition;
mod assign_directories;
pub mod connection;
pub mod forward;
pub mod kafka;
pub mod lifecycle;
pub mod mirror_reports;
pub mod peers;
pub mod producer_ids;
pub mod propose_mirror;
pub mod service;
pub mod subscribe;

use std::sync::Arc;

use common::config::ControllerConfig;
use common::ids::{BrokerEpoch, BrokerId, ControllerId, TopicId};
use common::metadata::MetadataImage;
use common::metadata::record::Endpoint;
use common::telemetry::RequestMetrics;
use protocol::error_code::ErrorCode;
use raft_log::RaftLog;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use uuid::Uuid;

use crate::control::ControlSettings;
use crate::control::partition::Sender;
use crate::quorum::{MetadataListener, QuorumController, WriteError};
use mirror_reports::MirrorReports;
use peers::Peers;

/// Names the active controller's node id in a refusal of an inactive one; -1: none known.
pub const LEADER_KEY: &str = "kagami-leader";
/// Beside it the voters, `id@address` each, with commas between: the active one may have been added after the
/// asker's file was written.
pub const MEMBERS_KEY: &str = "kagami-members";

/// What requests are answered from.
pub struct ApiContext {
    pub cluster_id: String,
    pub node_id: ControllerId,
    pub config: Arc<ControllerConfig>,
    pub settings: ControlSettings,
    pub controller: QuorumController,
    pub listener: Arc<MetadataListener>,
    pub raft: RaftLog,
    pub reports: MirrorReports,
    pub peers: Peers,
    /// Where this controller listens for Kafka's protocol.
    pub endpoints: Vec<Endpoint>,
    pub metrics: RequestMetrics,
    pub shutdown: CancellationToken,
}

impl ApiContext {
    pub fn image(&self) -> Arc<MetadataImage> {
        self.listener.image()
    }

    /// Node ids and quorum addresses of the controllers in the membership.
    pub fn members(&self) -> Vec<(i32, String)> {
        let status = self.raft.status();
        let members = status.voters.into_iter().chain(status.observers);
        members
            .filter_map(|member| Some((i32::try_from(member.voter.node_id).ok()?, member.address)))
            .collect()
    }

    /// Every RPC carries the cluster id: a node of another cluster is told so before anything else.
    pub fn check_cluster(&self, cluster_id: &str) -> Result<(), Status> {
        if cluster_id == self.cluster_id {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "this is cluster {}, not {cluster_id}; see controller.quorum.voters",
            self.cluster_id
        )))
    }

    /// The answer of an inactive controller.
    pub fn inactive(&self) -> Status {
        let leader = self.controller.status().borrow().leader;
        let mut status = Status::failed_precondition("this controller is not active");
        let leader = leader.map_or("-1".to_owned(), |leader| leader.to_string());
        if let Ok(value) = leader.parse() {
            status.metadata_mut().insert(LEADER_KEY, value);
        }
        let voters = self.raft.status().voters.into_iter();
        let voters: Vec<_> =
            voters.map(|member| format!("{}@{}", member.voter.node_id, member.address)).collect();
        if let Ok(value) = voters.join(",").parse() {
            status.metadata_mut().insert(MEMBERS_KEY, value);
        }
        status
    }

    pub fn check_active(&self) -> Result<(), Status> {
        if self.controller.is_active() { Ok(()) } else { Err(self.inactive()) }
    }

    /// A refusal as a broker gets it: a code, or the news that another controller is active.
    pub fn refused(&self, error: WriteError) -> Result<(i32, String), Status> {
        match error {
            WriteError::Refused(error) if error.code != ErrorCode::NotController => {
                Ok((i32::from(error.code.code()), error.message))
            }
            _ => Err(self.inactive()),
        }
    }
}

/// The sender of a broker's request.
fn sender(broker_id: i32, broker_epoch: i64) -> Sender {
    Sender { broker_id: BrokerId(broker_id), broker_epoch: BrokerEpoch(broker_epoch) }
}

fn uuid(bytes: &[u8]) -> Result<Uuid, Status> {
    Uuid::from_slice(bytes).map_err(|_| Status::invalid_argument("an id that has not 16 bytes"))
}

fn topic_id(bytes: &[u8]) -> Result<TopicId, Status> {
    uuid(bytes).map(TopicId)
}
