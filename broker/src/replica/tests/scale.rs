//! Thousands of partitions at once.

use std::time::Instant;

use super::cluster::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_partitions_are_made_in_one_go() {
    let cluster = Cluster::start(1, 1).await;
    let started = Instant::now();
    cluster.create_topic(400);
    let taken = started.elapsed();
    assert_eq!(cluster.broker(1).replicas.partitions().len(), 400);
    // Generous: a busy machine and an unoptimised build.
    assert!(taken.as_secs() < 10, "{taken:?}");
}
