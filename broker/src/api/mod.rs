//! From a frame to its answer: header, version, one match on the API key.
//!
//! What cannot be answered closes the connection, as in Kafka: an API that is not served, a version
//! that is not known, bytes that are no request. Only ApiVersions has an answer to a version that it
//! does not know.

pub mod admin;
pub mod alter_replica_log_dirs;
pub mod api_versions;
mod authorized_operations;
pub mod context;
mod current_leader;
pub mod delete_records;
pub mod describe_cluster;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_topic_partitions;
pub mod error;
pub mod fetch;
pub mod init_producer_id;
pub mod list_config_resources;
pub mod list_offsets;
pub mod metadata;
pub mod mirror;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod topic_names;

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use common::config::describe_response::{self, Describer};
use common::ids::BrokerId;
use common::network::{Chunk, ConnectionInfo, Handler, Reply};
use common::telemetry::RequestMetrics;
use protocol::api::ApiKey;
use protocol::frame::{MAX_REQUEST_BYTES, encode_response_header, peek_request_header};
use protocol::messages::ApiVersionsRequest;
use protocol::{ApiSpec, Request, Response};
use tracing::{error, info};

use self::admin::{Forwarded, InFlight};
use self::context::{ClientConnection, RequestContext};
use self::init_producer_id::ProducerIds;
use crate::metadata::{ControllerChannel, DynamicBrokerConfig, MetadataCache};
use crate::mirror::subsystem::Mirroring;
use crate::replica::ReplicaManager;

/// What the handlers need of the broker.
pub struct BrokerContext {
    pub broker_id: BrokerId,
    pub cluster_id: Arc<str>,
    pub config: Arc<DynamicBrokerConfig>,
    /// What the parts of the broker have acted on: what clients are told can be used.
    pub metadata: Arc<MetadataCache>,
    pub controller: Arc<ControllerChannel>,
    pub replicas: Arc<ReplicaManager>,
    pub mirroring: Arc<Mirroring>,
    pub producer_ids: ProducerIds,
    pub auto_creation: InFlight,
    pub request_metrics: RequestMetrics,
}

impl BrokerContext {
    fn asker<'a>(&'a self, context: &'a RequestContext) -> metadata::Asker<'a> {
        metadata::Asker {
            broker_id: self.broker_id.0,
            cluster_id: &self.cluster_id,
            listener_name: context.listener_name(),
            version: context.version(),
        }
    }
}

/// Answers the requests of all listeners.
#[derive(Clone)]
pub struct KafkaApi {
    broker: Arc<BrokerContext>,
}

impl KafkaApi {
    pub fn new(broker: Arc<BrokerContext>) -> KafkaApi {
        KafkaApi { broker }
    }
}

impl Handler for KafkaApi {
    type Connection = ClientConnection;

    fn connected(&self, info: ConnectionInfo) -> ClientConnection {
        ClientConnection::new(info)
    }

    fn handle(
        &self,
        connection: &Arc<ClientConnection>,
        frame: BytesMut,
    ) -> impl Future<Output = Reply> + Send + 'static {
        answer(self.broker.clone(), connection.clone(), frame)
    }
}

async fn answer(broker: Arc<BrokerContext>, connection: Arc<ClientConnection>, mut frame: BytesMut) -> Reply {
    let started = Instant::now();
    let client = connection.info.peer;
    let (header, header_bytes) = match peek_request_header(&frame) {
        Ok(peeked) => peeked,
        Err(reason) => {
            info!(%client, %reason, "not a request, connection closed");
            return Reply::Close;
        }
    };
    let Some(spec) = header.spec().filter(|spec| spec.broker) else {
        info!(%client, api_key = header.api_key, "this API is not served here, connection closed");
        return Reply::Close;
    };
    let context = RequestContext { header, connection };
    if !spec.supports(context.version()) {
        if spec.key == ApiKey::ApiVersions {
            return send_as(&context, api_versions::unsupported_version(), 0);
        }
        info!(%client, api = spec.name, version = context.version(), "unsupported version, connection closed");
        return Reply::Close;
    }
    frame.advance(header_bytes);
    // Decoded messages take more memory than their bytes; batches are not decoded.
    if spec.key != ApiKey::Produce && frame.len() > MAX_REQUEST_BYTES {
        info!(%client, api = spec.name, bytes = frame.len(), "request too large, connection closed");
        return Reply::Close;
    }
    let reply = dispatch(&broker, &context, spec, frame).await;
    broker.request_metrics.observe(spec.name, started.elapsed());
    reply
}

async fn dispatch(
    broker: &Arc<BrokerContext>,
    context: &RequestContext,
    spec: &'static ApiSpec,
    body: BytesMut,
) -> Reply {
    if spec.key == ApiKey::Produce {
        // Its batches are patched where they lie in the frame.
        return produce::handle(&broker.replicas, context, body).await;
    }
    if spec.forwarded {
        return forwarded(broker, context, spec, body.freeze()).await;
    }
    let request = match protocol::decode_request(spec.key, context.version(), body.freeze()) {
        Ok(request) => request,
        Err(reason) => return malformed(context, spec, &reason),
    };
    let replicas = &broker.replicas;
    match request {
        Request::Fetch(request) => fetch::handle(replicas, context, request).await,
        Request::ListOffsets(request) => {
            send(context, list_offsets::handle(replicas, &request, context.version()))
        }
        Request::OffsetForLeaderEpoch(request) => {
            send(context, offset_for_leader_epoch::handle(replicas, &request))
        }
        Request::DeleteRecords(request) => send(context, delete_records::handle(replicas, &request).await),
        Request::AlterReplicaLogDirs(request) => {
            let replicas = replicas.clone();
            let altered =
                tokio::task::spawn_blocking(move || alter_replica_log_dirs::handle(&replicas, &request))
                    .await;
            match altered {
                Ok(response) => send(context, response),
                Err(reason) => {
                    tracing::error!(%reason, "AlterReplicaLogDirs failed");
                    Reply::Close
                }
            }
        }
        Request::DescribeLogDirs(request) => send(context, describe_log_dirs::handle(replicas, &request)),
        Request::DescribeProducers(request) => send(context, describe_producers::handle(replicas, &request)),
        Request::ApiVersions(request) => answer_api_versions(broker, context, &request),
        Request::Metadata(request) => {
            if broker.config.current().auto_create_topics_enable {
                let image = broker.metadata.image();
                let wanted = metadata::topics_to_create(&image, &request, context.version());
                if !wanted.is_empty() {
                    let (in_flight, cache) = (&broker.auto_creation, &broker.metadata);
                    admin::create_topics(in_flight, &broker.controller, cache, context, wanted).await;
                }
            }
            send(context, metadata::handle(&broker.metadata.image(), &request, &broker.asker(context)))
        }
        Request::DescribeCluster(request) => send(
            context,
            describe_cluster::handle(&broker.metadata.image(), &request, &broker.asker(context)),
        ),
        Request::DescribeConfigs(request) => {
            let (image, config) = (broker.metadata.image(), broker.config.current());
            let describer = Describer::Broker { id: broker.broker_id.0, file: &config.properties };
            send(context, describe_response::respond(&image, describer, &request))
        }
        Request::DescribeTopicPartitions(request) => {
            match describe_topic_partitions::handle(
                &broker.metadata.image(),
                &request,
                context.listener_name(),
            ) {
                Ok(response) => send(context, response),
                Err(reason) => malformed(context, spec, &reason),
            }
        }
        Request::ListConfigResources(request) => {
            let image = broker.metadata.image();
            send(context, list_config_resources::handle(&image, &request, context.version()))
        }
        Request::InitProducerId(request) => {
            send(context, init_producer_id::handle(&broker.producer_ids, &request).await)
        }
        // The family of the mirror APIs; nothing else is served by the table and not above.
        other => match mirror::handle(&broker.mirroring, other).await {
            Some(response) => send(context, response),
            None => {
                error!(api = spec.name, "served by the table, but by nobody");
                Reply::Close
            }
        },
    }
}

fn answer_api_versions(
    broker: &BrokerContext,
    context: &RequestContext,
    request: &ApiVersionsRequest,
) -> Reply {
    match api_versions::software(request, context.version()) {
        Ok(Some(software)) => {
            // The first one counts: a client does not change its software while connected.
            let _ = context.connection.software.set(software);
        }
        Ok(None) => {}
        Err(code) => return send(context, api_versions::error(code)),
    }
    send(context, api_versions::handle(&broker.metadata.image(), context.connection.software_name()))
}

async fn forwarded(
    broker: &BrokerContext,
    context: &RequestContext,
    spec: &'static ApiSpec,
    body: Bytes,
) -> Reply {
    let (controller, applied) = (&broker.controller, &broker.metadata);
    match admin::forward_and_apply(controller, applied, context, spec.key, body.clone()).await {
        Forwarded::Answer(answer) => {
            let mut head = BytesMut::with_capacity(8);
            encode_response_header(&mut head, spec, context.version(), context.header.correlation_id);
            Reply::Send(vec![Chunk::Bytes(head.freeze()), Chunk::Bytes(answer)])
        }
        Forwarded::Invalid => Reply::Close,
        Forwarded::Failed(error) => {
            let request = match protocol::decode_request(spec.key, context.version(), body) {
                Ok(request) => request,
                Err(reason) => return malformed(context, spec, &reason),
            };
            match admin::error_response(&request, &error) {
                Some(response) => send(context, response),
                None => Reply::Close,
            }
        }
    }
}

fn malformed(context: &RequestContext, spec: &ApiSpec, reason: &dyn std::fmt::Display) -> Reply {
    let (client, version) = (context.client_address(), context.version());
    info!(%client, api = spec.name, version, %reason, "malformed request, connection closed");
    Reply::Close
}

/// The response in the version of the request.
pub fn send(context: &RequestContext, response: impl Into<Response>) -> Reply {
    send_as(context, response, context.version())
}

fn send_as(context: &RequestContext, response: impl Into<Response>, version: i16) -> Reply {
    let response = response.into();
    match protocol::encode_response_frame(&response, version, context.header.correlation_id) {
        Ok(frame) => Reply::from(frame),
        Err(reason) => {
            error!(api = response.key().name(), version, %reason, "response cannot be written, connection closed");
            Reply::Close
        }
    }
}

#[cfg(test)]
mod tests;
