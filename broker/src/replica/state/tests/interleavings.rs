//! The interleavings that broke earlier drafts, as far as one replica's state decides them.

use super::*;

fn cut_to(state: &mut ReplicaState, offset: i64) -> Vec<ReplicaEffect> {
    let mut effects = state.apply(ReplicaEvent::Suspended);
    effects.extend(state.apply(ReplicaEvent::Truncated { log_end_offset: Offset(offset) }));
    effects
}

#[test]
fn counterexample_04_a_deposed_leader_cuts_nothing_and_acknowledges_nothing() {
    let mut state = leader(&[1, 2]);
    state.apply(assigned(assignment(Some(2), 6, 2, &[1, 2]), 1));
    // Whatever its tasks still do in the belief of leading under epoch 5.
    assert_eq!(state.apply(appended(101, 2)), ignored(Ignored::WrongRole));
    assert_eq!(state.apply(fetched(2, 5, 101, 2)), ignored(Ignored::WrongRole));
    assert_eq!(state.apply(lag_check(999_999)), vec![]);
    assert_eq!((state.log_end_offset(), state.high_watermark()), (Offset(100), Offset(80)));
}

#[test]
fn counterexample_14_a_raise_of_the_epoch_is_no_new_leadership() {
    let mut state = leader(&[1, 2]);
    state.apply(fetched(2, 5, 100, 1));
    assert_eq!(state.apply(assigned(assignment(Some(1), 6, 2, &[1, 2]), 2)), vec![lead(6, false)]);
    // The same after the cut that raised it.
    cut_to(&mut state, 90);
    assert_eq!(state.apply(assigned(assignment(Some(1), 7, 3, &[1, 2]), 3)), vec![lead(7, false)]);
}

#[test]
fn counterexample_15_mirrored_data_does_not_acknowledge_what_was_cut() {
    let mut state = leader(&[1, 2]);
    state.apply(fetched(2, 5, 100, 1));
    // A produce waits for 105.
    state.apply(appended(105, 2));
    let cut = ReplicaEffect::WaitersCut { log_end_offset: Offset(100) };
    assert_eq!(cut_to(&mut state, 100), vec![cut]);
    state.apply(assigned(assignment(Some(1), 6, 2, &[1, 2]), 3));
    // The follower held 105 of the old lineage; that says nothing about the new one.
    assert_eq!(state.apply(appended(120, 4)), vec![]);
    assert_eq!(state.high_watermark(), Offset(100));
    assert_eq!(state.apply(fetched(2, 6, 120, 5)), vec![moved(120)]);
}

#[test]
fn counterexample_18_a_fetch_or_answer_of_a_deleted_topic_does_not_count() {
    // The topic's id came back; its epochs start above those of the deleted one.
    let mut state = fresh();
    state.apply(assigned(assignment(Some(1), 9, 40, &[1, 2]), 0));
    assert_eq!(state.apply(fetched(3, 8, 100, 1)), ignored(Ignored::StaleEpoch));
    // Even where a raise gave the new topic the epoch that r3's old fetch carries, the proposal that the
    // old topic's fetch led to names another partition epoch.
    assert_eq!(
        state.apply(answered(
            9,
            7,
            IsrOutcome::Committed {
                isr: ids(&[1, 2, 3]),
                leader_epoch: LeaderEpoch(9),
                partition_epoch: PartitionEpoch(8),
            }
        )),
        ignored(Ignored::NotPending)
    );
    assert_eq!(state.isr(), ids(&[1, 2]));
}

#[test]
fn counterexample_19_an_unclean_leader_serves_nothing_before_its_loss_cut() {
    let mut state = fresh();
    let unclean = Assignment { recovering: true, ..assignment(Some(1), 6, 2, &[1]) };
    let propose = ReplicaEffect::ProposeLossCut { leader_epoch: LeaderEpoch(6), offset: Offset(80) };
    assert_eq!(state.apply(assigned(unclean.clone(), 0)), vec![lead(6, true), propose.clone()]);
    assert!(state.is_leader() && !state.is_serving());
    // It grows no ISR, commits nothing, and asks again.
    assert_eq!(state.apply(fetched(2, 6, 100, 1)), vec![]);
    assert_eq!(state.apply(lag_check(2)), vec![propose]);
    assert_eq!(state.high_watermark(), Offset(80));
    // It dies before the cut; whoever is elected next, cleanly, is still recovering.
    let mut other = fresh();
    let later = Assignment { leader_epoch: LeaderEpoch(7), partition_epoch: PartitionEpoch(3), ..unclean };
    other.apply(assigned(later, 0));
    assert!(!other.is_serving());
    // The committed cut raises the epoch and ends it; this leader keeps its tail.
    state.apply(ReplicaEvent::Suspended);
    let settings = ReplicaSettings { min_insync_replicas: 1, ..SETTINGS };
    state.apply(ReplicaEvent::SettingsChanged(settings));
    let recovered = state.apply(assigned(assignment(Some(1), 8, 4, &[1]), 3));
    assert_eq!(recovered, vec![lead(8, false), moved(100)]);
    assert!(state.is_serving());
}

#[test]
fn counterexample_24_a_sole_replica_loses_no_more_than_is_gone_from_its_log() {
    let mut state = fresh();
    let sole = Assignment { replicas: ids(&[1]), recovering: true, ..assignment(Some(1), 6, 2, &[1]) };
    let propose = ReplicaEffect::ProposeLossCut { leader_epoch: LeaderEpoch(6), offset: Offset(100) };
    assert_eq!(state.apply(assigned(sole, 0)), vec![lead(6, true), moved(100), propose]);
    assert!(!state.is_serving());
}

#[test]
fn counterexample_23_a_cut_is_done_wherever_the_log_ends_now() {
    // The PREPARING cut to 50 under epoch 6 stands since long ago; everybody mirrors around 100.
    let mut state = fresh();
    state.apply(assigned(assignment(Some(1), 9, 2, &[1, 2]), 0));
    assert!(!state.fetched_under_epoch(LeaderEpoch(6)));
    state.apply(fetched(2, 9, 97, 1));
    assert!(state.fetched_under_epoch(LeaderEpoch(6)));
    assert!(state.fetched_under_epoch(LeaderEpoch(9)));
    assert!(!state.fetched_under_epoch(LeaderEpoch(10)));
    // A raise does not undo it for the epochs before.
    state.apply(assigned(assignment(Some(1), 10, 3, &[1, 2]), 2));
    assert!(state.fetched_under_epoch(LeaderEpoch(6)));
    assert!(!state.fetched_under_epoch(LeaderEpoch(10)));
}

#[test]
fn a_cut_is_not_done_while_too_few_are_in_sync() {
    let mut state = leader(&[1]);
    assert!(!state.fetched_under_epoch(LeaderEpoch(5)));
    let mut follower = fresh();
    follower.apply(assigned(assignment(Some(2), 5, 1, &[1, 2]), 0));
    assert!(!follower.fetched_under_epoch(LeaderEpoch(5)));
    state.apply(assigned(assignment(Some(1), 5, 2, &[1, 2]), 1));
    assert!(!state.fetched_under_epoch(LeaderEpoch(5)));
    state.apply(fetched(2, 5, 10, 2));
    assert!(state.fetched_under_epoch(LeaderEpoch(5)));
}
