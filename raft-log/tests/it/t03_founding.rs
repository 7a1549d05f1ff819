use std::time::Duration;

use crate::quorum::{Quorum, Voter, payloads};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_founded_before_all_voters_answered() {
    let mut quorum = Quorum::new(3);
    quorum.start(0).await;
    quorum.start(1).await;
    // Two would be a majority, but the third may know of a quorum.
    tokio::time::sleep(Duration::from_millis(600)).await;
    for voter in quorum.running() {
        assert_eq!(voter.log.status().log_end_index, 0);
        assert_eq!(voter.log.leadership().borrow().leader, None);
    }
    quorum.start(2).await;
    quorum.append_all(payloads("a", 3)).await;
    quorum.all_saw(&payloads("a", 3)).await;
    assert_eq!(quorum.voter(2).log.status().voters.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founding_survives_restarts_in_between() {
    let mut quorum = Quorum::new(3);
    for number in [0, 1, 0, 1] {
        quorum.start(number).await;
        if number == 1 {
            quorum.stop(0).await;
            quorum.stop(1).await;
        }
    }
    quorum.start_all().await;
    quorum.append_all(payloads("a", 3)).await;
    quorum.all_saw(&payloads("a", 3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn voters_of_another_cluster_found_nothing_together() {
    let mut quorum = Quorum::new(2);
    quorum.start(0).await;
    let mut config = quorum.config(1);
    config.cluster_id = "another".into();
    let other = Voter::start(config, quorum.addresses[1]).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(quorum.voter(0).log.status().log_end_index, 0);
    assert_eq!(other.log.status().log_end_index, 0);
    other.stop().await;
}
