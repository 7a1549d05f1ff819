//! The image that request handlers read: a lock-free snapshot, and a watch for those who wait.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use common::ids::MetadataOffset;
use common::metadata::MetadataImage;
use tokio::sync::watch;

pub struct MetadataCache {
    /// What handlers load once per request. The watch holds the same value, but reading it takes a lock.
    current: ArcSwap<MetadataImage>,
    sender: watch::Sender<Arc<MetadataImage>>,
}

impl MetadataCache {
    pub fn new(image: Arc<MetadataImage>) -> MetadataCache {
        MetadataCache { current: ArcSwap::new(image.clone()), sender: watch::Sender::new(image) }
    }

    pub fn image(&self) -> Arc<MetadataImage> {
        self.current.load_full()
    }

    pub fn watch(&self) -> watch::Receiver<Arc<MetadataImage>> {
        self.sender.subscribe()
    }

    /// Called by the metadata publisher alone, in order.
    pub fn publish(&self, image: Arc<MetadataImage>) {
        self.current.store(image.clone());
        self.sender.send_replace(image);
    }

    /// Waits until the image holds the batch at `offset`; false when `timeout` passes first.
    pub async fn wait_for(&self, offset: MetadataOffset, timeout: Duration) -> bool {
        let mut receiver = self.watch();
        let reached = receiver.wait_for(|image| image.offset >= offset);
        matches!(tokio::time::timeout(timeout, reached).await, Ok(Ok(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(offset: i64) -> Arc<MetadataImage> {
        Arc::new(MetadataImage { offset: MetadataOffset(offset), ..MetadataImage::default() })
    }

    #[tokio::test]
    async fn waiters_wake_when_the_image_gets_there() {
        let cache = Arc::new(MetadataCache::new(image(1)));
        let waiter = {
            let cache = cache.clone();
            tokio::spawn(async move { cache.wait_for(MetadataOffset(3), Duration::from_secs(10)).await })
        };
        cache.publish(image(2));
        cache.publish(image(3));
        assert!(waiter.await.expect("waiter"));
        assert_eq!(cache.image().offset, MetadataOffset(3));
        assert!(!cache.wait_for(MetadataOffset(4), Duration::from_millis(1)).await);
    }
}
