use super::*;
use crate::control::testing::{ids, registration};

fn build(
    current: &PartitionRegistration,
    min_isr: usize,
    alive: &[i32],
    shape: impl FnOnce(PartitionChangeBuilder<'_>) -> PartitionChangeBuilder<'_>,
) -> Option<PartitionRegistration> {
    let alive = ids(alive);
    let may_lead = |broker: BrokerId| alive.contains(&broker);
    let change = shape(PartitionChangeBuilder::new(current, min_isr, &may_lead)).build()?;
    let mut next = current.clone();
    next.apply(&change);
    Some(next)
}

#[test]
fn a_lost_leader_is_followed_by_the_next_in_sync_replica() {
    let current = registration(&[1, 2, 3], &[1, 2, 3], Some(1));
    let next = build(&current, 2, &[2, 3], |b| b.without(BrokerId(1))).unwrap();
    assert_eq!(next.leader, Some(BrokerId(2)));
    assert_eq!(next.isr, ids(&[2, 3]));
    assert_eq!(next.elr, ids(&[]), "at min.insync.replicas nobody else is eligible");
    assert_eq!(next.leader_epoch, current.leader_epoch.next());
    assert_eq!(next.leader_recovery_state, LeaderRecoveryState::Recovered);
}

#[test]
fn below_min_isr_the_leaving_replica_stays_eligible_and_is_elected_cleanly() {
    let current = registration(&[1, 2], &[1, 2], Some(1));
    let shrunk = build(&current, 2, &[1], |b| b.without(BrokerId(2))).unwrap();
    assert_eq!((shrunk.isr.clone(), shrunk.elr.clone()), (ids(&[1]), ids(&[2])));
    assert_eq!(shrunk.leader_epoch, current.leader_epoch, "no new leadership");
    let alone = build(&shrunk, 2, &[], |b| b.without(BrokerId(1))).unwrap();
    assert_eq!((alone.leader, alone.isr.clone()), (None, ids(&[])));
    assert_eq!(alone.elr, ids(&[2, 1]));
    let back = build(&alone, 2, &[2], |b| b).unwrap();
    assert_eq!((back.leader, back.isr.clone()), (Some(BrokerId(2)), ids(&[2])));
    assert_eq!(back.leader_recovery_state, LeaderRecoveryState::Recovered);
}

#[test]
fn counterexample_24_last_in_sync_replica_after_a_power_cut_is_elected_uncleanly() {
    let current = registration(&[1], &[1], Some(1));
    let gone = build(&current, 1, &[], |b| b.unclean_shutdown(BrokerId(1))).unwrap();
    assert_eq!((gone.leader, gone.isr.clone(), gone.elr.clone()), (None, ids(&[]), ids(&[])));
    assert_eq!(gone.last_known_elr, ids(&[1]));
    let back = build(&gone, 1, &[1], |b| b).unwrap();
    assert_eq!((back.leader, back.isr.clone()), (Some(BrokerId(1)), ids(&[1])));
    assert_eq!(back.leader_recovery_state, LeaderRecoveryState::Recovering);
}

#[test]
fn fenced_then_unclean_leaves_the_elr() {
    let mut current = registration(&[1, 2], &[], None);
    current.elr = ids(&[1, 2]);
    current.last_known_elr = ids(&[1]);
    let next = build(&current, 2, &[], |b| b.unclean_shutdown(BrokerId(1))).unwrap();
    assert_eq!(next.elr, ids(&[2]));
    let next = build(&next, 2, &[1, 2], |b| b).unwrap();
    assert_eq!(next.leader, Some(BrokerId(2)), "the eligible one, although 1 is preferred");
    assert_eq!(next.leader_recovery_state, LeaderRecoveryState::Recovered);
}

#[test]
fn unclean_only_where_allowed_and_recovering_persists_over_elections() {
    let mut current = registration(&[1, 2, 3], &[1], Some(1));
    current.elr = ids(&[]);
    let refused = build(&current, 1, &[2, 3], |b| b.without(BrokerId(1))).unwrap();
    assert_eq!(refused.leader, None);
    let taken = build(&current, 1, &[2, 3], |b| b.without(BrokerId(1)).allow_unclean(true)).unwrap();
    assert_eq!((taken.leader, taken.isr.clone()), (Some(BrokerId(2)), ids(&[2])));
    assert_eq!(taken.elr, ids(&[]), "the old lineage is nobody's any more");
    assert_eq!(taken.leader_recovery_state, LeaderRecoveryState::Recovering);
    // Counterexample 19: it dies before its LOSS cut and comes back by a clean election.
    let fenced = build(&taken, 1, &[], |b| b.without(BrokerId(2))).unwrap();
    let again = build(&fenced, 1, &[2], |b| b).unwrap();
    assert_eq!(again.leader, Some(BrokerId(2)));
    assert_eq!(again.leader_recovery_state, LeaderRecoveryState::Recovering);
}

#[test]
fn preferred_leader_only_when_in_sync() {
    let current = registration(&[1, 2], &[2], Some(2));
    assert_eq!(build(&current, 1, &[1, 2], |b| b.prefer_first()), None);
    let current = registration(&[1, 2], &[2, 1], Some(2));
    let next = build(&current, 1, &[1, 2], |b| b.prefer_first()).unwrap();
    assert_eq!(next.leader, Some(BrokerId(1)));
}

#[test]
fn nothing_to_change_gives_no_record() {
    let current = registration(&[1, 2], &[1, 2], Some(1));
    assert_eq!(build(&current, 2, &[1, 2], |b| b), None);
}
