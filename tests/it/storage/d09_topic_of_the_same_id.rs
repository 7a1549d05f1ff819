//! A topic is deleted and made anew with its id while one replica's broker is down: what lies there is the
//! deleted topic's, however much it looks like the new one's.

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;
use uuid::Uuid;

use crate::support::{LIMIT, Side, batch, values, values_of};

const ID: Uuid = Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);

#[tokio::test]
async fn d09_a_directory_of_a_topic_deleted_and_made_anew_with_its_id_is_set_aside() -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(1, 2)).await?;
    ensure!(side.create_with_id("orders", 1, 2, ID).await?.0 == ErrorCode::None);
    side.client.await_isr("orders", 2, LIMIT).await?;
    for value in values("old", 8) {
        side.write("orders", 0, batch(&[value])).await?;
    }
    side.equal_replicas("orders", 0).await?;
    side.kill(2)?;
    side.await_isr_of("orders", 0, &[1]).await?;
    side.client.forget_leaders();
    side.delete_topic("orders").await?;
    ensure!(side.create_with_id("orders", 1, 1, ID).await?.0 == ErrorCode::None);
    side.client.await_leaders("orders", 1).await?;
    // Fewer than before: nothing in offsets tells that the other log is another topic's.
    side.set_config(crate::support::TOPIC_RESOURCE, "orders", "min.insync.replicas", "1").await?;
    for value in values("new", 3) {
        side.write("orders", 0, batch(&[value])).await?;
    }
    side.reassign("orders", &[1, 2]).await?;
    side.restart(2)?;
    side.await_isr_of("orders", 0, &[1, 2]).await?;
    ensure!(values_of(&side.equal_replicas("orders", 0).await?)? == values("new", 3));
    ensure!(!side.lines(2, &["set aside"]).is_empty(), "{}", side.cluster.log(2));
    let entries = std::fs::read_dir(side.cluster.data_directory(2))?;
    let aside = entries.filter_map(Result::ok).filter(|entry| {
        entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with("orders-0.") && name.ends_with("-stray"))
    });
    ensure!(aside.count() == 1, "the old directory is kept for whoever wants to look");

    // And the one that came back serves.
    side.kill(1)?;
    side.await_led_by("orders", 0, 2).await?;
    ensure!(values_of(&side.consume("orders", 0).await?)? == values("new", 3));
    Ok(())
}
