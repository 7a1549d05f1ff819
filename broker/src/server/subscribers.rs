//! How the parts of the broker are told of metadata.

use std::sync::Arc;

use common::metadata::{MetadataDelta, MetadataImage};

use crate::metadata::MetadataSubscriber;
use crate::replica::ReplicaManager;

impl MetadataSubscriber for ReplicaManager {
    fn apply_metadata(&self, before: &MetadataImage, delta: &MetadataDelta, after: &Arc<MetadataImage>) {
        ReplicaManager::apply_metadata(self, before, delta, after);
    }
}
