//! When which machine wants to be woken.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use common::ids::*;
use tokio::time::Instant;

#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(i64, TopicIdPartition)>>,
    /// The one time that counts for each machine; older entries of the heap are skipped.
    wanted: HashMap<TopicIdPartition, i64>,
}

impl Timers {
    pub fn set(&mut self, id: TopicIdPartition, at_ms: i64) {
        if self.wanted.insert(id, at_ms) != Some(at_ms) {
            self.heap.push(Reverse((at_ms, id)));
        }
    }

    pub fn next(&self, now_ms: i64) -> Option<Instant> {
        let Reverse((at_ms, _)) = self.heap.peek()?;
        let wait = u64::try_from(at_ms - now_ms).unwrap_or(0);
        Some(Instant::now() + Duration::from_millis(wait))
    }

    pub fn due(&mut self, now_ms: i64) -> Vec<TopicIdPartition> {
        let mut due = Vec::new();
        while let Some(Reverse((at_ms, id))) = self.heap.peek().copied() {
            if at_ms > now_ms {
                break;
            }
            self.heap.pop();
            if self.wanted.get(&id) == Some(&at_ms) {
                self.wanted.remove(&id);
                due.push(id);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_time_set_counts() {
        let id = |partition| TopicIdPartition::new(TopicId::ZERO, partition);
        let mut timers = Timers::default();
        timers.set(id(0), 100);
        timers.set(id(1), 50);
        timers.set(id(0), 200);
        assert_eq!(timers.due(49), []);
        assert_eq!(timers.due(150), [id(1)]);
        assert_eq!(timers.due(200), [id(0)]);
        assert!(timers.next(0).is_none());
    }
}
