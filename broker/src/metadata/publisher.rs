//! Applies each change of the image to the parts of the broker, in one fixed order.
//!
//! The cache comes first, so that whatever a part does next is decided on the new image; replicas
//! before coordinators and mirror, since those append to partitions that must lead by then. Clients are
//! answered from a second cache, which comes last: a topic that they are told of can be written to.

use std::sync::Arc;

use common::metadata::{MetadataDelta, MetadataImage};

use super::cache::MetadataCache;

/// A part of the broker that acts on metadata. Blocking work (creating logs) is allowed.
pub trait MetadataSubscriber: Send + Sync {
    fn apply_metadata(&self, before: &MetadataImage, delta: &MetadataDelta, after: &Arc<MetadataImage>);
}

pub struct MetadataPublisher {
    cache: Arc<MetadataCache>,
    /// In the order in which they are told: replicas, coordinators, configs, mirror.
    subscribers: Vec<Arc<dyn MetadataSubscriber>>,
    /// What all of them have acted on.
    applied: Arc<MetadataCache>,
}

impl MetadataPublisher {
    pub fn new(
        cache: Arc<MetadataCache>,
        subscribers: Vec<Arc<dyn MetadataSubscriber>>,
        applied: Arc<MetadataCache>,
    ) -> MetadataPublisher {
        MetadataPublisher { cache, subscribers, applied }
    }

    pub fn publish(&self, before: &MetadataImage, delta: &MetadataDelta, after: &Arc<MetadataImage>) {
        self.cache.publish(after.clone());
        for subscriber in &self.subscribers {
            subscriber.apply_metadata(before, delta, after);
        }
        self.applied.publish(after.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ids::MetadataOffset;
    use parking_lot::Mutex;

    struct Recorder {
        name: &'static str,
        cache: Arc<MetadataCache>,
        applied: Arc<MetadataCache>,
        seen: Arc<Mutex<Vec<(&'static str, i64)>>>,
    }

    impl MetadataSubscriber for Recorder {
        fn apply_metadata(&self, _: &MetadataImage, _: &MetadataDelta, after: &Arc<MetadataImage>) {
            assert_eq!(self.cache.image().offset, after.offset, "the cache is told first");
            assert!(self.applied.image().offset < after.offset, "clients are told last");
            self.seen.lock().push((self.name, after.offset.0));
        }
    }

    #[test]
    fn parts_are_told_in_their_order() {
        let cache = Arc::new(MetadataCache::new(Arc::default()));
        let applied = Arc::new(MetadataCache::new(Arc::default()));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let recorder = |name| {
            Arc::new(Recorder { name, cache: cache.clone(), applied: applied.clone(), seen: seen.clone() })
                as Arc<dyn MetadataSubscriber>
        };
        let publisher = MetadataPublisher::new(
            cache.clone(),
            vec![recorder("replicas"), recorder("mirror")],
            applied.clone(),
        );
        let after = Arc::new(MetadataImage { offset: MetadataOffset(4), ..MetadataImage::default() });
        publisher.publish(&MetadataImage::default(), &MetadataDelta::everything(), &after);
        assert_eq!(*seen.lock(), [("replicas", 4), ("mirror", 4)]);
        assert_eq!(applied.image().offset, after.offset);
    }
}
