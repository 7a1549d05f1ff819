//! Addresses for the servers of a test.
//!
//! Each cluster gets a loopback address of its own, made of the process id and a counter, so that fixed
//! ports on it meet nobody: neither clusters of other test programs nor the kernel's ephemeral ports, which
//! are taken on other addresses.

use std::sync::atomic::{AtomicU32, Ordering};

static CLUSTERS: AtomicU32 = AtomicU32::new(1);

/// A loopback address that no other cluster on this machine has.
pub fn cluster_host() -> String {
    let process = std::process::id();
    let counter = CLUSTERS.fetch_add(1, Ordering::Relaxed);
    let (high, low) = (process >> 8 & 0x7f, process & 0xff);
    format!("127.{}.{}.{}", 64 + high, low.max(1), counter % 254 + 1)
}
