//! RegisterBroker and Heartbeat.

use common::ids::*;
use common::metadata::record::Endpoint;
use protocol::proto::controller as wire;
use tonic::Status;

use super::{ApiContext, sender, uuid};
use crate::control::broker::{self, Heartbeat, Registration};
use crate::control::heartbeat::{ConnectionId, Liveness};
use crate::control::partition::Sender;

pub async fn register(
    context: &ApiContext,
    connection: Option<ConnectionId>,
    request: wire::RegisterBrokerRequest,
) -> Result<wire::RegisterBrokerResponse, Status> {
    let configured = context.config.controller_quorum_voters.iter().map(|voter| voter.node_id);
    let controllers: Vec<ControllerId> =
        configured.chain(context.members().into_iter().map(|(id, _)| id)).map(ControllerId).collect();
    let registration = registration(request)?;
    let outcome = context
        .controller
        .write("broker registers", move |op| {
            let id = registration.broker_id;
            let liveness = match op.image.brokers.get(&id) {
                Some(broker) => op.heartbeats.liveness(id, broker.broker_epoch, op.now_ms),
                None => Liveness::Gone,
            };
            let result = broker::register(op.image, op.settings, &registration, &controllers, liveness)?;
            op.heartbeats.heard(id, result.response, connection, op.now_ms);
            Ok(result)
        })
        .await;
    match outcome {
        Ok(committed) => Ok(wire::RegisterBrokerResponse {
            error_code: 0,
            error_message: String::new(),
            broker_epoch: committed.response.0,
        }),
        Err(error) => {
            let (error_code, error_message) = context.refused(error)?;
            Ok(wire::RegisterBrokerResponse { error_code, error_message, broker_epoch: -1 })
        }
    }
}

fn registration(request: wire::RegisterBrokerRequest) -> Result<Registration, Status> {
    let endpoints = request
        .endpoints
        .into_iter()
        .map(|endpoint| {
            Ok(Endpoint {
                name: endpoint.name,
                host: endpoint.host,
                port: u16::try_from(endpoint.port)
                    .map_err(|_| Status::invalid_argument("a port above 65535"))?,
                security_protocol: i16::try_from(endpoint.security_protocol)
                    .map_err(|_| Status::invalid_argument("an unknown security protocol"))?,
            })
        })
        .collect::<Result<Vec<Endpoint>, Status>>()?;
    let directories = request
        .directories
        .iter()
        .map(|bytes| uuid(bytes).map(DirectoryId))
        .collect::<Result<Vec<DirectoryId>, Status>>()?;
    Ok(Registration {
        broker_id: BrokerId(request.broker_id),
        incarnation_id: IncarnationId(uuid(&request.incarnation_id)?),
        endpoints,
        inter_broker_endpoint: request.inter_broker_endpoint,
        rack: Some(request.rack).filter(|rack| !rack.is_empty()),
        directories,
        previous_broker_epoch: (request.previous_broker_epoch >= 0)
            .then_some(BrokerEpoch(request.previous_broker_epoch)),
    })
}

pub async fn heartbeat(
    context: &ApiContext,
    connection: Option<ConnectionId>,
    request: wire::HeartbeatRequest,
) -> Result<wire::HeartbeatResponse, Status> {
    let beat = Heartbeat {
        sender: sender(request.broker_id, request.broker_epoch),
        metadata_offset: MetadataOffset(request.metadata_offset),
        want_fence: request.want_fence,
        want_shutdown: request.want_shutdown,
        offline_directories: request
            .offline_directories
            .iter()
            .map(|bytes| uuid(bytes).map(DirectoryId))
            .collect::<Result<_, Status>>()?,
    };
    let name = if request.want_shutdown { "controlled shutdown" } else { "heartbeat" };
    let outcome = context
        .controller
        .write(name, move |op| {
            let (Sender { broker_id, broker_epoch }, metadata_offset) = (beat.sender, beat.metadata_offset);
            let result = broker::heartbeat(op.image, op.settings, beat)?;
            op.heartbeats.heard(broker_id, broker_epoch, connection, op.now_ms);
            op.heartbeats.replayed(broker_id, metadata_offset, op.image.offset, op.now_ms);
            Ok(result)
        })
        .await;
    match outcome {
        Ok(committed) => Ok(wire::HeartbeatResponse {
            error_code: 0,
            caught_up: committed.response.caught_up,
            fenced: committed.response.fenced,
            should_shut_down: committed.response.should_shut_down,
            controllers: members(context),
        }),
        Err(error) => {
            let (error_code, _) = context.refused(error)?;
            Ok(wire::HeartbeatResponse {
                error_code,
                caught_up: false,
                fenced: true,
                should_shut_down: false,
                controllers: Vec::new(),
            })
        }
    }
}

fn members(context: &ApiContext) -> Vec<wire::QuorumMember> {
    let members = context.members().into_iter();
    members.map(|(node_id, address)| wire::QuorumMember { node_id, address }).collect()
}
