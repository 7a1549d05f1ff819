//! Failover driven only through a controller's port.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;

use crate::support::{MIRROR, Pair, Wanted, batch, values, values_of};

async fn mirrored() -> Result<Pair> {
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(3, 3)).await?;
    pair.source.client.create_topic("orders", 3, 1, &[]).await?;
    for partition in 0..3 {
        pair.source.write("orders", partition, batch(&values("first", 10))).await?;
    }
    pair.mirror("orders", 3).await?;
    for partition in 0..3 {
        pair.caught_up("orders", partition).await?;
    }
    Ok(pair)
}

/// Writable, with all that was mirrored, and nothing else.
async fn failed_over(pair: &mut Pair) -> Result<()> {
    for partition in 0..3 {
        assert_eq!(pair.here.write("orders", partition, batch(&["own"])).await?, 10);
        let mut expected = values("first", 10);
        expected.push("own".to_owned());
        assert_eq!(values_of(&pair.here.equal_replicas("orders", partition).await?)?, expected);
    }
    Ok(())
}

#[tokio::test]
async fn the_source_is_dead_and_the_command_knows_only_controllers() -> Result<()> {
    let mut pair = mirrored().await?;
    pair.source.kill(1)?;
    let controllers = pair.here.cluster.bootstrap_controller();
    let target = ["--bootstrap-controller", &controllers];
    let shown = pair.here.kagami(&[&["mirror", "describe", "--json"], &target[..]].concat()).await?;
    ensure!(shown.contains("\"MIRRORING\""), "{shown}");
    let remove = [&["mirror", "remove", "--mirror", MIRROR, "--all", "--wait"], &target[..]].concat();
    pair.here.kagami(&remove).await?;
    failed_over(&mut pair).await?;
    // Asked again it goes on waiting, which here means that it is done.
    pair.here.kagami(&remove).await?;
    Ok(())
}

#[tokio::test]
async fn right_after_kill_9_of_the_active_controller() -> Result<()> {
    let mut pair = mirrored().await?;
    let active = pair.here.active_controller().await?;
    pair.here.kill(active)?;
    // The dead one is still among the addresses.
    let controllers = pair.here.cluster.bootstrap_controller();
    let target = ["--bootstrap-controller", &controllers];
    let remove = [&["mirror", "remove", "--mirror", MIRROR, "--all", "--wait"], &target[..]].concat();
    pair.here.kagami(&remove).await?;
    failed_over(&mut pair).await?;
    ensure!(pair.here.active_controller().await? != active, "{active} is dead and active");

    // And the other way round: the order is given, and who took it dies at once.
    pair.here.restart(active)?;
    pair.source.client.create_topic("more", 1, 1, &[]).await?;
    pair.source.write("more", 0, batch(&["a"])).await?;
    pair.mirror("more", 1).await?;
    pair.caught_up("more", 0).await?;
    let second = pair.here.active_controller().await?;
    let remove = [&["mirror", "remove", "--mirror", MIRROR, "--topic", "more"], &target[..]].concat();
    pair.here.kagami(&remove).await?;
    pair.here.kill(second)?;
    pair.here.await_partitions(MIRROR, "more", 1, Wanted::Writable).await?;
    assert_eq!(pair.here.write("more", 0, batch(&["own"])).await?, 1);
    Ok(())
}

#[tokio::test]
async fn an_order_given_while_no_broker_runs_is_carried_out_when_they_are_back() -> Result<()> {
    let mut pair = mirrored().await?;
    for broker in pair.here.cluster.brokers() {
        pair.here.kill(broker)?;
    }
    pair.source.kill(1)?;
    let controllers = pair.here.cluster.bootstrap_controller();
    let target = ["--bootstrap-controller", &controllers];
    let remove = [&["mirror", "remove", "--mirror", MIRROR, "--all"], &target[..]].concat();
    pair.here.kagami(&remove).await?;
    // Waiting for it ends with the time-out's exit code and what is missing.
    let waiting = [&remove[..], &["--wait", "--timeout", "1"]].concat();
    let (code, _, errors) = pair.here.run_kagami(&waiting).await?;
    assert_eq!(code, 3, "{errors}");
    ensure!(errors.contains("orders"), "{errors}");
    for broker in pair.here.cluster.brokers() {
        pair.here.restart(broker)?;
    }
    pair.here.kagami(&[&remove[..], &["--wait"]].concat()).await?;
    failed_over(&mut pair).await
}
