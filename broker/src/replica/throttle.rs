//! PURE. Replication throttles: so many bytes a second for the replicas that an operator names (KIP-73).
//!
//! Bytes are counted when they pass, so a batch always passes whole; while more has passed than time has
//! allowed, throttled replicas wait. Those in sync are counted but never wait: an ISR must not shrink
//! because of a move.

use common::ids::*;

/// No throttle: Kafka's default of the rates.
pub const UNLIMITED: i64 = i64::MAX;
/// An idle throttle saves up this much of its rate.
const BURST_MS: i128 = 1_000;
/// The longest pause before looking again: the rate may have been changed.
const MAX_WAIT_MS: i128 = 1_000;

/// Bytes a second, and what may pass now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttle {
    bytes_per_second: i64,
    /// In thousandths of a byte, so that every millisecond counts.
    credit: i128,
    refilled_ms: u64,
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle { bytes_per_second: UNLIMITED, credit: 0, refilled_ms: 0 }
    }
}

impl Throttle {
    /// A change forgets what passed before.
    pub fn set_rate(&mut self, bytes_per_second: i64, now_ms: u64) {
        if bytes_per_second != self.bytes_per_second {
            let credit = i128::from(bytes_per_second) * BURST_MS;
            *self = Throttle { bytes_per_second, credit, refilled_ms: now_ms };
        }
    }

    fn refill(&mut self, now_ms: u64) {
        let rate = i128::from(self.bytes_per_second);
        let elapsed_ms = i128::from(now_ms.saturating_sub(self.refilled_ms));
        self.credit = (self.credit + rate * elapsed_ms).min(rate * BURST_MS);
        self.refilled_ms = self.refilled_ms.max(now_ms);
    }

    pub fn record(&mut self, bytes: usize, now_ms: u64) {
        if self.bytes_per_second != UNLIMITED {
            self.refill(now_ms);
            self.credit -= bytes as i128 * 1_000;
        }
    }

    /// How long to wait before more may pass; `None`: not at all.
    pub fn wait_ms(&mut self, now_ms: u64) -> Option<u64> {
        if self.bytes_per_second == UNLIMITED {
            return None;
        }
        self.refill(now_ms);
        if self.credit > 0 {
            return None;
        }
        let wait = match i128::from(self.bytes_per_second) {
            0 => MAX_WAIT_MS,
            rate => (-self.credit / rate + 1).min(MAX_WAIT_MS),
        };
        Some(wait as u64)
    }
}

/// The values of `leader.replication.throttled.replicas` and its like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThrottledReplicas {
    all: bool,
    /// Partition and broker.
    replicas: Vec<(i32, BrokerId)>,
}

impl ThrottledReplicas {
    /// `partition:broker` items, or `*`. What is neither was refused when it was set.
    pub fn parse(items: &[String]) -> ThrottledReplicas {
        let pair = |item: &String| {
            let (partition, broker) = item.split_once(':')?;
            Some((partition.trim().parse().ok()?, BrokerId(broker.trim().parse().ok()?)))
        };
        ThrottledReplicas {
            all: items.iter().any(|item| item == "*"),
            replicas: items.iter().filter_map(pair).collect(),
        }
    }

    pub fn contains(&self, partition: i32, broker: BrokerId) -> bool {
        self.all || self.replicas.contains(&(partition, broker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate() {
        let mut throttle = Throttle::default();
        throttle.record(1 << 40, 0);
        assert_eq!(throttle.wait_ms(0), None, "unlimited until a rate is set");
        throttle.set_rate(1_000, 0);
        let (mut now_ms, mut passed) = (0, 0);
        while now_ms < 60_000 {
            match throttle.wait_ms(now_ms) {
                Some(wait) => now_ms += wait,
                None => {
                    throttle.record(700, now_ms);
                    passed += 700;
                }
            }
        }
        // What one second had saved up, and a last whole batch.
        assert!((60_000..=61_700).contains(&passed), "{passed}");
        throttle.set_rate(0, now_ms);
        assert_eq!(throttle.wait_ms(now_ms + 100_000), Some(1_000));
        throttle.set_rate(UNLIMITED, now_ms);
        assert_eq!(throttle.wait_ms(now_ms), None);
    }

    #[test]
    fn replicas_are_named_by_partition_and_broker() {
        let parse = |items: &[&str]| {
            ThrottledReplicas::parse(&items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>())
        };
        let some = parse(&["0:1", "1:2"]);
        let found = [(0, 1), (0, 2), (1, 2), (1, 1)].map(|(p, b)| some.contains(p, BrokerId(b)));
        assert_eq!(found, [true, false, true, false]);
        assert!(parse(&["*"]).contains(7, BrokerId(9)));
        assert!(!parse(&[]).contains(0, BrokerId(1)));
    }
}
