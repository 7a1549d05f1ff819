//! Leaders and followers.

use super::cluster::*;
use crate::replica::*;
use common::ids::*;
use common::metadata::record::{LeaderRecoveryState, PartitionChange};
use protocol::ErrorCode;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_is_on_every_member_byte_for_byte() {
    let cluster = Cluster::start(3, 2).await;
    cluster.create_topic(1);
    for _ in 0..20 {
        cluster.produce_all(1, 5).await;
    }
    let leader = cluster.partition(1, 0);
    assert_eq!(leader.status().high_watermark, Offset(100));
    for broker in [2, 3] {
        let follower = cluster.partition(broker, 0);
        // The high watermark follows promptly, without any further record.
        let status = until(&follower, "high watermark", |status| status.high_watermark == Offset(100)).await;
        assert_eq!(status.role, PartitionRole::Follower);
        assert_eq!(bytes_of(&follower), bytes_of(&leader));
    }
    assert!(leader.fetched_under_epoch(LeaderEpoch(0)));
    assert!(!leader.fetched_under_epoch(LeaderEpoch(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leader_truncates_what_only_it_had() {
    let cluster = Cluster::start(3, 1).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 10).await;
    // 2 is elected; 1 does not hear of it and takes writes that nobody fetches any more.
    cluster.commit_silently(vec![Cluster::elect(2)]);
    cluster.catch_up(2);
    cluster.catch_up(3);
    let lost = cluster.produce(1, 7, -1).expect("the old leader still appends");
    assert_eq!(lost.info.first_offset, Offset(10));
    let waiting = {
        let replicas = cluster.broker(1).replicas.clone();
        let waiting = vec![lost.waiting()];
        tokio::spawn(async move { replicas.wait_replicated(waiting, Instant::now() + PATIENCE).await })
    };
    let kept = cluster.produce(2, 3, 1).expect("the new leader appends");
    assert_eq!((kept.info.first_offset, kept.leader_epoch), (Offset(10), LeaderEpoch(1)));
    cluster.catch_up(1);
    assert_eq!(waiting.await.expect("waiter"), vec![Err(WaitFailure::NotLeader)]);
    assert_eq!(
        cluster.produce(1, 1, 1).map(|_| ()).map_err(|error| error.code()),
        Err(ErrorCode::NotLeaderOrFollower)
    );
    let leader = cluster.partition(2, 0);
    for broker in [1, 3] {
        let follower = cluster.partition(broker, 0);
        until(&follower, "the leader's end", |status| {
            status.log_end_offset == Offset(13) && status.high_watermark == Offset(13)
        })
        .await;
        assert_eq!(bytes_of(&follower), bytes_of(&leader));
    }
}

/// Or a power cut would leave records that recovery does not look at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncation_below_the_recovery_point_lowers_it_on_disk_before_records_follow() {
    let cluster = Cluster::start(2, 1).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 10).await;
    cluster.commit_silently(vec![Cluster::elect(2)]);
    cluster.catch_up(2);
    cluster.produce(1, 7, 1).expect("the old leader still appends");
    let manager = cluster.broker(1).replicas.log_manager();
    let log = manager.log(id(0)).expect("the log");
    assert_eq!(log.flush().unwrap(), Offset(17));
    manager.checkpoint(0);
    let noted = || {
        let path = log.directory().path().join("recovery-point-offset-checkpoint");
        std::fs::read_to_string(path).unwrap()
    };
    assert!(noted().ends_with("orders 0 17\n"), "{}", noted());
    cluster.produce(2, 3, 1).expect("the new leader appends");
    cluster.catch_up(1);
    until(&cluster.partition(1, 0), "the leader's end", |status| status.log_end_offset == Offset(13)).await;
    assert!(noted().ends_with("orders 0 10\n"), "{}", noted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_out_of_the_isr_comes_back() {
    let cluster = Cluster::start(2, 1).await;
    let mut records = cluster.topic_records(1);
    records.push(Cluster::change(
        0,
        PartitionChange { isr: Some(vec![BrokerId(1)]), ..PartitionChange::default() },
    ));
    cluster.commit(records);
    let leader = cluster.partition(1, 0);
    let both = until(&leader, "an ISR of two", |status| status.isr.len() == 2).await;
    assert_eq!(both.isr, vec![BrokerId(1), BrokerId(2)]);
    cluster.produce_all(1, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_in_sync_refuse_acks_all_before_anything_is_written() {
    let cluster = Cluster::start(2, 2).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 1).await;
    let alone = PartitionChange { isr: Some(vec![BrokerId(1)]), ..PartitionChange::default() };
    // The follower is gone before the ISR shrinks, so it does not come back at once.
    cluster.broker(2).replicas.fetchers.remove([id(0)]);
    cluster.commit_silently(vec![Cluster::change(0, alone)]);
    cluster.catch_up(1);
    let refused = cluster.produce(1, 1, -1).map(|_| ()).map_err(|error| error.code());
    assert_eq!(refused, Err(ErrorCode::NotEnoughReplicas));
    assert_eq!(cluster.partition(1, 0).status().log_end_offset, Offset(1));
    // acks=1 is written, but not committed.
    cluster.produce(1, 1, 1).expect("acks=1");
    let status = cluster.partition(1, 0).status();
    assert_eq!((status.log_end_offset, status.high_watermark), (Offset(2), Offset(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_under_another_epoch_is_refused() {
    let cluster = Cluster::start(1, 1).await;
    cluster.create_topic(1);
    let append = |epoch: i32| {
        let options = AppendOptions {
            acks: 1,
            origin: crate::log::AppendOrigin::Coordinator,
            expected_leader_epoch: Some(LeaderEpoch(epoch)),
        };
        let appended = cluster.broker(1).replicas.append(id(0), &mut batch(1), options);
        appended.map(|_| ()).map_err(|error| error.code())
    };
    assert_eq!(append(0), Ok(()));
    assert_eq!(append(1), Err(ErrorCode::UnknownLeaderEpoch));
    cluster.commit(vec![Cluster::elect(1)]);
    assert_eq!(append(0), Err(ErrorCode::FencedLeaderEpoch));
    assert_eq!(append(1), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unclean_leader_waits_for_its_loss_cut_and_keeps_its_tail() {
    let cluster = Cluster::start(2, 1).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 10).await;
    cluster.produce_all(1, 10).await;
    until(&cluster.partition(2, 0), "high watermark", |status| status.high_watermark == Offset(20)).await;
    let unclean = PartitionChange {
        leader: Some(Some(BrokerId(2))),
        isr: Some(vec![BrokerId(2)]),
        leader_recovery_state: Some(LeaderRecoveryState::Recovering),
        ..PartitionChange::default()
    };
    cluster.commit(vec![Cluster::change(0, unclean)]);
    let leader = cluster.partition(2, 0);
    assert!(leader.status().recovering);
    let refused = cluster.produce(2, 1, 1).map(|_| ()).map_err(|error| error.code());
    assert_eq!(refused, Err(ErrorCode::NotLeaderOrFollower));
    let cut = cluster.loss_cuts.lock().first().cloned().expect("a LOSS cut is proposed");
    assert_eq!((cut.offset, cut.leader_epoch), (Offset(20), LeaderEpoch(1)));
    assert_eq!(cut.directory, cluster.broker(2).directory);
    // Say its own high watermark had been 10: it keeps its tail all the same, the other one does not.
    let record = cluster.cut(common::metadata::record::CutKind::Loss, 2, 10, 2, true);
    cluster.commit(vec![record]);
    let status = leader.status();
    assert!(!status.recovering && status.is_leader());
    assert_eq!((status.leader_epoch, status.log_end_offset), (LeaderEpoch(2), Offset(20)));
    cluster.produce_all(2, 1).await;
    let follower = cluster.partition(1, 0);
    until(&follower, "the leader's end", |status| status.log_end_offset == Offset(21)).await;
    assert_eq!(bytes_of(&follower), bytes_of(&leader));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_is_fetched_under_without_waiting_for_a_long_poll() {
    let cluster = Cluster::start(3, 3).await;
    cluster.create_topic(2);
    cluster.produce_all(1, 1).await;
    let leader = cluster.partition(1, 0);
    // The leader hears first; then, the other way round, last.
    for (epoch, order) in [(1, [1, 2, 3]), (2, [2, 3, 1])] {
        cluster.commit_silently(vec![Cluster::elect(1)]);
        let started = Instant::now();
        for broker in order {
            cluster.catch_up(broker);
        }
        until(&leader, "fetches under the new epoch", |_| leader.fetched_under_epoch(LeaderEpoch(epoch)))
            .await;
        // A long poll lasts 5 s here.
        assert!(started.elapsed().as_millis() < 4_000, "{:?}", started.elapsed());
    }
}

/// Its epoch stands at the end of its log without a batch, and the next leader has never heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_wrote_nothing_follows_the_next_one() {
    let cluster = Cluster::start(2, 2).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 1).await;
    cluster.commit(vec![Cluster::elect(2)]);
    let second = cluster.partition(2, 0);
    until(&second, "it leads, and is followed", |_| second.fetched_under_epoch(LeaderEpoch(1))).await;
    cluster.commit(vec![Cluster::elect(1)]);
    let first = cluster.partition(1, 0);
    until(&first, "it follows again", |_| first.fetched_under_epoch(LeaderEpoch(2))).await;
    cluster.produce_all(1, 1).await;
}

/// There was no room for it first; then metadata spoke of it again, and found some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_found_room_meanwhile_is_not_hosted_anew() {
    let cluster = Cluster::start(2, 2).await;
    let leader = &cluster.broker(1).replicas;
    leader.host_later(id(0));
    cluster.create_topic(1);
    cluster.produce_all(1, 1).await;
    let serving = cluster.partition(1, 0);
    leader.host_what_had_no_room();
    assert!(std::sync::Arc::ptr_eq(&serving, &cluster.partition(1, 0)));
    cluster.produce_all(1, 1).await;
}

/// The controller takes nobody into an ISR whose directory is lost, so nobody is proposed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_directory_is_lost_is_not_proposed_for_the_isr() {
    let cluster = Cluster::start(2, 1).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 5).await;
    until(&cluster.partition(2, 0), "the end", |status| status.high_watermark == Offset(5)).await;
    let leader = cluster.partition(1, 0);
    let lies_in = |directory| {
        let isr = cluster.image().partition(id(0)).expect("partition").registration.isr.clone();
        let change = PartitionChange {
            isr: Some(isr.into_iter().filter(|member| *member == BrokerId(1)).collect()),
            directories: Some(vec![DirectoryId::ZERO, directory]),
            ..PartitionChange::default()
        };
        cluster.commit(vec![Cluster::change(0, change)]);
    };
    lies_in(DirectoryId(uuid::Uuid::from_u128(404)));
    cluster.broker(1).replicas.tick();
    {
        let inner = leader.lock();
        assert_eq!(inner.state.isr(), [BrokerId(1)]);
        assert_eq!(inner.state.leader().expect("leader").pending_isr(), None);
    }
    lies_in(cluster.broker(2).directory);
    cluster.broker(1).replicas.tick();
    until(&leader, "an ISR of two", |status| status.isr.len() == 2).await;
}
