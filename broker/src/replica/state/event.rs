//! What may happen to a replica, and what it then wants done.

use common::ids::*;

use super::ReplicaSettings;
use super::leader::{FollowerFetch, IsrProposal};

/// A partition's registration, as the image gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub replicas: Vec<BrokerId>,
    pub isr: Vec<BrokerId>,
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// Elected uncleanly, and no LOSS cut committed yet (decision 10).
    pub recovering: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaEvent {
    /// The image gives the partition this registration, and every cut in it has been applied.
    Assigned {
        assignment: Assignment,
        now_ms: i64,
    },
    /// A cut is about to be applied: nothing is accepted until the next assignment.
    Suspended,
    /// The replica is gone from here, or its directory failed.
    Removed,
    /// The leader appended, from a client or from a mirror's source.
    Appended {
        log_end_offset: Offset,
        now_ms: i64,
    },
    /// The follower appended what its leader sent, or nothing.
    Replicated {
        log_end_offset: Offset,
        leader_high_watermark: Offset,
    },
    /// The log was cut to this offset.
    Truncated {
        log_end_offset: Offset,
    },
    /// The whole log was dropped, and starts anew at this offset.
    Restarted {
        offset: Offset,
    },
    /// Records before this offset were deleted.
    LogStartRaised {
        log_start_offset: Offset,
    },
    /// A follower's fetch passed the epoch checks and found its offset in the log.
    FollowerFetched(FollowerFetch),
    /// What became of a proposal made under these epochs.
    IsrAnswered {
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        outcome: IsrOutcome,
        now_ms: i64,
    },
    /// Time passed: who lags, and who has caught up without a fetch to show it? `active`: registered
    /// brokers that may join an ISR; looked at only for replicas outside of it.
    LagCheck {
        now_ms: i64,
        active: Vec<(BrokerId, BrokerEpoch)>,
    },
    SettingsChanged(ReplicaSettings),
}

/// The controller's answer to a proposal. No answer at all is the queue's business: it sends again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsrOutcome {
    Committed {
        isr: Vec<BrokerId>,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
    },
    /// Looked at and refused; nothing changed.
    Refused,
    /// Made on an older registration: the newer one is on its way. Until it is here the proposal may
    /// have been committed, so its members still count.
    Superseded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaEffect {
    /// Accept under this epoch. `anew`: it did not lead before (a raise keeps those who wait).
    Lead {
        leader_epoch: LeaderEpoch,
        anew: bool,
    },
    /// Fetch from this leader; `None`: wait until there is one.
    Follow {
        leader: Option<BrokerId>,
        leader_epoch: LeaderEpoch,
    },
    /// Whoever waits at this replica is told to look for another leader.
    LeadershipLost,
    HighWatermarkMoved(Offset),
    /// Those who wait for an offset above this wait for something that is no more.
    WaitersCut {
        log_end_offset: Offset,
    },
    ProposeIsr(IsrProposal),
    IsrChanged {
        isr: Vec<BrokerId>,
        partition_epoch: PartitionEpoch,
    },
    /// Have the controller commit a LOSS cut at the own high watermark (decision 10).
    ProposeLossCut {
        leader_epoch: LeaderEpoch,
        offset: Offset,
    },
    Ignored(Ignored),
}

/// Why an event changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The event belongs to another role than the one held.
    WrongRole,
    StaleEpoch,
    NotAReplica,
    /// A fetch of a process that has been replaced since.
    StaleBrokerEpoch,
    /// The answer to a proposal that is no longer pending.
    NotPending,
}
