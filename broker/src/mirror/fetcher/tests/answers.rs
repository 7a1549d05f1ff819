use protocol::messages::fetch_response::{LeaderIdAndEpoch, PartitionData};
use protocol::{ErrorCode, Response};

use super::*;
use crate::mirror::fetcher::answer::{Outcome, interpret};

fn error(code: ErrorCode, told_epoch: i32) -> PartitionData {
    let mut answer = PartitionData::default();
    answer.error_code = code.code();
    let mut leader = LeaderIdAndEpoch::default();
    leader.leader_epoch = told_epoch;
    answer.current_leader = leader;
    answer
}

#[test]
fn each_error_has_its_answer() {
    let stop = |code, told| match interpret(&error(code, told), Offset(0)) {
        Outcome::Stop(why) => Some(why),
        Outcome::Retry(_) => None,
        other => panic!("{other:?}"),
    };
    let moved = |epoch: Option<i32>| Some(FetchStop::SourceMoved { epoch: epoch.map(LeaderEpoch) });
    assert_eq!(stop(ErrorCode::FencedLeaderEpoch, 7), moved(Some(7)));
    assert_eq!(stop(ErrorCode::FencedLeaderEpoch, -1), moved(None), "from Metadata for older sources");
    assert_eq!(stop(ErrorCode::NotLeaderOrFollower, 7), moved(Some(7)));
    assert_eq!(stop(ErrorCode::UnknownLeaderEpoch, 2), None, "an epoch never falls");
    assert_eq!(stop(ErrorCode::OffsetOutOfRange, -1), Some(FetchStop::OffsetOutOfRange));
    assert_eq!(stop(ErrorCode::UnknownTopicOrPartition, -1), moved(None));
    assert_eq!(stop(ErrorCode::UnknownTopicId, -1), moved(None));
    assert_eq!(stop(ErrorCode::InconsistentTopicId, -1), moved(None));
    assert_eq!(stop(ErrorCode::TopicAuthorizationFailed, -1), None);
    let tiered = stop(ErrorCode::OffsetMovedToTieredStorage, -1);
    assert!(matches!(tiered, Some(FetchStop::Failed(reason)) if reason.kind == FailureKind::TieredStorage));
    // No code at all is read as data or as an empty answer.
    for code in ErrorCode::ALL.iter().filter(|code| **code != ErrorCode::None) {
        stop(*code, -1);
    }
}

fn data(records: Vec<u8>) -> PartitionData {
    let mut answer = PartitionData::default();
    answer.records = Some(records.into());
    answer
}

fn next(records: Vec<u8>, asked: i64) -> Result<(usize, i64), Option<FailureKind>> {
    match interpret(&data(records), Offset(asked)) {
        Outcome::Data { records, next, .. } => Ok((records.len(), next.0)),
        Outcome::Stop(FetchStop::Failed(reason)) => Err(Some(reason.kind)),
        Outcome::Empty { .. } => Err(None),
        other => panic!("{other:?}"),
    }
}

/// S2 of the fault list, as far as headers show it; the rest fails the CRC on append.
#[test]
fn s2_offsets_must_go_on_from_what_was_asked() {
    let (first, second) = (batch(0, 3, 1), batch(3, 2, 1));
    let both = [&first[..], &second[..]].concat();
    assert_eq!(next(both.clone(), 0), Ok((both.len(), 5)));
    let gap = [&first[..], &batch(7, 1, 1)[..]].concat();
    assert_eq!(next(gap.clone(), 0), Ok((gap.len(), 8)), "a cleaned log has gaps");
    assert_eq!(next(second.to_vec(), 0), Ok((second.len(), 5)), "above the asked offset");
    // The batch that holds the asked offset may begin below it; whether it is taken, the log decides.
    assert_eq!(next(first.to_vec(), 2), Ok((first.len(), 3)));
    let unexpected = Err(Some(FailureKind::UnexpectedOffset));
    assert_eq!(next(first.to_vec(), 3), unexpected, "wholly below");
    assert_eq!(next([&second[..], &first[..]].concat(), 0), unexpected, "backwards");
    assert_eq!(next([&first[..], &first[..]].concat(), 0), unexpected, "twice");
    assert_eq!(next([&first[..], &batch(2, 2, 1)[..]].concat(), 0), unexpected, "overlapping");
    let mut lying = first.to_vec();
    lying[23..27].copy_from_slice(&(-5i32).to_be_bytes());
    assert_eq!(next(lying, 0), unexpected, "a negative last offset delta");
    let mut negative = first.to_vec();
    negative[..8].copy_from_slice(&(-9i64).to_be_bytes());
    assert_eq!(next(negative, 0), unexpected);
    for magic in [0, 1, 3] {
        let mut old = first.to_vec();
        old[16] = magic;
        assert_eq!(next(old, 0), Err(Some(FailureKind::CorruptBatch)), "magic {magic}");
    }
    let mut short = first.to_vec();
    short[8..12].copy_from_slice(&3i32.to_be_bytes());
    assert_eq!(next(short, 0), Err(Some(FailureKind::CorruptBatch)), "a length below the header's");
    assert_eq!(next(first[..20].to_vec(), 0), Err(None), "nothing whole");
}

#[tokio::test]
async fn s2_a_bad_crc_fails_and_appends_nothing() {
    let mut fixture = Fixture::new(FakeSource::new(log()));
    fixture.source.script(|_, source| {
        let mut records = source.batches[0].to_vec();
        let last = records.len() - 1;
        records[last] ^= 1;
        let answer = source.partition_answer(records.into());
        Ok(Response::Fetch(source.response(42, answer)))
    });
    fixture.start();
    assert_eq!(fixture.failed().await, FailureKind::CorruptBatch);
    assert!(fixture.log().is_empty());
}

#[tokio::test]
async fn s2_a_first_batch_below_the_asked_offset_is_refused_by_a_log_with_data() {
    let mut fixture = Fixture::new(FakeSource::new(vec![batch(0, 3, 1)]));
    fixture.start();
    fixture.copied_to(3).await;
    fixture.source.script(|_, source| {
        let answer = source.partition_answer(batch(1, 4, 1));
        Ok(Response::Fetch(source.response(42, answer)))
    });
    fixture.source.changed.notify_waiters();
    assert_eq!(fixture.failed().await, FailureKind::UnexpectedOffset);
    assert_eq!(fixture.log(), batch(0, 3, 1));
}

/// Case 20 of N.2 and M1: the source's leader is fenced or moves; the epoch is taken from the answer.
#[tokio::test]
async fn case_20_a_fenced_fetch_tells_the_new_epoch() {
    let mut fixture = Fixture::new(FakeSource::new(log()));
    fixture.source.script(|_, source| {
        let answer = error(ErrorCode::FencedLeaderEpoch, 7);
        Ok(Response::Fetch(source.response(42, answer)))
    });
    fixture.start();
    assert_eq!(fixture.stopped().await, FetchStop::SourceMoved { epoch: Some(LeaderEpoch(7)) });
}

#[tokio::test]
async fn a_source_that_is_behind_is_asked_again_with_the_same_epoch() {
    let fixture = Fixture::new(FakeSource::new(log()));
    fixture.source.script(|_, source| {
        Ok(Response::Fetch(source.response(42, error(ErrorCode::UnknownLeaderEpoch, 2))))
    });
    fixture.start();
    fixture.copied_to(9).await;
    let fetches = fixture.source.state.lock().fetches.clone();
    let epochs = fetches.iter().flat_map(|fetch| &fetch.topics).flat_map(|topic| &topic.partitions);
    assert!(epochs.map(|partition| partition.current_leader_epoch).all(|epoch| epoch == 3));
    fixture.manager.shutdown();
}
