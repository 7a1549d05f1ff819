//! Coordinators keep their state in the partitions of an internal topic: each partition's leader holds
//! the state of the keys that hash to it (decision 5). Mirror state is the first of them.

pub mod log;
pub mod runtime;
pub mod shard;

pub use log::{CoordinatorLog, CoordinatorLogError, CoordinatorLogs};
pub use runtime::{CoordinatorError, CoordinatorRuntime};
pub use shard::{CoordinatorRecord, ReplayError, Replayed, Shard};

/// The partition of a coordinator topic that keeps a key: Java's string hash, as Kafka's coordinators
/// use it, so that every broker computes the same one.
pub fn partition_for(key: &str, partitions: i32) -> i32 {
    // Kafka's Utils.abs: the sign bit is dropped, so that the lowest number has a place too.
    (java_hash(key) & i32::MAX) % partitions.max(1)
}

/// `String.hashCode`, over UTF-16 units.
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("a"), 97);
        assert_eq!(java_hash("kafka"), 101_807_910);
        // The one string everybody knows for the lowest number.
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        assert_eq!(partition_for("polygenelubricants", 50), 0);
        assert!((0..50).contains(&partition_for("m1:AAAAAAAAAAAAAAAAAAAAAA:3", 50)));
    }
}
