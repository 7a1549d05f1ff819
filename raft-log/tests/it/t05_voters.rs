//! Voters come and go at run time.

use raft_log::MembershipError;

use crate::quorum::{PATIENCE, Quorum, eventually, payloads};

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_joins_becomes_a_voter_and_another_leaves() {
    let mut quorum = Quorum::new(4);
    quorum.listed = 3;
    for number in 0..3 {
        quorum.start(number).await;
    }
    quorum.append_all(payloads("a", 5)).await;
    assert_eq!(quorum.voter_ids().await, [1, 2, 3]);
    let (leader, _) = quorum.leader().await;
    let stranger = quorum.voter(leader).log.add_voter(quorum.id(3), std::time::Duration::from_millis(100));
    assert_eq!(stranger.await, Err(MembershipError::NotAnObserver(quorum.id(3))));
    quorum.start(3).await;
    quorum.add(3).await.unwrap();
    assert_eq!(quorum.voter_ids().await, [1, 2, 3, 4]);
    assert_eq!(quorum.add(3).await, Err(MembershipError::AlreadyAVoter(quorum.id(3))));
    quorum.append_all(payloads("b", 5)).await;
    quorum.remove(quorum.id(0)).await.unwrap();
    assert_eq!(quorum.voter_ids().await, [2, 3, 4]);
    assert_eq!(quorum.remove(quorum.id(0)).await, Err(MembershipError::NotAVoter(quorum.id(0))));
    quorum.stop(0).await;
    quorum.append_all(payloads("c", 5)).await;
    // The membership is in the log: it holds after a restart, whatever the configuration lists.
    quorum.stop_all().await;
    for number in 1..4 {
        quorum.start(number).await;
    }
    quorum.append_all(payloads("d", 5)).await;
    quorum.all_saw(&["a", "b", "c", "d"].map(|prefix| payloads(prefix, 5)).concat()).await;
    assert_eq!(quorum.voter_ids().await, [2, 3, 4]);
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q04_a_wiped_voter_is_another_one_and_comes_back_when_it_is_added() {
    let mut quorum = Quorum::new(3);
    quorum.snapshot_every_entries = 20;
    quorum.start_all().await;
    quorum.append_all(payloads("a", 60)).await;
    let (leader, _) = quorum.leader().await;
    let wiped = (leader + 1) % 3;
    let old = quorum.id(wiped);
    quorum.stop(wiped).await;
    quorum.wipe(wiped);
    quorum.start(wiped).await;
    // It observes, and has no say: the old one stays the voter.
    let observes = || {
        let status = quorum.voters.iter().flatten().find(|voter| voter.log.status().is_leader)?.log.status();
        status.observers.iter().any(|replica| replica.voter == quorum.id(wiped)).then_some(status)
    };
    let status = eventually("the wiped one as an observer", observes).await;
    assert!(status.voters.iter().any(|replica| replica.voter == old));
    quorum.append_all(payloads("b", 5)).await;
    quorum.add(wiped).await.unwrap();
    let (leader, _) = quorum.leader().await;
    let voters = quorum.voter(leader).log.status().voters;
    assert!(!voters.iter().any(|replica| replica.voter == old), "{voters:?}");
    assert!(voters.iter().any(|replica| replica.voter == quorum.id(wiped)));
    // It counts: with another one gone there is still a majority.
    let other = (0..3).find(|number| *number != wiped && *number != leader).unwrap();
    quorum.stop(other).await;
    quorum.append_all(payloads("c", 5)).await;
    quorum.all_saw(&[payloads("a", 60), payloads("b", 5), payloads("c", 5)].concat()).await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q08_what_would_end_the_quorum_is_refused() {
    let mut quorum = Quorum::started(2).await;
    quorum.append_all(payloads("a", 3)).await;
    let (leader, _) = quorum.leader().await;
    // The leader is removed by the next one.
    quorum.remove(quorum.id(leader)).await.unwrap();
    let left = 1 - leader;
    assert_eq!(quorum.voter_ids().await, [left as u64 + 1]);
    assert_eq!(quorum.remove(quorum.id(left)).await, Err(MembershipError::LastVoter));
    quorum.append_all(payloads("b", 3)).await;
    quorum.stop_all().await;

    let mut quorum = Quorum::started(3).await;
    quorum.append_all(payloads("a", 3)).await;
    let (leader, _) = quorum.leader().await;
    let (dead, alive) = ((leader + 1) % 3, (leader + 2) % 3);
    quorum.stop(dead).await;
    let log = quorum.voter(leader).log.clone();
    let alive = quorum.id(alive);
    let refused = eventually("the dead one to be missed", || {
        let silent = |replica: &raft_log::QuorumReplica| replica.last_fetch_ms;
        let status = log.status();
        let newest = status.voters.iter().filter_map(silent).max()?;
        status.voters.iter().any(|voter| silent(voter).is_some_and(|at| newest - at > 1500)).then_some(())
    });
    refused.await;
    assert_eq!(
        log.remove_voter(alive, PATIENCE).await,
        Err(MembershipError::NoMajority { answering: 1, voters: 2 })
    );
    quorum.remove(quorum.id(dead)).await.unwrap();
    quorum.append_all(payloads("b", 3)).await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q08_one_change_at_a_time() {
    let mut quorum = Quorum::new(5);
    quorum.listed = 3;
    quorum.start_all().await;
    quorum.append_all(payloads("a", 3)).await;
    let (leader, _) = quorum.leader().await;
    let log = quorum.voter(leader).log.clone();
    let observers = eventually("two observers", || {
        let observers = log.status().observers;
        (observers.len() == 2).then_some(observers)
    })
    .await;
    let (one, two) = (observers[0].voter, observers[1].voter);
    let (first, second) = tokio::join!(log.add_voter(one, PATIENCE), log.add_voter(two, PATIENCE));
    let refused = [&first, &second].into_iter().filter(|outcome| outcome.is_err()).count();
    assert!(refused <= 1, "{first:?} {second:?}");
    for outcome in [first, second] {
        assert!(matches!(outcome, Ok(()) | Err(MembershipError::InProgress)), "{outcome:?}");
    }
    for number in [3, 4] {
        match quorum.add(number).await {
            Ok(()) | Err(MembershipError::AlreadyAVoter(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(quorum.voter_ids().await, [1, 2, 3, 4, 5]);
    quorum.append_all(payloads("b", 3)).await;
    quorum.all_saw(&[payloads("a", 3), payloads("b", 3)].concat()).await;
    quorum.stop_all().await;
}
