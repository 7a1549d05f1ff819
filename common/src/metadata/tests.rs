//! Replay, codec and snapshot together: what every node must agree on.

use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use crate::ids::*;
use crate::mirror_state::MIRROR_NAME_CONFIG;

use super::record::*;
use super::*;

const BROKER: BrokerId = BrokerId(1);

fn topic_id(seed: u8) -> TopicId {
    TopicId(Uuid::from_bytes([seed; 16]))
}

fn registration(leader_epoch: i32) -> PartitionRegistration {
    PartitionRegistration {
        replicas: vec![BROKER],
        directories: vec![DirectoryId::ZERO],
        isr: vec![BROKER],
        elr: vec![],
        last_known_elr: vec![],
        adding_replicas: vec![],
        removing_replicas: vec![],
        leader: Some(BROKER),
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(leader_epoch),
        leader_recovery_state: LeaderRecoveryState::Recovered,
    }
}

fn next(image: &MetadataImage, records: Vec<MetadataRecord>) -> MetadataBatch {
    MetadataBatch {
        term: Term(1),
        offset: image.offset.next(),
        predecessor_term: image.term,
        timestamp_ms: 0,
        records,
    }
}

/// Applies one request's records; gives the offset they got.
fn apply(image: &mut MetadataImage, records: Vec<MetadataRecord>) -> MetadataOffset {
    let batch = next(image, records);
    image.apply(&batch, &mut MetadataDelta::default()).unwrap();
    image.offset
}

fn create(image: &mut MetadataImage, seed: u8, partitions: i32) -> Arc<str> {
    let name: Arc<str> = format!("t{seed}").into();
    let topic_id = topic_id(seed);
    let mut records = vec![MetadataRecord::Topic { topic_id, name: name.clone() }];
    for partition in 0..partitions {
        records.push(MetadataRecord::Partition { topic_id, partition, registration: registration(0) });
    }
    apply(image, records);
    name
}

fn set_mirror_name(image: &mut MetadataImage, topic: &Arc<str>, value: &str) -> MetadataOffset {
    let resource = ConfigResource { resource_type: ConfigResourceType::Topic, name: topic.clone() };
    let key = MIRROR_NAME_CONFIG.to_owned();
    apply(image, vec![MetadataRecord::Config { resource, key, value: Some(value.to_owned()) }])
}

fn cut(seed: u8, kind: CutKind, association: i64, offset: i64) -> MetadataRecord {
    MetadataRecord::Cut {
        topic_id: topic_id(seed),
        partition: 0,
        kind,
        association: (association >= 0).then_some(Association(association)),
        offset: Offset(offset),
        leader_epoch: LeaderEpoch(0),
        broker_id: BROKER,
        directory: DirectoryId::ZERO,
        leader_keeps_tail: false,
    }
}

fn release(seed: u8, association: MetadataOffset, offset: i64) -> MetadataRecord {
    MetadataRecord::Release {
        topic_id: topic_id(seed),
        partition: 0,
        association: Association(association.0),
        offset: Offset(offset),
        source_cluster_id: "source".to_owned(),
        checked_cut_id: -1,
    }
}

fn partition(image: &MetadataImage, seed: u8, index: i32) -> &image::PartitionImage {
    image.partition(TopicIdPartition::new(topic_id(seed), index)).unwrap()
}

#[test]
fn a_batch_computed_on_another_predecessor_changes_nothing() {
    let mut image = MetadataImage::default();
    create(&mut image, 1, 1);
    let before = image.clone();
    let mut delta = MetadataDelta::default();

    let mut skips = next(&image, vec![]);
    skips.offset = MetadataOffset(5);
    assert!(matches!(image.apply(&skips, &mut delta), Err(ApplyError::NotSuccessor { .. })));

    let mut other_draft = next(&image, vec![]);
    other_draft.predecessor_term = Term(7);
    assert!(matches!(image.apply(&other_draft, &mut delta), Err(ApplyError::NotSuccessor { .. })));

    let again = MetadataRecord::Topic { topic_id: topic_id(1), name: "t1".into() };
    let first = MetadataRecord::Topic { topic_id: topic_id(2), name: "t2".into() };
    let contradiction = next(&image, vec![first, again]);
    assert!(matches!(
        image.apply(&contradiction, &mut delta),
        Err(ApplyError::Contradiction { record: 1, .. })
    ));
    assert_eq!(image, before, "the first record of a refused batch is not kept");
    assert!(delta.is_empty());
}

#[test]
fn an_association_is_the_offset_of_the_record_that_set_mirror_name() {
    let mut image = MetadataImage::default();
    let topic = create(&mut image, 1, 1);
    let first = set_mirror_name(&mut image, &topic, "m");
    set_mirror_name(&mut image, &topic, "m.removed");
    let mirror = image.topic("t1").unwrap().mirror.clone().unwrap();
    assert_eq!((mirror.association, mirror.removed), (Association(first.0), true));

    let second = set_mirror_name(&mut image, &topic, "m");
    let mirror = image.topic("t1").unwrap().mirror.clone().unwrap();
    assert_eq!((mirror.association, mirror.removed), (Association(second.0), false));
}

/// Decision 14: the record that sets `mirror.name` anew moves releases into history in the same step.
#[test]
fn a_new_association_moves_the_release_into_history_and_closes_the_partition() {
    let mut image = MetadataImage::default();
    let topic = create(&mut image, 1, 1);
    let association = set_mirror_name(&mut image, &topic, "m");
    assert!(!image.topic("t1").unwrap().is_writable(0));
    apply(&mut image, vec![cut(1, CutKind::Preparing, association.0, 0)]);
    set_mirror_name(&mut image, &topic, "m.removed");
    apply(&mut image, vec![cut(1, CutKind::Stopping, association.0, 100)]);
    assert!(!image.topic("t1").unwrap().is_writable(0));
    apply(&mut image, vec![release(1, association, 100)]);
    assert!(image.topic("t1").unwrap().is_writable(0));
    let released = partition(&image, 1, 0).mirror.release.clone().unwrap();
    assert_eq!(released.offset, Some(Offset(100)));

    set_mirror_name(&mut image, &topic, "m");
    assert!(!image.topic("t1").unwrap().is_writable(0));
    let mirror = &partition(&image, 1, 0).mirror;
    assert_eq!(mirror.history, vec![released]);
    assert!(mirror.preparing_cut.is_none() && mirror.stopping_cut.is_none() && mirror.release.is_none());
    assert_eq!(mirror.cuts.len(), 2, "replicas may still have to apply them");
}

/// Decision 10b: stopped before its PREPARING cut, nothing is recorded as mirrored.
#[test]
fn a_release_without_a_preparing_cut_records_no_last_mirrored_offset() {
    let mut image = MetadataImage::default();
    let topic = create(&mut image, 1, 1);
    let association = set_mirror_name(&mut image, &topic, "m");
    set_mirror_name(&mut image, &topic, "m.removed");
    apply(&mut image, vec![release(1, association, 150)]);
    assert_eq!(partition(&image, 1, 0).mirror.release.as_ref().unwrap().offset, None);
    assert!(image.topic("t1").unwrap().is_writable(0));
}

#[test]
fn a_cut_drops_those_at_or_above_it_and_raises_the_leader_epoch() {
    let mut image = MetadataImage::default();
    create(&mut image, 1, 1);
    for offset in [50, 200, 300] {
        apply(&mut image, vec![cut(1, CutKind::Loss, -1, offset)]);
    }
    let id = apply(&mut image, vec![cut(1, CutKind::Loss, -1, 200)]);
    let now = partition(&image, 1, 0);
    let offsets: Vec<_> = now.mirror.cuts.iter().map(|cut| cut.offset.0).collect();
    assert_eq!(offsets, [50, 200]);
    assert_eq!(now.mirror.newest_cut().unwrap().id, CutId(id.0));
    assert_eq!(now.registration.leader_epoch, LeaderEpoch(4));
    assert_eq!(now.mirror.lowest_cut_since(CutId(2)), Some(Offset(200)));
    assert_eq!(now.mirror.lowest_cut_since(CutId(0)), Some(Offset(50)));
    assert_eq!(now.mirror.lowest_cut_since(CutId(id.0)), None);

    let mut high = cut(1, CutKind::Loss, -1, 10);
    if let MetadataRecord::Cut { leader_epoch, .. } = &mut high {
        *leader_epoch = LeaderEpoch(77);
    }
    apply(&mut image, vec![high]);
    assert_eq!(partition(&image, 1, 0).registration.leader_epoch, LeaderEpoch(77));
}

/// ADR 11: a SOURCE cut is for the replicas here. Whoever copies from here is not told of it, so it hides no
/// cut of which they have to hear.
#[test]
fn a_source_cut_hides_no_other_and_is_not_told() {
    let mut image = MetadataImage::default();
    let topic = create(&mut image, 1, 1);
    let association = set_mirror_name(&mut image, &topic, "m");
    let preparing = apply(&mut image, vec![cut(1, CutKind::Preparing, association.0, 100)]);
    for offset in [90, 120, 110] {
        apply(&mut image, vec![cut(1, CutKind::Source, association.0, offset)]);
    }
    let mirror = &partition(&image, 1, 0).mirror;
    let offsets: Vec<_> = mirror.cuts.iter().map(|cut| cut.offset.0).collect();
    assert_eq!(offsets, [100, 90, 110]);
    assert_eq!(mirror.cuts_told().map(|cut| cut.id.0).collect::<Vec<_>>(), [preparing.0]);
    apply(&mut image, vec![cut(1, CutKind::Loss, -1, 95)]);
    let offsets: Vec<_> = partition(&image, 1, 0).mirror.cuts.iter().map(|cut| cut.offset.0).collect();
    assert_eq!(offsets, [90, 95]);
}

/// What an association has checked of its source's cuts stays with it, in snapshots too.
#[test]
fn the_checked_cut_of_the_source_belongs_to_the_association() {
    let mut image = MetadataImage::default();
    let topic = create(&mut image, 1, 1);
    let association = set_mirror_name(&mut image, &topic, "m");
    let checked = |association: MetadataOffset, id| MetadataRecord::SourceCutChecked {
        topic_id: topic_id(1),
        partition: 0,
        association: Association(association.0),
        cut_id: CutId(id),
    };
    apply(&mut image, vec![checked(association, 7)]);
    apply(&mut image, vec![checked(association, 5)]);
    assert_eq!(partition(&image, 1, 0).mirror.checked_source_cut, Some(CutId(7)), "it never falls");
    assert_eq!(snapshot::read(&snapshot::write(&image)).unwrap(), image);
    let later = set_mirror_name(&mut image, &topic, "m");
    assert_eq!(partition(&image, 1, 0).mirror.checked_source_cut, None);
    let mut delta = MetadataDelta::default();
    assert!(image.clone().apply(&next(&image, vec![checked(association, 9)]), &mut delta).is_err());
    apply(&mut image, vec![checked(later, 1)]);
    assert_eq!(partition(&image, 1, 0).mirror.checked_source_cut, Some(CutId(1)));
}

/// Counterexample 21: partitions added to a released topic are writable; to a stopping one they are not.
#[test]
fn counterexample_21_partitions_added_to_a_released_topic_are_born_released() {
    let mut image = MetadataImage::default();
    let topic = create(&mut image, 1, 1);
    let association = set_mirror_name(&mut image, &topic, "m");
    set_mirror_name(&mut image, &topic, "m.removed");
    let grow = |partition| MetadataRecord::Partition {
        topic_id: topic_id(1),
        partition,
        registration: registration(0),
    };
    let mut stopping = image.clone();
    apply(&mut stopping, vec![grow(1)]);
    assert!(!stopping.topic("t1").unwrap().is_writable(1));

    apply(&mut image, vec![release(1, association, 0)]);
    apply(&mut image, vec![grow(1), grow(2)]);
    let topic = image.topic("t1").unwrap();
    assert!(topic.is_writable(1) && topic.is_writable(2));
}

/// Decision 19: an id that comes back starts above the deleted topic's epochs.
#[test]
fn a_returned_topic_id_starts_above_the_epochs_it_had() {
    let mut image = MetadataImage::default();
    create(&mut image, 1, 1);
    apply(&mut image, vec![cut(1, CutKind::Loss, -1, 0)]);
    let id = topic_id(1);
    apply(&mut image, vec![MetadataRecord::RemoveTopic { topic_id: id }]);
    assert_eq!(image.topics.deleted_epochs.get(&id), Some(&(LeaderEpoch(1), PartitionEpoch(1))));

    let back = |epoch| {
        vec![
            MetadataRecord::Topic { topic_id: id, name: "t1".into() },
            MetadataRecord::Partition { topic_id: id, partition: 0, registration: registration(epoch) },
        ]
    };
    let batch = next(&image, back(1));
    assert!(image.clone().apply(&batch, &mut MetadataDelta::default()).is_err());
    apply(&mut image, back(2));
}

#[test]
fn leader_epoch_rises_with_each_leader_and_never_falls() {
    let mut now = registration(5);
    now.apply(&PartitionChange { leader: Some(None), ..Default::default() });
    assert_eq!(
        (now.leader, now.leader_epoch, now.partition_epoch),
        (None, LeaderEpoch(6), PartitionEpoch(6))
    );
    now.apply(&PartitionChange { isr: Some(vec![]), ..Default::default() });
    assert_eq!((now.leader_epoch, now.partition_epoch), (LeaderEpoch(6), PartitionEpoch(7)));
    now.apply(&PartitionChange { leader_epoch: Some(LeaderEpoch(2)), ..Default::default() });
    assert_eq!(now.leader_epoch, LeaderEpoch(7));
}

#[test]
fn batches_keep_their_bytes() {
    let batch = MetadataBatch {
        term: Term(3),
        offset: MetadataOffset(9),
        predecessor_term: Term(2),
        timestamp_ms: 1,
        records: vec![MetadataRecord::FeatureLevel { name: "metadata.version".into(), level: 33 }],
    };
    let bytes = codec::encode_batches(std::slice::from_ref(&batch));
    // Golden: a change here is a change of what older nodes and stores hold, and needs a new version.
    let expected: Vec<u8> = [&[1u8, 0, 0, 0, 24][..], &bytes[5..9], &[3, 18, 2, 2, 1, 0, 16]].concat();
    assert_eq!(&bytes[..expected.len()], expected);
    assert_eq!(&bytes[expected.len()..], b"metadata.version\x42");
    assert_eq!(codec::decode_batches(&bytes).unwrap(), vec![batch]);
}

/// Case B5: records of a version above the known one stop the reader; they are not skipped.
#[test]
fn case_b5_a_higher_version_is_an_error_that_names_it() {
    let mut bytes = codec::encode_batches(&[next(&MetadataImage::default(), vec![])]).to_vec();
    bytes[0] = 9;
    let error = codec::decode_batches(&bytes).unwrap_err();
    assert_eq!(error, codec::CodecError::UnknownVersion(9));
    assert!(error.to_string().contains("version 9"));
}

#[test]
fn damaged_or_cut_off_bytes_are_refused_at_every_place() {
    let mut image = MetadataImage::default();
    create(&mut image, 1, 3);
    let batches = codec::encode_batches(&[next(&image, vec![cut(1, CutKind::Loss, -1, 4)])]);
    let snapshot = snapshot::write(&image);
    for cut_at in 1..batches.len() {
        assert!(codec::decode_batches(&batches[..cut_at]).is_err(), "cut at {cut_at}");
    }
    for cut_at in 0..snapshot.len() {
        assert!(snapshot::read(&snapshot[..cut_at]).is_err(), "cut at {cut_at}");
    }
    for place in 0..snapshot.len() {
        let mut damaged = snapshot.clone();
        damaged[place] ^= 0x10;
        assert!(snapshot::read(&damaged).is_err(), "bit flipped at {place}");
    }
}

#[test]
fn local_changes_tell_leaders_followers_and_what_left() {
    let mut before = MetadataImage::default();
    create(&mut before, 1, 2);
    let mut after = before.clone();
    let mut delta = MetadataDelta::default();
    let away = PartitionChange {
        replicas: Some(vec![BrokerId(2)]),
        directories: Some(vec![DirectoryId::ZERO]),
        leader: Some(Some(BrokerId(2))),
        ..Default::default()
    };
    let batch = next(
        &after,
        vec![
            MetadataRecord::PartitionChange { topic_id: topic_id(1), partition: 0, change: away },
            cut(1, CutKind::Loss, -1, 0),
        ],
    );
    after.apply(&batch, &mut delta).unwrap();
    let changes = LocalChanges::new(&before, &delta, &after, BROKER);
    assert_eq!(changes.removed.len(), 1);
    assert!(changes.leaders.is_empty() && changes.followers.is_empty());
    let gained = LocalChanges::new(&before, &delta, &after, BrokerId(2));
    assert_eq!(gained.leaders.len(), 1);

    // A snapshot in between hides the deltas: a topic whose id came back is still seen as removed.
    let mut recreated = after.clone();
    apply(&mut recreated, vec![MetadataRecord::RemoveTopic { topic_id: topic_id(1) }]);
    let records = vec![
        MetadataRecord::Topic { topic_id: topic_id(1), name: "t1".into() },
        MetadataRecord::Partition { topic_id: topic_id(1), partition: 0, registration: registration(9) },
    ];
    apply(&mut recreated, records);
    let changes = LocalChanges::new(&after, &MetadataDelta::everything(), &recreated, BROKER);
    assert_eq!(changes.removed.len(), 1, "partition 1 of the deleted topic");
    assert_eq!(changes.leaders.len(), 1, "partition 0 of the new one");
}

/// One random request, in terms that mostly fit the image.
fn records_strategy() -> impl Strategy<Value = Vec<(u8, u8, i64)>> {
    prop::collection::vec((0u8..12, 0u8..4, 0i64..300), 1..80)
}

fn random_request(image: &MetadataImage, op: u8, seed: u8, number: i64) -> Vec<MetadataRecord> {
    let id = topic_id(seed);
    let name: Arc<str> = format!("t{seed}").into();
    let config = |key: &str, value: Option<String>| MetadataRecord::Config {
        resource: ConfigResource { resource_type: ConfigResourceType::Topic, name: name.clone() },
        key: key.to_owned(),
        value,
    };
    let above =
        image.topics.deleted_epochs.get(&id).map_or(0, |(leader, partition)| leader.0.max(partition.0) + 1);
    match op {
        0 | 1 => vec![
            MetadataRecord::Topic { topic_id: id, name: name.clone() },
            MetadataRecord::Partition { topic_id: id, partition: 0, registration: registration(above) },
        ],
        2 => vec![MetadataRecord::RemoveTopic { topic_id: id }],
        3 => vec![cut(seed, CutKind::Loss, -1, number)],
        4 => vec![cut(seed, CutKind::Preparing, 3, number)],
        5 => vec![config(MIRROR_NAME_CONFIG, Some("m".to_owned()))],
        6 => vec![config(MIRROR_NAME_CONFIG, Some("m.removed".to_owned()))],
        7 => vec![release(seed, image.offset, number)],
        8 => vec![config("retention.ms", (number % 2 == 0).then(|| number.to_string()))],
        9 => vec![MetadataRecord::PendingMirrorTopic {
            topic: name,
            mirror: (number % 2 == 0).then(|| "m".into()),
        }],
        10 => {
            let next = image.topic_by_id(id).map_or(0, |topic| topic.partitions.len() as i32);
            let registration = registration(above);
            vec![MetadataRecord::Partition { topic_id: id, partition: next, registration }]
        }
        _ => vec![MetadataRecord::Mirror { name: format!("m{seed}").into() }],
    }
}

proptest! {
    /// Invariant 8: whoever replays the same batches has the same image, a snapshot on the way included.
    #[test]
    fn replay_codec_and_snapshot_agree(ops in records_strategy(), at in 0usize..80) {
        let mut image = MetadataImage::default();
        let mut through_snapshot = MetadataImage::default();
        for (index, (op, seed, number)) in ops.into_iter().enumerate() {
            let batch = next(&image, random_request(&image, op, seed, number));
            let bytes = codec::encode_batches(std::slice::from_ref(&batch));
            let decoded = codec::decode_batches(&bytes).unwrap();
            prop_assert_eq!(&decoded[..], std::slice::from_ref(&batch));
            let one = image.apply(&batch, &mut MetadataDelta::default());
            let other = through_snapshot.apply(&decoded[0], &mut MetadataDelta::default());
            prop_assert_eq!(one, other);
            if index == at {
                through_snapshot = snapshot::read(&snapshot::write(&through_snapshot)).unwrap();
            }
        }
        prop_assert_eq!(image.digest(), through_snapshot.digest());
        prop_assert_eq!(image, through_snapshot);
    }
}
