//! P14: a broker runs out of file descriptors.

use anyhow::{Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::support::{LIMIT, Side, Writer, batch, values};

async fn limit_descriptors(pid: u32, count: usize) -> Result<()> {
    let limit = format!("--nofile={count}:");
    let status = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status().await?;
    ensure!(status.success(), "prlimit: {status}");
    Ok(())
}

#[tokio::test]
async fn p14_without_descriptors_it_serves_who_is_there_and_recovers() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 1)).await?;
    side.client.create_topic("orders", 1, 1, &[]).await?;
    side.write("orders", 0, batch(&["before"])).await?;
    side.client.create_topic("load", 1, 1, &[]).await?;
    let writer = Writer::start(&side.bootstrap(), "load", 0);
    writer.more(20).await?;

    let pid = side.cluster.pid(1)?;
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count();
    limit_descriptors(pid, open + 2).await?;
    let address = side.cluster.broker_address(1);
    // As many as it can take, and some more that wait in vain.
    let mut crowd = Vec::new();
    for _ in 0..20 {
        crowd.push(TcpStream::connect(&address).await?);
    }
    // Who was there is served.
    writer.more(50).await?;
    ensure!(side.cluster.is_running(1), "it ended: {}", side.cluster.log(1));

    drop(crowd);
    limit_descriptors(pid, open + 1_000).await?;
    eventually("new clients are served again", LIMIT, || {
        let mut client = Client::new(&address);
        async move { Ok(client.metadata(None).await.ok()) }
    })
    .await?;
    side.client.create_topic("new", 1, 1, &[]).await?;
    assert_eq!(side.write("new", 0, batch(&values("v", 3))).await?, 0);
    assert_eq!(side.write("orders", 0, batch(&["after"])).await?, 1);
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.replica(1, "load", 0)?)?;

    // Nothing half-written: a kill and a recovery find the same.
    side.kill(1)?;
    side.restart(1)?;
    side.client.await_brokers(1, LIMIT).await?;
    assert_eq!(side.end("orders", 0).await?, 2);
    assert_eq!(side.end("new", 0).await?, 3);
    Ok(())
}
