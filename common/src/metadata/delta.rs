//! What a batch touched: effects are derived from (image before, delta, image after).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::*;

use super::image::TopicImage;
use super::record::ConfigResource;

/// The set of keys that one or more batches touched.
#[derive(Clone, Debug, Default)]
pub struct MetadataDelta {
    pub brokers: BTreeSet<BrokerId>,
    pub topics_created: BTreeSet<TopicId>,
    /// As they were. The same id may be in `topics_created` too, of a topic made later.
    pub topics_deleted: Vec<Arc<TopicImage>>,
    /// Registration, cut or release touched; partitions of a created topic included.
    pub partitions: BTreeSet<TopicIdPartition>,
    /// `mirror.name` or its recopy mark touched.
    pub topics_mirror: BTreeSet<TopicId>,
    pub configs: BTreeSet<ConfigResource>,
    pub mirrors: BTreeSet<Arc<str>>,
    pub pending_mirror_topics: bool,
    pub features: bool,
    /// A snapshot replaced the image: anything may have changed.
    pub everything: bool,
}

impl MetadataDelta {
    /// What a loaded snapshot counts as: the receiver compares the images whole.
    pub fn everything() -> MetadataDelta {
        MetadataDelta { everything: true, ..MetadataDelta::default() }
    }

    pub fn is_empty(&self) -> bool {
        !self.everything
            && !self.features
            && !self.pending_mirror_topics
            && self.brokers.is_empty()
            && self.topics_created.is_empty()
            && self.topics_deleted.is_empty()
            && self.partitions.is_empty()
            && self.topics_mirror.is_empty()
            && self.configs.is_empty()
            && self.mirrors.is_empty()
    }

    /// Adds what a later batch touched.
    pub fn merge(&mut self, later: MetadataDelta) {
        self.brokers.extend(later.brokers);
        self.topics_created.extend(later.topics_created);
        self.topics_deleted.extend(later.topics_deleted);
        self.partitions.extend(later.partitions);
        self.topics_mirror.extend(later.topics_mirror);
        self.configs.extend(later.configs);
        self.mirrors.extend(later.mirrors);
        self.pending_mirror_topics |= later.pending_mirror_topics;
        self.features |= later.features;
        self.everything |= later.everything;
    }
}
