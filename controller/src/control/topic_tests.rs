use super::*;
use crate::control::partition_count::{NewPartitions, create_partitions};
use crate::control::testing::*;

fn new_topic(name: &str) -> NewTopic {
    NewTopic { name: name.to_owned(), partitions: 2, replication_factor: 1, ..NewTopic::default() }
}

fn create(image: &MetadataImage, topic: NewTopic) -> Result<CreatedTopic, ErrorCode> {
    create_topics(image, &settings(), &[topic], false, &mut Numbers::default())
        .response
        .remove(0)
        .map_err(|error| error.code)
}

#[test]
fn defaults_come_from_the_controllers_own_configuration() {
    let image = with_brokers(&[1, 2]);
    let settings = ControlSettings { num_partitions: 3, default_replication_factor: 2, ..settings() };
    let topic = NewTopic { partitions: -1, replication_factor: -1, ..new_topic("t") };
    let result = create_topics(&image, &settings, &[topic], false, &mut Numbers::default());
    let created = result.response[0].as_ref().unwrap();
    assert_eq!((created.partitions, created.replication_factor), (3, 2));
    assert_eq!(result.records.len(), 4);
    let mut after = image.clone();
    replay(&mut after, result.records);
    assert_eq!(after.topic("t").unwrap().partitions.len(), 3);
}

#[test]
fn refusals_of_create() {
    let mut image = with_brokers(&[1, 2]);
    add_topic(&mut image, "a.b", topic_id(1), vec![registration(&[1], &[1], Some(1))]);
    let base = new_topic("t");
    let manual = |assignments: Vec<(i32, Vec<BrokerId>)>| NewTopic {
        partitions: -1,
        replication_factor: -1,
        assignments,
        ..base.clone()
    };
    let config = |key: &str, value: &str| NewTopic {
        configs: vec![(key.to_owned(), Some(value.to_owned()))],
        ..base.clone()
    };
    let cases: Vec<(NewTopic, ErrorCode)> = vec![
        (new_topic(""), ErrorCode::InvalidTopicException),
        (new_topic(".."), ErrorCode::InvalidTopicException),
        (new_topic("a/b"), ErrorCode::InvalidTopicException),
        (new_topic(&"x".repeat(250)), ErrorCode::InvalidTopicException),
        (new_topic("a_b"), ErrorCode::InvalidTopicException),
        (new_topic("a.b"), ErrorCode::TopicAlreadyExists),
        (new_topic("__cluster_metadata"), ErrorCode::InvalidRequest),
        (NewTopic { partitions: 0, ..base.clone() }, ErrorCode::InvalidPartitions),
        (NewTopic { partitions: -2, ..base.clone() }, ErrorCode::InvalidPartitions),
        (NewTopic { partitions: 20_000, ..base.clone() }, ErrorCode::PolicyViolation),
        (NewTopic { replication_factor: 0, ..base.clone() }, ErrorCode::InvalidReplicationFactor),
        (NewTopic { replication_factor: 3, ..base.clone() }, ErrorCode::InvalidReplicationFactor),
        (NewTopic { assignments: vec![(0, ids(&[1]))], ..base.clone() }, ErrorCode::InvalidRequest),
        (manual(vec![(1, ids(&[1]))]), ErrorCode::InvalidReplicaAssignment),
        (manual(vec![(0, ids(&[1, 1]))]), ErrorCode::InvalidReplicaAssignment),
        (manual(vec![(0, ids(&[9]))]), ErrorCode::InvalidReplicaAssignment),
        (manual(vec![(0, ids(&[]))]), ErrorCode::InvalidReplicaAssignment),
        (manual(vec![(0, ids(&[1])), (1, ids(&[1, 2]))]), ErrorCode::InvalidReplicaAssignment),
        (config("mirror.name", "m"), ErrorCode::InvalidRequest),
        (config("retention.ms", "soon"), ErrorCode::InvalidConfig),
        (config("no.such.key", "1"), ErrorCode::InvalidConfig),
        (NewTopic { mirror_topic_id: Some(topic_id(1)), ..base.clone() }, ErrorCode::TopicAlreadyExists),
    ];
    for (topic, expected) in cases {
        assert_eq!(create(&image, topic.clone()).unwrap_err(), expected, "{topic:?}");
    }
    let twice = create_topics(&image, &settings(), &[base.clone(), base], false, &mut Numbers::default());
    assert!(twice.response.iter().all(|r| r.as_ref().unwrap_err().code == ErrorCode::InvalidRequest));
    assert_eq!(twice.records, vec![]);
}

#[test]
fn dots_and_underscores_collide_within_one_request_too() {
    let image = with_brokers(&[1]);
    let result = create_topics(
        &image,
        &settings(),
        &[new_topic("x.y"), new_topic("x_y")],
        false,
        &mut Numbers::default(),
    );
    assert!(result.response[0].is_ok());
    assert_eq!(result.response[1].as_ref().unwrap_err().code, ErrorCode::InvalidTopicException);
}

#[test]
fn case_29_source_id_needs_active_replicas() {
    let mut image = with_brokers(&[1]);
    replay(&mut image, vec![register(2, None)]);
    let mirrored = NewTopic { mirror_topic_id: Some(topic_id(7)), ..new_topic("t") };
    let manual = NewTopic {
        partitions: -1,
        replication_factor: -1,
        assignments: vec![(0, ids(&[1, 2]))],
        ..mirrored.clone()
    };
    assert_eq!(create(&image, manual).unwrap_err(), ErrorCode::InvalidReplicationFactor);
    let two = NewTopic { replication_factor: 2, ..mirrored.clone() };
    assert_eq!(create(&image, two.clone()).unwrap_err(), ErrorCode::InvalidReplicationFactor);
    assert!(create(&image, NewTopic { mirror_topic_id: None, ..two }).is_ok(), "as Kafka otherwise");
    assert_eq!(create(&image, mirrored).unwrap().topic_id, topic_id(7));
    let zero = NewTopic { mirror_topic_id: Some(TopicId::ZERO), ..new_topic("t") };
    assert_ne!(create(&image, zero).unwrap().topic_id, TopicId::ZERO);
}

#[test]
fn validate_only_gives_the_answer_and_no_record() {
    let image = with_brokers(&[1]);
    let result = create_topics(&image, &settings(), &[new_topic("t")], true, &mut Numbers::default());
    assert!(result.response[0].is_ok());
    assert_eq!(result.records, vec![]);
}

#[test]
fn counterexample_18_a_topic_id_that_comes_back_starts_above_the_old_epochs() {
    let mut image = with_brokers(&[1]);
    add_topic(&mut image, "t", topic_id(1), vec![registration(&[1], &[1], Some(1))]);
    let deleted = delete_topics(&image, &[TopicRef::Name("t".to_owned())]);
    replay(&mut image, deleted.records);
    let topic = NewTopic { mirror_topic_id: Some(topic_id(1)), ..new_topic("t") };
    let again = create_topics(&image, &settings(), &[topic], false, &mut Numbers::default());
    replay(&mut image, again.records);
    let partition = &image.topic("t").unwrap().partitions[0].registration;
    assert_eq!((partition.leader_epoch, partition.partition_epoch), (LeaderEpoch(6), PartitionEpoch(8)));
}

#[test]
fn delete_by_name_and_id() {
    let mut image = with_brokers(&[1]);
    add_topic(&mut image, "t", topic_id(1), vec![registration(&[1], &[1], Some(1))]);
    let wanted = [
        TopicRef::Name("t".to_owned()),
        TopicRef::Id(topic_id(1)),
        TopicRef::Name("u".to_owned()),
        TopicRef::Id(topic_id(2)),
    ];
    let result = delete_topics(&image, &wanted);
    let codes: Vec<_> = result.response.iter().map(|r| r.as_ref().err().map(|e| e.code)).collect();
    assert_eq!(
        codes,
        vec![
            None,
            Some(ErrorCode::InvalidRequest),
            Some(ErrorCode::UnknownTopicOrPartition),
            Some(ErrorCode::UnknownTopicId)
        ]
    );
    assert_eq!(result.records.len(), 1);
}

#[test]
fn partitions_of_ordinary_topics_grow_and_of_mirrored_ones_do_not() {
    let mut image = with_brokers(&[1, 2]);
    add_topic(&mut image, "t", topic_id(1), vec![registration(&[1], &[1], Some(1))]);
    let ask = |image: &MetadataImage, count, assignments| {
        let wanted = NewPartitions { topic: "t".to_owned(), count, assignments };
        let result = create_partitions(image, &[wanted], false, &mut Numbers::default());
        let records = result.records.len();
        result.response[0].clone().map(|()| records).map_err(|error| error.code)
    };
    assert_eq!(ask(&image, 3, None), Ok(2));
    assert_eq!(ask(&image, 2, Some(vec![ids(&[2])])), Ok(1));
    assert_eq!(ask(&image, 1, None), Err(ErrorCode::InvalidPartitions));
    assert_eq!(ask(&image, 3, Some(vec![ids(&[2])])), Err(ErrorCode::InvalidReplicaAssignment));
    assert_eq!(ask(&image, 2, Some(vec![ids(&[1, 2])])), Err(ErrorCode::InvalidReplicaAssignment));
    add_mirror(&mut image, "m", None);
    set_mirror_name(&mut image, "t", "m");
    assert_eq!(ask(&image, 3, None), Err(ErrorCode::InvalidRequest));
}

#[test]
fn the_topic_of_mirror_states_keeps_its_partition_count() {
    let mut image = with_brokers(&[1]);
    let name = common::mirror_state::MIRROR_STATE_TOPIC;
    add_topic(&mut image, name, topic_id(1), vec![registration(&[1], &[1], Some(1))]);
    let wanted = NewPartitions { topic: name.to_owned(), count: 2, assignments: None };
    let result = create_partitions(&image, &[wanted], false, &mut Numbers::default());
    assert_eq!(result.response[0].clone().unwrap_err().code, ErrorCode::InvalidRequest);
    assert_eq!(result.records, vec![]);
}

#[test]
fn a_pending_name_is_only_created_with_the_sources_id() {
    let mut image = with_brokers(&[1]);
    add_mirror(&mut image, "m", None);
    let pending = MetadataRecord::PendingMirrorTopic { topic: "t".into(), mirror: Some("m".into()) };
    replay(&mut image, vec![pending]);
    assert_eq!(create(&image, new_topic("t")).unwrap_err(), ErrorCode::InvalidRequest);
    let topic = NewTopic { mirror_topic_id: Some(topic_id(7)), ..new_topic("t") };
    let result = create_topics(&image, &settings(), &[topic], false, &mut Numbers::default());
    let offset = replay(&mut image, result.records);
    assert!(image.pending_mirror_topics.is_empty());
    let mirror = image.topic("t").unwrap().mirror.clone().unwrap();
    assert_eq!(mirror.association, Association(offset.0));
}

#[test]
fn a_thousand_topics_of_four_partitions_are_quick() {
    let mut image = with_brokers(&[1, 2, 3]);
    let topics: Vec<NewTopic> = (0..1000)
        .map(|n| NewTopic { partitions: 4, replication_factor: 3, ..new_topic(&format!("load_{n}")) })
        .collect();
    let result = create_topics(&image, &settings(), &topics, false, &mut Numbers::default());
    assert!(result.response.iter().all(Result::is_ok));
    assert_eq!(result.records.len(), 5000);
    replay(&mut image, result.records);
    assert_eq!(image.topics.by_id.len(), 1000);
}
