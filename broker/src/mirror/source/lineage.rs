//! ListOffsets and OffsetForLeaderEpoch, asked at the partitions' leaders.

use std::collections::HashMap;
use std::sync::Arc;

use common::ids::*;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use protocol::messages::{
    BrokerId as WireBroker, ListOffsetsRequest, OffsetForLeaderEpochRequest, TopicName,
};
use protocol::{ErrorCode, Request, Response, StrBytes};

use crate::mirror::state::{SourceBounds, SourceFailure};

use super::client::{SourceClient, unexpected};

const CONSUMER: i32 = -1;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// A partition at its leader, under the epoch that Metadata told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    pub topic: Arc<str>,
    pub partition: i32,
    pub epoch: LeaderEpoch,
}

fn topic_name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// A leader that is moving or behind: ask again later.
fn could_not_ask(api: &str, code: i16) -> SourceFailure {
    let name = ErrorCode::from_code(code).map_or_else(|| code.to_string(), |code| code.name().to_owned());
    SourceFailure::CouldNotAsk(format!("{api}: {name}"))
}

type Offsets = HashMap<(Arc<str>, i32), Result<Offset, SourceFailure>>;

async fn list_offsets(
    client: &SourceClient,
    leader: &str,
    asked: &[At],
    timestamp: i64,
) -> Result<Offsets, SourceFailure> {
    let mut topics: HashMap<Arc<str>, ListOffsetsTopic> = HashMap::new();
    for at in asked {
        let topic = topics.entry(at.topic.clone()).or_insert_with(|| {
            let mut topic = ListOffsetsTopic::default();
            topic.name = topic_name(&at.topic);
            topic
        });
        let mut partition = ListOffsetsPartition::default();
        partition.partition_index = at.partition;
        partition.current_leader_epoch = at.epoch.0;
        partition.timestamp = timestamp;
        topic.partitions.push(partition);
    }
    let mut request = ListOffsetsRequest::default();
    request.replica_id = WireBroker(CONSUMER);
    // The end that counts is the high watermark: an open transaction does not make a log shorter.
    request.isolation_level = 0;
    request.topics = topics.into_values().collect();
    match client.call_at(leader, Request::ListOffsets(request)).await? {
        (Response::ListOffsets(answer), _) => {
            let mut found = Offsets::new();
            for topic in answer.topics {
                let name: Arc<str> = Arc::from(topic.name.0.as_str());
                for partition in topic.partitions {
                    let offset = match partition.error_code {
                        0 if partition.offset >= 0 => Ok(Offset(partition.offset)),
                        code => Err(could_not_ask("ListOffsets", code)),
                    };
                    found.insert((name.clone(), partition.partition_index), offset);
                }
            }
            Ok(found)
        }
        _ => Err(unexpected("ListOffsets")),
    }
}

fn pick(found: &Offsets, at: &At) -> Result<Offset, SourceFailure> {
    let left_out = || SourceFailure::CouldNotAsk("ListOffsets leaves the partition out".to_owned());
    found.get(&(at.topic.clone(), at.partition)).cloned().unwrap_or_else(|| Err(left_out()))
}

/// Log start and high watermark of each partition.
pub async fn bounds(
    client: &SourceClient,
    leader: &str,
    asked: &[At],
) -> Vec<Result<SourceBounds, SourceFailure>> {
    let (earliest, latest) = match (
        list_offsets(client, leader, asked, EARLIEST).await,
        list_offsets(client, leader, asked, LATEST).await,
    ) {
        (Ok(earliest), Ok(latest)) => (earliest, latest),
        (Err(failure), _) | (_, Err(failure)) => return asked.iter().map(|_| Err(failure.clone())).collect(),
    };
    asked
        .iter()
        .map(|at| Ok(SourceBounds { log_start: pick(&earliest, at)?, log_end: pick(&latest, at)? }))
        .collect()
}

/// The high watermark of each partition.
pub async fn log_ends(
    client: &SourceClient,
    leader: &str,
    asked: &[At],
) -> Vec<Result<Offset, SourceFailure>> {
    match list_offsets(client, leader, asked, LATEST).await {
        Ok(found) => asked.iter().map(|at| pick(&found, at)).collect(),
        Err(failure) => asked.iter().map(|_| Err(failure.clone())).collect(),
    }
}

/// Where `epoch` of each partition ends at the source; `None` if it no longer knows.
pub async fn epoch_ends(
    client: &SourceClient,
    leader: &str,
    asked: &[(At, LeaderEpoch)],
) -> Vec<Result<Option<Offset>, SourceFailure>> {
    let mut topics: HashMap<Arc<str>, OffsetForLeaderTopic> = HashMap::new();
    for (at, epoch) in asked {
        let topic = topics.entry(at.topic.clone()).or_insert_with(|| {
            let mut topic = OffsetForLeaderTopic::default();
            topic.topic = topic_name(&at.topic);
            topic
        });
        let mut partition = OffsetForLeaderPartition::default();
        partition.partition = at.partition;
        partition.current_leader_epoch = at.epoch.0;
        partition.leader_epoch = epoch.0;
        topic.partitions.push(partition);
    }
    let mut request = OffsetForLeaderEpochRequest::default();
    request.replica_id = WireBroker(CONSUMER);
    request.topics = topics.into_values().collect();
    let answer = match client.call_at(leader, Request::OffsetForLeaderEpoch(request)).await {
        Ok((Response::OffsetForLeaderEpoch(answer), _)) => answer,
        Ok(_) => return asked.iter().map(|_| Err(unexpected("OffsetForLeaderEpoch"))).collect(),
        Err(failure) => return asked.iter().map(|_| Err(failure.clone())).collect(),
    };
    asked
        .iter()
        .map(|(at, _)| {
            let found = answer
                .topics
                .iter()
                .filter(|topic| topic.topic.0.as_str() == &*at.topic)
                .flat_map(|topic| &topic.partitions)
                .find(|partition| partition.partition == at.partition);
            match found {
                Some(end) if end.error_code != 0 => {
                    Err(could_not_ask("OffsetForLeaderEpoch", end.error_code))
                }
                Some(end) => Ok((end.end_offset >= 0).then_some(Offset(end.end_offset))),
                None => Err(SourceFailure::CouldNotAsk(
                    "OffsetForLeaderEpoch leaves the partition out".to_owned(),
                )),
            }
        })
        .collect()
}
