//! Controllers come, go and come back while the cluster works.

use anyhow::{Context, Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use serde_json::Value;

use crate::support::{LIMIT, Side};

/// (role, directory id) of a node, as `kagami quorum describe` shows it.
pub async fn node(side: &Side, id: i32) -> Result<Option<(String, String)>> {
    let shown = side.quorum(&["describe", "--json"]).await?;
    let shown: Value = serde_json::from_str(&shown)?;
    let nodes = shown["nodes"].as_array().context("no nodes")?;
    let found = nodes.iter().find(|node| node["node"] == id);
    let text = |node: &Value, key: &str| node[key].as_str().unwrap_or_default().to_owned();
    Ok(found.map(|node| (text(node, "role"), text(node, "directory_id"))))
}

impl Side {
    async fn quorum(&self, arguments: &[&str]) -> Result<String> {
        let controllers = self.cluster.bootstrap_controller();
        let target = ["--bootstrap-controller", controllers.as_str(), "--timeout", "30"];
        self.kagami(&[&["quorum"], arguments, &target[..]].concat()).await
    }
}

#[tokio::test]
async fn a_controller_is_added_the_leader_removed_and_leadership_handed_over() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 1)).await?;
    side.client.create_topic("before", 1, 1, &[]).await?;
    let added = side.cluster.add_controller()?;
    side.restart(added)?;
    let id = added.to_string();
    // Through a broker, as an operator may.
    let servers = side.bootstrap();
    side.kagami(&["quorum", "add", "--node-id", &id, "--bootstrap-server", &servers]).await?;
    ensure!(node(&side, added).await?.context("added")?.0 == "voter");
    ensure!(node(&side, 1).await?.context("the broker")?.0 == "observer");

    let leader = side.active_controller().await?;
    side.quorum(&["remove", "--node-id", &leader.to_string()]).await?;
    ensure!(node(&side, leader).await?.is_none_or(|(role, _)| role == "observer"));
    side.kill(leader)?;
    side.client.create_topic("after", 1, 1, &[]).await?;
    let (code, _, errors) = side
        .run_kagami(&[
            "quorum",
            "remove",
            "--node-id",
            &leader.to_string(),
            "--bootstrap-server",
            &side.bootstrap(),
        ])
        .await?;
    ensure!(code == 1 && errors.contains("not a voter"), "{code} {errors}");

    side.quorum(&["transfer-leader", "--node-id", &id]).await?;
    ensure!(side.active_controller().await? == added);
    // Brokers were never told of it but by the quorum itself.
    side.client.create_topic("under-the-new-one", 1, 1, &[]).await?;
    ensure!(side.client.topic("before").await?.error_code == 0);
    Ok(())
}

#[tokio::test]
async fn q04_a_controller_that_lost_its_disk_comes_back_as_a_new_voter() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 1)).await?;
    side.client.create_topic("orders", 1, 1, &[]).await?;
    let leader = side.active_controller().await?;
    let wiped = side.cluster.controllers().into_iter().find(|id| *id != leader).context("another")?;
    let (_, old) = node(&side, wiped).await?.context("a voter")?;
    side.kill(wiped)?;
    side.cluster.wipe(wiped)?;
    side.restart(wiped)?;
    side.quorum(&["add", "--node-id", &wiped.to_string()]).await?;
    let (role, new) = node(&side, wiped).await?.context("a voter")?;
    ensure!(role == "voter" && new != old, "{role} {old} {new}");
    // It counts, and has what was acknowledged.
    let other = side.cluster.controllers().into_iter().find(|id| ![leader, wiped].contains(id));
    side.kill(other.context("the third")?)?;
    side.client.create_topic("with-the-new-one", 1, 1, &[]).await?;
    side.kill(leader)?;
    side.restart(leader)?;
    side.active_controller().await?;
    let side = &mut side;
    let topics = side.client.metadata(None).await?.topics.len();
    ensure!(topics >= 2, "{topics} topics");
    side.client.create_topic("last", 1, 1, &[]).await?;
    Ok(())
}

#[tokio::test]
async fn a_broker_is_unregistered_once_it_is_stopped() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 2)).await?;
    let arguments = ["quorum", "unregister-broker", "--node-id", "2", "--bootstrap-server"];
    let server = side.cluster.broker_address(1);
    let arguments = [&arguments[..], &[server.as_str()]].concat();
    let (code, _, errors) = side.run_kagami(&arguments).await?;
    ensure!(code == 1 && errors.contains("is running"), "{code} {errors}");
    side.stop(2)?;
    side.kagami(&arguments).await?;
    let (code, _, errors) = side.run_kagami(&arguments).await?;
    ensure!(code == 1 && errors.contains("BROKER_ID_NOT_REGISTERED"), "{code} {errors}");
    // It may come back, as a new one.
    side.restart(2)?;
    eventually("broker 2 again", LIMIT, || {
        let log = side.cluster.log(101);
        async move { Ok((log.matches("broker 2 registered").count() == 2).then_some(())) }
    })
    .await
}
