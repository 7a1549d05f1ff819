//! Power fails: what was acknowledged from page caches and not flushed is gone. On one or two of three replicas
//! nothing is lost; on all three some is, as documented, and the cluster says so and goes on with one log.

use std::fs;

use anyhow::{Context, Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use kagami_tests::segments;
use protocol::record_batch::batches;

use crate::support::{LIMIT, Side, batch, values_of};

const ROUND: usize = 12;

/// What stood behind so many batches had not reached the disk.
fn lose_tail(side: &Side, broker: i32, kept: usize) -> Result<()> {
    let directory = segments::partition_directory(&side.cluster.data_directory(broker), "orders", 0);
    let path = segments::files(&directory, "log")?.pop().context("a segment")?;
    let bytes = fs::read(&path)?;
    let end = match batches(&bytes).nth(kept) {
        Some(batch) => batch?.position,
        None => bytes.len(),
    };
    fs::File::options().write(true).open(path)?.set_len(end as u64)?;
    Ok(())
}

async fn write_round(side: &mut Side, values: &mut Vec<String>) -> Result<()> {
    for _ in 0..ROUND {
        let value = format!("value-{}", values.len());
        side.write("orders", 0, batch(&[&value])).await?;
        values.push(value);
    }
    Ok(())
}

#[tokio::test]
async fn d05_power_fails_on_two_and_on_all_replicas() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 3)).await?;
    side.client.create_topic("orders", 1, 3, &[]).await?;
    let mut values = Vec::new();
    write_round(&mut side, &mut values).await?;
    side.client.await_isr("orders", 3, LIMIT).await?;

    // The leader and a follower: who is left has it all.
    let leader = side.leader("orders", 0).await?;
    let follower = side.follower("orders", 0).await?;
    let third = 6 - leader - follower;
    for broker in [leader, follower] {
        side.kill(broker)?;
        lose_tail(&side, broker, 5)?;
    }
    side.await_led_by("orders", 0, third).await?;
    for broker in [leader, follower] {
        side.restart(broker)?;
    }
    side.client.await_isr("orders", 3, LIMIT).await?;
    ensure!(values_of(&side.equal_replicas("orders", 0).await?)? == values, "nothing acknowledged is lost");
    write_round(&mut side, &mut values).await?;

    // All three at once, each of them to another end.
    let kept = [(1, 20), (2, 15), (3, 18)];
    for (broker, _) in kept {
        side.kill(broker)?;
    }
    for (broker, kept) in kept {
        lose_tail(&side, broker, kept)?;
    }
    for (broker, _) in kept {
        side.restart(broker)?;
    }
    side.client.await_isr("orders", 3, LIMIT).await?;
    let found = values_of(&side.equal_replicas("orders", 0).await?)?;
    ensure!(values.starts_with(&found) && found.len() >= 15, "a prefix of what was written: {found:?}");
    ensure!(found.len() < values.len(), "not even power gives back what is gone");
    let told = [1, 2, 3].map(|broker| side.lines(broker, &["elected uncleanly"]).len());
    ensure!(told.iter().sum::<usize>() > 0, "nobody has told of the loss");
    let mut values = found;
    write_round(&mut side, &mut values).await?;
    ensure!(values_of(&side.equal_replicas("orders", 0).await?)? == values, "all go on from there");
    Ok(())
}
