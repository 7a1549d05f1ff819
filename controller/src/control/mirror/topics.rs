//! AddTopicsToMirror and RemoveTopicsFromMirror (decisions 11, 13, 17, 18). One bad topic refuses the
//! whole call and nothing changes.

use std::collections::HashSet;
use std::sync::Arc;

use common::ids::{Association, TopicId};
use common::metadata::image::TopicImage;
use common::metadata::{MetadataImage, MetadataRecord};
use common::mirror_state::{MIRROR_NAME_CONFIG, MIRROR_STATE_TOPIC, REMOVED_SUFFIX};
use protocol::error_code::ErrorCode;

use super::{every_partition_writable, validate_mirror_name};
use crate::control::result::{ControlError, ControllerResult, refuse};
use crate::control::topic::{topic_config, validate_topic_name};

/// A topic of an Add or Remove; a zero id is not known.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicState {
    pub topic_id: TopicId,
    pub name: String,
    /// Add: each topic names its mirror.
    pub mirror: Option<String>,
}

/// One result for each topic, in the order of the request. If one is an error, nothing was changed.
pub type TopicResults = Vec<Result<TopicId, ControlError>>;

/// Topics that Kafka and we keep for ourselves are never mirrored.
const INTERNAL_TOPICS: &[&str] = &[
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
    MIRROR_STATE_TOPIC,
];

/// AddTopicsToMirror.
pub fn add_topics(
    image: &MetadataImage,
    topics: &[TopicState],
    recopy: bool,
) -> ControllerResult<TopicResults> {
    all_or_nothing(topics, |topic| add_topic(image, topic, recopy))
}

/// RemoveTopicsFromMirror.
pub fn remove_topics(
    image: &MetadataImage,
    mirror: &str,
    topics: &[TopicState],
) -> Result<ControllerResult<TopicResults>, ControlError> {
    let mirror = known_mirror(image, Some(mirror))?;
    Ok(all_or_nothing(topics, |topic| remove_topic(image, &mirror, topic)))
}

type Outcome = Result<(TopicId, Vec<MetadataRecord>), ControlError>;

fn all_or_nothing(
    topics: &[TopicState],
    decide: impl Fn(&TopicState) -> Outcome,
) -> ControllerResult<TopicResults> {
    let mut seen = HashSet::new();
    let outcomes: Vec<Outcome> = topics
        .iter()
        .map(|topic| {
            if !seen.insert(topic.name.as_str()) {
                return refuse(ErrorCode::InvalidRequest, format!("topic '{}' is named twice", topic.name));
            }
            decide(topic)
        })
        .collect();
    let refused = outcomes.iter().any(Result::is_err);
    let mut records = Vec::new();
    let results = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(_) if refused => {
                refuse(ErrorCode::OperationNotAttempted, "another topic of the request was refused")
            }
            Ok((id, new)) => {
                records.extend(new);
                Ok(id)
            }
            Err(error) => Err(error),
        })
        .collect();
    ControllerResult::new(records, results)
}

fn known_mirror(image: &MetadataImage, name: Option<&str>) -> Result<Arc<str>, ControlError> {
    let name = validate_mirror_name(name)?;
    match image.mirrors.get(name) {
        Some(mirror) => Ok(mirror.name.clone()),
        None => refuse(ErrorCode::UnknownMirror, format!("there is no mirror '{name}'")),
    }
}

fn check_id(topic: &TopicImage, asked: TopicId) -> Result<(), ControlError> {
    if !asked.is_zero() && asked != topic.id {
        return refuse(
            ErrorCode::InconsistentTopicId,
            format!("topic '{}' has the id {}, not {asked}", topic.name, topic.id),
        );
    }
    Ok(())
}

fn add_topic(image: &MetadataImage, asked: &TopicState, recopy: bool) -> Outcome {
    let mirror = known_mirror(image, asked.mirror.as_deref())?;
    validate_topic_name(&asked.name)?;
    if INTERNAL_TOPICS.contains(&asked.name.as_str()) {
        return refuse(
            ErrorCode::InvalidTopicException,
            format!("internal topic '{}' is not mirrored", asked.name),
        );
    }
    let Some(topic) = image.topic(&asked.name) else {
        return add_pending(image, &mirror, asked);
    };
    check_id(topic, asked.topic_id)?;
    if let Some(current) = topic.mirror.as_ref().filter(|current| !current.removed) {
        if current.mirror != mirror {
            return refuse(
                ErrorCode::InvalidRequest,
                format!("topic '{}' belongs to mirror '{}'", topic.name, current.mirror),
            );
        }
        if !recopy {
            return refuse(ErrorCode::InvalidRequest, format!("topic '{}' is being mirrored", topic.name));
        }
        return mark_recopy(topic, current.association, current.recopy);
    }
    if !every_partition_writable(topic) {
        return refuse(
            ErrorCode::InvalidRequest,
            format!(
                "topic '{}' is being removed from its mirror; not every partition is stopped",
                topic.name
            ),
        );
    }
    let mut records = vec![topic_config(&topic.name, MIRROR_NAME_CONFIG, Some(&mirror))];
    if recopy {
        records.push(MetadataRecord::MirrorRecopy {
            topic_id: topic.id,
            association: Association(image.offset.next().0),
        });
    }
    Ok((topic.id, records))
}

/// A name without a topic here: remembered, and created at a refresh with the source's id (decision 17).
fn add_pending(image: &MetadataImage, mirror: &Arc<str>, asked: &TopicState) -> Outcome {
    if let Some(other) = image.topic_by_id(asked.topic_id) {
        return refuse(
            ErrorCode::TopicAlreadyExists,
            format!("id {} belongs to topic '{}' here", asked.topic_id, other.name),
        );
    }
    let topic: Arc<str> = asked.name.as_str().into();
    match image.pending_mirror_topics.get(&topic) {
        Some(waiting) if waiting == mirror => Ok((asked.topic_id, Vec::new())),
        Some(other) => refuse(
            ErrorCode::InvalidRequest,
            format!("topic '{topic}' waits to be created by mirror '{other}'"),
        ),
        None => {
            let record = MetadataRecord::PendingMirrorTopic { topic, mirror: Some(mirror.clone()) };
            Ok((asked.topic_id, vec![record]))
        }
    }
}

/// `--recopy` on a topic that stands in the mirror: only where a partition still waits uncut, whatever
/// its sisters do (decision 11).
fn mark_recopy(topic: &TopicImage, association: Association, marked: bool) -> Outcome {
    let waits = topic.partitions.iter().any(|partition| partition.mirror.preparing_cut.is_none());
    if !waits {
        return refuse(
            ErrorCode::InvalidRequest,
            format!("no partition of topic '{}' waits to be copied anew", topic.name),
        );
    }
    let record = MetadataRecord::MirrorRecopy { topic_id: topic.id, association };
    Ok((topic.id, if marked { Vec::new() } else { vec![record] }))
}

fn remove_topic(image: &MetadataImage, mirror: &Arc<str>, asked: &TopicState) -> Outcome {
    let other = |name: &str| {
        refuse(ErrorCode::InvalidRequest, format!("topic '{}' belongs to mirror '{name}'", asked.name))
    };
    let Some(topic) = image.topic(&asked.name) else {
        return match image.pending_mirror_topics.get(asked.name.as_str()) {
            Some(waiting) if waiting == mirror => {
                let topic = asked.name.as_str().into();
                Ok((asked.topic_id, vec![MetadataRecord::PendingMirrorTopic { topic, mirror: None }]))
            }
            Some(waiting) => other(waiting),
            None => refuse(ErrorCode::UnknownTopicOrPartition, format!("no topic is named '{}'", asked.name)),
        };
    };
    check_id(topic, asked.topic_id)?;
    let Some(current) = &topic.mirror else {
        return refuse(ErrorCode::InvalidRequest, format!("topic '{}' belongs to no mirror", topic.name));
    };
    if current.mirror != *mirror {
        return other(&current.mirror);
    }
    if every_partition_writable(topic) && !topic.partitions.is_empty() {
        return refuse(ErrorCode::InvalidRequest, format!("topic '{}' is stopped already", topic.name));
    }
    if current.removed {
        // Asked again while it is under way.
        return Ok((topic.id, Vec::new()));
    }
    Ok((topic.id, vec![removed(topic, mirror)]))
}

/// The record that appends the suffix.
pub fn removed(topic: &TopicImage, mirror: &str) -> MetadataRecord {
    topic_config(&topic.name, MIRROR_NAME_CONFIG, Some(&format!("{mirror}{REMOVED_SUFFIX}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::add_topic;
    use crate::control::testing::*;
    use common::ids::*;

    fn state(name: &str) -> TopicState {
        TopicState { topic_id: TopicId::ZERO, name: name.to_owned(), mirror: Some("m".to_owned()) }
    }

    fn image() -> MetadataImage {
        let mut image = with_brokers(&[1]);
        add_mirror(&mut image, "m", Some("source"));
        add_mirror(&mut image, "n", None);
        let two = || vec![registration(&[1], &[1], Some(1)), registration(&[1], &[1], Some(1))];
        add_topic(&mut image, "t", topic_id(1), two());
        add_topic(&mut image, "u", topic_id(2), two());
        image
    }

    fn add(image: &MetadataImage, topic: TopicState, recopy: bool) -> Result<Vec<MetadataRecord>, ErrorCode> {
        let result = add_topics(image, &[topic], recopy);
        result.response[0].clone().map(|_| result.records).map_err(|error| error.code)
    }

    fn remove(image: &MetadataImage, mirror: &str, name: &str) -> Result<Vec<MetadataRecord>, ErrorCode> {
        let result = remove_topics(image, mirror, &[state(name)]).map_err(|error| error.code)?;
        result.response[0].clone().map(|_| result.records).map_err(|error| error.code)
    }

    fn release(image: &mut MetadataImage, partition: i32) {
        let association = image.topic("t").unwrap().mirror.as_ref().unwrap().association;
        let record = MetadataRecord::Release {
            topic_id: topic_id(1),
            partition,
            association,
            offset: Offset(-1),
            source_cluster_id: "source".to_owned(),
            checked_cut_id: -1,
        };
        replay(image, vec![record]);
    }

    #[test]
    fn refusals_of_add() {
        let mut image = image();
        set_mirror_name(&mut image, "u", "n");
        let cases = vec![
            (TopicState { mirror: None, ..state("t") }, ErrorCode::InvalidMirrorName),
            (TopicState { mirror: Some("x.removed".to_owned()), ..state("t") }, ErrorCode::InvalidMirrorName),
            (TopicState { mirror: Some("x".to_owned()), ..state("t") }, ErrorCode::UnknownMirror),
            (state("a/b"), ErrorCode::InvalidTopicException),
            (state("__consumer_offsets"), ErrorCode::InvalidTopicException),
            (TopicState { topic_id: topic_id(9), ..state("t") }, ErrorCode::InconsistentTopicId),
            (TopicState { topic_id: topic_id(1), ..state("new") }, ErrorCode::TopicAlreadyExists),
            (state("u"), ErrorCode::InvalidRequest),
        ];
        for (topic, expected) in cases {
            assert_eq!(add(&image, topic.clone(), false).unwrap_err(), expected, "{topic:?}");
        }
    }

    #[test]
    fn case_6_and_counterexample_16_a_second_add_makes_no_second_association() {
        let mut image = image();
        let first = add(&image, state("t"), false).unwrap();
        replay(&mut image, first);
        assert_eq!(add(&image, state("t"), false).unwrap_err(), ErrorCode::InvalidRequest);
        let removed = remove(&image, "m", "t").unwrap();
        replay(&mut image, removed);
        // Under way: one partition released, the other not.
        release(&mut image, 0);
        assert_eq!(add(&image, state("t"), false).unwrap_err(), ErrorCode::InvalidRequest);
        release(&mut image, 1);
        assert!(add(&image, state("t"), false).is_ok());
        let other = TopicState { mirror: Some("n".to_owned()), ..state("t") };
        assert!(add(&image, other, false).is_ok(), "a stopped topic may change its mirror");
    }

    #[test]
    fn one_bad_topic_refuses_the_call() {
        let image = image();
        let result = add_topics(&image, &[state("t"), state("a/b"), state("t")], false);
        let codes: Vec<_> = result.response.iter().map(|r| r.as_ref().unwrap_err().code).collect();
        assert_eq!(
            codes,
            vec![
                ErrorCode::OperationNotAttempted,
                ErrorCode::InvalidTopicException,
                ErrorCode::InvalidRequest
            ]
        );
        assert_eq!(result.records, vec![]);
    }

    #[test]
    fn pending_topics_are_added_once_and_cleared_by_remove() {
        let mut image = image();
        let records = add(&image, state("new"), false).unwrap();
        replay(&mut image, records);
        assert_eq!(add(&image, state("new"), false).unwrap(), vec![]);
        let other = TopicState { mirror: Some("n".to_owned()), ..state("new") };
        assert_eq!(add(&image, other, false).unwrap_err(), ErrorCode::InvalidRequest);
        assert_eq!(remove(&image, "n", "new").unwrap_err(), ErrorCode::InvalidRequest);
        let records = remove(&image, "m", "new").unwrap();
        replay(&mut image, records);
        assert!(image.pending_mirror_topics.is_empty());
        assert_eq!(remove(&image, "m", "new").unwrap_err(), ErrorCode::UnknownTopicOrPartition);
    }

    #[test]
    fn case_7_remove_is_refused_only_when_everything_is_released_or_ordinary() {
        let mut image = image();
        assert_eq!(remove(&image, "m", "t").unwrap_err(), ErrorCode::InvalidRequest);
        assert_eq!(remove(&image, "x", "t").unwrap_err(), ErrorCode::UnknownMirror);
        set_mirror_name(&mut image, "t", "m");
        assert_eq!(remove(&image, "n", "t").unwrap_err(), ErrorCode::InvalidRequest);
        let records = remove(&image, "m", "t").unwrap();
        replay(&mut image, records);
        assert_eq!(remove(&image, "m", "t").unwrap(), vec![], "goes on waiting");
        release(&mut image, 0);
        assert_eq!(remove(&image, "m", "t").unwrap(), vec![]);
        release(&mut image, 1);
        assert_eq!(remove(&image, "m", "t").unwrap_err(), ErrorCode::InvalidRequest);
    }

    #[test]
    fn counterexample_17_recopy_for_one_waiting_partition_whose_sister_mirrors() {
        let mut image = image();
        let association = set_mirror_name(&mut image, "t", "m");
        let cut = |partition| MetadataRecord::Cut {
            topic_id: topic_id(1),
            partition,
            kind: common::metadata::record::CutKind::Preparing,
            association: Some(association),
            offset: Offset(0),
            leader_epoch: LeaderEpoch(6),
            broker_id: BrokerId(1),
            directory: directory(1),
            leader_keeps_tail: false,
        };
        replay(&mut image, vec![cut(0)]);
        let records = add(&image, state("t"), true).unwrap();
        assert_eq!(records, vec![MetadataRecord::MirrorRecopy { topic_id: topic_id(1), association }]);
        replay(&mut image, records);
        assert_eq!(add(&image, state("t"), true).unwrap(), vec![], "marked already");
        replay(&mut image, vec![cut(1)]);
        assert_eq!(add(&image, state("t"), true).unwrap_err(), ErrorCode::InvalidRequest);
    }

    #[test]
    fn recopy_of_an_ordinary_topic_marks_the_association_it_begins() {
        let mut image = image();
        let records = add(&image, state("t"), true).unwrap();
        let offset = replay(&mut image, records);
        let mirror = image.topic("t").unwrap().mirror.clone().unwrap();
        assert!(mirror.recopy);
        assert_eq!(mirror.association, Association(offset.0));
    }
}
