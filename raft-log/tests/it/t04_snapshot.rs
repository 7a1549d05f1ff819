use raft_log::RaftLog;

use crate::quorum::{Quorum, eventually, payloads};

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_that_lags_far_behind_gets_a_snapshot() {
    let mut quorum = Quorum::new(3);
    quorum.snapshot_every_entries = 40;
    quorum.start_all().await;
    let (leader, _) = quorum.leader().await;
    let late = (leader + 1) % 3;
    // More than one chunk of the stream.
    let mut large: Vec<String> = (0..6).map(|number| number.to_string().repeat(500_000)).collect();
    // More than gRPC takes by default.
    large.push("x".repeat(5 << 20));
    quorum.append_all(large.clone()).await;
    let late_end = quorum.voter(late).log.status().log_end_index;
    quorum.stop(late).await;
    let mut expected = large;
    let more = payloads("a", 300);
    let log = &quorum.voter(leader).log;
    quorum.append_all(more.clone()).await;
    expected.extend(more);
    log.snapshot_now().await.unwrap();
    // Where the leader still has what the other lacks, it sends that.
    eventually("the log to begin behind the late one's end", || {
        (log.status().log_start_index > late_end).then_some(())
    })
    .await;

    quorum.start(late).await;
    quorum.all_saw(&expected).await;
    eventually("the snapshot to be loaded", || {
        (*quorum.voter(late).recorder.loads.lock().unwrap() > 0).then_some(())
    })
    .await;

    // All start again from their snapshots and what comes after.
    quorum.append_all(payloads("b", 5)).await;
    expected.extend(payloads("b", 5));
    quorum.all_saw(&expected).await;
    quorum.stop_all().await;
    for directory in &quorum.directories {
        let snapshots = std::fs::read_dir(directory.path().join("quorum/snapshots")).unwrap().count();
        assert_eq!(snapshots, 1, "old and half snapshots are removed");
    }
    quorum.start_all().await;
    quorum.leader().await;
    quorum.all_saw(&expected).await;
    assert!(quorum.running().all(|voter| *voter.recorder.loads.lock().unwrap() == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn q06_a_damaged_snapshot_is_refused() {
    let mut quorum = Quorum::started(1).await;
    quorum.append_all(payloads("a", 10)).await;
    quorum.voter(0).log.snapshot_now().await.unwrap();
    quorum.stop(0).await;
    let directory = quorum.directories[0].path().join("quorum/snapshots");
    let file = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let opened =
        RaftLog::open(quorum.config(0), std::sync::Arc::new(crate::quorum::Recorder::default())).await;
    let error = opened.map(drop).unwrap_err().to_string();
    assert!(error.contains("does not match its checksum"), "{error}");
}
