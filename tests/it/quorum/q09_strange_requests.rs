//! Q9: requests of Kafka's own quorum protocol, and quorum requests with no topic, two topics, another cluster,
//! unknown voters and impossible epochs: an error or a closed connection, and the controller lives. (The calls of
//! our own controllers among themselves: the tests of `raft-log`.)

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kagami_tests::client::{Client, text};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::raw::{Answer, RawConnection, request};
use protocol::messages::{AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest};
use protocol::{ErrorCode, Request, Response};
use uuid::Uuid;

use super::controllers::describe_quorum;
use crate::support::Side;

/// Fetch, Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot: raft has its own listener here.
const RAFT_OF_KAFKA: [(i16, i16); 5] = [(1, 17), (52, 2), (53, 1), (54, 1), (59, 1)];

#[tokio::test]
async fn q09_strange_requests_are_refused_and_the_controller_lives() -> Result<()> {
    let side = Side::start(ClusterSpec::new(1, 1)).await?;
    let address = side.cluster.controller_address(101);
    for (key, last) in RAFT_OF_KAFKA {
        for version in [-1, 0, last, last + 1, i16::MAX] {
            let mut connection = RawConnection::open(&address).await?;
            connection.send(&request(key, version, 7, version > 0, &[0xff; 40])).await;
            let answer = connection.answer(Duration::from_secs(10)).await?;
            ensure!(answer == Answer::Closed, "API {key} version {version}: {answer:?}");
        }
    }
    let mut client = Client::new(&address);
    let metadata = "__cluster_metadata";
    for (topics, partition) in [
        (&[][..], 0),
        (&[metadata, metadata], 0),
        (&[metadata, "orders"], 0),
        (&[metadata], 1),
        (&["orders"], 0),
    ] {
        let request = Request::DescribeQuorum(describe_quorum(topics, partition));
        let Response::DescribeQuorum(answer) = client.call_at(&address, request, 2).await? else {
            bail!("another answer")
        };
        let shown: Vec<i16> =
            answer.topics.iter().flat_map(|topic| &topic.partitions).map(|found| found.error_code).collect();
        let unknown = vec![ErrorCode::UnknownTopicOrPartition.code(); topics.len()];
        ensure!(answer.error_code == 0 && shown == unknown, "{topics:?}-{partition}: {answer:?}");
    }

    let (other, unknown) = (ErrorCode::InconsistentClusterId.code(), ErrorCode::VoterNotFound.code());
    let voter = Uuid::from_u128(9);
    for (cluster_id, node_id, directory_id, expected) in [
        (Some("another"), 101, voter, other),
        (None, 101, voter, unknown),
        (None, 999, voter, unknown),
        (None, -1, voter, ErrorCode::InvalidRequest.code()),
        (None, i32::MAX, Uuid::nil(), ErrorCode::InvalidRequest.code()),
    ] {
        let request = RemoveRaftVoterRequest::default()
            .with_cluster_id(cluster_id.map(text))
            .with_voter_id(node_id)
            .with_voter_directory_id(directory_id);
        let answer = client.call_at(&address, Request::RemoveRaftVoter(request), 0).await?;
        let Response::RemoveRaftVoter(answer) = answer else { bail!("another answer") };
        ensure!(answer.error_code == expected, "remove {node_id} of {cluster_id:?}: {answer:?}");
        let request = AddRaftVoterRequest::default()
            .with_cluster_id(cluster_id.map(text))
            .with_timeout_ms(100)
            .with_voter_id(node_id)
            .with_voter_directory_id(directory_id);
        let answer = client.call_at(&address, Request::AddRaftVoter(request), 0).await?;
        let Response::AddRaftVoter(answer) = answer else { bail!("another answer") };
        ensure!(answer.error_code != 0, "added {node_id}");
    }
    for epoch in [i32::MIN, -1, 0, i32::MAX] {
        let request = UpdateRaftVoterRequest::default()
            .with_current_leader_epoch(epoch)
            .with_voter_id(999)
            .with_voter_directory_id(voter);
        let answer = client.call_at(&address, Request::UpdateRaftVoter(request), 0).await?;
        let Response::UpdateRaftVoter(answer) = answer else { bail!("another answer") };
        ensure!(answer.error_code != 0, "epoch {epoch}: {answer:?}");
    }
    let quorum = side.quorum_at(101).await?;
    ensure!(quorum.leader_id.0 == 101 && quorum.current_voters.len() == 1, "{quorum:?}");
    let mut side = side;
    side.client.create_topic("after", 1, 1, &[]).await.map(drop).context("it still works")
}
