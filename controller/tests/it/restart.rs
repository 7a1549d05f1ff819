use crate::harness::{start, start_in};

#[tokio::test]
async fn what_was_committed_is_there_after_a_restart() {
    let harness = start(&[]).await;
    drop(harness.active_broker(5).await);
    let before = harness.server.image();
    harness.server.shutdown().await;
    drop(harness.server);
    let server = start_in(harness.directory.path(), &[]).await;
    assert_eq!(server.image().digest(), before.digest());
    server.shutdown().await;
}

#[tokio::test]
async fn a_directory_of_another_node_or_an_unformatted_one_is_refused() {
    use common::config::{ControllerConfig, Properties};
    use controller::ControllerServer;

    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "node.id=1\nlisteners=CONTROLLER://127.0.0.1:0\nquorum.listener=127.0.0.1:0\n\
         controller.quorum.voters=1@127.0.0.1:9\nlog.dirs={}\n",
        directory.path().display()
    );
    let config = || ControllerConfig::from_properties(&Properties::parse(&text).unwrap()).unwrap().0;
    let error = ControllerServer::start(config()).await.err().expect("not formatted");
    assert!(error.to_string().contains("not formatted"), "{error}");
    common::storage::format(&[directory.path().to_owned()], crate::harness::CLUSTER_ID, 2, false).unwrap();
    let error = ControllerServer::start(config()).await.err().expect("another node's");
    assert!(error.to_string().contains("node 2"), "{error}");
}
