//! A majority is lost for good: the survivor goes on alone, and those that were given up stay out.

use std::collections::BTreeSet;
use std::sync::Arc;

use raft_log::recovery::{Plan, RecoveryError, inspect, recover};
use raft_log::{OpenError, RaftLog};

use crate::quorum::{CLUSTER, Quorum, Recorder, eventually, payloads};

async fn refused_to_open(quorum: &Quorum, number: usize) -> OpenError {
    let opened = RaftLog::open(quorum.config(number), Arc::new(Recorder::default())).await;
    opened.map(drop).unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_survivor_goes_on_and_a_majority_of_the_old_quorum_cannot() {
    let mut quorum = Quorum::new(3);
    quorum.snapshot_every_entries = 20;
    quorum.start_all().await;
    let mut expected = payloads("a", 50);
    quorum.append_all(expected.clone()).await;
    quorum.all_saw(&expected).await;
    let (_, term) = quorum.leader().await;
    quorum.stop_all().await;

    let plan = Plan { keep: 1, lost: BTreeSet::from([2, 3]), survivors: Vec::new() };
    let directory = quorum.directories[0].path().to_owned();
    let before = inspect(&directory, CLUSTER, quorum.id(0)).await.unwrap();
    assert_eq!(before.voters.len(), 3);
    assert!(before.term >= term && before.committed_end_index <= before.position.end_index);
    let wrong = Plan { lost: BTreeSet::from([2]), ..plan.clone() };
    let refused = recover(&directory, CLUSTER, quorum.id(0), &wrong, 1).await;
    assert!(matches!(refused, Err(RecoveryError::OtherVoters { .. })), "{refused:?}");
    assert_eq!(inspect(&directory, CLUSTER, quorum.id(0)).await.unwrap(), before, "nothing was written");
    let after = recover(&directory, CLUSTER, quorum.id(0), &plan, 1).await.unwrap();
    assert!(after.recovery > before.term && after.term == after.recovery);
    assert_eq!(after.voters.iter().map(|(voter, _)| *voter).collect::<Vec<_>>(), [quorum.id(0)]);
    assert_eq!(after.position.end_index, before.position.end_index + 1);

    quorum.start(0).await;
    quorum.append_all(payloads("b", 5)).await;
    expected.extend(payloads("b", 5));
    quorum.all_saw(&expected).await;
    let (_, recovered_term) = quorum.leader().await;

    // Those that were given up come back, and would be a majority of the voters that they know.
    for number in [1, 2] {
        quorum.start(number).await;
    }
    for number in [1, 2] {
        let reason = quorum.voter(number).log.failed().await;
        assert!(reason.contains("recovered without this controller"), "{reason}");
        quorum.stop(number).await;
        let refused = refused_to_open(&quorum, number).await;
        assert!(matches!(refused, OpenError::GivenUp { .. }), "{refused}");
    }
    assert_eq!(quorum.leader().await, (0, recovered_term), "the survivor was not disturbed");
    quorum.append_all(payloads("c", 5)).await;
    expected.extend(payloads("c", 5));

    // Formatted anew they are added, and belong to the recovery as well.
    for number in [1, 2] {
        quorum.wipe(number);
        quorum.start(number).await;
        quorum.add(number).await.unwrap();
    }
    assert_eq!(quorum.voter_ids().await, [1, 2, 3]);
    quorum.append_all(payloads("d", 5)).await;
    expected.extend(payloads("d", 5));
    quorum.all_saw(&expected).await;
    quorum.stop_all().await;
    quorum.start_all().await;
    quorum.leader().await;
    quorum.all_saw(&expected).await;
    let added = inspect(&directory, CLUSTER, quorum.id(0)).await;
    assert!(matches!(added, Err(RecoveryError::Open(OpenError::InUse { .. }))), "{added:?}");
    quorum.stop_all().await;
    for number in 0..3 {
        let directory = quorum.directories[number].path();
        let found = inspect(directory, CLUSTER, quorum.id(number)).await.unwrap();
        assert_eq!((found.recovery, found.voters.len()), (after.recovery, 3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_survivors_the_one_with_more_is_kept() {
    let mut quorum = Quorum::started(5).await;
    quorum.append_all(payloads("a", 5)).await;
    let (leader, _) = quorum.leader().await;
    let behind = (leader + 1) % 5;
    quorum.all_saw(&payloads("a", 5)).await;
    quorum.stop(behind).await;
    quorum.append_all(payloads("b", 5)).await;
    quorum.stop_all().await;

    let id = |number: usize| number as u64 + 1;
    let state = |number: usize| {
        let (directory, voter) = (quorum.directories[number].path().to_owned(), quorum.id(number));
        async move { inspect(&directory, CLUSTER, voter).await.unwrap() }
    };
    let (most, less) = (state(leader).await, state(behind).await);
    let lost: BTreeSet<u64> = (0..5).filter(|number| ![leader, behind].contains(number)).map(id).collect();
    let plan = |keep: usize, other| Plan { keep: id(keep), lost: lost.clone(), survivors: vec![other] };
    let directory = |number: usize| quorum.directories[number].path().to_owned();
    let refused =
        recover(&directory(behind), CLUSTER, quorum.id(behind), &plan(behind, most.position), 1).await;
    assert!(matches!(refused, Err(RecoveryError::LessThanAnother { theirs, .. }) if theirs == most.position));
    recover(&directory(leader), CLUSTER, quorum.id(leader), &plan(leader, less.position), 1).await.unwrap();

    quorum.start(leader).await;
    let expected = [payloads("a", 5), payloads("b", 5)].concat();
    quorum.all_saw(&expected).await;
    // The other survivor was given up as well: its log ends before what counts.
    quorum.start(behind).await;
    let reason = quorum.voter(behind).log.failed().await;
    assert!(reason.contains("recovered without this controller"), "{reason}");
    quorum.stop(behind).await;
    quorum.wipe(behind);
    quorum.start(behind).await;
    quorum.add(behind).await.unwrap();
    quorum.all_saw(&expected).await;
    eventually("two voters", || {
        let status = quorum.voter(leader).log.status();
        (status.voters.len() == 2).then_some(())
    })
    .await;
    quorum.stop_all().await;
}

#[tokio::test]
async fn a_directory_without_a_quorum_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let quorum = Quorum::new(1);
    let refused = inspect(directory.path(), CLUSTER, quorum.id(0)).await;
    assert!(matches!(refused, Err(RecoveryError::NoStore(_))), "{refused:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
