//! Counterexample 16: A late "STOPPED" report, or a repeated add before the first one shows, must not make
//! a second association on a mirroring topic; a late "source deleted" must not put the suffix on a newer
//! one.
//!
//! Guards decision 13: a report names its association and is refused unless that is the newest; and
//! decision 18: Add is decided from the committed metadata, never from what brokers report.

use std::time::Duration;

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::*;
use crate::support::{MIRROR, Wanted, values_of};

const PAUSE: Duration = Duration::from_millis(20);
const ADDED: &str = "topic orders added to mirror";

#[tokio::test]
async fn counterexample_16_an_add_repeated_before_the_first_one_shows() -> Result<()> {
    let mut pair = start_with_own_records(ClusterSpec::new(3, 3)).await?;
    let active = pair.here.active_controller().await?;
    let adding = "controller.operation@AddTopicsToMirror";
    let faults = pair.here.faults(active);
    faults.hold(adding)?;
    let server = pair.here.bootstrap();
    let arguments = ["mirror", "add", "--bootstrap-server", &server, "--mirror", MIRROR, "--topic", TOPIC];
    // The controller dies with the add committed and nobody told.
    let (asked, died) = tokio::join!(pair.here.run_kagami(&arguments), async {
        faults.reached(adding).await?;
        faults.crash("controller.answer")?;
        faults.release(adding)?;
        faults.crashed("controller.answer").await
    });
    died?;
    let (code, output, errors) = asked?;
    pair.here.cluster.await_exit(active).await?;
    let again = pair.here.try_add(MIRROR, TOPIC, Uuid::nil(), false).await?;
    assert_eq!(again, ErrorCode::InvalidRequest, "after {code}: {output} {errors}");
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;
    pair.caught_up(TOPIC, 0).await?;
    pair.here.restart(active)?;
    // A second association would have been cut too.
    assert_eq!(pair.here.told("partition orders-0 cut to"), 1);
    pair.equal_to_source(TOPIC, 0).await?;
    Ok(())
}

#[tokio::test]
async fn counterexample_16_a_late_report_of_stopped_opens_no_second_association() -> Result<()> {
    let mut pair = start(ClusterSpec::new(1, 3)).await?;
    pair.mirror(TOPIC, 1).await?;
    pair.caught_up(TOPIC, 0).await?;
    let leader = pair.here.leader(TOPIC, 0).await?;
    let stopped = common::mirror_state::MirrorState::Stopped.code();
    let reporting = format!("{}@{stopped}", pair.here.place("mirror.report.send", TOPIC, 0).await?);
    let faults = pair.here.faults(leader);
    faults.hold(&reporting)?;
    pair.here.remove(MIRROR, TOPIC).await?;
    faults.reached(&reporting).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    pair.here.add(MIRROR, TOPIC).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;

    faults.release(&reporting)?;
    assert_eq!(pair.here.try_add(MIRROR, TOPIC, Uuid::nil(), false).await?, ErrorCode::InvalidRequest);
    let controller = pair.here.active_controller().await?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = pair.here.describe_at_controller(controller, MIRROR).await?;
        if found.iter().any(|partition| partition.state == "MIRRORING") {
            break;
        }
        ensure!(Instant::now() < deadline, "the controller shows {found:?}");
        sleep(PAUSE).await;
    }
    assert_eq!(pair.here.try_add(MIRROR, TOPIC, Uuid::nil(), false).await?, ErrorCode::InvalidRequest);
    assert_eq!(pair.here.told(ADDED), 2, "two adds were accepted");
    pair.caught_up(TOPIC, 0).await?;
    pair.equal_to_source(TOPIC, 0).await?;
    Ok(())
}

#[tokio::test]
async fn counterexample_16_a_late_source_deleted_does_not_stop_a_newer_association() -> Result<()> {
    let mut pair = start(ClusterSpec::new(1, 3)).await?;
    // A listing without any topic would be no evidence, and a mirror without any contacts nobody.
    pair.source.client.create_topic("other", 1, 1, &[]).await?;
    pair.mirror("other", 1).await?;
    pair.mirror(TOPIC, 1).await?;
    pair.caught_up(TOPIC, 0).await?;
    let id = pair.source.client.topic_id(TOPIC).await?;
    let reporting = format!("mirror.source_deleted.send@{MIRROR}");
    let answered = format!("mirror.source_deleted.answered@{MIRROR}");
    for broker in pair.here.cluster.brokers() {
        pair.here.faults(broker).hold(&reporting)?;
    }
    let server = pair.source.bootstrap();
    pair.source.kagami(&["topic", "delete", "--bootstrap-server", &server, "--topic", TOPIC]).await?;
    let deadline = Instant::now() + LIMIT;
    let coordinator = loop {
        let brokers = pair.here.cluster.brokers();
        if let Some(broker) = brokers.into_iter().find(|id| pair.here.faults(*id).is_reached(&reporting)) {
            break broker;
        }
        ensure!(Instant::now() < deadline, "nobody reports a deletion");
        sleep(PAUSE).await;
    };

    // Before that arrives: failed over by hand, there again at the source, added again.
    pair.here.remove(MIRROR, TOPIC).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::Writable).await?;
    let (code, message) = pair.source.create_with_id(TOPIC, 1, 1, id).await?;
    ensure!(code == ErrorCode::None, "create at the source again: {} {message:?}", code.name());
    pair.source.client.await_leaders(TOPIC, 1).await?;
    pair.source.write(TOPIC, 0, batch(&values("again", 10))).await?;
    pair.here.add(MIRROR, TOPIC).await?;
    pair.here.await_partitions(MIRROR, TOPIC, 1, Wanted::State("MIRRORING")).await?;

    let faults = pair.here.faults(coordinator);
    faults.hold(&answered)?;
    faults.release(&reporting)?;
    faults.reached(&answered).await?;
    faults.release(&answered)?;
    assert_eq!(pair.here.told("topic orders removed from mirror"), 1, "the late one is refused");
    assert_eq!(pair.here.refusal(TOPIC, 0, batch(&["no"])).await?, ErrorCode::ReadOnlyTopic);
    pair.source.write(TOPIC, 0, batch(&values("more", 10))).await?;
    pair.caught_up(TOPIC, 0).await?;
    let log = values_of(&pair.equal_to_source(TOPIC, 0).await?)?;
    assert_eq!(log, [values("again", 10), values("more", 10)].concat());
    Ok(())
}
