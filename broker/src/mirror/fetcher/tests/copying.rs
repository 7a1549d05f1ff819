use protocol::messages::FetchResponse;
use protocol::{ErrorCode, Response};

use super::*;
use crate::mirror::deps::SourceCallError;

#[tokio::test]
async fn batches_arrive_byte_by_byte_and_in_order() {
    let mut fixture = Fixture::new(FakeSource::new(log()));
    fixture.start();
    assert!(matches!(fixture.event().await, MirrorEvent::FetchSucceeded { .. }));
    fixture.copied_to(9).await;
    assert_eq!(fixture.log(), log().concat());
    assert_eq!(fixture.lag.reading().lag(), Some(0));
    let clients = fixture.source.state.lock().clients.clone();
    assert_eq!(clients, ["broker-7-fetcher-0-mirror-m"]);
    // New data is fetched as it comes.
    {
        let mut source = fixture.source.state.lock();
        source.batches.push(batch(9, 2, 3));
        source.high_watermark = 11;
    }
    fixture.source.changed.notify_waiters();
    fixture.copied_to(11).await;
    fixture.manager.shutdown();
}

#[tokio::test]
async fn copying_begins_at_the_local_log_end() {
    let fixture = Fixture::new(FakeSource::new(log()));
    fixture.partition.state.lock().log_end = 3;
    fixture.partition.state.lock().log = batch(0, 3, 1).to_vec();
    fixture.start();
    fixture.copied_to(9).await;
    assert_eq!(fixture.log(), log().concat());
    let first = fixture.source.state.lock().fetches[0].clone();
    let asked = &first.topics[0].partitions[0];
    assert_eq!((asked.fetch_offset, asked.current_leader_epoch, asked.last_fetched_epoch), (3, 3, -1));
    assert_eq!((first.replica_id.0, first.isolation_level), (-1, 1));
    fixture.manager.shutdown();
}

#[tokio::test]
async fn a_cut_off_last_batch_is_dropped_and_fetched_again() {
    let fixture = Fixture::new(FakeSource::new(log()));
    fixture.source.script(|_, source| {
        let mut records = source.batches[0].to_vec();
        records.extend_from_slice(&source.batches[1][..40]);
        let answer = source.partition_answer(records.into());
        Ok(Response::Fetch(source.response(42, answer)))
    });
    fixture.start();
    fixture.copied_to(9).await;
    assert_eq!(fixture.log(), log().concat());
    fixture.manager.shutdown();
}

#[tokio::test]
async fn sources_without_topic_ids_in_fetch_are_read_by_name() {
    let source = FakeSource { fetch_version: 12, ..FakeSource::new(log()) };
    let fixture = Fixture::new(source);
    fixture.start();
    fixture.copied_to(9).await;
    let first = fixture.source.state.lock().fetches[0].clone();
    assert_eq!(first.topics[0].topic.0.as_str(), TOPIC);
    fixture.manager.shutdown();
}

#[tokio::test]
async fn a_lost_session_is_opened_anew() {
    let fixture = Fixture::new(FakeSource::new(log()));
    fixture.source.script(|_, _| {
        let mut response = FetchResponse::default();
        response.error_code = ErrorCode::FetchSessionIdNotFound.code();
        Ok(Response::Fetch(response))
    });
    fixture.start();
    fixture.copied_to(9).await;
    assert_eq!(fixture.log(), log().concat());
    fixture.manager.shutdown();
}

/// Decision 10 (a): once it is stopped nothing is appended, whatever is still on its way.
#[tokio::test]
async fn nothing_is_appended_after_a_stop() {
    let mut fixture = Fixture::new(FakeSource::new(vec![batch(0, 3, 1)]));
    fixture.start();
    fixture.copied_to(3).await;
    fixture.event().await;
    fixture.manager.stop(partition_id());
    let appends = fixture.partition.state.lock().appends;
    {
        let mut source = fixture.source.state.lock();
        source.batches.push(batch(3, 2, 1));
        source.high_watermark = 5;
    }
    fixture.source.changed.notify_waiters();
    // The fetcher that has lost its last partition ends by itself.
    fixture.until(|fixture| fixture.manager.fetchers() == 0).await;
    assert_eq!(fixture.partition.state.lock().appends, appends);
}

/// Decision 8: nothing of a batch above our own epoch is appended; a raise under a running fetcher
/// changes what the next append names.
#[tokio::test]
async fn a_batch_above_our_epoch_is_handed_back() {
    let mut fixture = Fixture::new(FakeSource::new(vec![batch(0, 3, 1), batch(3, 1, 8)]));
    fixture.start();
    assert_eq!(fixture.stopped().await, FetchStop::EpochAboveOwn { batch: LeaderEpoch(8) });
    assert_eq!(fixture.log(), batch(0, 3, 1));
    fixture.partition.state.lock().leader_epoch = 18;
    fixture.start();
    fixture.copied_to(4).await;
    fixture.partition.state.lock().leader_epoch = 19;
    fixture.manager.append_under(partition_id(), LeaderEpoch(19));
    fixture.source.state.lock().batches.push(batch(4, 1, 8));
    fixture.source.changed.notify_waiters();
    fixture.copied_to(5).await;
    fixture.manager.shutdown();
}

/// Interleaving 20 and decision 19: each new connection is checked, a fetcher's included.
#[tokio::test]
async fn counterexample_20_a_fetcher_finds_another_cluster() {
    let mut fixture = Fixture::new(FakeSource::new(log()));
    fixture.source.state.lock().cluster_id = "another".to_owned();
    fixture.start();
    assert_eq!(fixture.failed().await, FailureKind::OtherSourceCluster);
    assert!(fixture.log().is_empty());
    fixture.source.state.lock().cluster_id = "own-cluster".to_owned();
    fixture.start();
    assert_eq!(fixture.failed().await, FailureKind::OwnCluster);
}

#[tokio::test]
async fn a_lost_connection_hands_the_partition_back() {
    let mut fixture = Fixture::new(FakeSource::new(log()));
    fixture.source.script(|_, _| Err(SourceCallError("connection reset".to_owned())));
    fixture.start();
    assert_eq!(fixture.stopped().await, FetchStop::SourceMoved { epoch: None });
    fixture.source.state.lock().refuse_connections = true;
    fixture.start();
    assert_eq!(fixture.stopped().await, FetchStop::SourceMoved { epoch: None });
    fixture.source.state.lock().refuse_connections = false;
    fixture.start();
    fixture.copied_to(9).await;
    fixture.manager.shutdown();
}

/// A source that was restored to lower epochs, or that forbids reading: not retried without end in silence.
#[tokio::test]
async fn a_refusal_that_does_not_pass_is_handed_back() {
    let mut fixture = Fixture::new(FakeSource::new(log()));
    for code in [ErrorCode::UnknownLeaderEpoch, ErrorCode::TopicAuthorizationFailed] {
        for _ in 0..10 {
            fixture.source.script(move |_, source| {
                let mut answer = source.partition_answer(Bytes::new());
                answer.error_code = code.code();
                Ok(Response::Fetch(source.response(42, answer)))
            });
        }
        fixture.start();
        assert_eq!(fixture.stopped().await, FetchStop::SourceMoved { epoch: None });
    }
    fixture.start();
    fixture.copied_to(9).await;
    fixture.manager.shutdown();
}

/// S3: a high watermark that goes back is shown and cuts nothing.
#[tokio::test]
async fn s3_a_high_watermark_that_goes_back_cuts_nothing() {
    let fixture = Fixture::new(FakeSource::new(log()));
    fixture.start();
    fixture.copied_to(9).await;
    fixture.source.script(|_, source| {
        source.high_watermark = 2;
        let answer = source.partition_answer(Bytes::new());
        Ok(Response::Fetch(source.response(42, answer)))
    });
    fixture.source.changed.notify_waiters();
    fixture.until(|fixture| fixture.lag.reading().source == Some(Offset(2))).await;
    assert_eq!(fixture.lag.reading().lag(), Some(0));
    assert_eq!(fixture.log(), log().concat());
    fixture.manager.shutdown();
}

#[tokio::test]
async fn what_is_deleted_at_the_source_is_deleted_here() {
    let fixture = Fixture::new(FakeSource::new(log()));
    fixture.start();
    fixture.copied_to(9).await;
    fixture.source.script(|_, source| {
        source.log_start = 4;
        let answer = source.partition_answer(Bytes::new());
        Ok(Response::Fetch(source.response(42, answer)))
    });
    fixture.source.changed.notify_waiters();
    fixture.until(|fixture| fixture.partition.state.lock().log_start == 4).await;
    fixture.manager.shutdown();
}

/// The source tells of a deletion once; here it waits until what goes is committed.
#[tokio::test]
async fn a_deletion_that_comes_before_its_records_are_committed_here_is_made_up_for() {
    let fixture = Fixture::new(FakeSource::new(log()));
    fixture.partition.state.lock().high_watermark = Some(2);
    fixture.start();
    fixture.copied_to(9).await;
    fixture.source.script(|_, source| {
        source.log_start = 4;
        let answer = source.partition_answer(Bytes::new());
        Ok(Response::Fetch(source.response(42, answer)))
    });
    fixture.source.changed.notify_waiters();
    fixture.until(|fixture| fixture.partition.state.lock().log_start == 2).await;
    fixture.partition.state.lock().high_watermark = None;
    fixture.until(|fixture| fixture.partition.state.lock().log_start == 4).await;
    fixture.manager.shutdown();
}

/// S5, S2: partitions and topics that were not asked for are not looked at.
#[tokio::test]
async fn s5_an_answer_for_another_topic_id_is_ignored() {
    let fixture = Fixture::new(FakeSource::new(log()));
    for lie in [TopicId::ZERO, TopicId(uuid::Uuid::from_bytes([9; 16]))] {
        fixture.source.script(move |_, source| {
            let answer = source.partition_answer(source.batches[2].clone());
            let mut response = source.response(42, answer);
            response.responses[0].topic_id = lie.0;
            Ok(Response::Fetch(response))
        });
    }
    fixture.source.script(|_, source| {
        let mut answer = source.partition_answer(source.batches[2].clone());
        answer.partition_index = 17;
        Ok(Response::Fetch(source.response(42, answer)))
    });
    fixture.start();
    fixture.copied_to(9).await;
    assert_eq!(fixture.log(), log().concat());
    fixture.manager.shutdown();
}

/// S2: a partition that comes twice in one answer is taken once.
#[tokio::test]
async fn s2_a_partition_that_comes_twice_is_taken_once() {
    let fixture = Fixture::new(FakeSource::new(log()));
    fixture.source.script(|_, source| {
        let answer = source.partition_answer(source.batches[0].clone());
        let mut response = source.response(42, answer.clone());
        response.responses[0].partitions.push(answer);
        Ok(Response::Fetch(response))
    });
    fixture.start();
    fixture.copied_to(9).await;
    assert_eq!(fixture.log(), log().concat());
    fixture.manager.shutdown();
}

#[tokio::test]
async fn s1_an_answer_of_another_api_closes_the_connection() {
    let mut fixture = Fixture::new(FakeSource::new(log()));
    fixture.source.script(|_, _| Ok(Response::Metadata(Default::default())));
    fixture.start();
    assert_eq!(fixture.stopped().await, FetchStop::SourceMoved { epoch: None });
    assert!(fixture.log().is_empty());
}
