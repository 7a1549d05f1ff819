//! DeleteRecords: raises log starts, and answers once every replica that is alive has followed.

use std::sync::Arc;
use std::time::Duration;

use common::ids::*;
use protocol::ErrorCode;
use protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use tokio::time::{Instant, timeout_at};

use crate::replica::fetch_session::PartitionKey;
use crate::replica::{Partition, ReplicaManager};

const UNKNOWN_LOW_WATERMARK: i64 = -1;
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub async fn handle(replicas: &ReplicaManager, request: &DeleteRecordsRequest) -> DeleteRecordsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = Instant::now() + timeout;
    // All are deleted before any is waited for.
    let mut started = Vec::new();
    for topic in &request.topics {
        for wanted in &topic.partitions {
            let key = PartitionKey {
                topic_id: TopicId::ZERO,
                topic: Some(topic.name.clone()),
                partition: wanted.partition_index,
            };
            started.push(start(replicas, &key, wanted.offset));
        }
    }
    let mut started = started.into_iter();
    let mut response = DeleteRecordsResponse::default();
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let result = match started.next() {
                Some(Ok((partition, offset))) => wait(&partition, offset, deadline).await,
                Some(Err(code)) => Err(code),
                None => Err(ErrorCode::UnknownServerError),
            };
            let answer = DeleteRecordsPartitionResult::default().with_partition_index(wanted.partition_index);
            partitions.push(match result {
                Ok(low_watermark) => answer.with_low_watermark(low_watermark.0),
                Err(code) => answer.with_low_watermark(UNKNOWN_LOW_WATERMARK).with_error_code(code.code()),
            });
        }
        response.topics.push(
            DeleteRecordsTopicResult::default().with_name(topic.name.clone()).with_partitions(partitions),
        );
    }
    response
}

fn start(
    replicas: &ReplicaManager,
    key: &PartitionKey,
    offset: i64,
) -> Result<(Arc<Partition>, Offset), ErrorCode> {
    let is_internal = key.topic.as_ref().is_some_and(|name| super::topic_names::is_internal(&name.0));
    if is_internal {
        return Err(ErrorCode::InvalidTopicException);
    }
    let partition = replicas.resolve(key).map_err(|error| error.code())?;
    let offset = partition.delete_records(Offset(offset)).map_err(|failure| failure.code())?;
    Ok((partition, offset))
}

async fn wait(partition: &Partition, offset: Offset, deadline: Instant) -> Result<Offset, ErrorCode> {
    loop {
        let changed = partition.changed();
        match partition.low_watermark() {
            Ok(Some(low_watermark)) if low_watermark >= offset => return Ok(low_watermark),
            Ok(_) => {}
            Err(error) => return Err(error.code()),
        }
        // That a broker died shows at the partitions whose ISR it leaves, and at no others.
        let look_again_at = deadline.min(Instant::now() + LOOK_AGAIN);
        if timeout_at(look_again_at, changed).await.is_err() && Instant::now() >= deadline {
            return Err(ErrorCode::RequestTimedOut);
        }
    }
}
