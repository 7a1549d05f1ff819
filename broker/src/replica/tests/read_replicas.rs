//! Consumers read from followers (KIP-392).

use std::time::Duration;

use protocol::messages::FetchResponse;
use protocol::{ErrorCode, StrBytes};
use tokio::time::timeout;

use super::cluster::*;
use super::fetching::{fetch, fetch_request, summary};

const RACKS: i16 = 11;

fn preferred(response: &FetchResponse) -> i32 {
    response.responses[0].partitions[0].preferred_read_replica.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_names_the_replica_in_the_consumers_rack() {
    let cluster = Cluster::start(3, 1).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 5).await;
    let mut leader = cluster.client(1).await;
    let near = |rack: &'static str, offset: i64| {
        fetch_request((0, -1), &[(0, offset)], 0).with_rack_id(StrBytes::from_static_str(rack))
    };
    for version in [RACKS, 18] {
        let sent = fetch(&mut leader, version, near("rack-2", 0)).await;
        assert_eq!(preferred(&sent), 2, "version {version}");
        assert_eq!(summary(&sent), vec![(0, 0, 5, 0)], "and has nothing for it itself");
        for (rack, offset) in [("rack-1", 0), ("rack-9", 0), ("", 0)] {
            let served = fetch(&mut leader, version, near(rack, offset)).await;
            assert_eq!(preferred(&served), -1, "{rack}");
            assert!(summary(&served)[0].3 > 0, "{rack}");
        }
        // Nobody there has that offset: the leader's own answer.
        let beyond = fetch(&mut leader, version, near("rack-2", 6)).await;
        assert_eq!(summary(&beyond)[0].1, ErrorCode::OffsetOutOfRange.code());
    }
    let old = fetch(&mut leader, RACKS - 1, fetch_request((0, -1), &[(0, 0)], 0)).await;
    assert!(summary(&old)[0].3 > 0);
    // A fenced follower cannot be reached.
    cluster.fence(2, true);
    assert_eq!(preferred(&fetch(&mut leader, RACKS, near("rack-2", 0)).await), -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_serves_up_to_the_high_watermark_and_hears_of_it_at_once() {
    let cluster = Cluster::start(2, 1).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 5).await;
    until(&cluster.partition(2, 0), "high watermark 5", |status| status.high_watermark.0 == 5).await;
    let mut follower = cluster.client(2).await;
    let served = fetch(&mut follower, RACKS, fetch_request((0, -1), &[(0, 0)], 0)).await;
    let (_, error, high_watermark, bytes) = summary(&served)[0];
    assert_eq!((error, high_watermark), (0, 5));
    assert!(bytes > 0);
    let old = fetch(&mut follower, RACKS - 1, fetch_request((0, -1), &[(0, 0)], 0)).await;
    assert_eq!(
        summary(&old)[0].1,
        ErrorCode::NotLeaderOrFollower.code(),
        "an old consumer knows leaders only"
    );
    let beyond = fetch(&mut follower, RACKS, fetch_request((0, -1), &[(0, 6)], 0)).await;
    assert_eq!(summary(&beyond)[0].1, ErrorCode::OffsetOutOfRange.code());
    // At the end it waits, and is told as soon as the leader has committed more.
    let waiting =
        tokio::spawn(
            async move { fetch(&mut follower, RACKS, fetch_request((0, -1), &[(0, 5)], 20_000)).await },
        );
    tokio::time::sleep(Duration::from_millis(50)).await;
    cluster.produce_all(1, 3).await;
    let told = timeout(PATIENCE / 2, waiting).await.expect("long before its long poll ends").expect("answer");
    let (_, error, high_watermark, bytes) = summary(&told)[0];
    assert_eq!((error, high_watermark), (0, 8));
    assert!(bytes > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_gives_nothing_that_is_not_committed() {
    let cluster = Cluster::start(2, 2).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 2).await;
    until(&cluster.partition(2, 0), "high watermark 2", |status| status.high_watermark.0 == 2).await;
    // One in the ISR is too few to commit anything; the other goes on fetching.
    cluster.fence(2, true);
    cluster.produce(1, 3, 1).expect("append");
    until(&cluster.partition(2, 0), "log end 5", |status| status.log_end_offset.0 == 5).await;
    let mut follower = cluster.client(2).await;
    for offset in [2, 4, 5] {
        let answer = fetch(&mut follower, RACKS, fetch_request((0, -1), &[(0, offset)], 0)).await;
        assert_eq!(summary(&answer), vec![(0, 0, 2, 0)], "offset {offset}");
    }
}
