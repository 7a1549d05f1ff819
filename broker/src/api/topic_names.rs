//! Which topics are the cluster's own.

use common::mirror_state::MIRROR_STATE_TOPIC;
pub use common::topic_name::is_valid_topic_name as is_valid;

/// Topics that clients do not write: Kafka's three, and the mirror coordinators'.
const INTERNAL_TOPICS: [&str; 4] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state", MIRROR_STATE_TOPIC];

pub fn is_internal(name: &str) -> bool {
    INTERNAL_TOPICS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clusters_own_topics() {
        assert!(is_internal("__mirror_state"));
        assert!(!is_internal("__mine"));
    }
}
