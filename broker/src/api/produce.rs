//! Produce. 9 is flexible, 10 names the new leader where this broker is not (KIP-951), 13 names topics
//! by id.
//!
//! Batches are patched and written where they lie in the frame, before the future first waits: so the
//! requests of one connection reach the log in their order.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use common::fault;
use common::ids::*;
use common::network::{Chunk, Reply};
use protocol::messages::ProduceResponse;
use protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use protocol::produce::{ProducePartition, ProduceTopic};
use protocol::{ErrorCode, Response, StrBytes};
use tokio::time::Instant;
use tracing::{debug, error};

use super::context::RequestContext;
use super::current_leader::{CurrentLeaders, leads_elsewhere};
use crate::log::{AppendError, AppendOrigin, RecordError};
use crate::replica::{AppendFailure, AppendOptions, ReplicaManager, Waiting};

const ALL_IN_SYNC: i16 = -1;
/// Names the current leader from here on.
const FIRST_VERSION_WITH_LEADER: i16 = 10;

pub async fn handle(replicas: &Arc<ReplicaManager>, context: &RequestContext, mut body: BytesMut) -> Reply {
    let version = context.version();
    let request = match protocol::produce::decode(&body, version) {
        Ok(request) => request,
        Err(reason) => {
            debug!(client = %context.client_address(), %reason, "malformed Produce, connection closed");
            return Reply::Close;
        }
    };
    let mut produce = Produce { replicas, context, leaders: CurrentLeaders::default(), waiting: Vec::new() };
    let mut responses = Vec::with_capacity(request.topics.len());
    let refused = produce.refusal(request.acks, request.transactional_id.is_some());
    for (place, topic) in request.topics.iter().enumerate() {
        responses.push(produce.topic(topic, place, request.acks, refused, &mut body));
    }
    // What was written is on its way; the frame is not needed while followers fetch it.
    drop(body);
    if request.acks == 0 {
        return without_answer(&responses);
    }
    let Produce { leaders, waiting, .. } = produce;
    if request.acks == ALL_IN_SYNC && !waiting.is_empty() {
        let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        wait(replicas, waiting, Instant::now() + timeout, &mut responses).await;
        fault::point("produce.answer", context.client_address()).await;
    }
    let mut response = ProduceResponse::default().with_responses(responses);
    if version >= FIRST_VERSION_WITH_LEADER {
        response.node_endpoints = leaders.endpoints(|id, host, port, rack| {
            NodeEndpoint::default().with_node_id(id).with_host(host).with_port(port).with_rack(rack)
        });
    }
    match protocol::encode_response_frame(
        &Response::Produce(response),
        version,
        context.header.correlation_id,
    ) {
        Ok(frame) => Reply::Send(vec![Chunk::Bytes(frame)]),
        Err(reason) => {
            error!(%reason, "Produce response cannot be written, connection closed");
            Reply::Close
        }
    }
}

/// With acks=0 nobody reads an answer: an error closes the connection, so that the producer notices.
fn without_answer(responses: &[TopicProduceResponse]) -> Reply {
    let failed = |partition: &PartitionProduceResponse| partition.error_code != ErrorCode::None.code();
    if responses.iter().flat_map(|topic| &topic.partition_responses).any(failed) {
        Reply::Close
    } else {
        Reply::None
    }
}

/// An append that is answered once it is replicated, and its place in the response.
struct Pending {
    topic: usize,
    partition: usize,
    waiting: Waiting,
}

struct Produce<'a> {
    replicas: &'a Arc<ReplicaManager>,
    context: &'a RequestContext,
    leaders: CurrentLeaders,
    waiting: Vec<Pending>,
}

impl Produce<'_> {
    /// Why nothing of the request is written at all.
    fn refusal(&self, acks: i16, is_transactional: bool) -> Option<ErrorCode> {
        if !(-1..=1).contains(&acks) {
            return Some(ErrorCode::InvalidRequiredAcks);
        }
        // There is no transaction coordinator to end it.
        is_transactional.then_some(ErrorCode::InvalidTxnState)
    }

    fn topic(
        &mut self,
        topic: &ProduceTopic,
        place: usize,
        acks: i16,
        refused: Option<ErrorCode>,
        body: &mut BytesMut,
    ) -> TopicProduceResponse {
        let image = self.replicas.image();
        let known = match &topic.name {
            Some(name) => image.topic(&name.0).ok_or(ErrorCode::UnknownTopicOrPartition),
            None => image.topic_by_id(TopicId(topic.topic_id)).ok_or(ErrorCode::UnknownTopicId),
        };
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let answered = match (refused, known) {
                (Some(code), _) | (None, Err(code)) => failed(partition.index, code, None),
                // Clients do not write what belongs to the cluster's own coordinators.
                (None, Ok(known)) if super::topic_names::is_internal(&known.name) => {
                    failed(partition.index, ErrorCode::InvalidTopicException, None)
                }
                (None, Ok(known)) => {
                    let id = TopicIdPartition::new(known.id, partition.index);
                    self.partition(id, partition, acks, (place, partitions.len()), body)
                }
            };
            partitions.push(answered);
        }
        TopicProduceResponse::default()
            .with_name(topic.name.clone().unwrap_or_default())
            .with_topic_id(topic.topic_id)
            .with_partition_responses(partitions)
    }

    fn partition(
        &mut self,
        id: TopicIdPartition,
        wanted: &ProducePartition,
        acks: i16,
        place: (usize, usize),
        body: &mut BytesMut,
    ) -> PartitionProduceResponse {
        let options = AppendOptions { acks, origin: AppendOrigin::Client, expected_leader_epoch: None };
        let Some(records) = body.get_mut(wanted.records.clone()) else {
            return failed(wanted.index, ErrorCode::InvalidRequest, None);
        };
        match self.replicas.append(id, records, options) {
            Ok(appended) => {
                let info = &appended.info;
                let answer = PartitionProduceResponse::default()
                    .with_index(wanted.index)
                    .with_base_offset(info.first_offset.0)
                    .with_log_append_time_ms(info.log_append_time_ms)
                    .with_log_start_offset(info.log_start_offset.0);
                if acks == ALL_IN_SYNC {
                    let waiting = appended.waiting();
                    self.waiting.push(Pending { topic: place.0, partition: place.1, waiting });
                }
                answer
            }
            Err(failure) => self.append_failed(id, wanted.index, failure),
        }
    }

    fn append_failed(
        &mut self,
        id: TopicIdPartition,
        index: i32,
        failure: AppendFailure,
    ) -> PartitionProduceResponse {
        let code = failure.code();
        debug!(client = %self.context.client_address(), partition = %id, error = code.name(), reason = %failure, "append refused");
        let mut answer = failed(index, code, Some(failure.to_string()));
        if let AppendFailure::Log(
            AppendError::InvalidRecord { records, .. } | AppendError::InvalidTimestamp { records, .. },
        ) = failure
        {
            answer.record_errors = records.into_iter().map(record_error).collect();
        }
        if self.context.version() >= FIRST_VERSION_WITH_LEADER && leads_elsewhere(code) {
            let listener = self.context.listener_name();
            if let Some((leader, epoch)) = self.leaders.of(&self.replicas.image(), id, listener) {
                answer.current_leader =
                    LeaderIdAndEpoch::default().with_leader_id(leader).with_leader_epoch(epoch);
            }
        }
        answer
    }
}

async fn wait(
    replicas: &ReplicaManager,
    pending: Vec<Pending>,
    deadline: Instant,
    responses: &mut [TopicProduceResponse],
) {
    let (places, waiting): (Vec<_>, Vec<_>) =
        pending.into_iter().map(|pending| ((pending.topic, pending.partition), pending.waiting)).unzip();
    for waiting in &waiting {
        fault::point("produce.wait", waiting.partition.id()).await;
    }
    let results = replicas.wait_replicated(waiting, deadline).await;
    for ((topic, partition), result) in places.into_iter().zip(results) {
        let Err(failure) = result else { continue };
        let place = responses.get_mut(topic).and_then(|topic| topic.partition_responses.get_mut(partition));
        if let Some(answer) = place {
            *answer = failed(answer.index, failure.code(), Some(failure.to_string()));
        }
    }
}

fn failed(index: i32, code: ErrorCode, message: Option<String>) -> PartitionProduceResponse {
    PartitionProduceResponse::default()
        .with_index(index)
        .with_error_code(code.code())
        .with_base_offset(-1)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(-1)
        .with_error_message(message.map(StrBytes::from_string))
}

fn record_error(error: RecordError) -> BatchIndexAndErrorMessage {
    BatchIndexAndErrorMessage::default()
        .with_batch_index(error.batch_index)
        .with_batch_index_error_message(Some(StrBytes::from_string(error.message)))
}
