use super::*;
use crate::control::testing::*;
use common::metadata::record::{CutKind, LeaderRecoveryState, PartitionChange};

const SENDER: Sender = Sender { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(1) };

fn id(partition: i32) -> TopicIdPartition {
    TopicIdPartition::new(topic_id(1), partition)
}

/// Topic "t" of two partitions led by broker 1 under epoch 5, mirrored by "m" from "source".
fn mirrored() -> (MetadataImage, Association) {
    let mut image = with_brokers(&[1, 2]);
    add_mirror(&mut image, "m", Some("source"));
    let two = vec![registration(&[1, 2], &[1, 2], Some(1)), registration(&[1, 2], &[1, 2], Some(1))];
    add_topic(&mut image, "t", topic_id(1), two);
    let association = set_mirror_name(&mut image, "t", "m");
    (image, association)
}

fn epoch(image: &MetadataImage) -> LeaderEpoch {
    image.partition(id(0)).unwrap().registration.leader_epoch
}

fn cut_request(
    image: &MetadataImage,
    kind: CutKind,
    association: Option<Association>,
    offset: i64,
) -> CutRequest {
    CutRequest {
        id: id(0),
        leader_epoch: epoch(image),
        kind,
        association,
        offset: Offset(offset),
        highest_batch_epoch: LeaderEpoch(-1),
        directory: directory(1),
        only_release: false,
        source_cut_id: None,
    }
}

fn release_request(image: &MetadataImage, association: Association, offset: Option<i64>) -> ReleaseRequest {
    ReleaseRequest {
        id: id(0),
        leader_epoch: epoch(image),
        association,
        offset: offset.map(Offset),
        checked_cut_id: 77,
    }
}

fn ask(image: &MetadataImage, proposal: Proposal) -> Result<Vec<MetadataRecord>, ErrorCode> {
    let result = propose(image, &settings(), SENDER, &[proposal], &mut Numbers::default())
        .map_err(|error| error.code)?;
    result.response[0].clone().map(|_| result.records).map_err(|error| error.code)
}

fn commit(image: &mut MetadataImage, proposal: Proposal) -> MetadataOffset {
    let records = ask(image, proposal).unwrap();
    replay(image, records)
}

fn commit_cut(
    image: &mut MetadataImage,
    kind: CutKind,
    association: Option<Association>,
    offset: i64,
) -> CutId {
    let request = cut_request(image, kind, association, offset);
    CutId(commit(image, Proposal::Cut(request)).0)
}

fn recovering(image: &mut MetadataImage) {
    let change = PartitionChange {
        leader_recovery_state: Some(LeaderRecoveryState::Recovering),
        leader_epoch: Some(LeaderEpoch(0)),
        ..PartitionChange::default()
    };
    replay(image, vec![MetadataRecord::PartitionChange { topic_id: topic_id(1), partition: 0, change }]);
}

#[test]
fn a_cut_is_fenced_by_leader_broker_epoch_and_leader_epoch() {
    let (image, association) = mirrored();
    let request = cut_request(&image, CutKind::Preparing, Some(association), 10);
    let stale = Sender { broker_epoch: BrokerEpoch(0), ..SENDER };
    let refused =
        propose(&image, &settings(), stale, &[Proposal::Cut(request.clone())], &mut Numbers::default());
    assert_eq!(refused.unwrap_err().code, ErrorCode::StaleBrokerEpoch);
    let other = Sender { broker_id: BrokerId(2), broker_epoch: BrokerEpoch(3) };
    let result =
        propose(&image, &settings(), other, &[Proposal::Cut(request.clone())], &mut Numbers::default())
            .unwrap();
    assert_eq!(result.response[0].as_ref().unwrap_err().code, ErrorCode::NotLeaderOrFollower);
    let old = CutRequest { leader_epoch: LeaderEpoch(4), ..request.clone() };
    assert_eq!(ask(&image, Proposal::Cut(old)).unwrap_err(), ErrorCode::FencedLeaderEpoch);
    let future = CutRequest { leader_epoch: LeaderEpoch(6), ..request.clone() };
    assert_eq!(ask(&image, Proposal::Cut(future)).unwrap_err(), ErrorCode::NotController);
    let gone = CutRequest { id: TopicIdPartition::new(topic_id(9), 0), ..request.clone() };
    assert_eq!(ask(&image, Proposal::Cut(gone)).unwrap_err(), ErrorCode::UnknownTopicId);
    assert_eq!(ask(&image, Proposal::Cut(request)).unwrap().len(), 1);
}

#[test]
fn a_fenced_broker_proposes_nothing() {
    let (mut image, association) = mirrored();
    replay(&mut image, vec![fence(1, 1, true)]);
    let request = cut_request(&image, CutKind::Preparing, Some(association), 10);
    assert_eq!(ask(&image, Proposal::Cut(request)).unwrap_err(), ErrorCode::StaleBrokerEpoch);
}

#[test]
fn a_cut_raises_the_epoch_above_every_batch_and_within_reason() {
    let (mut image, association) = mirrored();
    let request = CutRequest {
        highest_batch_epoch: LeaderEpoch(40),
        ..cut_request(&image, CutKind::Preparing, Some(association), 10)
    };
    let wild = CutRequest { highest_batch_epoch: LeaderEpoch(2_000_000), ..request.clone() };
    assert_eq!(ask(&image, Proposal::Cut(wild)).unwrap_err(), ErrorCode::InvalidRequest);
    let huge = CutRequest { highest_batch_epoch: LeaderEpoch(i32::MAX), ..request.clone() };
    assert_eq!(ask(&image, Proposal::Cut(huge)).unwrap_err(), ErrorCode::InvalidRequest);
    commit(&mut image, Proposal::Cut(request));
    assert_eq!(epoch(&image), LeaderEpoch(41));
}

#[test]
fn only_stopping_leaves_a_log_uncut() {
    let (mut image, association) = mirrored();
    let uncut = |request: CutRequest| CutRequest { only_release: true, offset: Offset(-1), ..request };
    let preparing = uncut(cut_request(&image, CutKind::Preparing, Some(association), 0));
    assert_eq!(ask(&image, Proposal::Cut(preparing)).unwrap_err(), ErrorCode::InvalidRequest);
    recovering(&mut image);
    let loss = uncut(cut_request(&image, CutKind::Loss, None, 0));
    assert_eq!(ask(&image, Proposal::Cut(loss)).unwrap_err(), ErrorCode::InvalidRequest);
}

#[test]
fn preparing_cuts_once_per_association_and_never_with_the_suffix() {
    let (mut image, association) = mirrored();
    let late = cut_request(&image, CutKind::Preparing, Some(Association(association.0 - 1)), 10);
    assert_eq!(ask(&image, Proposal::Cut(late)).unwrap_err(), ErrorCode::InvalidRequest);
    commit_cut(&mut image, CutKind::Preparing, Some(association), 10);
    // Counterexample 7: a retry does not pass through a second cut.
    let again = cut_request(&image, CutKind::Preparing, Some(association), 0);
    assert_eq!(ask(&image, Proposal::Cut(again)).unwrap_err(), ErrorCode::InvalidRequest);
    // Counterexample 14: the raise that the cut brings starts no second one either.
    assert!(image.partition(id(0)).unwrap().mirror.preparing_cut.is_some());
}

#[test]
fn counterexample_28_a_preparing_cut_delayed_past_the_remove_is_refused() {
    let (mut image, association) = mirrored();
    let delayed = cut_request(&image, CutKind::Preparing, Some(association), 0);
    set_mirror_name(&mut image, "t", "m.removed");
    assert_eq!(ask(&image, Proposal::Cut(delayed)).unwrap_err(), ErrorCode::InvalidRequest);
}

#[test]
fn counterexample_4_an_old_leaders_cut_after_its_successors_release_is_refused() {
    let (mut image, association) = mirrored();
    commit_cut(&mut image, CutKind::Preparing, Some(association), 0);
    set_mirror_name(&mut image, "t", "m.removed");
    let delayed = cut_request(&image, CutKind::Stopping, Some(association), 90);
    commit_cut(&mut image, CutKind::Stopping, Some(association), 100);
    let request = release_request(&image, association, Some(100));
    commit(&mut image, Proposal::Release(request));
    assert_eq!(ask(&image, Proposal::Cut(delayed.clone())).unwrap_err(), ErrorCode::FencedLeaderEpoch);
    let renewed = CutRequest { leader_epoch: epoch(&image), ..delayed };
    assert_eq!(ask(&image, Proposal::Cut(renewed)).unwrap_err(), ErrorCode::InvalidRequest);
}

#[test]
fn stopping_needs_the_suffix_and_cuts_only_what_was_cut_before() {
    let (mut image, association) = mirrored();
    let early = cut_request(&image, CutKind::Stopping, Some(association), 5);
    assert_eq!(ask(&image, Proposal::Cut(early)).unwrap_err(), ErrorCode::InvalidRequest);
    set_mirror_name(&mut image, "t", "m.removed");
    let uncut = cut_request(&image, CutKind::Stopping, Some(association), 5);
    assert_eq!(ask(&image, Proposal::Cut(uncut.clone())).unwrap_err(), ErrorCode::InvalidRequest);
    let only = CutRequest { only_release: true, ..uncut };
    assert_eq!(ask(&image, Proposal::Cut(only.clone())).unwrap(), vec![]);
    let above = CutRequest { highest_batch_epoch: LeaderEpoch(9), ..only };
    let records = ask(&image, Proposal::Cut(above)).unwrap();
    assert!(matches!(records.as_slice(), [MetadataRecord::PartitionChange { .. }]), "no cut, a raise");
}

#[test]
fn releases_are_fenced_and_repeat_without_a_record() {
    let (mut image, association) = mirrored();
    commit_cut(&mut image, CutKind::Preparing, Some(association), 0);
    let early = release_request(&image, association, Some(100));
    assert_eq!(ask(&image, Proposal::Release(early)).unwrap_err(), ErrorCode::InvalidRequest);
    set_mirror_name(&mut image, "t", "m.removed");
    let uncut = release_request(&image, association, Some(100));
    assert_eq!(ask(&image, Proposal::Release(uncut)).unwrap_err(), ErrorCode::InvalidRequest);
    commit_cut(&mut image, CutKind::Stopping, Some(association), 100);
    for offset in [None, Some(101)] {
        let request = release_request(&image, association, offset);
        assert_eq!(ask(&image, Proposal::Release(request)).unwrap_err(), ErrorCode::InvalidRequest);
    }
    let request = release_request(&image, association, Some(100));
    commit(&mut image, Proposal::Release(request.clone()));
    assert!(image.topic("t").unwrap().is_writable(0));
    assert!(!image.topic("t").unwrap().is_writable(1));
    assert_eq!(ask(&image, Proposal::Release(request)).unwrap(), vec![]);
}

#[test]
fn counterexample_10_an_old_release_after_a_second_add_is_refused() {
    let (mut image, association) = mirrored();
    set_mirror_name(&mut image, "t", "m.removed");
    let old = release_request(&image, association, None);
    // The second add cannot come before the release; that it did is the worst case.
    set_mirror_name(&mut image, "t", "m");
    assert_eq!(ask(&image, Proposal::Release(old)).unwrap_err(), ErrorCode::InvalidRequest);
    assert!(!image.topic("t").unwrap().is_writable(0));
}

#[test]
fn counterexample_19_a_recovering_leader_releases_nothing_before_its_cut() {
    let (mut image, association) = mirrored();
    commit_cut(&mut image, CutKind::Preparing, Some(association), 0);
    set_mirror_name(&mut image, "t", "m.removed");
    commit_cut(&mut image, CutKind::Stopping, Some(association), 100);
    recovering(&mut image);
    let request = release_request(&image, association, Some(80));
    assert_eq!(ask(&image, Proposal::Release(request)).unwrap_err(), ErrorCode::InvalidRequest);
    let other = cut_request(&image, CutKind::Preparing, Some(association), 0);
    assert_eq!(ask(&image, Proposal::Cut(other)).unwrap_err(), ErrorCode::InvalidRequest);
    commit_cut(&mut image, CutKind::Loss, None, 80);
    let twice = cut_request(&image, CutKind::Loss, None, 80);
    assert_eq!(ask(&image, Proposal::Cut(twice)).unwrap_err(), ErrorCode::InvalidRequest, "recovered");
    let request = release_request(&image, association, Some(80));
    commit(&mut image, Proposal::Release(request));
}

#[test]
fn a_loss_cut_keeps_the_leaders_tail_except_while_copying() {
    let keeps = |image: &MetadataImage| {
        let records = ask(image, Proposal::Cut(cut_request(image, CutKind::Loss, None, 8))).unwrap();
        match records.as_slice() {
            [MetadataRecord::Cut { leader_keeps_tail, association: None, .. }] => *leader_keeps_tail,
            other => panic!("{other:?}"),
        }
    };
    let mut ordinary = with_brokers(&[1, 2]);
    add_topic(&mut ordinary, "t", topic_id(1), vec![registration(&[1, 2], &[1], Some(1))]);
    recovering(&mut ordinary);
    assert!(keeps(&ordinary));
    let (mut image, association) = mirrored();
    let mut uncut = image.clone();
    recovering(&mut uncut);
    assert!(keeps(&uncut), "before its PREPARING cut it may be the last copy");
    commit_cut(&mut image, CutKind::Preparing, Some(association), 5);
    recovering(&mut image);
    assert!(!keeps(&image));
    set_mirror_name(&mut image, "t", "m.removed");
    assert!(keeps(&image));
}

#[test]
fn counterexample_16_a_late_source_deleted_puts_no_suffix_on_a_newer_association() {
    let (mut image, association) = mirrored();
    let report = |association| Proposal::SourceDeleted { topic_id: topic_id(1), association };
    commit(&mut image, report(association));
    assert!(image.topic("t").unwrap().mirror.as_ref().unwrap().removed);
    assert_eq!(ask(&image, report(association)).unwrap(), vec![], "reported twice");
    let newer = set_mirror_name(&mut image, "t", "m");
    assert_eq!(ask(&image, report(association)).unwrap_err(), ErrorCode::InvalidRequest);
    assert_eq!(ask(&image, report(newer)).unwrap().len(), 1);
}

#[test]
fn raises_only_lift_and_only_mirrors() {
    let (mut image, _) = mirrored();
    let raise = |image: &MetadataImage, minimum| {
        Proposal::Raise(RaiseRequest { id: id(0), leader_epoch: epoch(image), minimum: LeaderEpoch(minimum) })
    };
    assert_eq!(ask(&image, raise(&image, 5)).unwrap(), vec![]);
    assert_eq!(ask(&image, raise(&image, 2_000_000)).unwrap_err(), ErrorCode::InvalidRequest);
    let proposal = raise(&image, 30);
    commit(&mut image, proposal);
    assert_eq!(epoch(&image), LeaderEpoch(30));
    assert_eq!(image.partition(id(0)).unwrap().registration.leader, Some(BrokerId(1)));
    let mut ordinary = with_brokers(&[1]);
    add_topic(&mut ordinary, "t", topic_id(1), vec![registration(&[1], &[1], Some(1))]);
    assert_eq!(ask(&ordinary, raise(&ordinary, 30)).unwrap_err(), ErrorCode::InvalidRequest);
}

#[test]
fn counterexample_20_the_source_never_becomes_another_cluster() {
    let mut image = with_brokers(&[1]);
    add_mirror(&mut image, "m", None);
    let source = |id: &str| Proposal::Source { mirror: "m".to_owned(), source_cluster_id: id.to_owned() };
    assert_eq!(ask(&image, source("here")).unwrap_err(), ErrorCode::InconsistentClusterId, "ourselves");
    assert_eq!(ask(&image, source("")).unwrap_err(), ErrorCode::InvalidRequest);
    commit(&mut image, source("there"));
    assert_eq!(ask(&image, source("there")).unwrap(), vec![]);
    assert_eq!(ask(&image, source("elsewhere")).unwrap_err(), ErrorCode::InconsistentClusterId);
}

fn source_topic() -> SourceTopic {
    SourceTopic {
        mirror: "m".to_owned(),
        name: "new".to_owned(),
        topic_id: topic_id(42),
        partitions: 3,
        configs: [("retention.ms", "5"), ("no.such.key", "1")]
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect(),
    }
}

#[test]
fn case_4_a_pending_topic_is_created_with_the_sources_id() {
    let (mut image, _) = mirrored();
    let create = Proposal::Create(source_topic());
    assert_eq!(ask(&image, create.clone()).unwrap_err(), ErrorCode::InvalidRequest, "not pending");
    let pending = MetadataRecord::PendingMirrorTopic { topic: "new".into(), mirror: Some("m".into()) };
    replay(&mut image, vec![pending]);
    let zero = Proposal::Create(SourceTopic { topic_id: TopicId::ZERO, ..source_topic() });
    assert_eq!(ask(&image, zero).unwrap_err(), ErrorCode::InvalidRequest);
    let used = Proposal::Create(SourceTopic { topic_id: topic_id(1), ..source_topic() });
    assert_eq!(ask(&image, used).unwrap_err(), ErrorCode::TopicAlreadyExists);
    let result =
        propose(&image, &settings(), SENDER, std::slice::from_ref(&create), &mut Numbers::default()).unwrap();
    assert!(result.response[0].as_ref().unwrap().as_ref().unwrap().contains("no.such.key"));
    let offset = replay(&mut image, result.records);
    let topic = image.topic("new").unwrap();
    assert_eq!((topic.id, topic.partitions.len()), (topic_id(42), 3));
    assert_eq!(topic.mirror.as_ref().unwrap().association, Association(offset.0));
    assert!(image.pending_mirror_topics.is_empty());
    assert_eq!(ask(&image, create).unwrap(), vec![], "asked twice");
    // Case 28: the name exists with another id.
    let other = Proposal::Create(SourceTopic { topic_id: topic_id(43), ..source_topic() });
    assert_eq!(ask(&image, other).unwrap_err(), ErrorCode::TopicAlreadyExists);
}

#[test]
fn case_24_partitions_follow_the_source_and_never_shrink() {
    let (mut image, _) = mirrored();
    let grow = |partitions| Proposal::Grow { mirror: "m".to_owned(), topic_id: topic_id(1), partitions };
    assert_eq!(ask(&image, grow(1)).unwrap(), vec![]);
    commit(&mut image, grow(6));
    assert_eq!(image.topic("t").unwrap().partitions.len(), 6);
    assert!(!image.topic("t").unwrap().is_writable(5));
    set_mirror_name(&mut image, "t", "m.removed");
    assert_eq!(ask(&image, grow(7)).unwrap_err(), ErrorCode::InvalidRequest);
}

#[test]
fn counterexample_21_partitions_added_to_a_released_topic_are_writable() {
    use crate::control::partition_count::{NewPartitions, create_partitions};
    let (mut image, association) = mirrored();
    set_mirror_name(&mut image, "t", "m.removed");
    let wanted = [NewPartitions { topic: "t".to_owned(), count: 3, assignments: None }];
    let refused = create_partitions(&image, &wanted, false, &mut Numbers::default());
    assert_eq!(refused.response[0].as_ref().unwrap_err().code, ErrorCode::InvalidRequest);
    for partition in 0..2 {
        let request = ReleaseRequest { id: id(partition), ..release_request(&image, association, None) };
        commit(&mut image, Proposal::Release(request));
    }
    let grown = create_partitions(&image, &wanted, false, &mut Numbers::default());
    replay(&mut image, grown.records);
    assert!(image.topic("t").unwrap().is_writable(2));
}

#[test]
fn configs_are_synced_key_by_key() {
    let (mut image, _) = mirrored();
    let sync = |set: &[(&str, &str)], unset: &[&str]| Proposal::Configs {
        mirror: "m".to_owned(),
        topic_id: topic_id(1),
        set: set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        unset: unset.iter().map(|key| (*key).to_owned()).collect(),
    };
    let proposal = sync(&[("retention.ms", "5"), ("segment.bytes", "x"), ("mirror.name", "y")], &[]);
    let records = ask(&image, proposal).unwrap();
    assert_eq!(records.len(), 1, "the two bad keys are left out");
    replay(&mut image, records);
    assert_eq!(ask(&image, sync(&[("retention.ms", "5")], &["segment.bytes"])).unwrap(), vec![]);
    assert_eq!(ask(&image, sync(&[], &["retention.ms", "mirror.name"])).unwrap().len(), 1);
}

#[test]
fn two_items_on_one_partition_are_not_decided_on_one_image() {
    let (image, association) = mirrored();
    let request = cut_request(&image, CutKind::Preparing, Some(association), 0);
    let twice = [Proposal::Cut(request.clone()), Proposal::Cut(request)];
    let result = propose(&image, &settings(), SENDER, &twice, &mut Numbers::default()).unwrap();
    assert!(result.response[0].is_ok());
    assert_eq!(result.response[1].as_ref().unwrap_err().code, ErrorCode::OperationNotAttempted);
    assert_eq!(result.records.len(), 1);
}

/// ADR 11: the id of the source's cut is committed with the cut that takes note of it, and each is noted once.
#[test]
fn a_source_cut_takes_note_of_a_cut_once() {
    let (mut image, association) = mirrored();
    let noting = |image: &MetadataImage, kind, offset, id| {
        let source_cut_id = Some(CutId(id));
        let request = CutRequest { source_cut_id, ..cut_request(image, kind, Some(association), offset) };
        Proposal::Cut(request)
    };
    let refused = Err(ErrorCode::InvalidRequest);
    assert_eq!(ask(&image, noting(&image, CutKind::Source, 60, 4)), refused, "PREPARING comes first");
    let preparing = noting(&image, CutKind::Preparing, 50, 3);
    commit(&mut image, preparing);
    let checked = |image: &MetadataImage| image.partition(id(0)).unwrap().mirror.checked_source_cut;
    assert_eq!(checked(&image), Some(CutId(3)));
    assert_eq!(ask(&image, noting(&image, CutKind::Source, 60, 3)), refused);
    let late = noting(&image, CutKind::Source, 60, 4);
    let before = epoch(&image);
    commit(&mut image, late.clone());
    assert_eq!(checked(&image), Some(CutId(4)));
    assert!(epoch(&image) > before, "whoever fetches under the raised epoch has applied it");
    assert!(ask(&image, late).is_err(), "the epoch has gone on");
    let unnoted = Proposal::Cut(cut_request(&image, CutKind::Source, Some(association), 60));
    assert_eq!(ask(&image, unnoted), refused);
    let mut recovers = image.clone();
    recovering(&mut recovers);
    assert_eq!(ask(&recovers, noting(&recovers, CutKind::Source, 60, 5)), refused);
    set_mirror_name(&mut image, "t", "m.removed");
    assert_eq!(ask(&image, noting(&image, CutKind::Source, 60, 5)), refused);
}

/// Who was eligible under another `min.insync.replicas` no longer is (KIP-966), whoever changed it.
#[test]
fn a_config_of_the_source_has_the_consequences_of_one_set_here() {
    let (mut image, _) = mirrored();
    let change =
        PartitionChange { isr: Some(vec![BrokerId(1)]), elr: Some(vec![BrokerId(2)]), ..Default::default() };
    replay(&mut image, vec![MetadataRecord::PartitionChange { topic_id: topic_id(1), partition: 0, change }]);
    let configs = |key: &str, value: &str| Proposal::Configs {
        mirror: "m".to_owned(),
        topic_id: topic_id(1),
        set: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        unset: Vec::new(),
    };
    let mut other = image.clone();
    commit(&mut other, configs("retention.ms", "1000"));
    assert_eq!(other.partition(id(0)).unwrap().registration.elr, [BrokerId(2)]);
    commit(&mut image, configs("min.insync.replicas", "1"));
    assert_eq!(image.partition(id(0)).unwrap().registration.elr, []);
}
