//! Which names a topic may have, and which topics are the cluster's own.

use common::mirror_state::MIRROR_STATE_TOPIC;

const MAX_LENGTH: usize = 249;

/// Topics that clients do not write: Kafka's three, and the mirror coordinators'.
const INTERNAL_TOPICS: [&str; 4] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state", MIRROR_STATE_TOPIC];

pub fn is_internal(name: &str) -> bool {
    INTERNAL_TOPICS.contains(&name)
}

/// Kafka's rule: 1 to 249 of `a-z A-Z 0-9 . _ -`, neither `.` nor `..`.
pub fn is_valid(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= MAX_LENGTH && name != "." && name != ".." && name.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_kafka_takes_them() {
        for valid in ["a", "orders.v1", "A_b-9", "...", &"x".repeat(249)] {
            assert!(is_valid(valid), "{valid}");
        }
        for invalid in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert!(!is_valid(invalid), "{invalid}");
        }
        assert!(is_internal("__mirror_state"));
        assert!(!is_internal("__mine"));
    }
}
