use super::*;
use crate::control::testing::*;
use common::metadata::MetadataRecord;
use common::metadata::record::{CutKind, PartitionChange};

fn image() -> MetadataImage {
    let mut image = with_brokers(&[1]);
    add_mirror(&mut image, "from-a", Some("a"));
    add_mirror(&mut image, "from-c", Some("c"));
    add_topic(&mut image, "t", topic_id(1), vec![registration(&[1], &[1], Some(1))]);
    image
}

fn cut(image: &mut MetadataImage, kind: CutKind, association: Option<Association>, offset: i64) -> CutId {
    let record = MetadataRecord::Cut {
        topic_id: topic_id(1),
        partition: 0,
        kind,
        association,
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(0),
        broker_id: BrokerId(1),
        directory: directory(1),
        leader_keeps_tail: false,
    };
    CutId(replay(image, vec![record]).0)
}

fn release(image: &mut MetadataImage, association: Association, offset: i64, source: &str) {
    let record = MetadataRecord::Release {
        topic_id: topic_id(1),
        partition: 0,
        association,
        offset: Offset(offset),
        source_cluster_id: source.to_owned(),
        checked_cut_id: 9,
    };
    replay(image, vec![record]);
}

/// Mirrors "t" from a cluster and stops at `offset`.
fn mirror_and_stop(image: &mut MetadataImage, mirror: &str, source: &str, from: i64, offset: i64) {
    let association = set_mirror_name(image, "t", mirror);
    cut(image, CutKind::Preparing, Some(association), from);
    set_mirror_name(image, "t", &format!("{mirror}.removed"));
    cut(image, CutKind::Stopping, Some(association), offset);
    release(image, association, offset, source);
}

fn question() -> Question {
    Question { topic: "t".to_owned(), topic_id: topic_id(1), partition: 0, last_seen_cut_id: -1 }
}

fn ask(image: &MetadataImage, cluster: &str) -> Answer {
    last_mirrored_offset(image, &Asker::Cluster(cluster.to_owned()), &question())
}

/// Nothing recorded; the topic's creation is its oldest cut.
fn nothing(image: &MetadataImage) -> Answer {
    let created_at = image.topic("t").map(|topic| CutId(topic.created_at.0));
    let partition = image.topic("t").and_then(|topic| topic.partitions.get(0));
    let leader_epoch = partition.map(|partition| partition.registration.leader_epoch);
    Answer { newest_cut_id: created_at, leader_epoch, ..Answer::default() }
}

fn error(answer: &Answer) -> Option<ErrorCode> {
    answer.error.as_ref().map(|error| error.code)
}

#[test]
fn nothing_recorded_and_a_recorded_offset() {
    let mut image = image();
    assert_eq!(ask(&image, "a"), nothing(&image));
    mirror_and_stop(&mut image, "from-a", "a", 0, 100);
    let answer = ask(&image, "a");
    assert_eq!((answer.offset, error(&answer)), (Some(Offset(100)), None));
    assert_eq!(answer.checked_cut_id, Some(9));
    assert_eq!(ask(&image, "b").offset, None, "another cluster has nothing here");
}

#[test]
fn by_mirror_name_without_the_tags() {
    let mut image = image();
    mirror_and_stop(&mut image, "from-a", "a", 0, 100);
    let by_name = |name: &str| last_mirrored_offset(&image, &Asker::MirrorName(name.to_owned()), &question());
    assert_eq!(by_name("from-a").offset, Some(Offset(100)));
    assert_eq!(
        by_name("unknown"),
        Answer { error: None, offset: None, checked_cut_id: None, ..by_name("unknown") }
    );
    let elsewhere = Question { topic: "u".to_owned(), ..question() };
    let answer = last_mirrored_offset(&image, &Asker::MirrorName("from-a".to_owned()), &elsewhere);
    assert_eq!(answer, Answer::default(), "case 14: 0 without an error");
}

#[test]
fn counterexample_5_a_copy_that_is_not_released_makes_the_asker_wait() {
    let mut image = image();
    let association = set_mirror_name(&mut image, "t", "from-a");
    let newest = cut(&mut image, CutKind::Preparing, Some(association), 0);
    let answer = ask(&image, "a");
    assert_eq!(error(&answer), Some(ErrorCode::OffsetNotAvailable));
    assert!(answer.error.as_ref().unwrap().code.retriable());
    assert_eq!(answer.offset, None);
    // Counterexample 26: the cuts are told although it is read-only.
    assert_eq!((answer.newest_cut_id, answer.lowest_cut_since), (Some(newest), Some(Offset(0))));
}

#[test]
fn counterexample_11_a_later_cut_by_a_third_cluster_lowers_the_answer() {
    let mut image = image();
    mirror_and_stop(&mut image, "from-a", "a", 0, 100);
    mirror_and_stop(&mut image, "from-c", "c", 60, 150);
    assert_eq!(ask(&image, "a").offset, Some(Offset(60)));
    assert_eq!(ask(&image, "c").offset, Some(Offset(150)));
}

#[test]
fn the_newest_association_counts_and_never_a_maximum() {
    let mut image = image();
    mirror_and_stop(&mut image, "from-a", "a", 0, 100);
    mirror_and_stop(&mut image, "from-a", "a", 40, 70);
    assert_eq!(ask(&image, "a").offset, Some(Offset(70)));
}

#[test]
fn counterexample_19_a_loss_after_the_stop_lowers_the_answer() {
    let mut image = image();
    mirror_and_stop(&mut image, "from-a", "a", 0, 100);
    cut(&mut image, CutKind::Loss, None, 80);
    assert_eq!(ask(&image, "a").offset, Some(Offset(80)));
    let mut image = self::image();
    let association = set_mirror_name(&mut image, "t", "from-a");
    cut(&mut image, CutKind::Preparing, Some(association), 0);
    set_mirror_name(&mut image, "t", "from-a.removed");
    cut(&mut image, CutKind::Stopping, Some(association), 100);
    cut(&mut image, CutKind::Loss, None, 80);
    release(&mut image, association, 120, "a");
    assert_eq!(ask(&image, "a").offset, Some(Offset(80)), "whatever the late release says");
}

#[test]
fn counterexample_19_nothing_is_told_before_the_loss_cut_is_committed() {
    let mut image = image();
    mirror_and_stop(&mut image, "from-a", "a", 0, 100);
    let change = PartitionChange {
        leader: Some(Some(BrokerId(1))),
        leader_recovery_state: Some(LeaderRecoveryState::Recovering),
        ..PartitionChange::default()
    };
    let record = MetadataRecord::PartitionChange { topic_id: topic_id(1), partition: 0, change };
    replay(&mut image, vec![record]);
    let answer = ask(&image, "a");
    assert_eq!((answer.offset, error(&answer)), (None, Some(ErrorCode::OffsetNotAvailable)));
    assert!(ask(&image, "b").error.is_some(), "nor that nothing is recorded");
    cut(&mut image, CutKind::Loss, None, 80);
    assert_eq!(ask(&image, "a").offset, Some(Offset(80)));
}

/// The same where the source was never reached, so that its cluster is not known.
#[test]
fn counterexample_27_released_before_the_first_contact_is_not_nothing_recorded() {
    let mut image = image();
    add_mirror(&mut image, "never-reached", None);
    let association = set_mirror_name(&mut image, "t", "never-reached");
    set_mirror_name(&mut image, "t", "never-reached.removed");
    release(&mut image, association, -1, "");
    assert_eq!(error(&ask(&image, "a")), Some(ErrorCode::ResourceNotFound));
}

/// Added here after the release, and perhaps there too: both may hold records the other has not.
#[test]
fn a_partition_born_released_was_never_copied_from_its_sisters_source() {
    let mut image = image();
    mirror_and_stop(&mut image, "from-a", "a", 0, 100);
    let registration = registration(&[1], &[1], Some(1));
    let added = MetadataRecord::Partition { topic_id: topic_id(1), partition: 1, registration };
    replay(&mut image, vec![added]);
    let ask = |cluster: &str| {
        let question = Question { partition: 1, ..question() };
        last_mirrored_offset(&image, &Asker::Cluster(cluster.to_owned()), &question)
    };
    assert_eq!(error(&ask("a")), Some(ErrorCode::ResourceNotFound));
    let other = ask("c");
    assert_eq!((other.offset, error(&other)), (None, None), "a cluster that has no part in it");
}

#[test]
fn counterexample_27_released_uncut_is_not_nothing_recorded() {
    let mut image = image();
    let association = set_mirror_name(&mut image, "t", "from-a");
    set_mirror_name(&mut image, "t", "from-a.removed");
    release(&mut image, association, -1, "a");
    assert!(image.topic("t").unwrap().is_writable(0));
    let answer = ask(&image, "a");
    assert_eq!(error(&answer), Some(ErrorCode::ResourceNotFound));
    assert!(!answer.error.as_ref().unwrap().code.retriable());
    assert_eq!(ask(&image, "b"), nothing(&image));
}

#[test]
fn cuts_since_the_id_last_seen() {
    let mut image = image();
    let first = cut(&mut image, CutKind::Loss, None, 50);
    let second = cut(&mut image, CutKind::Loss, None, 80);
    let since = |id: i64| {
        let question = Question { last_seen_cut_id: id, ..question() };
        let answer = last_mirrored_offset(&image, &Asker::Cluster("a".to_owned()), &question);
        (answer.newest_cut_id, answer.lowest_cut_since)
    };
    assert_eq!(since(-1), (Some(second), Some(Offset(50))));
    assert_eq!(since(first.0), (Some(second), Some(Offset(80))));
    assert_eq!(since(second.0), (Some(second), None));
}

#[test]
fn another_id_or_an_unknown_topic() {
    let image = image();
    let other = Question { topic_id: topic_id(2), ..question() };
    let asker = Asker::Cluster("a".to_owned());
    assert_eq!(error(&last_mirrored_offset(&image, &asker, &other)), Some(ErrorCode::InconsistentTopicId));
    let missing = Question { partition: 3, ..question() };
    assert_eq!(
        error(&last_mirrored_offset(&image, &asker, &missing)),
        Some(ErrorCode::UnknownTopicOrPartition)
    );
    let zero = Question { topic_id: TopicId::ZERO, ..question() };
    assert_eq!(last_mirrored_offset(&image, &asker, &zero), nothing(&image));
}

#[test]
fn a_recreated_topic_starts_without_history() {
    let mut image = image();
    mirror_and_stop(&mut image, "from-a", "a", 0, 100);
    replay(&mut image, vec![MetadataRecord::RemoveTopic { topic_id: topic_id(1) }]);
    let mut again = registration(&[1], &[1], Some(1));
    let (leader, partition) = image.topics.deleted_epochs[&topic_id(1)];
    again.leader_epoch = leader.next();
    again.partition_epoch = partition.next();
    add_topic(&mut image, "t", topic_id(1), vec![again]);
    assert_eq!(ask(&image, "a"), nothing(&image));
    // Whoever saw the earlier one learns that all of it is gone; a first question asks nothing of the past.
    let since = |id: i64| {
        let question = Question { last_seen_cut_id: id, ..question() };
        last_mirrored_offset(&image, &Asker::Cluster("a".to_owned()), &question).lowest_cut_since
    };
    let created_at = image.topic("t").map_or(-1, |topic| topic.created_at.0);
    assert_eq!(since(created_at - 2), Some(Offset(0)));
    assert_eq!(since(created_at), None);
    assert_eq!(since(-1), None);
}

/// ADR 11: nobody has copied what a SOURCE cut takes away, so nobody is told of it: neither a copy of this one,
/// nor who comes back to a source that was a copy.
#[test]
fn a_source_cut_is_told_to_nobody() {
    let mut image = image();
    let association = set_mirror_name(&mut image, "t", "from-a");
    let preparing = cut(&mut image, CutKind::Preparing, Some(association), 50);
    cut(&mut image, CutKind::Source, Some(association), 40);
    let asked = |image: &MetadataImage| {
        let question = Question { last_seen_cut_id: preparing.0, ..question() };
        last_mirrored_offset(image, &Asker::Cluster("a".to_owned()), &question)
    };
    let answer = asked(&image);
    assert_eq!((answer.newest_cut_id, answer.lowest_cut_since), (Some(preparing), None));
    set_mirror_name(&mut image, "t", "from-a.removed");
    cut(&mut image, CutKind::Stopping, Some(association), 90);
    release(&mut image, association, 90, "a");
    assert_eq!(asked(&image).offset, Some(Offset(90)));
}
