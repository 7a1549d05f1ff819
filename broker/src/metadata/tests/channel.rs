use std::sync::atomic::Ordering;
use std::time::Duration;

use common::ids::BrokerId;
use protocol::proto::controller::HeartbeatRequest;

use super::quorum::FakeController;
use crate::metadata::{ChannelError, ControllerChannel, QuorumVoter};

const ENOUGH: Duration = Duration::from_secs(10);

fn channel(cluster_id: &str, voters: &[QuorumVoter]) -> ControllerChannel {
    ControllerChannel::new(cluster_id.to_owned(), BrokerId(7), voters).expect("addresses")
}

#[tokio::test]
async fn the_active_controller_is_found_by_name_and_kept() {
    let first = FakeController::new(1, 3);
    let second = FakeController::new(2, 3);
    let third = FakeController::new(3, 3);
    let mut voters = Vec::new();
    for controller in [&first, &second, &third] {
        voters.push(controller.clone().serve().await);
    }
    let channel = channel("cluster", &voters);
    for _ in 0..3 {
        assert!(channel.heartbeat(HeartbeatRequest::default(), ENOUGH).await.expect("answered").caught_up);
    }
    assert_eq!(third.heartbeats.load(Ordering::SeqCst), 3);

    // Leadership moves: the old one names the new one.
    for controller in [&first, &second, &third] {
        controller.leader.store(1, Ordering::SeqCst);
    }
    channel.heartbeat(HeartbeatRequest::default(), ENOUGH).await.expect("answered");
    assert_eq!(first.heartbeats.load(Ordering::SeqCst), 1);
}

/// A broker that starts after the leadership has gone to a controller that its file does not name.
#[tokio::test]
async fn an_active_controller_that_is_not_configured_is_found_through_those_that_are() {
    let (configured, added) = (FakeController::new(1, 4), FakeController::new(4, 4));
    let address = added.clone().serve().await.address;
    *configured.members.lock() = format!("1@127.0.0.1:1,nonsense,9@,4@{address}");
    let channel = channel("cluster", &[configured.clone().serve().await]);
    for _ in 0..2 {
        assert!(channel.heartbeat(HeartbeatRequest::default(), ENOUGH).await.expect("answered").caught_up);
    }
    assert_eq!(added.heartbeats.load(Ordering::SeqCst), 2);
    let known = channel.channels().len();
    configured.leader.store(-1, Ordering::SeqCst);
    added.leader.store(-1, Ordering::SeqCst);
    let patience = Duration::from_millis(200);
    channel.heartbeat(HeartbeatRequest::default(), patience).await.expect_err("nobody is active");
    assert_eq!(channel.channels().len(), known, "nothing is learned twice");
}

#[tokio::test]
async fn a_dead_controller_is_passed_over() {
    let alive = FakeController::new(2, 2);
    let dead = QuorumVoter { node_id: 1, address: "127.0.0.1:1".to_owned() };
    let voters = [dead, alive.clone().serve().await];
    let channel = channel("cluster", &voters);
    channel.heartbeat(HeartbeatRequest::default(), ENOUGH).await.expect("answered");
    assert_eq!(alive.heartbeats.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn without_an_active_controller_the_deadline_ends_it() {
    let confused = FakeController::new(1, -1);
    let channel = channel("cluster", &[confused.serve().await]);
    let outcome = channel.heartbeat(HeartbeatRequest::default(), Duration::from_millis(200)).await;
    assert!(matches!(outcome, Err(ChannelError::NoActiveController { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_refusal_is_not_repeated() {
    let controller = FakeController::new(1, 1);
    let channel = channel("another", &[controller.serve().await]);
    let outcome = channel.heartbeat(HeartbeatRequest::default(), ENOUGH).await;
    assert!(
        matches!(&outcome, Err(ChannelError::Refused(reason)) if reason == "another cluster"),
        "{outcome:?}"
    );
}
