//! PURE. Which replica a consumer is sent to: Kafka's RackAwareReplicaSelector (KIP-392).

use common::ids::*;

/// A follower as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerView {
    pub broker_id: BrokerId,
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
    pub last_caught_up_ms: i64,
}

/// The follower in the consumer's rack to read from at `offset`; `None`: the leader serves.
///
/// `rack_of` knows brokers that can be read from. The leader in the same rack is as near as any and ahead
/// of all. Otherwise the follower with the longest log, and of those the one that was last caught up.
pub fn nearest<'a>(
    rack: &str,
    leader: BrokerId,
    offset: Offset,
    followers: impl Iterator<Item = FollowerView>,
    rack_of: impl Fn(BrokerId) -> Option<&'a str>,
) -> Option<BrokerId> {
    let is_near = |broker: BrokerId| rack_of(broker) == Some(rack);
    if rack.is_empty() || is_near(leader) {
        return None;
    }
    followers
        .filter(|follower| is_near(follower.broker_id))
        .filter(|follower| (follower.log_start_offset..=follower.log_end_offset).contains(&offset))
        .max_by_key(|follower| (follower.log_end_offset, follower.last_caught_up_ms))
        .map(|follower| follower.broker_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(id: i32, start: i64, end: i64, caught_up_ms: i64) -> FollowerView {
        FollowerView {
            broker_id: BrokerId(id),
            log_start_offset: Offset(start),
            log_end_offset: Offset(end),
            last_caught_up_ms: caught_up_ms,
        }
    }

    #[test]
    fn the_nearest_replica_that_has_the_offset() {
        // Broker 1 leads in rack a; 2 and 3 are in b, 4 in c, 5 is in b and cannot be read from.
        let rack_of = |broker: BrokerId| match broker.0 {
            1 => Some("a"),
            2 | 3 => Some("b"),
            4 => Some("c"),
            _ => None,
        };
        let followers =
            [follower(2, 0, 90, 5), follower(3, 20, 90, 7), follower(4, 0, 80, 9), follower(5, 0, 100, 9)];
        let table = [
            ("", 50, None),
            ("a", 50, None),
            ("d", 50, None),
            ("b", 50, Some(3)),
            ("b", 10, Some(2)),
            ("b", 90, Some(3)),
            ("b", 91, None),
            ("c", 80, Some(4)),
            ("c", 85, None),
        ];
        for (rack, offset, expected) in table {
            let found = nearest(rack, BrokerId(1), Offset(offset), followers.into_iter(), rack_of);
            assert_eq!(found, expected.map(BrokerId), "rack {rack:?} offset {offset}");
        }
    }
}
