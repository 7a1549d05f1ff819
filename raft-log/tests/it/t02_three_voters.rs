use bytes::Bytes;
use futures::future::join_all;
use raft_log::{AppendError, VoterId};
use uuid::Uuid;

use crate::quorum::{CLUSTER, Quorum, Voter, eventually, payloads};

#[tokio::test(flavor = "multi_thread")]
async fn goes_on_without_its_leader_and_takes_it_back() {
    let mut quorum = Quorum::started(3).await;
    let (first, term) = quorum.leader().await;
    let log = &quorum.voter(first).log;
    let mut expected = payloads("a", 1000);
    let appends: Vec<_> = expected.iter().map(|payload| log.append(term, payload.clone().into())).collect();
    for appended in join_all(appends).await {
        appended.unwrap();
    }
    quorum.all_saw(&expected).await;

    let follower = (first + 1) % 3;
    let refused = quorum.voter(follower).log.append(term, Bytes::from_static(b"x")).await;
    let leader = quorum.voter(first).log.voter();
    assert_eq!(refused, Err(AppendError::NotLeader { leader: Some(leader) }));
    quorum.voter(follower).log.read_index().await.unwrap_err();
    eventually("a leader that knows how far the others are", || {
        let status = quorum.voter(first).log.status();
        let all = status.voters.iter().all(|voter| {
            voter.log_end_index == Some(status.log_end_index) && voter.last_caught_up_ms.is_some()
        });
        all.then_some(())
    })
    .await;

    quorum.stop(first).await;
    let (second, new_term) = quorum.leader().await;
    assert_ne!(second, first);
    assert!(new_term > term);
    let more = payloads("b", 50);
    quorum.append_all(more.clone()).await;
    expected.extend(more);
    quorum.all_saw(&expected).await;

    quorum.start(first).await;
    quorum.all_saw(&expected).await;
    quorum.append_all(["c".to_owned()]).await;
    expected.push("c".to_owned());
    quorum.all_saw(&expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_all_at_once_loses_nothing() {
    let mut quorum = Quorum::started(3).await;
    let mut expected = Vec::new();
    for round in 0..4 {
        let more = payloads(&format!("round {round} "), 30);
        quorum.append_all(more.clone()).await;
        expected.extend(more);
        quorum.stop_all().await;
        quorum.start_all().await;
        let (_, term) = quorum.leader().await;
        assert!(term > 0);
        quorum.all_saw(&expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_handed_over() {
    let quorum = Quorum::started(3).await;
    let (first, term) = quorum.leader().await;
    let target = (first + 1) % 3;
    // All must know the leader before one of them is told to take over.
    eventually("followers", || {
        quorum.running().all(|voter| voter.log.leadership().borrow().leader.is_some()).then_some(())
    })
    .await;
    quorum.voter(first).log.transfer_leader(target as u64 + 1).await.unwrap();
    let (second, new_term) = quorum.leader().await;
    assert_eq!(second, target);
    assert!(new_term > term);
    quorum.append_all(["after".to_owned()]).await;
    quorum.all_saw(&["after".to_owned()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_with_an_empty_disk_is_not_the_old_one() {
    let mut quorum = Quorum::started(3).await;
    quorum.append_all(payloads("a", 20)).await;
    let (leader, _) = quorum.leader().await;
    let wiped = (leader + 1) % 3;
    quorum.stop(wiped).await;

    // The same node id and address, formatted anew.
    let empty = tempfile::tempdir().unwrap();
    let mut config = quorum.config_in(wiped, empty.path());
    config.voter = VoterId { directory_id: Uuid::new_v4(), ..config.voter };
    // It does not even observe.
    config.address = None;
    let impostor = Voter::start(config, quorum.addresses[wiped]).await;
    quorum.append_all(payloads("b", 20)).await;
    let expected: Vec<String> = payloads("a", 20).into_iter().chain(payloads("b", 20)).collect();
    quorum.all_saw(&expected).await;

    // With one more gone there is no majority: the impostor counts for nothing.
    let other = (leader + 2) % 3;
    quorum.stop(other).await;
    let (_, term) = quorum.leader().await;
    let pending = quorum.voter(leader).log.append(term, Bytes::from_static(b"lonely"));
    let waited = tokio::time::timeout(std::time::Duration::from_millis(700), pending).await;
    assert!(!matches!(waited, Ok(Ok(_))), "{waited:?}");
    assert!(impostor.recorder.seen().is_empty());
    assert_eq!(impostor.log.status().log_end_index, 0);

    quorum.start(other).await;
    eventually("a majority", || {
        let seen = quorum.voter(other).recorder.seen().len();
        (seen >= expected.len()).then_some(())
    })
    .await;
    assert_eq!(impostor.log.status().log_end_index, 0);
    impostor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q09_calls_for_another_cluster_or_voter_are_refused() {
    use protocol::proto::raft as wire;
    use protocol::proto::raft::raft_client::RaftClient;

    let quorum = Quorum::started(1).await;
    quorum.leader().await;
    let mut client = RaftClient::connect(format!("http://{}", quorum.addresses[0])).await.unwrap();
    let voter = |number: u64, id: Uuid| {
        Some(wire::Voter { node_id: number, directory_id: Bytes::copy_from_slice(id.as_bytes()) })
    };
    let me = voter(1, quorum.ids[0]);
    let header = |cluster_id: &str, target: Option<wire::Voter>| {
        let sender = voter(2, Uuid::from_u128(2));
        Some(wire::Header { cluster_id: cluster_id.into(), sender, target, recovery: 0 })
    };
    let call = |header| wire::Call { header, body: Bytes::new() };
    use tonic::Code;
    for (header, expected) in [
        (None, Code::InvalidArgument),
        (header("other", me.clone()), Code::PermissionDenied),
        (header(CLUSTER, voter(1, Uuid::from_u128(9))), Code::PermissionDenied),
        (header(CLUSTER, voter(3, quorum.ids[0])), Code::PermissionDenied),
        (header(CLUSTER, None), Code::InvalidArgument),
        // For this voter, but no message of ours.
        (header(CLUSTER, me), Code::InvalidArgument),
    ] {
        assert_eq!(client.vote(call(header.clone())).await.unwrap_err().code(), expected, "{header:?}");
        assert_eq!(client.pre_vote(call(header.clone())).await.unwrap_err().code(), expected);
        assert_eq!(client.transfer_leader(call(header.clone())).await.unwrap_err().code(), expected);
        let appends = futures::stream::iter([call(header.clone())]);
        assert_eq!(client.stream_append(appends).await.unwrap_err().code(), expected);
        let chunks = futures::stream::iter([wire::SnapshotChunk { header, ..Default::default() }]);
        assert_eq!(client.install_snapshot(chunks).await.unwrap_err().code(), expected);
    }
    let probe = wire::ProbeRequest { cluster_id: "other".into(), sender: None };
    assert_eq!(client.probe(probe).await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_without_a_majority_notices_that_it_has_no_contact() {
    let mut quorum = Quorum::started(3).await;
    let (first, _) = quorum.leader().await;
    let all = || (0..3).all(|voter| quorum.voter(voter).log.has_contact()).then_some(());
    eventually("contact everywhere", all).await;
    // Once what is left is the leader, once a follower.
    let left = (first + 1) % 3;
    quorum.stop((first + 2) % 3).await;
    quorum.stop(first).await;
    let lost = || (!quorum.voter(left).log.has_contact()).then_some(());
    eventually("a follower that hears of nobody", lost).await;
    quorum.start(first).await;
    let (leader, _) = quorum.leader().await;
    eventually("contact again", || quorum.voter(leader).log.has_contact().then_some(())).await;
    quorum.stop(if leader == left { first } else { left }).await;
    let lost = || (!quorum.voter(leader).log.has_contact()).then_some(());
    eventually("a leader whom nobody answers", lost).await;
}
