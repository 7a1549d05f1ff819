//! Tables, named interleavings, and properties of the replica's state. Whole effect lists are compared.

mod interleavings;
mod properties;
mod tables;

use super::*;

const LOCAL: BrokerId = BrokerId(1);
const SETTINGS: ReplicaSettings = ReplicaSettings { min_insync_replicas: 2, lag_time_max_ms: 30_000 };

fn ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

/// Three replicas.
fn assignment(leader: Option<i32>, leader_epoch: i32, partition_epoch: i32, isr: &[i32]) -> Assignment {
    Assignment {
        replicas: ids(&[1, 2, 3]),
        isr: ids(isr),
        leader: leader.map(BrokerId),
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(partition_epoch),
        recovering: false,
    }
}

fn assigned(assignment: Assignment, now_ms: i64) -> ReplicaEvent {
    ReplicaEvent::Assigned { assignment, now_ms }
}

fn fetched(broker: i32, leader_epoch: i32, offset: i64, now_ms: i64) -> ReplicaEvent {
    ReplicaEvent::FollowerFetched(FollowerFetch {
        broker_id: BrokerId(broker),
        broker_epoch: BrokerEpoch(i64::from(broker) * 10),
        leader_epoch: LeaderEpoch(leader_epoch),
        fetch_offset: Offset(offset),
        log_start_offset: Offset(0),
        eligible: true,
        now_ms,
    })
}

fn appended(log_end_offset: i64, now_ms: i64) -> ReplicaEvent {
    ReplicaEvent::Appended { log_end_offset: Offset(log_end_offset), now_ms }
}

fn lag_check(now_ms: i64) -> ReplicaEvent {
    ReplicaEvent::LagCheck { now_ms, active: Vec::new() }
}

fn lead(leader_epoch: i32, anew: bool) -> ReplicaEffect {
    ReplicaEffect::Lead { leader_epoch: LeaderEpoch(leader_epoch), anew }
}

fn moved(offset: i64) -> ReplicaEffect {
    ReplicaEffect::HighWatermarkMoved(Offset(offset))
}

fn proposed(leader_epoch: i32, partition_epoch: i32, members: &[(i32, Option<i64>)]) -> ReplicaEffect {
    ReplicaEffect::ProposeIsr(IsrProposal {
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(partition_epoch),
        new_isr: members
            .iter()
            .map(|(broker, epoch)| IsrMember {
                broker_id: BrokerId(*broker),
                broker_epoch: epoch.map(BrokerEpoch),
            })
            .collect(),
    })
}

fn answered(leader_epoch: i32, partition_epoch: i32, outcome: IsrOutcome) -> ReplicaEvent {
    ReplicaEvent::IsrAnswered {
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(partition_epoch),
        outcome,
        now_ms: 3_700_000,
    }
}

fn ignored(reason: Ignored) -> Vec<ReplicaEffect> {
    vec![ReplicaEffect::Ignored(reason)]
}

/// With a log of 0..100 and a high watermark of 80.
fn fresh() -> ReplicaState {
    ReplicaState::new(LOCAL, SETTINGS, Offset(0), Offset(100), Offset(80))
}

/// Leads under epoch 5 since time 0, ISR as given.
fn leader(isr: &[i32]) -> ReplicaState {
    let mut state = fresh();
    state.apply(assigned(assignment(Some(1), 5, 1, isr), 0));
    state
}
