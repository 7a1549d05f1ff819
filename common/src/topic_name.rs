//! Which names a topic may have.

/// As Kafka: metrics and directories are named after topics.
pub const MAX_TOPIC_NAME_LENGTH: usize = 249;

/// Kafka's rule: 1 to 249 of `a-z A-Z 0-9 . _ -`, neither `.` nor `..`.
pub fn is_valid_topic_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_TOPIC_NAME_LENGTH
        && name != "."
        && name != ".."
        && has_legal_characters(name)
}

/// The characters of topic names, and of mirror names.
pub fn has_legal_characters(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_kafka_takes_them() {
        for valid in ["a", "orders.v1", "A_b-9", "...", &"x".repeat(249)] {
            assert!(is_valid_topic_name(valid), "{valid}");
        }
        for invalid in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert!(!is_valid_topic_name(invalid), "{invalid}");
        }
    }
}
