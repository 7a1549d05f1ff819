//! `kagami quorum recover`: a majority of the controllers is lost for good.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use kagami_tests::http;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::t02_voters::node;
use crate::support::{LIMIT, Side, Writer};

impl Side {
    async fn recover(&self, controller: i32, arguments: &[&str]) -> Result<(i32, String, String)> {
        let config = self.cluster.properties(controller).display().to_string();
        self.run_kagami(&[&["quorum", "recover", "--config", &config], arguments].concat()).await
    }

    /// It must be refused, with these words.
    async fn refuses_to_recover(&self, controller: i32, arguments: &[&str], words: &str) -> Result<()> {
        let (code, output, errors) = self.recover(controller, arguments).await?;
        ensure!(code == 1 && errors.contains(words), "{arguments:?}: {code} {output} {errors}");
        Ok(())
    }

    async fn position(&self, controller: i32) -> Result<String> {
        let (code, output, errors) = self.recover(controller, &["--json"]).await?;
        ensure!(code == 0, "{code} {errors}");
        let shown: Value = serde_json::from_str(&output)?;
        Ok(shown["position"].as_str().context("a position")?.to_owned())
    }

    /// One that was given up ends by itself, now and at each start.
    async fn stays_out(&mut self, controller: i32) -> Result<()> {
        self.cluster.await_exit(controller).await?;
        let said = self.cluster.log(controller);
        ensure!(said.contains("recovered without this controller"), "controller {controller}: {said}");
        self.restart(controller)?;
        self.cluster.await_exit(controller).await
    }

    async fn add_anew(&mut self, controller: i32) -> Result<()> {
        self.cluster.wipe(controller)?;
        self.restart(controller)?;
        let (id, servers) = (controller.to_string(), self.bootstrap());
        self.kagami(&["quorum", "add", "--node-id", &id, "--bootstrap-server", &servers]).await?;
        ensure!(node(self, controller).await?.context("added")?.0 != "observer");
        Ok(())
    }
}

fn list(ids: &[i32]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn a_survivor_of_three_goes_on_and_the_lost_ones_stay_out() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 2)).await?;
    side.client.create_topic("orders", 2, 2, &[("min.insync.replicas", "1")]).await?;
    let id = side.client.topic_id("orders").await?;
    let writer = Writer::start(&side.bootstrap(), "orders", 0);
    writer.more(20).await?;
    let leader = side.active_controller().await?;
    let lost: Vec<i32> = side.cluster.controllers().into_iter().filter(|id| *id != leader).collect();
    for other in &lost {
        side.kill(*other)?;
    }
    // By itself it never goes on, restarted or not.
    side.kill(leader)?;
    side.restart(leader)?;
    let (lost_list, keep) = (list(&lost), leader.to_string());
    let planned = ["--keep", &keep, "--lost", &lost_list, "--confirm"];
    eventually("the survivor serves HTTP", LIMIT, || async {
        let answer = http::get(&side.cluster.metrics_address(leader), "/readyz").await;
        Ok(answer.is_ok_and(|answer| !answer.is_ok()).then_some(()))
    })
    .await?;
    side.refuses_to_recover(leader, &planned, "Another process is using").await?;
    let alone = Instant::now();
    while alone.elapsed() < Duration::from_millis(1500) {
        let answer = http::get(&side.cluster.metrics_address(leader), "/readyz").await?;
        ensure!(!answer.is_ok(), "it leads by itself");
        sleep(Duration::from_millis(100)).await;
    }
    side.kill(leader)?;

    let first = lost[0].to_string();
    side.refuses_to_recover(leader, &["--keep", &keep, "--lost", &first, "--confirm"], "the voters are")
        .await?;
    side.refuses_to_recover(
        leader,
        &["--keep", &first, "--lost", &lost_list, "--confirm"],
        "the one to keep",
    )
    .await?;
    let (code, shown, _) = side.recover(leader, &planned[..4]).await?;
    ensure!(code == 0 && shown.contains("nothing was written") && shown.contains("Log end"), "{shown}");
    let (code, shown, errors) = side.recover(leader, &planned).await?;
    ensure!(code == 0 && shown.contains("the only voter"), "{code} {shown} {errors}");
    writer.more(20).await?;
    side.restart(leader)?;
    ensure!(side.active_controller().await? == leader);
    ensure!(side.cluster.log(leader).contains("recovered by an operator's command"), "not logged");
    side.client.create_topic("after", 1, 2, &[]).await?;
    ensure!(side.client.topic_id("orders").await? == id, "another topic id");

    // A majority of the old quorum returns with its directories as they were.
    for other in &lost {
        side.restart(*other)?;
    }
    for other in &lost {
        side.stays_out(*other).await?;
    }
    ensure!(side.active_controller().await? == leader);
    for other in &lost {
        side.add_anew(*other).await?;
    }
    side.client.create_topic("with-three", 1, 2, &[]).await?;
    side.await_same_metadata(&side.cluster.controllers()).await?;
    side.kill(leader)?;
    side.client.create_topic("without-the-survivor", 1, 2, &[]).await?;
    ensure!(side.client.topic_id("orders").await? == id, "another topic id");
    let acknowledged = writer.finish().await?;
    side.client.await_isr("orders", 2, LIMIT).await?;
    Writer::check(acknowledged, &side.equal_replicas("orders", 0).await?)
}

#[tokio::test]
async fn of_two_survivors_of_five_the_one_with_less_is_refused() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(5, 1)).await?;
    side.client.create_topic("before", 1, 1, &[]).await?;
    let most = side.active_controller().await?;
    let others: Vec<i32> = side.cluster.controllers().into_iter().filter(|id| *id != most).collect();
    let (less, lost) = (others[0], &others[1..]);
    side.kill(less)?;
    let id = side.client.create_topic("later", 1, 1, &[]).await?;
    for controller in side.cluster.controllers().into_iter().filter(|id| *id != less) {
        side.kill(controller)?;
    }
    for controller in lost {
        fs::remove_dir_all(side.cluster.data_directory(*controller))?;
    }
    let lost = list(lost);
    let (keep, other) = (less.to_string(), side.cluster.data_directory(most).display().to_string());
    let position = side.position(most).await?;
    let words = format!("controller {most} has more ({position}) than this one");
    for survivor in [&other, &position] {
        let planned = ["--keep", &keep, "--lost", &lost, "--survivor", survivor, "--confirm"];
        side.refuses_to_recover(less, &planned, &words).await?;
    }
    let (keep, other) = (most.to_string(), side.cluster.data_directory(less).display().to_string());
    let planned = ["--keep", &keep, "--lost", &lost, "--survivor", &other, "--confirm"];
    let (code, _, errors) = side.recover(most, &planned).await?;
    ensure!(code == 0, "{code} {errors}");
    side.restart(most)?;
    side.client.create_topic("after", 1, 1, &[]).await?;
    ensure!(side.client.topic_id("later").await? == id, "another topic id");
    side.restart(less)?;
    side.stays_out(less).await?;
    side.add_anew(less).await?;
    side.await_same_metadata(&[most, less]).await
}
