//! Q3: the active controller is cut off from the others and goes on thinking that it leads. What it writes is
//! never committed, answered with success or seen, and is gone when it is back.

use anyhow::{Context, Result, ensure};
use kagami_tests::client::Client;
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::eventually::eventually;
use protocol::ErrorCode;
use tokio::time::timeout;

use super::controllers::{codes, create};
use crate::support::{LIMIT, Side};

const SEND: &str = "quorum.send";

#[tokio::test]
async fn q03_a_leader_that_is_cut_off_leaves_nothing_behind() -> Result<()> {
    // Its lease must last until the request has come.
    let spec = ClusterSpec::new(3, 2).with("quorum.election.timeout.ms", "1500");
    let mut side = Side::start(spec).await?;
    side.client.create_topic("before", 1, 2, &[]).await?;
    let deposed = side.active_controller().await?;
    let others = side.controllers_but(deposed);
    for other in &others {
        side.faults(*other).hold(&format!("{SEND}@{deposed}"))?;
    }
    side.faults(deposed).hold(SEND)?;
    side.faults(deposed).reached(SEND).await?;
    let before = side.metadata_at(deposed).await?;

    let address = side.cluster.controller_address(deposed);
    let asked = {
        let address = address.clone();
        tokio::spawn(async move { Client::new(&address).call_at(&address, create(&["lost"]), 7).await })
    };
    // It is in its log, beyond what is committed.
    eventually("an uncommitted tail", LIMIT, || async {
        let quorum = side.quorum_at(deposed).await?;
        let own = quorum.current_voters.iter().find(|voter| voter.replica_id.0 == deposed);
        let end = own.context("the leader is a voter")?.log_end_offset;
        Ok((quorum.leader_id.0 == deposed && end > quorum.high_watermark).then_some(()))
    })
    .await?;
    let leader = side.active_of(&others).await?;
    let elected = side.cluster.controller_address(leader);
    eventually("the others go on", LIMIT, || async {
        let answer = Client::new(&elected).call_at(&elected, create(&["kept"]), 7).await?;
        let code = codes(answer)?[0];
        Ok(([0, ErrorCode::TopicAlreadyExists.code()].contains(&code)).then_some(()))
    })
    .await?;
    let answer = timeout(LIMIT, asked).await.context("the deposed leader hangs")??;
    if let Ok(answer) = answer {
        let code = codes(answer)?[0];
        ensure!(ErrorCode::from_code(code).is_some_and(|error| error.retriable()), "answered with {code}");
    }
    ensure!(side.metadata_at(deposed).await? == before, "the deposed leader shows what is not committed");

    for other in &others {
        side.faults(*other).release(&format!("{SEND}@{deposed}"))?;
    }
    side.faults(deposed).release(SEND)?;
    side.check_topics(&["kept"]).await?;
    let topics = side.client.metadata(None).await?.topics;
    let mut names: Vec<String> =
        topics.iter().filter_map(|topic| topic.name.as_ref().map(|name| name.to_string())).collect();
    names.sort();
    ensure!(names == ["before", "kept"], "{names:?}");
    Ok(())
}
