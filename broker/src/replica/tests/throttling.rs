//! Throttles hold back those who are not in sync, and nobody else.

use std::time::Duration;

use common::metadata::record::ConfigResourceType::{Broker, Topic};

use super::cluster::*;

const LEADER_RATE: &str = "leader.replication.throttled.rate";
const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
/// Long enough for many fetches.
const A_WHILE: Duration = Duration::from_millis(300);
/// About half of what one fetch may bring.
const MANY: i32 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_replicas_wait_unless_they_are_in_sync() {
    let cluster = Cluster::start(3, 1).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 5).await;
    let third = cluster.partition(3, 0);
    until(&third, "all", |status| status.log_end_offset.0 == 5).await;
    cluster.set_config(Topic, TOPIC, "leader.replication.throttled.replicas", Some("0:1"));
    cluster.set_config(Topic, TOPIC, "follower.replication.throttled.replicas", Some("*"));
    cluster.set_config(Broker, "", LEADER_RATE, Some("0"));
    cluster.fence(3, true);
    // Broker 2 is in sync and passes, whatever the rate.
    for _ in 0..10 {
        cluster.produce_all(1, MANY).await;
    }
    let end = 5 + i64::from(10 * MANY);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(third.status().log_end_offset.0, 5, "the leader holds it back");

    cluster.set_config(Broker, "", FOLLOWER_RATE, Some("0"));
    cluster.set_config(Broker, "", LEADER_RATE, None);
    // That it lags a follower learns from what it has fetched: one answer comes through.
    until(&third, "something", |status| status.log_end_offset.0 > 5).await;
    tokio::time::sleep(A_WHILE).await;
    let held_back = third.status().log_end_offset.0;
    assert!(held_back < end / 2, "{held_back} of {end}: it holds itself back");

    cluster.set_config(Broker, "", FOLLOWER_RATE, None);
    until(&third, "all", |status| status.log_end_offset.0 == end).await;
}
