//! A log directory on a small file system that fills up. Without the right to mount one there is nothing
//! to see here; the log's own tests fail every step for want of space in any case.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use kagami_tests::cluster::{Cluster, ClusterSpec};
use protocol::ErrorCode;

use crate::support::{LIMIT, Side, batch, now_ms};

/// Unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(path: &Path, size: &str) -> Option<Mounted> {
        let size = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Mounted(path.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
#[allow(clippy::print_stderr)] // a test that does not run says so
async fn d01_a_full_disk_refuses_writes_keeps_what_it_has_and_serves_again_with_space() -> Result<()> {
    let spec = ClusterSpec::new(1, 1).with("replica.high.watermark.checkpoint.interval.ms", "200");
    let mut cluster = Cluster::format(spec)?;
    let data = cluster.data_directory(1);
    let Some(_mounted) = Mounted::tmpfs(&data, "8m") else {
        eprintln!("no right to mount a file system: not run");
        return Ok(());
    };
    let properties = cluster.properties(1).display().to_string();
    let format = ["storage", "format", "--config", &properties, "--cluster-id", cluster.cluster_id()];
    ensure!(cluster.kagami(&format)?.0 == 0, "cannot format");
    fs::write(data.join("ballast"), vec![1; 2 << 20])?;
    for id in [101, 1] {
        cluster.start_node(id)?;
    }
    let mut side = Side::of(cluster);
    side.await_start().await?;
    side.client.create_topic("orders", 2, 1, &[("segment.bytes", "1048576")]).await?;
    let mut acknowledged = 0;
    let refused = loop {
        let produced = side.client.produce("orders", 0, large_batch(acknowledged)).await?;
        if produced.error_code != 0 {
            break produced;
        }
        ensure!(produced.base_offset == acknowledged, "offsets have no hole");
        acknowledged += 1;
        ensure!(acknowledged < 1000, "the disk never fills up");
    };
    ensure!(refused.error_code == ErrorCode::KafkaStorageError.code(), "{refused:?}");
    ensure!(acknowledged > 10);
    // Others on the disk are refused as well once there is nothing left; nobody's log is damaged.
    for _ in 0..3 {
        let again = side.client.produce("orders", 0, large_batch(acknowledged)).await?;
        ensure!(again.error_code == ErrorCode::KafkaStorageError.code(), "{again:?}");
    }
    ensure!(side.end("orders", 0).await? == acknowledged);
    ensure!(side.cluster.is_running(1) && !side.cluster.log(1).contains("offline"), "no directory fails");

    // Space returns: so does service, without a restart.
    fs::remove_file(data.join("ballast"))?;
    let produced = side.write("orders", 0, large_batch(acknowledged)).await?;
    ensure!(produced == acknowledged, "{produced}");
    side.client.create_topic("later", 1, 1, &[]).await?;
    side.write("later", 0, batch(&["x"])).await?;

    // And it all is there after a crash.
    side.kill(1)?;
    side.restart(1)?;
    side.client.await_leaders("orders", 2).await?;
    ensure!(side.end("orders", 0).await? == acknowledged + 1);
    let mut offset = 0;
    while offset <= acknowledged {
        let fetched = side.client.fetch("orders", 0, offset, false).await?;
        ensure!(fetched.error_code == 0 && !fetched.records.is_empty(), "{fetched:?}");
        for found in protocol::record_batch::batches(&fetched.records) {
            let found = found?;
            protocol::record_batch::check_crc(found.bytes)?;
            ensure!(found.header.base_offset == offset);
            offset = found.header.next_offset();
        }
    }
    side.client.await_brokers(1, LIMIT).await
}

/// 100 KiB that no compression makes smaller.
fn large_batch(number: i64) -> bytes::Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ number as u64;
    let value: Vec<u8> = (0..100 * 1024)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .collect();
    protocol::record_batch::BatchBuilder::new().record(now_ms() + number % 7, None, Some(&value)).build()
}
