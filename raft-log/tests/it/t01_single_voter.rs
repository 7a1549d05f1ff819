use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use raft_log::{AppendError, OpenError, RaftLog};

use crate::quorum::{Quorum, Recorder, payloads};

#[tokio::test(flavor = "multi_thread")]
async fn elects_itself_and_comes_back_in_the_same_process() {
    let mut quorum = Quorum::new(1);
    let mut expected = Vec::new();
    for round in 0..3 {
        let started = Instant::now();
        quorum.start(0).await;
        let (_, term) = quorum.leader().await;
        tracing::info!(elapsed = ?started.elapsed(), round, "open to ready");
        // A tenth of this when nothing else runs on the machine.
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
        quorum.all_saw(&expected).await;

        let log = &quorum.voter(0).log;
        let more = payloads(&format!("round {round} "), 50);
        let appends: Vec<_> = more.iter().map(|payload| log.append(term, payload.clone().into())).collect();
        let indices: Vec<u64> = join_all(appends).await.into_iter().map(Result::unwrap).collect();
        assert!(indices.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{indices:?}");
        expected.extend(more);
        quorum.all_saw(&expected).await;
        assert!(log.read_index().await.unwrap() >= *indices.last().unwrap());

        let status = log.status();
        assert!(status.is_leader);
        assert_eq!(status.voters.len(), 1);
        assert_eq!(status.log_end_index, indices.last().unwrap() + 1);
        assert_eq!(status.voters[0].log_end_index, Some(status.log_end_index));
        quorum.stop(0).await;
    }
}

/// Found by the simulation of the quorum, by six of 500 seeds.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_to_hand_over_to_itself_goes_on() {
    let quorum = Quorum::started(1).await;
    let (_, term) = quorum.leader().await;
    let log = &quorum.voter(0).log;
    log.transfer_leader(log.voter().node_id).await.unwrap();
    let append = tokio::time::timeout(Duration::from_secs(30), log.append(term, Bytes::from_static(b"on")));
    append.await.expect("in time").unwrap();
    let mut quorum = quorum;
    quorum.stop(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_under_another_term_is_refused() {
    let quorum = Quorum::started(1).await;
    let (_, term) = quorum.leader().await;
    let log = &quorum.voter(0).log;
    assert_eq!(log.append(term + 1, Bytes::from_static(b"late")).await, Err(AppendError::TermChanged));
    let large = Bytes::from(vec![0; (8 << 20) + 1]);
    assert!(matches!(log.append(term, large).await, Err(AppendError::TooLarge { .. })));
    let log = log.clone();
    let mut quorum = quorum;
    let recorder = quorum.stop(0).await;
    assert_eq!(log.append(term, Bytes::from_static(b"later")).await, Err(AppendError::Shutdown));
    assert!(recorder.seen().is_empty());
    let leadership = *log.leadership().borrow();
    assert!(!leadership.is_leader && !leadership.ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_has_one_owner() {
    let quorum = Quorum::started(1).await;
    let second = RaftLog::open(quorum.config(0), Arc::new(Recorder::default())).await;
    assert!(matches!(second.map(drop), Err(OpenError::InUse { .. })));
}
