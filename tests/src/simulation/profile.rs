//! What a seed makes of its run: how many clusters and brokers, and how rough the world is.

use super::random::Random;

#[derive(Clone, Debug)]
pub struct Profile {
    pub clusters: usize,
    pub brokers: usize,
    pub partitions: usize,
    pub min_insync_replicas: usize,
    pub unclean_elections: bool,
    pub transactions: bool,
    /// In thousandths of all messages.
    pub lost: u32,
    pub repeated: u32,
    pub slow: u32,
    pub slowest_ms: i64,
    /// Mean pause between faults.
    pub fault_ms: i64,
    /// Mean pause between an operator's actions; only with two or more clusters.
    pub operator_ms: i64,
    pub client_ms: i64,
    /// The disk is synced with this chance at each checkpoint; else a loss of power takes the tail.
    pub sync: u32,
    pub loses_power: bool,
    pub loses_state_topic: bool,
    pub recreates_topics: bool,
    pub skews_clocks: bool,
    /// Plays `drill.rs`, too.
    pub drills: bool,
    /// A broker that went comes back by itself.
    pub restarts: bool,
}

impl Profile {
    pub fn of(random: &mut Random) -> Profile {
        let clusters = [1, 2, 2, 2, 3, 3][random.below(6)];
        let brokers = [3, 3, 3, 2, 1][random.below(if clusters == 1 { 3 } else { 5 })];
        let rough = random.below(3) as u32;
        Profile {
            clusters,
            brokers,
            partitions: if random.chance(250) { 2 } else { 1 },
            min_insync_replicas: if brokers == 3 && random.chance(700) { 2 } else { 1 },
            unclean_elections: random.chance(250),
            transactions: random.chance(600),
            lost: rough * 8,
            repeated: rough * 10,
            slow: 20 + rough * 30,
            slowest_ms: [100, 800, 2_500][random.below(3)],
            fault_ms: [400, 900, 2_500][random.below(3)],
            operator_ms: [300, 700, 1_500][random.below(3)],
            client_ms: [30, 60, 150][random.below(3)],
            sync: [100, 500, 900][random.below(3)],
            loses_power: random.chance(400),
            loses_state_topic: random.chance(150),
            recreates_topics: random.chance(150),
            skews_clocks: random.chance(250),
            drills: clusters == 3 && brokers > 1 && random.chance(300),
            restarts: true,
        }
    }

    /// For scripted scenarios: nothing happens that the script does not say.
    pub fn quiet(clusters: usize, brokers: usize) -> Profile {
        Profile {
            clusters,
            brokers,
            partitions: 1,
            min_insync_replicas: 1,
            unclean_elections: false,
            transactions: false,
            lost: 0,
            repeated: 0,
            slow: 0,
            slowest_ms: 0,
            fault_ms: 0,
            operator_ms: 0,
            client_ms: 0,
            sync: 1_000,
            loses_power: false,
            loses_state_topic: false,
            recreates_topics: false,
            skews_clocks: false,
            drills: false,
            restarts: false,
        }
    }
}
