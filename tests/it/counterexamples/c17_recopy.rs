//! Counterexample 17: `--recopy` for a waiting partition whose sisters are already MIRRORING; a log emptied
//! by retention is not empty.
//!
//! Guards decision 11: `--recopy` is accepted for those that wait uncut and moves nobody else; and only a
//! log that ends at 0 has nothing to lose.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;
use uuid::Uuid;

use super::*;
use crate::support::{MIRROR, Wanted, values_of};

const BACK: &str = "back";
const WAITS_FOR_RECOPY: &str = "--recopy";

#[tokio::test]
async fn counterexample_17_recopy_moves_those_that_wait_and_a_log_emptied_by_retention_waits() -> Result<()> {
    // `source` is the one that answers in the end, `here` is who asks it: so both keep their names.
    let mut pair = Pair::start(ClusterSpec::new(1, 1), ClusterSpec::new(1, 3)).await?;
    pair.here.client.create_topic(TOPIC, 3, 3, &[]).await?;
    pair.here.client.await_isr(TOPIC, 3, LIMIT).await?;
    pair.here.write(TOPIC, 0, batch(&values("asker", 3))).await?;
    let emptied_to = pair.here.write(TOPIC, 2, batch(&values("asker", 3))).await? + 3;
    pair.here.delete_records(TOPIC, 2, emptied_to).await?;

    // The source was added to a mirror of `here` and removed before anything was cut.
    let (id, asker) = (pair.here.client.topic_id(TOPIC).await?, pair.here.bootstrap());
    let (code, message) = pair.source.create_with_id(TOPIC, 3, 1, id).await?;
    ensure!(code == ErrorCode::None, "create at the source: {} {message:?}", code.name());
    pair.source.client.await_leaders(TOPIC, 3).await?;
    for partition in 0..3 {
        pair.source.write(TOPIC, partition, batch(&values("source", 5))).await?;
    }
    pair.source.create_mirror(BACK, &asker).await?;
    pair.source.faults(1).hold("mirror.cut.send")?;
    pair.source.add(BACK, TOPIC).await?;
    pair.source.faults(1).reached("mirror.cut.send").await?;
    pair.source.remove(BACK, TOPIC).await?;
    let released = pair.source.await_partitions(BACK, TOPIC, 3, Wanted::Writable).await?;
    ensure!(released.iter().all(|partition| partition.last_mirrored_offset == -1), "{released:?}");
    pair.source.faults(1).release("mirror.cut.send")?;

    // Only the partition that never held anything begins.
    pair.here.add(MIRROR, TOPIC).await?;
    pair.here
        .await_described(MIRROR, "0 and 2 wait, 1 mirrors", |all| {
            all.len() == 3
                && all.iter().all(|partition| match partition.index {
                    1 => partition.state == "MIRRORING",
                    _ => partition.reason.as_ref().is_some_and(|why| why.contains(WAITS_FOR_RECOPY)),
                })
        })
        .await?;
    assert_eq!(pair.caught_up(TOPIC, 1).await?, 5);
    assert_eq!(pair.here.told("partition orders-0 cut to") + pair.here.told("partition orders-2 cut to"), 0);

    // While partition 0 is on its way to be copied anew, its sister copies on.
    let cutting = pair.here.place("mirror.cut.send", TOPIC, 0).await?;
    let leader = pair.here.leader(TOPIC, 0).await?;
    let faults = pair.here.faults(leader);
    faults.hold(&cutting)?;
    let code = pair.here.try_add(MIRROR, TOPIC, Uuid::nil(), true).await?;
    ensure!(code == ErrorCode::None, "add with recopy: {}", code.name());
    faults.reached(&cutting).await?;
    pair.source.write(TOPIC, 1, batch(&values("more", 5))).await?;
    assert_eq!(pair.caught_up(TOPIC, 1).await?, 10);
    faults.release(&cutting)?;
    pair.here.await_partitions(MIRROR, TOPIC, 3, Wanted::State("MIRRORING")).await?;
    for partition in 0..3 {
        pair.caught_up(TOPIC, partition).await?;
        let log = values_of(&pair.equal_to_source(TOPIC, partition).await?)?;
        ensure!(log.starts_with(&values("source", 5)), "partition {partition} holds {log:?}");
        assert_eq!(pair.here.told(&format!("partition orders-{partition} cut to")), 1);
    }
    Ok(())
}
