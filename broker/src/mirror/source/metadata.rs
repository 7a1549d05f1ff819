//! PURE: what the source's Metadata answer says, bounded and checked.

use std::collections::HashMap;
use std::sync::Arc;

use common::ids::*;
use protocol::ErrorCode;
use protocol::StrBytes;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::{MetadataRequest, MetadataResponse, TopicName};

use crate::mirror::state::{FailureKind, FailureReason, SourceFailure, SourceLeader};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceMetadata {
    pub cluster_id: Option<String>,
    /// Host and port by node id.
    pub brokers: HashMap<i32, (Arc<str>, u16)>,
    pub topics: HashMap<Arc<str>, SourceTopic>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTopic {
    pub name: Arc<str>,
    /// `None`: the source is too old to have ids.
    pub id: Option<TopicId>,
    pub internal: bool,
    pub error: Option<ErrorCode>,
    /// By index.
    pub partitions: HashMap<i32, SourcePartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePartition {
    pub leader: Option<i32>,
    /// `None`: not told (Metadata below 7).
    pub epoch: Option<LeaderEpoch>,
    pub error: Option<ErrorCode>,
}

/// Asks for `topics`; `None` is all, an empty list none.
pub fn request(topics: Option<&[Arc<str>]>) -> MetadataRequest {
    let mut request = MetadataRequest::default();
    request.allow_auto_topic_creation = false;
    request.topics = topics.map(|topics| {
        topics
            .iter()
            .map(|topic| {
                let mut asked = MetadataRequestTopic::default();
                asked.name = Some(TopicName(StrBytes::from_string(topic.to_string())));
                asked
            })
            .collect()
    });
    request
}

fn error(code: i16) -> Option<ErrorCode> {
    (code != 0).then(|| ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError))
}

pub fn parse(response: &MetadataResponse, version: i16) -> SourceMetadata {
    let brokers = response.brokers.iter().filter_map(|broker| {
        let port = u16::try_from(broker.port).ok().filter(|port| *port > 0)?;
        Some((broker.node_id.0, (Arc::from(broker.host.as_str()), port)))
    });
    let topics = response.topics.iter().filter_map(|topic| {
        let name: Arc<str> = Arc::from(topic.name.as_ref()?.0.as_str());
        let partitions = topic.partitions.iter().map(|partition| {
            let epoch =
                (version >= 7 && partition.leader_epoch >= 0).then_some(LeaderEpoch(partition.leader_epoch));
            let leader = (partition.leader_id.0 >= 0).then_some(partition.leader_id.0);
            let error = error(partition.error_code);
            (partition.partition_index, SourcePartition { leader, epoch, error })
        });
        let id = (version >= 10 && !topic.topic_id.is_nil()).then_some(TopicId(topic.topic_id));
        let parsed = SourceTopic {
            name: name.clone(),
            id,
            internal: topic.is_internal,
            error: error(topic.error_code),
            partitions: partitions.collect(),
        };
        Some((name, parsed))
    });
    SourceMetadata {
        cluster_id: response.cluster_id.as_ref().map(|id| id.to_string()),
        brokers: brokers.collect(),
        topics: topics.collect(),
    }
}

impl SourceMetadata {
    /// Where the source serves a partition, if the topic there is the one mirrored here.
    pub fn leader_of(&self, topic: &str, id: TopicIdPartition) -> Result<SourceLeader, SourceFailure> {
        let could_not_ask = |why: String| Err(SourceFailure::CouldNotAsk(why));
        let Some(found) = self.topics.get(topic) else {
            return could_not_ask(format!("its metadata leaves {topic} out"));
        };
        if let Some(error) = found.error {
            // Whether a topic is gone is decided by the refresh cycle alone (decision 19).
            return could_not_ask(format!("{topic}: {}", error.name()));
        }
        found.check_id(id.topic_id)?;
        let Some(partition) = found.partitions.get(&id.partition) else {
            let detail = format!("{topic} has {} partitions there", found.partitions.len());
            return Err(SourceFailure::Failed(FailureReason::new(FailureKind::FewerPartitions, detail)));
        };
        let Some(leader) = partition.leader else {
            let why = partition.error.map_or("LEADER_NOT_AVAILABLE", ErrorCode::name);
            return could_not_ask(format!("{topic}-{}: {why}", id.partition));
        };
        let Some((host, port)) = self.brokers.get(&leader) else {
            return could_not_ask(format!("{topic}-{}: no address of its leader {leader}", id.partition));
        };
        let Some(epoch) = partition.epoch else {
            return could_not_ask(format!("{topic}-{}: the leader epoch is not told", id.partition));
        };
        Ok(SourceLeader { host: host.clone(), port: *port, node_id: leader, epoch })
    }
}

impl SourceTopic {
    /// S5 of the fault list: an id that changes is another topic, never merged. Without ids (before
    /// Kafka 2.8) the name has to do.
    pub fn check_id(&self, expected: TopicId) -> Result<(), SourceFailure> {
        match self.id {
            Some(id) if id != expected => {
                let detail = format!("{} is {id} there, {expected} here", self.name);
                Err(SourceFailure::Failed(FailureReason::new(FailureKind::TopicIdMismatch, detail)))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::messages::BrokerId as WireBroker;
    use protocol::messages::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    use uuid::Uuid;

    fn id(byte: u8) -> TopicId {
        TopicId(Uuid::from_bytes([byte; 16]))
    }

    fn answer(topic_id: TopicId, leader: i32, epoch: i32) -> MetadataResponse {
        let mut broker = MetadataResponseBroker::default();
        broker.node_id = WireBroker(1);
        broker.host = StrBytes::from_static_str("a");
        broker.port = 9092;
        let mut partition = MetadataResponsePartition::default();
        partition.leader_id = WireBroker(leader);
        partition.leader_epoch = epoch;
        let mut topic = MetadataResponseTopic::default();
        topic.name = Some(TopicName(StrBytes::from_static_str("t")));
        topic.topic_id = topic_id.0;
        topic.partitions = vec![partition];
        let mut response = MetadataResponse::default();
        response.brokers = vec![broker];
        response.topics = vec![topic];
        response
    }

    fn leader(
        answer: &MetadataResponse,
        version: i16,
        partition: i32,
    ) -> Result<SourceLeader, SourceFailure> {
        parse(answer, version).leader_of("t", TopicIdPartition::new(id(1), partition))
    }

    #[test]
    fn the_leader_and_its_epoch_are_learned() {
        let found = leader(&answer(id(1), 1, 7), 12, 0);
        let expected = SourceLeader { host: "a".into(), port: 9092, node_id: 1, epoch: LeaderEpoch(7) };
        assert_eq!(found, Ok(expected));
    }

    #[test]
    fn s5_another_topic_id_is_a_visible_error_and_a_missing_one_is_not() {
        assert!(matches!(
            leader(&answer(id(2), 1, 7), 12, 0),
            Err(SourceFailure::Failed(FailureReason { kind: FailureKind::TopicIdMismatch, .. }))
        ));
        assert!(leader(&answer(TopicId::ZERO, 1, 7), 12, 0).is_ok());
        assert!(leader(&answer(id(2), 1, 7), 9, 0).is_ok(), "Metadata 9 has no ids");
    }

    #[test]
    fn what_is_not_told_is_never_guessed() {
        for (answer, version, partition) in [
            (answer(id(1), -1, 7), 12, 0), // no leader
            (answer(id(1), 9, 7), 12, 0),  // no address of it
            (answer(id(1), 1, -1), 12, 0), // no epoch
            (answer(id(1), 1, 7), 6, 0),   // a version without epochs
            (MetadataResponse::default(), 12, 0),
        ] {
            assert!(matches!(leader(&answer, version, partition), Err(SourceFailure::CouldNotAsk(_))));
        }
        assert!(matches!(
            leader(&answer(id(1), 1, 7), 12, 4),
            Err(SourceFailure::Failed(FailureReason { kind: FailureKind::FewerPartitions, .. }))
        ));
    }
}
