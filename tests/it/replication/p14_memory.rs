//! P14: a broker runs out of memory. It may end; what it had acknowledged is there when it is started again, and
//! nothing is half written.

use anyhow::{Context, Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{Duration, Instant, sleep};

use crate::support::{LIMIT, Side, Writer, batch};

/// A frame that is announced and never ends: what has come of it is kept until then.
const FRAME_BYTES: i32 = 60 << 20;
const CHUNK_BYTES: usize = 1 << 20;
const CROWD: usize = 24;
const ROOM_BYTES: u64 = 96 << 20;
/// The greatest buffer of such a frame.
const BUFFER_BYTES: u64 = 64 << 20;
const PRESSURE: Duration = Duration::from_secs(3);

async fn limit_memory(pid: u32, limit: &str) -> Result<()> {
    let limit = format!("--as={limit}");
    let status = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status().await?;
    ensure!(status.success(), "prlimit: {status}");
    Ok(())
}

fn address_space_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).context("VmSize")?;
    let kib: u64 = line.split_whitespace().next().context("a number")?.parse()?;
    Ok(kib * 1024)
}

/// Sends as much of a frame as the broker takes.
async fn press(address: String) {
    let Ok(mut stream) = TcpStream::connect(address).await else { return };
    let chunk = vec![0; CHUNK_BYTES];
    // API key 0, version 9: a produce request like any other, as far as it goes.
    let head = [&FRAME_BYTES.to_be_bytes()[..], &[0, 0, 0, 9]].concat();
    if stream.write_all(&head).await.is_err() {
        return;
    }
    for _ in 0..FRAME_BYTES as usize / CHUNK_BYTES - 1 {
        if stream.write_all(&chunk).await.is_err() {
            return;
        }
    }
    sleep(LIMIT).await;
}

#[tokio::test]
async fn p14_without_memory_nothing_acknowledged_is_lost_and_nothing_is_half_written() -> Result<()> {
    // The allocator asks for what it needs, and has not a GiB in reserve.
    let spec = ClusterSpec::new(1, 1).with_environment("MIMALLOC_ARENA_RESERVE", "16MiB");
    let mut side = Side::start(spec).await?;
    side.client.create_topic("load", 1, 1, &[]).await?;
    let writer = Writer::start(&side.bootstrap(), "load", 0);
    writer.more(30).await?;
    let pid = side.cluster.pid(1)?;
    let room = address_space_bytes(pid)? + ROOM_BYTES;
    limit_memory(pid, &format!("{room}:{room}")).await?;
    let address = side.cluster.broker_address(1);
    let crowd: Vec<_> = (0..CROWD).map(|_| tokio::spawn(press(address.clone()))).collect();
    let until = Instant::now() + PRESSURE;
    let mut greatest_bytes = 0;
    while side.cluster.is_running(1) && Instant::now() < until {
        greatest_bytes = address_space_bytes(pid).unwrap_or(0).max(greatest_bytes);
        sleep(Duration::from_millis(20)).await;
    }
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
    ensure!(
        !side.cluster.is_running(1) || greatest_bytes + BUFFER_BYTES > room,
        "memory did not run out: {greatest_bytes} bytes of {room}"
    );
    // Whether it stood or fell, the next one finds whole batches and goes on.
    if side.cluster.is_running(1) {
        side.kill(1)?;
    }
    side.restart(1)?;
    side.client.await_brokers(1, LIMIT).await?;
    writer.more(30).await?;
    let acknowledged = writer.finish().await?;
    Writer::check(acknowledged, &side.replica(1, "load", 0)?)?;
    side.client.create_topic("new", 1, 1, &[]).await?;
    ensure!(side.write("new", 0, batch(&["x"])).await? == 0);
    Ok(())
}
