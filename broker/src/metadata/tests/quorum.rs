//! Controllers that answer what a test says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use protocol::proto::controller::controller_server::{Controller, ControllerServer};
use protocol::proto::controller::*;
use protocol::proto::metadata::metadata_server::{Metadata, MetadataServer};
use protocol::proto::metadata::{SubscribeRequest, SubscribeResponse};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};

use crate::metadata::QuorumVoter;
use crate::metadata::controller_channel::{LEADER_KEY, MEMBERS_KEY};

/// One controller; it is active while `leader` is its own id.
pub struct FakeController {
    pub node_id: i32,
    pub leader: AtomicI32,
    /// What a refusal says of the quorum's voters.
    pub members: Mutex<String>,
    pub heartbeats: AtomicUsize,
    /// What each subscription is answered, in turn; the last one goes on until the test ends.
    pub subscriptions: Mutex<Vec<Result<Vec<SubscribeResponse>, Status>>>,
    pub subscribed_from: Mutex<Vec<i64>>,
    /// Kept, so that streams stay open.
    open: Mutex<Vec<mpsc::Sender<Result<SubscribeResponse, Status>>>>,
}

impl FakeController {
    pub fn new(node_id: i32, leader: i32) -> Arc<FakeController> {
        Arc::new(FakeController {
            node_id,
            leader: AtomicI32::new(leader),
            members: Mutex::default(),
            heartbeats: AtomicUsize::new(0),
            subscriptions: Mutex::default(),
            subscribed_from: Mutex::default(),
            open: Mutex::default(),
        })
    }

    pub async fn serve(self: Arc<Self>) -> QuorumVoter {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address: SocketAddr = listener.local_addr().expect("address");
        let node_id = self.node_id;
        let server = tonic::transport::Server::builder()
            .add_service(ControllerServer::from_arc(self.clone()))
            .add_service(MetadataServer::from_arc(self));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        QuorumVoter { node_id, address: address.to_string() }
    }

    fn check_active(&self) -> Result<(), Status> {
        let leader = self.leader.load(Ordering::SeqCst);
        if leader == self.node_id {
            return Ok(());
        }
        let mut status = Status::failed_precondition("not the active controller");
        status.metadata_mut().insert(LEADER_KEY, leader.into());
        status.metadata_mut().insert(MEMBERS_KEY, self.members.lock().parse().expect("ASCII"));
        Err(status)
    }
}

#[tonic::async_trait]
impl Controller for FakeController {
    async fn register_broker(
        &self,
        _: Request<RegisterBrokerRequest>,
    ) -> Result<Response<RegisterBrokerResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        self.check_active()?;
        if request.get_ref().cluster_id != "cluster" {
            return Err(Status::invalid_argument("another cluster"));
        }
        self.heartbeats.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(HeartbeatResponse { caught_up: true, ..HeartbeatResponse::default() }))
    }

    async fn alter_partition(
        &self,
        _: Request<AlterPartitionRequest>,
    ) -> Result<Response<AlterPartitionResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn assign_replicas_to_dirs(
        &self,
        _: Request<protocol::proto::controller::AssignReplicasToDirsRequest>,
    ) -> Result<Response<protocol::proto::controller::AssignReplicasToDirsResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn allocate_producer_ids(
        &self,
        _: Request<AllocateProducerIdsRequest>,
    ) -> Result<Response<AllocateProducerIdsResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn forward(&self, _: Request<ForwardRequest>) -> Result<Response<ForwardResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn propose_mirror(
        &self,
        _: Request<ProposeMirrorRequest>,
    ) -> Result<Response<ProposeMirrorResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }

    async fn report_mirror(
        &self,
        _: Request<ReportMirrorRequest>,
    ) -> Result<Response<ReportMirrorResponse>, Status> {
        Err(Status::unimplemented("not in these tests"))
    }
}

#[tonic::async_trait]
impl Metadata for FakeController {
    type SubscribeStream = ReceiverStream<Result<SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        self.subscribed_from.lock().push(request.get_ref().offset);
        let answers = {
            let mut subscriptions = self.subscriptions.lock();
            match subscriptions.len() {
                0 => Err(Status::unavailable("nothing to tell")),
                1 => subscriptions[0].clone(),
                _ => subscriptions.remove(0),
            }
        }?;
        let last = self.subscriptions.lock().len() <= 1;
        let (sender, receiver) = mpsc::channel(answers.len() + 1);
        for answer in answers {
            let _ = sender.try_send(Ok(answer));
        }
        if last {
            self.open.lock().push(sender);
        }
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
