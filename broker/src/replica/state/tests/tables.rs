//! Each rule with its smallest example.

use super::*;

#[test]
fn the_checkpointed_high_watermark_stays_within_the_log() {
    for (start, end, checkpointed, expected) in
        [(0, 100, 80, 80), (0, 60, 80, 60), (90, 100, 80, 90), (0, 0, 0, 0)]
    {
        let state = ReplicaState::new(LOCAL, SETTINGS, Offset(start), Offset(end), Offset(checkpointed));
        assert_eq!(state.high_watermark(), Offset(expected));
    }
}

#[test]
fn a_single_replica_commits_what_it_appends() {
    let settings = ReplicaSettings { min_insync_replicas: 2, ..SETTINGS };
    let mut state = ReplicaState::new(LOCAL, settings, Offset(0), Offset(0), Offset(0));
    let alone = Assignment { replicas: ids(&[1]), ..assignment(Some(1), 0, 0, &[1]) };
    assert_eq!(state.apply(assigned(alone, 0)), vec![lead(0, true)]);
    // min.insync.replicas is never more than there are replicas.
    assert!(state.has_enough_in_sync());
    assert_eq!(state.apply(appended(7, 1)), vec![moved(7)]);
    assert_eq!(state.apply(lag_check(1_000_000)), vec![]);
}

#[test]
fn the_high_watermark_is_the_lowest_end_in_the_isr() {
    let mut state = leader(&[1, 2, 3]);
    assert_eq!(state.apply(appended(110, 1)), vec![]);
    assert_eq!(state.apply(fetched(2, 5, 110, 2)), vec![]);
    assert_eq!(state.apply(fetched(3, 5, 100, 3)), vec![moved(100)]);
    assert_eq!(state.apply(fetched(3, 5, 110, 4)), vec![moved(110)]);
    // It does not fall with a follower that lost its tail.
    assert_eq!(state.apply(fetched(3, 5, 50, 5)), vec![]);
    assert_eq!(state.high_watermark(), Offset(110));
}

#[test]
fn below_min_insync_replicas_nothing_is_committed() {
    let mut state = leader(&[1]);
    assert_eq!(state.apply(appended(110, 1)), vec![]);
    assert!(!state.has_enough_in_sync());
    assert_eq!(state.apply(fetched(2, 5, 110, 2)), vec![proposed(5, 1, &[(1, None), (2, Some(20))])]);
    let committed = IsrOutcome::Committed {
        isr: ids(&[1, 2]),
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(2),
    };
    let changed = ReplicaEffect::IsrChanged { isr: ids(&[1, 2]), partition_epoch: PartitionEpoch(2) };
    assert_eq!(state.apply(answered(5, 1, committed)), vec![changed, moved(110)]);
}

#[test]
fn a_follower_joins_past_the_high_watermark_and_the_start_of_the_epoch() {
    let mut state = leader(&[1, 2]);
    state.apply(fetched(2, 5, 100, 1));
    assert_eq!(state.high_watermark(), Offset(100));
    assert_eq!(state.apply(fetched(3, 5, 99, 2)), vec![]);
    let mut not_eligible = fetched(3, 5, 100, 3);
    if let ReplicaEvent::FollowerFetched(fetch) = &mut not_eligible {
        fetch.eligible = false;
    }
    assert_eq!(state.apply(not_eligible), vec![]);
    let members = [(1, None), (2, Some(20)), (3, Some(30))];
    assert_eq!(state.apply(fetched(3, 5, 100, 4)), vec![proposed(5, 1, &members)]);
    // One proposal at a time.
    assert_eq!(state.apply(fetched(3, 5, 100, 5)), vec![]);
}

#[test]
fn a_proposed_member_counts_until_the_answer_is_known() {
    let mut state = leader(&[1, 2]);
    state.apply(fetched(2, 5, 100, 1));
    state.apply(fetched(3, 5, 100, 2));
    state.apply(appended(110, 3));
    assert_eq!(state.apply(fetched(2, 5, 110, 4)), vec![]);
    // Superseded: it may have been committed, so it goes on counting, however long that takes.
    assert_eq!(state.apply(answered(5, 1, IsrOutcome::Superseded)), vec![]);
    // A controller may have said so from a draft that never became true: asked again, once an answer.
    let tick = || ReplicaEvent::LagCheck { now_ms: 5, active: Vec::new() };
    let members = [(1, None), (2, Some(20)), (3, Some(30))];
    assert_eq!(state.apply(tick()), vec![proposed(5, 1, &members)]);
    assert_eq!(state.apply(tick()), vec![]);
    assert_eq!(state.apply(answered(5, 1, IsrOutcome::Superseded)), vec![]);
    assert_eq!(state.apply(appended(111, 90_000)), vec![]);
    assert_eq!(state.high_watermark(), Offset(100));
    // The newer registration says that it was not.
    let newer = state.apply(assigned(assignment(Some(1), 5, 3, &[1, 2]), 90_001));
    assert_eq!(newer, vec![moved(110)]);
}

#[test]
fn a_refused_proposal_is_void_at_once() {
    let mut state = leader(&[1, 2]);
    state.apply(fetched(2, 5, 100, 1));
    state.apply(fetched(3, 5, 100, 2));
    assert_eq!(state.apply(answered(5, 0, IsrOutcome::Refused)), ignored(Ignored::NotPending));
    assert_eq!(state.apply(answered(5, 1, IsrOutcome::Refused)), vec![]);
    assert_eq!(state.apply(answered(5, 1, IsrOutcome::Refused)), ignored(Ignored::NotPending));
    assert!(state.leader().is_some_and(|leader| leader.pending_isr().is_none()));
}

#[test]
fn who_lags_for_too_long_leaves_the_isr() {
    let mut state = leader(&[1, 2, 3]);
    state.apply(fetched(2, 5, 100, 1));
    state.apply(fetched(3, 5, 100, 1));
    // Idle for an hour: nobody lags, nobody is asked anything.
    assert_eq!(state.apply(lag_check(3_600_000)), vec![]);
    state.apply(appended(110, 3_600_000));
    // The lag begins with the append, not with the last fetch.
    assert_eq!(state.apply(lag_check(3_600_001)), vec![]);
    state.apply(fetched(2, 5, 110, 3_600_002));
    assert_eq!(state.apply(lag_check(3_630_000)), vec![]);
    let shrunk = proposed(5, 1, &[(1, None), (2, Some(20))]);
    assert_eq!(state.apply(lag_check(3_630_001)), vec![shrunk]);
    // Until it is committed the lagging one still counts.
    assert_eq!(state.high_watermark(), Offset(100));
    let isr = ids(&[1, 2]);
    let committed = IsrOutcome::Committed {
        isr: isr.clone(),
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(2),
    };
    // The answer may come before the news of a raised min.insync.replicas: it is not enough.
    assert_eq!(state.apply(answered(5, 1, committed)), vec![]);
    let changed = ReplicaEffect::IsrChanged { isr, partition_epoch: PartitionEpoch(2) };
    let effects = state.apply(assigned(assignment(Some(1), 5, 2, &[1, 2]), 3_700_000));
    // Nor is it waited for afterwards: it caught up too long ago.
    assert_eq!(effects, vec![changed, moved(110)]);
}

#[test]
fn a_follower_that_keeps_up_with_a_busy_leader_does_not_lag() {
    let mut state = leader(&[1, 2]);
    let mut end = 100;
    for second in 0..120 {
        let now_ms = second * 1_000;
        let at_last_fetch = end;
        state.apply(appended(end + 10, now_ms + 1));
        end += 10;
        // It always has what was there at its previous fetch, and never what came since.
        state.apply(fetched(2, 5, at_last_fetch, now_ms + 2));
        assert!(
            !state
                .apply(lag_check(now_ms + 3))
                .iter()
                .any(|effect| matches!(effect, ReplicaEffect::ProposeIsr(_))),
            "second {second}"
        );
    }
}

#[test]
fn a_follower_about_to_join_holds_the_high_watermark_for_a_moment() {
    let mut state = ReplicaState::new(
        LOCAL,
        ReplicaSettings { min_insync_replicas: 1, ..SETTINGS },
        Offset(0),
        Offset(100),
        Offset(80),
    );
    state.apply(assigned(assignment(Some(1), 5, 1, &[1]), 0));
    assert_eq!(state.high_watermark(), Offset(100));
    state.apply(fetched(2, 5, 100, 10));
    state.apply(answered(5, 1, IsrOutcome::Refused));
    // It has just shown that it keeps up: appends wait for it, so that it can join.
    assert_eq!(state.apply(appended(110, 20)), vec![]);
    // But not for ever.
    assert_eq!(state.apply(lag_check(2_000)), vec![moved(110)]);
}

#[test]
fn fetches_that_do_not_count() {
    let mut state = leader(&[1, 2]);
    assert_eq!(state.apply(fetched(2, 4, 100, 1)), ignored(Ignored::StaleEpoch));
    assert_eq!(state.apply(fetched(2, 6, 100, 1)), ignored(Ignored::StaleEpoch));
    assert_eq!(state.apply(fetched(4, 5, 100, 1)), ignored(Ignored::NotAReplica));
    assert_eq!(state.apply(fetched(1, 5, 100, 1)), ignored(Ignored::NotAReplica));
    state.apply(fetched(2, 5, 90, 1));
    let mut earlier_process = fetched(2, 5, 100, 2);
    if let ReplicaEvent::FollowerFetched(fetch) = &mut earlier_process {
        fetch.broker_epoch = BrokerEpoch(19);
    }
    assert_eq!(state.apply(earlier_process), ignored(Ignored::StaleBrokerEpoch));
    assert_eq!(state.leader().and_then(|l| l.follower_log_end_offset(BrokerId(2))), Some(Offset(90)));
    let mut follower = fresh();
    follower.apply(assigned(assignment(Some(2), 5, 1, &[1, 2]), 0));
    assert_eq!(follower.apply(fetched(3, 5, 100, 1)), ignored(Ignored::WrongRole));
    assert_eq!(follower.apply(appended(101, 1)), ignored(Ignored::WrongRole));
}

#[test]
fn roles_change_with_the_registration() {
    let follow = |leader: Option<i32>, epoch: i32| ReplicaEffect::Follow {
        leader: leader.map(BrokerId),
        leader_epoch: LeaderEpoch(epoch),
    };
    let mut state = fresh();
    assert_eq!(state.apply(assigned(assignment(Some(2), 5, 1, &[1, 2]), 0)), vec![follow(Some(2), 5)]);
    // Its ISR changed, nothing else: the fetcher goes on.
    assert_eq!(state.apply(assigned(assignment(Some(2), 5, 2, &[1, 2, 3]), 0)), vec![]);
    assert_eq!(state.apply(assigned(assignment(Some(2), 5, 1, &[1, 2]), 0)), ignored(Ignored::StaleEpoch));
    assert_eq!(state.apply(assigned(assignment(None, 6, 3, &[1]), 0)), vec![follow(None, 6)]);
    assert_eq!(state.apply(assigned(assignment(Some(1), 7, 4, &[1, 3]), 0)), vec![lead(7, true)]);
    let lost = vec![ReplicaEffect::LeadershipLost, follow(Some(3), 8)];
    assert_eq!(state.apply(assigned(assignment(Some(3), 8, 5, &[1, 3]), 0)), lost);
    assert_eq!(state.apply(ReplicaEvent::Removed), vec![]);
    assert_eq!(leader(&[1, 2]).apply(ReplicaEvent::Removed), vec![ReplicaEffect::LeadershipLost]);
}

#[test]
fn a_follower_takes_over_what_its_leader_committed() {
    let mut state = fresh();
    state.apply(assigned(assignment(Some(2), 5, 1, &[1, 2]), 0));
    let replicated = |end: i64, high_watermark: i64| ReplicaEvent::Replicated {
        log_end_offset: Offset(end),
        leader_high_watermark: Offset(high_watermark),
    };
    assert_eq!(state.apply(replicated(110, 105)), vec![moved(105)]);
    // Never above what it holds, never back.
    assert_eq!(state.apply(replicated(110, 200)), vec![moved(110)]);
    assert_eq!(state.apply(replicated(110, 90)), vec![]);
    let cut = ReplicaEffect::WaitersCut { log_end_offset: Offset(70) };
    assert_eq!(state.apply(ReplicaEvent::Truncated { log_end_offset: Offset(70) }), vec![cut]);
    assert_eq!((state.log_end_offset(), state.high_watermark()), (Offset(70), Offset(70)));
    let cut = ReplicaEffect::WaitersCut { log_end_offset: Offset(500) };
    assert_eq!(state.apply(ReplicaEvent::Restarted { offset: Offset(500) }), vec![cut, moved(500)]);
    assert_eq!(leader(&[1, 2]).apply(replicated(110, 105)), ignored(Ignored::WrongRole));
}

#[test]
fn records_that_were_deleted_are_committed() {
    let mut state = leader(&[1, 2]);
    let raised = |offset: i64| ReplicaEvent::LogStartRaised { log_start_offset: Offset(offset) };
    assert_eq!(state.apply(raised(60)), vec![]);
    assert_eq!(state.apply(raised(90)), vec![moved(90)]);
    assert_eq!(state.apply(raised(400)), vec![moved(100)]);
}

#[test]
fn a_removed_replica_no_longer_counts() {
    let mut state = leader(&[1, 2, 3]);
    state.apply(fetched(2, 5, 100, 1));
    assert_eq!(state.high_watermark(), Offset(80));
    let without_3 = Assignment { replicas: ids(&[1, 2]), ..assignment(Some(1), 5, 2, &[1, 2]) };
    let changed = ReplicaEffect::IsrChanged { isr: ids(&[1, 2]), partition_epoch: PartitionEpoch(2) };
    assert_eq!(state.apply(assigned(without_3, 2)), vec![changed, moved(100)]);
    assert_eq!(state.apply(fetched(3, 5, 100, 3)), ignored(Ignored::NotAReplica));
}

#[test]
fn a_follower_of_an_idle_log_is_readmitted_without_a_fetch() {
    let mut state = leader(&[1, 2]);
    state.apply(fetched(2, 5, 100, 1));
    state.apply(fetched(3, 5, 100, 2));
    state.apply(answered(5, 1, IsrOutcome::Refused));
    let active = |broker_epoch: i64| ReplicaEvent::LagCheck {
        now_ms: 60_000,
        active: vec![(BrokerId(3), BrokerEpoch(broker_epoch))],
    };
    // Another process by now: it has to fetch first.
    assert_eq!(state.apply(active(31)), vec![]);
    let members = [(1, None), (2, Some(20)), (3, Some(30))];
    assert_eq!(state.apply(active(30)), vec![proposed(5, 1, &members)]);
    assert_eq!(state.apply(active(30)), vec![]);
    // One that is behind does not come back so.
    let mut state = leader(&[1, 2]);
    state.apply(fetched(2, 5, 100, 1));
    state.apply(fetched(3, 5, 90, 2));
    assert_eq!(state.apply(active(30)), vec![]);
}
