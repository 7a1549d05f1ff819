//! What replicas need of the rest of the broker.

use common::ids::*;

/// An ISR that a leader proposes. Answered through `ReplicaManager::alter_partition_done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrProposalItem {
    pub id: TopicIdPartition,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// With the epochs the members fetched under; -1 is not checked.
    pub new_isr: Vec<(BrokerId, BrokerEpoch)>,
}

/// A cut that a leader elected uncleanly needs before it may serve (decision 10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossCut {
    pub id: TopicIdPartition,
    pub leader_epoch: LeaderEpoch,
    pub offset: Offset,
    pub highest_batch_epoch: LeaderEpoch,
    pub directory: DirectoryId,
}

pub trait ReplicaDeps: Send + Sync + 'static {
    /// Sends the proposals in one AlterPartition, without blocking; exactly one call of
    /// `ReplicaManager::alter_partition_done` follows. One batch is in flight at a time.
    fn alter_partition(&self, proposals: Vec<IsrProposalItem>);

    /// Proposes a LOSS cut, without blocking. No answer is needed: the committed cut arrives as
    /// metadata, and what got lost is proposed again every second.
    fn propose_loss_cut(&self, cut: LossCut);

    /// Tells the controller in which directories replicas lie, without blocking, until it knows.
    fn assign_directories(&self, replicas: Vec<(TopicIdPartition, DirectoryId)>) {
        let _ = replicas;
    }
}
