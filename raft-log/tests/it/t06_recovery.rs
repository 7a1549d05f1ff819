//! A majority is lost for good: the survivor goes on alone, and those that were given up stay out.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::select_all;
use protocol::proto::raft as wire;
use protocol::proto::raft::raft_client::RaftClient;
use raft_log::recovery::{Plan, RecoveryError, inspect, recover};
use raft_log::{OpenError, RaftLog, VoterId};
use tonic::Code;
use uuid::Uuid;

use crate::quorum::{CLUSTER, PATIENCE, Quorum, Recorder, eventually, payloads};

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
    let mut left = vec![1, 2];
    while !left.is_empty() {
        // Whoever follows the other one hears of it only once that one has ended, as its process would.
        let quorum_now = &quorum;
        let failures = left.iter().map(|number| Box::pin(quorum_now.voter(*number).log.failed()));
        let (reason, first, others) = select_all(failures).await;
        drop(others);
        let number = left.remove(first);
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

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_given_up_is_recovered_from_when_the_recovered_one_dies() {
    let mut quorum = Quorum::started(3).await;
    let expected = payloads("a", 5);
    quorum.append_all(expected.clone()).await;
    quorum.all_saw(&expected).await;
    quorum.stop_all().await;
    let plan = |keep: u64| Plan {
        keep,
        lost: (1..=3).filter(|node_id| *node_id != keep).collect(),
        survivors: Vec::new(),
    };
    let directory = |quorum: &Quorum, number: usize| quorum.directories[number].path().to_owned();
    let first = recover(&directory(&quorum, 0), CLUSTER, quorum.id(0), &plan(1), 1).await.unwrap();
    quorum.start(0).await;
    quorum.start(1).await;
    let reason = quorum.voter(1).log.failed().await;
    assert!(reason.contains("recovered without this controller"), "{reason}");
    quorum.stop_all().await;
    // Its disk dies before another voter was added.
    quorum.wipe(0);
    let found = inspect(&directory(&quorum, 1), CLUSTER, quorum.id(1)).await.unwrap();
    assert_eq!((found.recovery, found.given_up), (0, first.recovery));
    assert!(
        matches!(refused_to_open(&quorum, 1).await, OpenError::GivenUp { .. }),
        "reading changes nothing"
    );
    let second = recover(&directory(&quorum, 1), CLUSTER, quorum.id(1), &plan(2), 1).await.unwrap();
    assert!(second.recovery > first.recovery && second.given_up == 0, "{second:?}");
    quorum.start(1).await;
    quorum.all_saw(&expected).await;
    quorum.start(0).await;
    quorum.add(0).await.unwrap();
    quorum.append_all(payloads("b", 5)).await;
    quorum.all_saw(&[expected, payloads("b", 5)].concat()).await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_recoveries_the_later_one_counts() {
    let mut quorum = Quorum::started(3).await;
    quorum.append_all(payloads("a", 5)).await;
    quorum.all_saw(&payloads("a", 5)).await;
    quorum.stop_all().await;
    let mut numbers = Vec::new();
    for number in [0, 1] {
        let (directory, id) = (quorum.directories[number].path(), quorum.id(number));
        let lost = (1..=3).filter(|node_id| *node_id != id.node_id).collect();
        let plan = Plan { keep: id.node_id, lost, survivors: Vec::new() };
        numbers.push(recover(directory, CLUSTER, id, &plan, 1).await.unwrap().recovery);
    }
    assert_ne!(numbers[0], numbers[1]);
    for number in [0, 1] {
        quorum.start(number).await;
    }
    let later = usize::from(numbers[1] > numbers[0]);
    let failed = quorum.voter(1 - later).log.failed();
    let reason = tokio::time::timeout(PATIENCE, failed).await.unwrap();
    assert!(reason.contains(&format!("recovery {}", numbers[later])), "{reason}");
    quorum.stop(1 - later).await;
    quorum.append_all(payloads("b", 5)).await;
    quorum.all_saw(&[payloads("a", 5), payloads("b", 5)].concat()).await;
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stranger_says_of_a_recovery_ends_no_leader() {
    let mut quorum = Quorum::new(4);
    quorum.listed = 3;
    // An observer, which is there before the others and empty.
    quorum.start(3).await;
    let voter = |voter: VoterId| {
        let directory_id = Bytes::copy_from_slice(voter.directory_id.as_bytes());
        Some(wire::Voter { node_id: voter.node_id, directory_id })
    };
    let mut client = RaftClient::connect(format!("http://{}", quorum.addresses[3])).await.unwrap();
    let stranger = VoterId { node_id: 9, directory_id: Uuid::from_u128(9) };
    // A vote of term 7: term, node id, directory id, not committed, no log.
    let whole = [&[7, 1, 9, 16][..], stranger.directory_id.as_bytes(), &[0, 0, 0]].concat();
    for (recovery, body) in [(u64::MAX, Vec::new()), (u64::MAX, whole.clone()), (6, whole)] {
        let target = voter(quorum.id(3));
        let header = wire::Header { cluster_id: CLUSTER.into(), sender: voter(stranger), target, recovery };
        client.vote(wire::Call { header: Some(header), body: body.into() }).await.unwrap_err();
    }
    for number in 0..3 {
        quorum.start(number).await;
    }
    quorum.append_all(payloads("a", 3)).await;
    quorum.all_saw(&payloads("a", 3)).await;

    // With a copy of a voter somebody has tried out a recovery, and it reaches this quorum.
    let (leader, _) = quorum.leader().await;
    let mut client = RaftClient::connect(format!("http://{}", quorum.addresses[leader])).await.unwrap();
    let announced = wire::AnnounceRequest {
        cluster_id: CLUSTER.into(),
        sender: voter(quorum.id((leader + 1) % 3)),
        address: "127.0.0.1:1".into(),
        has_log: true,
        recovery: 6,
    };
    let refused = client.announce(announced).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let members = quorum.voter(leader).log.status().voters;
    assert!(members.iter().all(|member| member.address != "127.0.0.1:1"), "{members:?}");
    quorum.append_all(payloads("b", 3)).await;
    quorum.all_saw(&[payloads("a", 3), payloads("b", 3)].concat()).await;
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
