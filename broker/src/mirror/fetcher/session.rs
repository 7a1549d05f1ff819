//! PURE: a fetch session (KIP-227) from the asker's side: after the first request only what changed is
//! named, so that a thousand idle partitions cost a few bytes a request.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use common::ids::*;
use protocol::StrBytes;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic, ReplicaState};
use protocol::messages::{BrokerId as WireBroker, FetchRequest, TopicName};

/// READ_COMMITTED: the source answers below its last stable offset only.
const READ_COMMITTED: i8 = 1;
const CONSUMER: i32 = -1;
/// From this version on topics are named by id.
const FIRST_VERSION_WITH_TOPIC_ID: i16 = 13;
const FIRST_VERSION_WITH_SESSION: i16 = 7;

/// What is wanted of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub id: TopicIdPartition,
    pub topic: Arc<str>,
    pub offset: Offset,
    pub source_epoch: LeaderEpoch,
    pub max_bytes: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
}

#[derive(Debug, Default)]
pub struct FetchSession {
    id: i32,
    /// 0: the next request is a full one and opens a session.
    epoch: i32,
    /// What the source knows of us.
    known: BTreeMap<TopicIdPartition, Wanted>,
}

impl FetchSession {
    pub fn request(&mut self, wanted: &[Wanted], limits: Limits, version: i16) -> FetchRequest {
        let wanted: BTreeMap<TopicIdPartition, Wanted> =
            wanted.iter().map(|wanted| (wanted.id, wanted.clone())).collect();
        let full = self.epoch == 0 || version < FIRST_VERSION_WITH_SESSION;
        let mut request = FetchRequest::default();
        request.replica_id = WireBroker(CONSUMER);
        let mut replica_state = ReplicaState::default();
        replica_state.replica_id = WireBroker(CONSUMER);
        request.replica_state = replica_state;
        request.max_wait_ms = limits.max_wait_ms;
        request.min_bytes = limits.min_bytes;
        request.max_bytes = limits.max_bytes;
        request.isolation_level = READ_COMMITTED;
        if version >= FIRST_VERSION_WITH_SESSION {
            request.session_id = self.id;
            request.session_epoch = self.epoch;
        } else {
            request.session_epoch = -1;
        }
        let changed = wanted.values().filter(|wanted| full || self.known.get(&wanted.id) != Some(wanted));
        request.topics = topics(changed, version);
        if !full {
            let gone = self.known.values().filter(|known| !wanted.contains_key(&known.id));
            request.forgotten_topics_data = forgotten(gone, version);
        }
        self.known = wanted;
        request
    }

    /// The answer names the session; 0 means that the source keeps none for us.
    pub fn answered(&mut self, session_id: i32) {
        if session_id == 0 {
            return self.reset();
        }
        self.id = session_id;
        // Kafka's epochs skip 0, which opens a session, and -1, which closes it.
        self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
    }

    /// The next request names everything again.
    pub fn reset(&mut self) {
        *self = FetchSession::default();
    }
}

fn named(topic: &str, version: i16) -> TopicName {
    let text = if version < FIRST_VERSION_WITH_TOPIC_ID { topic } else { "" };
    TopicName(StrBytes::from_string(text.to_owned()))
}

fn topics<'a>(wanted: impl Iterator<Item = &'a Wanted>, version: i16) -> Vec<FetchTopic> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    let mut places: HashMap<TopicId, usize> = HashMap::new();
    for wanted in wanted {
        let place = *places.entry(wanted.id.topic_id).or_insert_with(|| {
            let mut topic = FetchTopic::default();
            topic.topic = named(&wanted.topic, version);
            if version >= FIRST_VERSION_WITH_TOPIC_ID {
                topic.topic_id = wanted.id.topic_id.0;
            }
            topics.push(topic);
            topics.len() - 1
        });
        let mut partition = FetchPartition::default();
        partition.partition = wanted.id.partition;
        partition.current_leader_epoch = wanted.source_epoch.0;
        partition.fetch_offset = wanted.offset.0;
        // Empty by the KIP's text; lineage is asked for by other means (decision 20).
        partition.last_fetched_epoch = -1;
        partition.log_start_offset = -1;
        partition.partition_max_bytes = wanted.max_bytes;
        topics[place].partitions.push(partition);
    }
    topics
}

fn forgotten<'a>(gone: impl Iterator<Item = &'a Wanted>, version: i16) -> Vec<ForgottenTopic> {
    let mut topics: Vec<ForgottenTopic> = Vec::new();
    let mut places: HashMap<TopicId, usize> = HashMap::new();
    for gone in gone {
        let place = *places.entry(gone.id.topic_id).or_insert_with(|| {
            let mut topic = ForgottenTopic::default();
            topic.topic = named(&gone.topic, version);
            if version >= FIRST_VERSION_WITH_TOPIC_ID {
                topic.topic_id = gone.id.topic_id.0;
            }
            topics.push(topic);
            topics.len() - 1
        });
        topics[place].partitions.push(gone.id.partition);
    }
    topics
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn wanted(partition: i32, offset: i64) -> Wanted {
        Wanted {
            id: TopicIdPartition::new(TopicId(Uuid::from_bytes([7; 16])), partition),
            topic: "t".into(),
            offset: Offset(offset),
            source_epoch: LeaderEpoch(3),
            max_bytes: 100,
        }
    }

    const LIMITS: Limits = Limits { max_wait_ms: 500, min_bytes: 1, max_bytes: 1_000 };

    fn named_partitions(request: &FetchRequest) -> Vec<i32> {
        request.topics.iter().flat_map(|topic| topic.partitions.iter().map(|p| p.partition)).collect()
    }

    #[test]
    fn only_changes_are_named_after_the_first_request() {
        let mut session = FetchSession::default();
        let first = session.request(&[wanted(0, 5), wanted(1, 5)], LIMITS, 13);
        assert_eq!((first.session_id, first.session_epoch), (0, 0));
        assert_eq!(named_partitions(&first), [0, 1]);
        assert_eq!(first.isolation_level, READ_COMMITTED);
        assert_eq!(first.replica_id, WireBroker(-1));
        assert_eq!(first.topics[0].partitions[0].last_fetched_epoch, -1);
        assert_eq!(first.topics[0].partitions[0].current_leader_epoch, 3);
        session.answered(42);
        let second = session.request(&[wanted(0, 9), wanted(1, 5)], LIMITS, 13);
        assert_eq!((second.session_id, second.session_epoch), (42, 1));
        assert_eq!(named_partitions(&second), [0]);
        session.answered(42);
        let third = session.request(&[wanted(1, 5)], LIMITS, 13);
        assert_eq!(named_partitions(&third), Vec::<i32>::new());
        assert_eq!(third.forgotten_topics_data[0].partitions, [0]);
    }

    #[test]
    fn a_lost_session_is_opened_anew_with_everything() {
        let mut session = FetchSession::default();
        session.request(&[wanted(0, 5)], LIMITS, 13);
        session.answered(42);
        session.reset();
        let again = session.request(&[wanted(0, 5)], LIMITS, 13);
        assert_eq!((again.session_id, again.session_epoch), (0, 0));
        assert_eq!(named_partitions(&again), [0]);
        session.answered(0);
        assert_eq!(named_partitions(&session.request(&[wanted(0, 5)], LIMITS, 13)), [0]);
    }

    #[test]
    fn older_sources_are_asked_by_name_and_without_session() {
        let mut session = FetchSession::default();
        let request = session.request(&[wanted(0, 5)], LIMITS, 12);
        assert_eq!(request.topics[0].topic.0.as_str(), "t");
        assert!(request.topics[0].topic_id.is_nil());
        let old = FetchSession::default().request(&[wanted(0, 5)], LIMITS, 6);
        assert_eq!(old.session_epoch, -1);
        let new = FetchSession::default().request(&[wanted(0, 5)], LIMITS, 16);
        assert_eq!(new.topics[0].topic.0.as_str(), "");
        assert!(!new.topics[0].topic_id.is_nil());
    }
}
