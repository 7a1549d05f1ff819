//! What kind of world a seed is.

use std::time::Duration;

use super::random::Random;
use crate::config::{RaftLogConfig, VoterId};

#[derive(Clone, Debug)]
pub struct Profile {
    pub voters: u64,
    /// Observers that may become voters.
    pub spares: u64,
    pub heartbeat_ms: u64,
    pub election_timeout_ms: u64,
    pub snapshot_every_entries: u64,
    pub clients: u64,
    /// Of a message.
    pub delay_us: u64,
    pub lost_thousandths: u64,
    pub repeated_thousandths: u64,
    pub disk_us: u64,
    /// Between two faults, on average.
    pub fault_ms: u64,
    pub operator_ms: u64,
    /// How far a clock may be off, to both sides.
    pub skew_thousandths: u64,
    /// How long faults go on.
    pub duration: Duration,
}

impl Profile {
    pub fn of(random: &mut Random) -> Profile {
        let voters = [3, 3, 3, 3, 5, 5, 2, 1, 4][random.below(9)];
        let fast = random.chance(500);
        Profile {
            voters,
            spares: random.between(0, 2),
            heartbeat_ms: if fast { 20 } else { 50 },
            election_timeout_ms: if fast { 80 } else { 200 },
            snapshot_every_entries: random.between(10, 120),
            clients: random.between(1, 4),
            delay_us: random.between(200, 5_000),
            lost_thousandths: random.between(0, 12) * random.between(0, 3),
            repeated_thousandths: random.between(0, 40),
            disk_us: random.between(100, 6_000),
            fault_ms: random.between(150, 1_500),
            operator_ms: random.between(400, 4_000),
            skew_thousandths: random.between(0, 1) * random.between(0, 200),
            duration: Duration::from_secs(random.between(10, 30)),
        }
    }

    pub fn config(&self) -> RaftLogConfig {
        let mut config = RaftLogConfig::new(VoterId::default(), "simulated", "simulated");
        config.voters = (1..=self.voters).map(|node_id| (node_id, String::new())).collect();
        config.heartbeat_ms = self.heartbeat_ms;
        config.election_timeout_ms = self.election_timeout_ms;
        config.snapshot_every_entries = self.snapshot_every_entries;
        config
    }
}
