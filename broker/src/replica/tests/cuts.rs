//! Mirror partitions: read-only, cut by committed records, fed with batches of another cluster.

use common::ids::*;
use common::metadata::MetadataRecord;
use common::metadata::record::{CutKind, PartitionChange};
use protocol::ErrorCode;
use tokio::time::Instant;

use super::cluster::*;
use crate::replica::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_is_applied_by_every_replica_before_it_goes_on() {
    let cluster = Cluster::start(3, 2).await;
    cluster.create_topic(1);
    for _ in 0..10 {
        cluster.produce_all(1, 10).await;
    }
    cluster.add_to_mirror();
    let refused = cluster.produce(1, 1, 1).map(|_| ()).map_err(|error| error.code());
    assert_eq!(refused, Err(ErrorCode::ReadOnlyTopic));
    // 3 is away while the cut is made.
    cluster.commit_silently(vec![cluster.cut(CutKind::Preparing, 1, 50, 4, false)]);
    cluster.catch_up(1);
    cluster.catch_up(2);
    let leader = cluster.partition(1, 0);
    let status = leader.status();
    assert_eq!((status.log_end_offset, status.leader_epoch), (Offset(50), LeaderEpoch(4)));
    // The source's batches carry its own epochs; the partition's covers them.
    leader.append_mirrored(LeaderEpoch(4), &mirrored(50, 3, 5)).expect("mirrored");
    assert_eq!(cluster.partition(3, 0).status().log_end_offset, Offset(100));
    cluster.catch_up(3);
    until(&leader, "all of the cut", |_| leader.fetched_under_epoch(LeaderEpoch(4))).await;
    until(&leader, "high watermark", |status| status.high_watermark == Offset(55)).await;
    for broker in [2, 3] {
        let follower = cluster.partition(broker, 0);
        until(&follower, "the leader's end", |status| status.log_end_offset == Offset(55)).await;
        assert_eq!(bytes_of(&follower), bytes_of(&leader), "broker {broker}");
        let image = cluster.image();
        let cut = image.partition(id(0)).and_then(|partition| partition.mirror.cuts.last().cloned());
        let noted = cluster.broker(broker).replicas.log_manager().applied_cut(id(0));
        assert_eq!(noted, cut.map(|cut| cut.id));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_produce_that_waits_is_told_that_the_topic_is_read_only() {
    let cluster = Cluster::start(2, 2).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 5).await;
    cluster.broker(2).replicas.fetchers.remove([id(0)]);
    let appended = cluster.produce(1, 5, -1).expect("append");
    let replicas = cluster.broker(1).replicas.clone();
    let waiting = vec![appended.waiting()];
    let waiter =
        tokio::spawn(async move { replicas.wait_replicated(waiting, Instant::now() + PATIENCE).await });
    tokio::task::yield_now().await;
    cluster.add_to_mirror();
    assert_eq!(waiter.await.expect("waiter"), vec![Err(WaitFailure::ReadOnlyTopic)]);
    // Also one that begins to wait only now.
    let late =
        cluster.broker(1).replicas.wait_replicated(vec![appended.waiting()], Instant::now() + PATIENCE);
    assert_eq!(late.await, vec![Err(WaitFailure::ReadOnlyTopic)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirrored_batches_are_fenced_and_their_epochs_kept() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(1);
    cluster.add_to_mirror();
    let partition = cluster.partition(1, 0);
    let epoch = partition.status().leader_epoch;
    // An empty epoch cache: the log start, never "undefined" (decision 8).
    let asked = |epoch: i32| partition.end_offset_for_epoch(None, LeaderEpoch(epoch)).expect("leader");
    let above = partition.append_mirrored(epoch, &mirrored(0, 7, 3));
    assert!(
        matches!(above, Err(MirrorAppendError::EpochAboveOwn { batch: LeaderEpoch(7), .. })),
        "{above:?}"
    );
    // The controller raises the partition's epoch; nothing else changes.
    cluster.commit(vec![Cluster::change(
        0,
        common::metadata::record::PartitionChange {
            leader_epoch: Some(LeaderEpoch(8)),
            ..Default::default()
        },
    )]);
    let fenced = partition.append_mirrored(epoch, &mirrored(0, 7, 3));
    assert!(matches!(fenced, Err(MirrorAppendError::FencedEpoch { .. })), "{fenced:?}");
    let info = partition.append_mirrored(LeaderEpoch(8), &mirrored(0, 7, 3)).expect("mirrored");
    assert_eq!((info.first_offset, info.last_offset), (Offset(0), Offset(2)));
    assert_eq!(bytes_of(&partition), mirrored(0, 7, 3));
    assert_eq!(partition.status().high_watermark, Offset(3));
    assert_eq!(asked(7), Some((LeaderEpoch(7), Offset(3))));
    assert_eq!(asked(99), Some((LeaderEpoch(7), Offset(3))));
    let again = partition.append_mirrored(LeaderEpoch(8), &mirrored(1, 7, 3));
    assert!(matches!(again, Err(MirrorAppendError::OutOfOrder(_))), "{again:?}");
    let mut damaged = bytes::BytesMut::from(&mirrored(3, 7, 1)[..]);
    if let Some(last) = damaged.last_mut() {
        *last ^= 1;
    }
    let corrupt = partition.append_mirrored(LeaderEpoch(8), &damaged);
    assert!(matches!(corrupt, Err(MirrorAppendError::Corrupt(_))), "{corrupt:?}");
    assert_eq!(partition.status().log_end_offset, Offset(3));
    // The source lost its beginning up to 40: the log starts there.
    partition.restart_log_at(LeaderEpoch(8), Offset(40)).expect("restart");
    let status = partition.status();
    assert_eq!((status.log_start_offset, status.log_end_offset), (Offset(40), Offset(40)));
    assert_eq!(status.high_watermark, Offset(40));
    assert_eq!(asked(7), Some((LeaderEpoch(-1), Offset(40))));
    partition.append_mirrored(LeaderEpoch(8), &mirrored(40, 7, 2)).expect("mirrored");
    assert_eq!(partition.decided_cut_point().expect("cut point"), Offset(42));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_a_mirror_follow_a_log_that_starts_anew() {
    let cluster = Cluster::start(2, 1).await;
    cluster.create_topic(1);
    cluster.add_to_mirror();
    let leader = cluster.partition(1, 0);
    let epoch = leader.status().leader_epoch;
    leader.append_mirrored(epoch, &mirrored(0, 0, 3)).expect("mirrored");
    let follower = cluster.partition(2, 0);
    until(&follower, "the leader's end", |status| status.log_end_offset == Offset(3)).await;
    leader.restart_log_at(epoch, Offset(500)).expect("restart");
    leader.append_mirrored(epoch, &mirrored(500, 0, 3)).expect("mirrored");
    until(&follower, "the new log", |status| status.log_end_offset == Offset(503)).await;
    assert_eq!(follower.status().log_start_offset, Offset(500));
    assert_eq!(bytes_of(&follower), bytes_of(&leader));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_makes_the_partition_writable() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(1);
    cluster.add_to_mirror();
    let association = cluster.association().expect("association");
    cluster.remove_from_mirror();
    assert!(cluster.produce(1, 1, 1).is_err());
    cluster.commit(vec![MetadataRecord::Release {
        topic_id: topic_id(),
        partition: 0,
        association,
        offset: Offset(0),
        source_cluster_id: "source".to_owned(),
        checked_cut_id: -1,
    }]);
    let appended = cluster.produce(1, 1, 1).expect("writable");
    assert_eq!(appended.info.first_offset, Offset(0));
    // The leader's own epoch entered the cache with the release.
    let epoch = cluster.partition(1, 0).status().leader_epoch;
    let asked = cluster.partition(1, 0).end_offset_for_epoch(None, epoch).expect("leader");
    assert_eq!(asked, Some((epoch, Offset(1))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_own_epoch_without_a_batch_does_not_stand_above_the_sources() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(1);
    for _ in 0..5 {
        cluster.commit(vec![Cluster::elect(1)]);
    }
    cluster.add_to_mirror();
    let partition = cluster.partition(1, 0);
    let epoch = partition.status().leader_epoch;
    assert_eq!(epoch, LeaderEpoch(5));
    // A plain source that never had an election.
    partition.append_mirrored(epoch, &mirrored(0, 0, 3)).expect("mirrored");
    assert_eq!(partition.status().latest_batch_epoch, Some(LeaderEpoch(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counterexample_03_a_replica_reassigned_away_and_back_applies_the_cuts_it_missed() {
    let cluster = Cluster::start(3, 1).await;
    cluster.create_topic(1);
    for _ in 0..10 {
        cluster.produce_all(1, 10).await;
    }
    until(&cluster.partition(3, 0), "all", |status| status.log_end_offset == Offset(100)).await;
    cluster.add_to_mirror();
    let replicas = |ids: &[i32], isr: &[i32]| {
        let brokers = |ids: &[i32]| Some(ids.iter().copied().map(BrokerId).collect());
        let directories = Some(vec![DirectoryId::ZERO; ids.len()]);
        let change = PartitionChange {
            replicas: brokers(ids),
            directories,
            isr: brokers(isr),
            leader: Some(Some(BrokerId(1))),
            ..PartitionChange::default()
        };
        Cluster::change(0, change)
    };
    // While 3 is away it is reassigned away, the partition is cut twice, and it is reassigned back.
    let leader = cluster.partition(1, 0);
    let both = |records: Vec<MetadataRecord>| {
        cluster.commit_silently(records);
        cluster.catch_up(1);
        cluster.catch_up(2);
    };
    both(vec![replicas(&[1, 2], &[1, 2])]);
    both(vec![cluster.cut(CutKind::Preparing, 1, 50, 4, false)]);
    // Another cluster's batches, at offsets and epochs that 3 has, too.
    leader.append_mirrored(LeaderEpoch(4), &mirrored(50, 0, 30)).expect("mirrored");
    both(vec![cluster.cut(CutKind::Stopping, 1, 70, 6, false)]);
    let end = leader.status().log_end_offset;
    assert_eq!(end, Offset(50), "the batch that spans the cut goes whole");
    leader.append_mirrored(LeaderEpoch(6), &mirrored(50, 0, 7)).expect("mirrored");
    both(vec![replicas(&[1, 2, 3], &[1, 2])]);

    let third = cluster.partition(3, 0);
    assert_eq!(third.status().log_end_offset, Offset(100), "its old directory");
    cluster.load_snapshot(3);
    until(&third, "the leader's end", |status| status.log_end_offset == Offset(57)).await;
    assert_eq!(bytes_of(&third), bytes_of(&leader));

    // Told step by step it would have dropped the directory, and copies all.
    both(vec![replicas(&[1, 2], &[1, 2])]);
    cluster.catch_up(3);
    assert!(cluster.broker(3).replicas.partition(id(0)).is_none());
    cluster.commit(vec![replicas(&[1, 2, 3], &[1, 2])]);
    let third = cluster.partition(3, 0);
    until(&third, "the leader's end", |status| status.log_end_offset == Offset(57)).await;
    assert_eq!(bytes_of(&third), bytes_of(&leader));
}

/// Decision 10, LOSS with the suffix: no second STOPPING cut takes an open transaction away, and its marker
/// stays at the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_cut_of_a_stopping_copy_keeps_only_what_is_decided() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(1);
    cluster.add_to_mirror();
    let partition = cluster.partition(1, 0);
    partition.append_mirrored(LeaderEpoch(0), &mirrored(0, 0, 3)).expect("mirrored");
    partition.append_mirrored(LeaderEpoch(0), &mirrored_in_transaction(3, 0, 2)).expect("mirrored");
    cluster.remove_from_mirror();
    cluster.commit(vec![cluster.cut(CutKind::Stopping, 1, 5, 1, false)]);
    assert_eq!(partition.status().log_end_offset, Offset(5));
    cluster.commit(vec![cluster.cut(CutKind::Loss, 1, 3, 2, true)]);
    assert_eq!(partition.status().log_end_offset, Offset(3));
}
