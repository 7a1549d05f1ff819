//! /livez, /readyz and /metrics of both daemons.

use anyhow::{Context, Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use kagami_tests::http::get;

use crate::support::{LIMIT, MIRROR, Pair, Side, batch};

/// The value of the first sample that begins so.
fn sample(page: &str, beginning: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.starts_with(beginning))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn readiness_follows_the_quorum() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 1)).await?;
    let nodes = [side.cluster.controllers(), side.cluster.brokers()].concat();
    for node in &nodes {
        let address = side.cluster.metrics_address(*node);
        ensure!(get(&address, "/livez").await?.is_ok(), "/livez of node {node}");
        eventually("ready", LIMIT, || {
            let address = address.clone();
            async move { Ok(get(&address, "/readyz").await?.is_ok().then_some(())) }
        })
        .await?;
        ensure!(!get(&address, "/nothing").await?.is_ok(), "a page that is none");
    }
    side.kill(101)?;
    side.kill(102)?;
    let address = side.cluster.metrics_address(103);
    eventually("a controller without a majority is not ready and says why", LIMIT, || {
        let address = address.clone();
        async move {
            let answer = get(&address, "/readyz").await?;
            Ok((answer.status == 503 && !answer.body.trim().is_empty()).then_some(()))
        }
    })
    .await?;
    ensure!(get(&address, "/livez").await?.is_ok(), "alive all the same");
    Ok(())
}

#[tokio::test]
async fn metrics_count_requests_partitions_and_mirrors() -> Result<()> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 2)).await?;
    pair.source.client.create_topic("orders", 2, 1, &[]).await?;
    pair.source.write("orders", 0, batch(&["a", "b"])).await?;
    pair.mirror("orders", 2).await?;
    pair.caught_up("orders", 0).await?;

    let source = get(&pair.source.cluster.metrics_address(1), "/metrics").await?.body;
    let produced = sample(&source, "kagami_requests_total{api=\"Produce\"");
    ensure!(produced.unwrap_or(0.0) >= 1.0, "{source}");
    ensure!(source.contains("api=\"Produce\",le=\"") || source.contains("le=\""), "no latencies: {source}");
    assert_eq!(sample(&source, "kagami_offline_partitions"), Some(0.0));
    assert_eq!(sample(&source, "kagami_leader_partitions"), Some(2.0));

    let mut mirroring = 0.0;
    for broker in pair.here.cluster.brokers() {
        let page = get(&pair.here.cluster.metrics_address(broker), "/metrics").await?.body;
        let wanted = |line: &&str| {
            line.starts_with("kagami_mirror_partitions{")
                && line.contains(&format!("mirror=\"{MIRROR}\""))
                && line.contains("state=\"MIRRORING\"")
        };
        let line = page.lines().find(wanted);
        mirroring += line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0);
    }
    assert_eq!(mirroring, 2.0, "partitions that are MIRRORING");
    let controller = get(&pair.here.cluster.metrics_address(101), "/metrics").await?.body;
    assert_eq!(sample(&controller, "kagami_controller_active "), Some(1.0));
    assert_eq!(sample(&controller, "kagami_mirrors "), Some(1.0));
    assert_eq!(sample(&controller, "kagami_mirror_topics "), Some(1.0));

    // A broker that is gone shows as partitions that miss replicas.
    let id = pair.here.cluster.brokers().pop().context("a broker")?;
    pair.here.client.create_topic("both", 1, 2, &[]).await?;
    pair.here.kill(id)?;
    let address = pair.here.cluster.metrics_address(101);
    eventually("partitions under-replicated", LIMIT, || {
        let address = address.clone();
        async move {
            let page = get(&address, "/metrics").await?.body;
            let missing = sample(&page, "kagami_partitions_under_replicated ").unwrap_or(0.0);
            let fenced = sample(&page, "kagami_brokers_fenced ").unwrap_or(0.0);
            Ok((missing >= 1.0 && fenced == 1.0).then_some(()))
        }
    })
    .await?;
    Ok(())
}
