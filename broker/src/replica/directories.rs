//! Log directories from the replicas' side: what a failed one takes along, what the controller has to
//! hear of where replicas lie (KIP-858), and replicas for which there was no room.

use std::collections::BTreeSet;
use std::sync::Arc;

use common::ids::*;
use common::metadata::MetadataDelta;
use common::metadata::local_changes::LocalReplica;
use tracing::{error, info};

use super::manager::ReplicaManager;
use super::partition::Partition;

impl ReplicaManager {
    /// Every replica in the directory is offline from now on. Blocks on the partitions' locks.
    pub fn directory_failed(&self, directory: DirectoryId) {
        let mut lost = Vec::new();
        for partition in self.partitions() {
            let mut inner = partition.lock();
            if inner.log.directory().id() == directory {
                if !inner.offline {
                    partition.go_offline(&mut inner);
                }
                lost.push(partition.id());
            }
        }
        self.log_manager.drop_futures_in(directory);
        error!(%directory, partitions = lost.len(), "the directory's partitions are offline");
        self.fetchers.remove(lost);
    }

    /// Tells the controller of replicas that lie elsewhere than it knows. With a single directory there is
    /// nothing to tell: when it fails, the broker ends.
    pub(super) fn report_directories(&self, hosted: &[(&LocalReplica, Arc<Partition>)]) {
        let is_single = self.log_manager.directories().len() + self.log_manager.unusable().len() == 1;
        let misplaced = hosted.iter().filter_map(|(replica, partition)| {
            let known = replica.partition.registration.directory_of(self.broker_id());
            let actual = (!is_single || known.is_some()).then(|| partition.directory_id())?;
            (known != Some(actual)).then_some((replica.id, actual))
        });
        let misplaced: Vec<(TopicIdPartition, DirectoryId)> = misplaced.collect();
        if !misplaced.is_empty() {
            self.context.deps.assign_directories(misplaced);
        }
    }

    /// There was no room for this replica: it is tried again with each checkpoint.
    pub(super) fn host_later(&self, id: TopicIdPartition) {
        self.unhosted.lock().insert(id);
    }

    /// Full disks have space again at some time.
    pub(super) fn host_what_had_no_room(&self) {
        let ids: BTreeSet<TopicIdPartition> = std::mem::take(&mut *self.unhosted.lock());
        if ids.is_empty() {
            return;
        }
        let _applying = self.applying.lock();
        // A change of metadata may have found room meanwhile. Who serves is left alone: whoever fetches or waits
        // there would never hear of another one.
        let serves = |id: &TopicIdPartition| self.partition(*id).is_some_and(|found| !found.lock().offline);
        let ids: BTreeSet<TopicIdPartition> = ids.into_iter().filter(|id| !serves(id)).collect();
        info!(partitions = ids.len(), "tries again to host what had no room");
        let image = self.context.image.load_full();
        for id in &ids {
            self.partitions.write().remove(id);
        }
        let delta = MetadataDelta { partitions: ids, ..MetadataDelta::default() };
        self.apply_changes(&image, &delta, &image);
    }
}
