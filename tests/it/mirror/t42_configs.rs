//! Cases 42 and 58: `mirror.name` belongs to the mirror; a mirror's configs change while it runs.

use anyhow::{Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;

use crate::support::{LIMIT, MIRROR, MIRROR_RESOURCE, Pair, Side, TOPIC_RESOURCE, Wanted, batch};

#[tokio::test]
async fn case_42_clients_cannot_set_mirror_name() -> Result<()> {
    let mut here = Side::start(ClusterSpec::new(1, 1)).await?;
    here.create_mirror(MIRROR, "127.0.0.1:19").await?;
    let (code, _) = here.client.try_create_topic("t", 1, 1, &[("mirror.name", MIRROR)]).await?;
    assert_eq!(ErrorCode::from_code(code), Some(ErrorCode::InvalidRequest));
    here.client.create_topic("t", 1, 1, &[]).await?;
    for value in [MIRROR, "m1.removed", ""] {
        let (code, message) = here.set_config(TOPIC_RESOURCE, "t", "mirror.name", value).await?;
        assert_eq!(code, ErrorCode::InvalidRequest, "{value:?}: {message:?}");
    }
    let configs = here.configs(TOPIC_RESOURCE, "t", None).await?;
    assert!(configs.contains_key("retention.ms") && !configs.contains_key("mirror.name"));
    assert_eq!(here.write("t", 0, batch(&["ordinary"])).await?, 0);
    Ok(())
}

#[tokio::test]
async fn case_58_connections_are_rebuilt_and_states_stay() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 2), ClusterSpec::new(1, 1)).await?;
    pair.source.client.create_topic("orders", 2, 2, &[]).await?;
    pair.source.write("orders", 0, batch(&["a"])).await?;
    pair.mirror("orders", 2).await?;
    pair.caught_up("orders", 0).await?;
    let before = pair.here.equal_replicas("orders", 0).await?;

    let module = "org.apache.kafka.common.security.plain.PlainLoginModule required";
    let second_broker = pair.source.cluster.broker_address(2);
    for (key, value) in [
        ("sasl.jaas.config", &*format!("{module} username=\"u\" password=\"s3cret-word\";")),
        ("request.timeout.ms", "9000"),
        ("bootstrap.servers", &second_broker),
    ] {
        let (code, message) = pair.here.set_config(MIRROR_RESOURCE, MIRROR, key, value).await?;
        assert_eq!(code, ErrorCode::None, "{key}: {message:?}");
        let states = pair.here.partitions(MIRROR).await?;
        ensure!(states.iter().all(|partition| partition.state == "MIRRORING"), "{states:?}");
        let end = pair.source.write("orders", 0, batch(&[key])).await?;
        assert_eq!(pair.caught_up("orders", 0).await?, end + 1);
    }
    pair.here.await_partitions(MIRROR, "orders", 2, Wanted::State("MIRRORING")).await?;
    let log = pair.equal_to_source("orders", 0).await?;
    ensure!(log.starts_with(&before), "records were cut and copied again");

    // Secrets come back nowhere.
    let configs = pair.here.configs(MIRROR_RESOURCE, MIRROR, None).await?;
    assert_eq!(configs.get("sasl.jaas.config").cloned().flatten(), None);
    let nodes = [pair.here.cluster.controllers(), pair.here.cluster.brokers()].concat();
    for node in nodes {
        let log = pair.here.cluster.log(node);
        ensure!(!log.contains("s3cret"), "a password in the log of node {node}");
        ensure!(!log.contains("FAILED"), "a change of configs failed a partition");
    }
    // The new address is used: the old one may go.
    pair.source.client.await_isr("orders", 2, LIMIT).await?;
    pair.source.stop(1)?;
    let server = pair.source.cluster.broker_address(2);
    pair.source.client = Client::new(&server);
    let end = pair.source.write("orders", 0, batch(&["last"])).await?;
    assert_eq!(pair.caught_up("orders", 0).await?, end + 1);
    Ok(())
}
