//! What versions the other side serves, and which one both know.

use std::collections::HashMap;

use protocol::api::{self, ApiKey};

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
        let (their_min, their_max) = self.range(key as i16)?;
        let spec = api::spec(key as i16)?;
        let highest = their_max.min(spec.max_version);
        (highest >= their_min.max(spec.min_version)).then_some(highest)
    }
}
