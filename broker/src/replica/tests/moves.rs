//! Replicas move between the log directories of their broker.

use std::sync::Arc;

use common::ids::DirectoryId;

use super::cluster::*;
use crate::log::LogDirectory;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_moves_while_it_serves_and_no_more_once_the_broker_stops() {
    let cluster = Cluster::start_with_directories(1, 1, 2).await;
    cluster.create_topic(1);
    cluster.produce_all(1, 10).await;
    let replicas = cluster.broker(1).replicas.clone();
    let partition = cluster.partition(1, 0);
    let other_than = |id: DirectoryId| -> Arc<LogDirectory> {
        let directories = replicas.log_manager().directories();
        directories.iter().find(|directory| directory.id() != id).expect("two").clone()
    };
    let alter = |to: &LogDirectory| {
        let path = to.path().to_str().expect("UTF-8");
        replicas.alter_log_dir(TOPIC, 0, path).expect("hosted");
    };
    let to = other_than(partition.directory_id());
    alter(&to);
    until(&partition, "its new directory", |_| partition.directory_id() == to.id()).await;
    cluster.produce_all(1, 5).await;
    let moved = bytes_of(&partition);

    replicas.shutdown(PATIENCE).await;
    alter(&other_than(to.id()));
    assert_eq!(replicas.log_manager().futures().len(), 1);
    replicas.advance_moves();
    assert_eq!(partition.directory_id(), to.id(), "what is closed is not written any more");
    assert_eq!(bytes_of(&partition), moved);
    assert!(replicas.log_manager().futures()[0].read().is_empty());
}
