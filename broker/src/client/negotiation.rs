//! What versions the other side serves, and which one both know.

use std::collections::HashMap;

use protocol::api::ApiKey;

/// The ranges an ApiVersions answer named.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerVersions {
    ranges: HashMap<i16, (i16, i16)>,
}

impl PeerVersions {
    pub(super) fn new(ranges: impl IntoIterator<Item = (i16, i16, i16)>) -> PeerVersions {
        PeerVersions { ranges: ranges.into_iter().map(|(key, min, max)| (key, (min, max))).collect() }
    }

    /// What the other side serves, whether we know it or not.
    pub(super) fn range(&self, key: i16) -> Option<(i16, i16)> {
        self.ranges.get(&key).copied()
    }

    /// The highest version that both know.
    pub(super) fn highest_common(&self, key: ApiKey) -> Option<i16> {
        let (their_min, their_max) = self.range(key.code())?;
        let spec = key.spec();
        // CreateTopics 8 is ours; one that a later Kafka may have is not the same message.
        let is_ours = self.range(ApiKey::CreateMirror.code()).is_some();
        let our_max = if is_ours { spec.max_version } else { spec.advertised_max_version(None) };
        let highest = their_max.min(our_max);
        (highest >= their_min.max(spec.min_version)).then_some(highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_that_both_know() {
        let peer = PeerVersions::new([(1, 4, 11), (0, 99, 120), (19, 2, 8)]);
        assert_eq!(peer.highest_common(ApiKey::Fetch), Some(11));
        assert_eq!(peer.highest_common(ApiKey::Produce), None, "nothing in common");
        assert_eq!(peer.highest_common(ApiKey::Metadata), None, "not served there");
        assert_eq!(peer.highest_common(ApiKey::CreateTopics), Some(7), "its version 8 is not ours");
        let ours = PeerVersions::new([(19, 2, 8), (12790, 0, 0)]);
        assert_eq!(ours.highest_common(ApiKey::CreateTopics), Some(8));
    }
}
