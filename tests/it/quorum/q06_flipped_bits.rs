//! Q6: bits of a stopped controller's log have flipped. It refuses to start, the others are not affected, and it
//! comes back formatted anew. (Flips anywhere in the store, some thousands: the program `quorum-store`; in a
//! snapshot: the tests of `raft-log`.)

use std::fs;

use anyhow::{Context, Result, ensure};
use kagami_tests::cluster::ClusterSpec;

use crate::support::Side;

const NAME: &str = "a-name-that-is-found-again";

#[tokio::test]
async fn q06_a_controller_with_flipped_bits_does_not_start() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 1)).await?;
    side.client.create_topic(NAME, 1, 1, &[]).await?;
    let leader = side.active_controller().await?;
    let damaged = side.controllers_but(leader)[0];
    side.await_same_metadata(&side.cluster.controllers()).await?;
    side.stop(damaged)?;
    let file = side.cluster.data_directory(damaged).join("quorum/quorum/store/db");
    let mut bytes = fs::read(&file)?;
    let found: Vec<usize> =
        (0..bytes.len() - NAME.len()).filter(|at| bytes[*at..].starts_with(NAME.as_bytes())).collect();
    ensure!(!found.is_empty(), "the record is not in the store");
    for at in found {
        bytes[at] ^= 0x10;
    }
    fs::write(&file, bytes)?;
    side.restart(damaged)?;
    side.cluster.await_exit(damaged).await?;
    let said = side.cluster.log(damaged);
    let last = said.lines().last().context("it says nothing")?;
    ensure!(last.contains("damaged"), "{last}");
    side.client.create_topic("meanwhile", 1, 1, &[]).await?;

    side.cluster.wipe(damaged)?;
    side.restart(damaged)?;
    let (id, servers) = (damaged.to_string(), side.bootstrap());
    side.kagami(&["quorum", "add", "--node-id", &id, "--bootstrap-server", &servers]).await?;
    side.await_same_metadata(&side.cluster.controllers()).await
}
