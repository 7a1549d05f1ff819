//! The gRPC services of the quorum listener, beside raft's own.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::Stream;
use protocol::proto::controller as wire;
use protocol::proto::controller::controller_server::Controller;
use protocol::proto::controller::peers_server::Peers;
use protocol::proto::metadata::metadata_server::Metadata;
use protocol::proto::metadata::{SubscribeRequest, SubscribeResponse};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::connection::Connection;
use super::{
    ApiContext, alter_partition, assign_directories, forward, lifecycle, mirror_reports, producer_ids,
    propose_mirror, subscribe,
};
use crate::control::heartbeat::ConnectionId;

/// Serves all of them.
#[derive(Clone)]
pub struct Services {
    pub context: Arc<ApiContext>,
}

fn connection_of<T>(request: &Request<T>) -> Option<ConnectionId> {
    request.extensions().get::<Connection>().map(|connection| connection.0)
}

macro_rules! timed {
    ($self:ident, $name:literal, $answer:expr) => {{
        let started = Instant::now();
        let answer = $answer;
        $self.context.metrics.observe($name, started.elapsed());
        answer.map(Response::new)
    }};
}

#[tonic::async_trait]
impl Controller for Services {
    async fn register_broker(
        &self,
        request: Request<wire::RegisterBrokerRequest>,
    ) -> Result<Response<wire::RegisterBrokerResponse>, Status> {
        self.context.check_cluster(&request.get_ref().cluster_id)?;
        let connection = connection_of(&request);
        timed!(
            self,
            "RegisterBroker",
            lifecycle::register(&self.context, connection, request.into_inner()).await
        )
    }

    async fn heartbeat(
        &self,
        request: Request<wire::HeartbeatRequest>,
    ) -> Result<Response<wire::HeartbeatResponse>, Status> {
        self.context.check_cluster(&request.get_ref().cluster_id)?;
        let connection = connection_of(&request);
        timed!(self, "Heartbeat", lifecycle::heartbeat(&self.context, connection, request.into_inner()).await)
    }

    async fn alter_partition(
        &self,
        request: Request<wire::AlterPartitionRequest>,
    ) -> Result<Response<wire::AlterPartitionResponse>, Status> {
        self.context.check_cluster(&request.get_ref().cluster_id)?;
        timed!(
            self,
            "AlterPartition",
            alter_partition::alter_partition(&self.context, request.into_inner()).await
        )
    }

    async fn assign_replicas_to_dirs(
        &self,
        request: Request<wire::AssignReplicasToDirsRequest>,
    ) -> Result<Response<wire::AssignReplicasToDirsResponse>, Status> {
        self.context.check_cluster(&request.get_ref().cluster_id)?;
        timed!(
            self,
            "AssignReplicasToDirs",
            assign_directories::assign_directories(&self.context, request.into_inner()).await
        )
    }

    async fn allocate_producer_ids(
        &self,
        request: Request<wire::AllocateProducerIdsRequest>,
    ) -> Result<Response<wire::AllocateProducerIdsResponse>, Status> {
        self.context.check_cluster(&request.get_ref().cluster_id)?;
        timed!(self, "AllocateProducerIds", producer_ids::allocate(&self.context, request.into_inner()).await)
    }

    async fn forward(
        &self,
        request: Request<wire::ForwardRequest>,
    ) -> Result<Response<wire::ForwardResponse>, Status> {
        self.context.check_cluster(&request.get_ref().cluster_id)?;
        timed!(self, "Forward", forward::forwarded(&self.context, request.into_inner()).await)
    }

    async fn propose_mirror(
        &self,
        request: Request<wire::ProposeMirrorRequest>,
    ) -> Result<Response<wire::ProposeMirrorResponse>, Status> {
        self.context.check_cluster(&request.get_ref().cluster_id)?;
        timed!(
            self,
            "ProposeMirror",
            propose_mirror::propose_mirror(&self.context, request.into_inner()).await
        )
    }

    async fn report_mirror(
        &self,
        request: Request<wire::ReportMirrorRequest>,
    ) -> Result<Response<wire::ReportMirrorResponse>, Status> {
        self.context.check_cluster(&request.get_ref().cluster_id)?;
        timed!(self, "ReportMirror", mirror_reports::report_mirror(&self.context, request.into_inner()))
    }
}

#[tonic::async_trait]
impl Metadata for Services {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Result<SubscribeResponse, Status>> + Send>>;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let messages = subscribe::subscribe(self.context.clone(), request.into_inner()).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

#[tonic::async_trait]
impl Peers for Services {
    async fn identify(
        &self,
        request: Request<wire::IdentifyRequest>,
    ) -> Result<Response<wire::IdentifyResponse>, Status> {
        self.context.check_cluster(&request.get_ref().cluster_id)?;
        Ok(Response::new(wire::IdentifyResponse {
            node_id: self.context.node_id.0,
            endpoints: self
                .context
                .endpoints
                .iter()
                .map(|endpoint| wire::Endpoint {
                    name: endpoint.name.clone(),
                    host: endpoint.host.clone(),
                    port: u32::from(endpoint.port),
                    security_protocol: i32::from(endpoint.security_protocol),
                })
                .collect(),
        }))
    }
}
