//! Case 51: Describe by one broker, by all, by a controller, and as the command shows it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;

use crate::support::{LIMIT, MIRROR, Pair, batch};

#[tokio::test]
async fn case_51_each_partition_is_described_once() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 3)).await?;
    pair.source.client.create_topic("orders", 6, 1, &[]).await?;
    for partition in 0..6 {
        pair.source.write("orders", partition, batch(&["a", "b", "c"])).await?;
    }
    pair.mirror("orders", 6).await?;
    pair.here.add(MIRROR, "unborn").await?;
    for partition in 0..6 {
        pair.caught_up("orders", partition).await?;
    }
    pair.here
        .await_described(MIRROR, "no lag", |all| {
            all.iter().filter(|partition| partition.topic == "orders").all(|partition| partition.lag == 0)
        })
        .await?;
    let mut times: BTreeMap<i32, usize> = BTreeMap::new();
    for broker in pair.here.cluster.brokers() {
        let shown = pair.here.describe_at(broker, MIRROR).await?;
        for partition in shown.iter().filter(|partition| partition.topic == "orders") {
            *times.entry(partition.index).or_default() += 1;
            assert_eq!(partition.leader, broker, "a broker tells of what it leads");
            assert_eq!(partition.state, "MIRRORING");
            assert_eq!((partition.source_offset, partition.destination_offset), (3, 3));
        }
        let unborn: Vec<_> = shown.iter().filter(|partition| partition.topic == "unborn").collect();
        assert_eq!(unborn.len(), 1, "{shown:?}");
        assert_eq!(unborn[0].state, "UNKNOWN");
    }
    assert_eq!(times, (0..6).map(|partition| (partition, 1)).collect());
    assert_eq!(pair.here.partitions(MIRROR).await?.len(), 7);

    let controller = pair.here.cluster.controllers()[0];
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let shown = pair.here.describe_at_controller(controller, MIRROR).await?;
        let of_topic: Vec<_> = shown.iter().filter(|partition| partition.topic == "orders").collect();
        ensure!(of_topic.len() <= 6, "{shown:?}");
        if of_topic.len() == 6 && of_topic.iter().all(|partition| partition.state == "MIRRORING") {
            break;
        }
        ensure!(tokio::time::Instant::now() < deadline, "the controller has not heard of all: {shown:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }

    let server = pair.here.bootstrap();
    let table = pair.here.kagami(&["mirror", "describe", "--bootstrap-server", &server]).await?;
    let unborn = table.lines().find(|line| line.contains("unborn")).unwrap_or_default();
    ensure!(unborn.contains("UNKNOWN") && unborn.contains(" - "), "{table}");
    assert_eq!(table.lines().filter(|line| line.contains("MIRRORING")).count(), 6, "{table}");

    // One that hangs tells nothing of what it leads; the others know that it is there, and so does a failover.
    let brokers = pair.here.cluster.brokers();
    let (hung, asked) = (brokers[0], brokers[1]);
    let server = pair.here.cluster.broker_address(asked);
    pair.here.pause(hung)?;
    let table = pair.here.kagami(&["mirror", "describe", "--bootstrap-server", &server]).await?;
    assert_eq!(table.lines().filter(|line| line.contains("orders")).count(), 6, "{table}");
    Ok(())
}
