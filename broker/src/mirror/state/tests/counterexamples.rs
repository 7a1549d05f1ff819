//! `counterexamples.md`, as far as one partition's machine decides them.

use super::*;

fn starts_fetch(effect: &MirrorEffect) -> bool {
    matches!(effect, MirrorEffect::StartFetcher { .. })
}

/// A cut request that arrives, or an answer to it, after another leadership began: nothing follows.
#[test]
fn counterexample_4_late_answers_of_an_earlier_leadership_change_nothing() {
    let mut old = Machine::asking(added(), 80);
    old.answered(position(LastMirrored::Recorded(Offset(60)), 90));
    let late = old.token();
    let mut new = Machine::lead(MirrorFacts { leader_epoch: LeaderEpoch(9), ..released() });
    for event in [
        MirrorEvent::Proposed { token: late, result: Ok(MetadataOffset(99)) },
        MirrorEvent::ReplicasAligned { token: late, log_end: Offset(60) },
        MirrorEvent::StateWritten { token: late, result: Ok(StateEpoch(9)) },
    ] {
        let before = new.state().clone();
        new.send(event);
        assert!(matches!(new.effects[..], [MirrorEffect::Ignore { .. }]), "{:?}", new.effects);
        assert_eq!(*new.state(), before);
    }
}

/// B mirrors A, add at A from B: B has released nothing, so A waits uncut.
#[test]
fn counterexample_5_a_ring_waits_uncut() {
    let mut machine = Machine::asking(added(), 80);
    for _ in 0..10 {
        machine.answered(position(LastMirrored::NotWritable { mirrors_other: false }, 80));
        assert_eq!(machine.cut_wanted(), None);
        machine.tick_after(10_000);
        machine.quiesced(80);
    }
    assert_eq!(machine.shown(), MirrorState::Preparing);
}

/// A loses its log while B mirrors it: B does not follow it down.
#[test]
fn counterexample_6_a_shorter_source_fails_and_cuts_nothing() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::OffsetOutOfRange);
    let bounds = Some(SourceBounds { log_start: Offset(0), log_end: Offset(3) });
    machine.checked(SourceCheck { bounds, ..check(3, 80) });
    let failed = machine.saving().unwrap();
    assert!(failed.reason.starts_with(FailureKind::SourceShorter.text()));
    machine.saved(MirrorState::Failed);
    machine.tick_after(400_000);
    machine.saved(MirrorState::Mirroring);
    // It has grown past us meanwhile; only its epochs tell that it is another log.
    machine.checked(SourceCheck { end_of_last_epoch: EpochEnd::At(Offset(3)), ..check(3, 80) });
    assert!(machine.saving().unwrap().reason.starts_with(FailureKind::SourceShorter.text()));
    assert_eq!(machine.cut_wanted(), None);
}

/// A retry, the loss of `__mirror_state` or a stale answer PREPARING never make a second cut.
#[test]
fn counterexample_7_a_retry_passes_through_no_second_cut() {
    let mut machine = Machine::mirroring();
    machine.stopped(FetchStop::Failed(FailureReason::new(FailureKind::CorruptBatch, "")));
    machine.saved(MirrorState::Failed);
    machine.tick_after(400_000);
    machine.saved(MirrorState::Mirroring);
    assert_eq!(machine.cut_wanted(), None);
    for recorded in [None, Some(record(MirrorState::Preparing, 6))] {
        let mut machine = Machine::lead(cut());
        machine.read(recorded);
        if machine.saving().is_some() {
            machine.saved(MirrorState::Preparing);
        }
        assert!(machine.wants(|effect| matches!(effect, MirrorEffect::AwaitReplicas { .. })));
        assert!(!machine.wants(|effect| matches!(effect, MirrorEffect::AskLastMirroredOffset { .. })));
    }
}

/// B was released and wrote; add at B from A, A is down; remove: B records nothing and cuts nothing.
#[test]
fn counterexample_8_a_stop_without_a_preparing_cut_keeps_everything() {
    let mut machine = Machine::asking(added(), 150);
    let token = machine.token();
    machine.send(MirrorEvent::SourceAnswered {
        token,
        result: Err(SourceFailure::CouldNotAsk("down".to_owned())),
    });
    machine.facts(MirrorFacts { removed: true, ..added() });
    machine.saved(MirrorState::Stopping);
    machine.quiesced(150);
    assert_eq!(machine.cut_wanted(), None);
    assert_eq!(machine.saving().unwrap().state, MirrorState::Stopped);
    assert_eq!(machine.saving().unwrap().last_mirrored_offset, None);
}

/// STOPPED is durable, the release delayed; a second association must not see the first one's release.
#[test]
fn counterexample_10_a_new_association_begins_anew() {
    let mut machine = Machine::lead(stopping_cut());
    let stopped = StateRecord { last_mirrored_offset: Some(Offset(100)), ..record(MirrorState::Stopped, 30) };
    machine.read(Some(stopped.clone()));
    let late = machine.token();
    let again = MirrorFacts { association: Association(60), ..added() };
    machine.facts(again);
    machine.send(MirrorEvent::Proposed { token: late, result: Ok(MetadataOffset(70)) });
    assert!(matches!(machine.effects[..], [MirrorEffect::Ignore { .. }]));
    machine.effects = vec![MirrorEffect::ReadState { token: machine.token() }];
    machine.read(Some(stopped));
    let next = machine.saving().unwrap();
    assert_eq!((next.state, next.association), (MirrorState::Preparing, Association(60)));
    assert_eq!(next.last_mirrored_offset, None);
}

/// Chain A, B, C: B is cut below C's end and grows past it before C's next fetch.
#[test]
fn counterexample_12_a_cut_at_the_source_is_noticed() {
    let mut machine = Machine::lead(cut());
    let checked = StateRecord { checked_cut_id: Some(CutId(3)), ..record(MirrorState::Mirroring, 6) };
    machine.read(Some(checked));
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::CheckSource { seen: Some(CutId(3)), .. })));
    let cuts = Some(SourceCuts { newest: Some(CutId(4)), lowest_since: Some(Offset(60)) });
    machine.checked(SourceCheck { cuts, ..check(6, 120) });
    assert!(machine.saving().unwrap().reason.starts_with(FailureKind::SourceCut.text()));
    assert_eq!(machine.saving().unwrap().checked_cut_id, Some(CutId(3)), "the id does not advance");
    assert!(!machine.wants(starts_fetch));
}

/// ADR 11: the source was cut at or above our end. Nothing of this log goes, but a replica that is away may
/// hold what the source has undone: it is cut here, too, before anything more is copied.
#[test]
fn a_passed_check_of_a_cut_source_cuts_the_copy() {
    let facts = MirrorFacts { checked_source_cut: Some(CutId(3)), ..cut() };
    let mut machine = Machine::lead(facts.clone());
    // The state is lost: what was checked is in the image.
    machine.read(None);
    machine.saved(MirrorState::Preparing);
    machine.aligned(50);
    machine.saved(MirrorState::Mirroring);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::CheckSource { seen: Some(CutId(3)), .. })));
    let cuts = Some(SourceCuts { newest: Some(CutId(4)), lowest_since: Some(Offset(60)) });
    machine.checked(SourceCheck { cuts, ..check(2, 50) });
    assert_eq!(machine.cut_wanted(), Some((CutKind::Source, Offset(60))));
    assert_eq!(machine.noted(), Some(CutId(4)));
    assert!(!machine.wants(starts_fetch));
    // Lost on its way, or so it seems: asked again, under what the image has by then.
    machine.refused();
    machine.tick_after(10_000);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::CheckSource { seen: Some(CutId(3)), .. })));
    let noted = MirrorFacts { checked_source_cut: Some(CutId(4)), leader_epoch: LeaderEpoch(31), ..facts };
    machine.facts(noted);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::CheckSource { seen: Some(CutId(4)), .. })));
    let none_since = Some(SourceCuts { newest: Some(CutId(4)), lowest_since: None });
    machine.checked(SourceCheck { cuts: none_since, ..check(2, 50) });
    assert!(machine.wants(starts_fetch), "{:?}", machine.effects);
}

/// The raise that a cut brings is no new leadership.
#[test]
fn counterexample_14_an_epoch_raise_starts_nothing_anew() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    let raised = MirrorFacts { leader_epoch: LeaderEpoch(11), ..cut() };
    assert_eq!(machine.facts(raised), [MirrorEffect::AppendUnder { leader_epoch: LeaderEpoch(11) }]);
    let mut machine = Machine::lead(stopping_cut());
    machine.read(Some(record(MirrorState::Stopping, 30)));
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::AwaitReplicas { .. })));
    let raised = MirrorFacts { leader_epoch: LeaderEpoch(31), ..stopping_cut() };
    assert_eq!(machine.facts(raised), []);
    machine.aligned(100);
    assert_eq!(machine.saving().unwrap().state, MirrorState::Stopped);
}

/// Waiting produces are answered before anything is cut.
#[test]
fn counterexample_15_the_cut_comes_after_quiescing() {
    let mut machine = Machine::lead(added());
    machine.read(None);
    machine.saved(MirrorState::Preparing);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::Quiesce { .. })));
    assert_eq!(machine.cut_wanted(), None);
}

/// `--recopy` moves a waiting partition; its sisters that mirror already are left alone.
#[test]
fn counterexample_17_recopy_is_for_those_that_wait() {
    let mut waiting = Machine::asking(added(), 500);
    waiting.answered(position(LastMirrored::NotSupported, 600));
    assert_eq!(waiting.cut_wanted(), None);
    assert!(waiting.state().shown().reason.contains("--recopy"));
    waiting.facts(MirrorFacts { recopy: true, ..added() });
    waiting.quiesced(500);
    waiting.answered(position(LastMirrored::NotSupported, 600));
    assert_eq!(waiting.cut_wanted(), Some((CutKind::Preparing, Offset(0))));
    let mut mirroring = Machine::mirroring();
    mirroring.fetched();
    assert_eq!(mirroring.facts(MirrorFacts { recopy: true, ..cut() }), []);
}

/// STOPPED(100) was durable, then an unclean election and its cut to 80, and the release only then.
#[test]
fn counterexample_19_a_shorter_log_after_stopped_is_recorded_again() {
    let stopped = StateRecord { last_mirrored_offset: Some(Offset(100)), ..record(MirrorState::Stopped, 30) };
    let recovering = MirrorFacts { recovering: true, leader_epoch: LeaderEpoch(40), ..stopping_cut() };
    let mut machine = Machine::lead(recovering.clone());
    assert!(!machine.wants(|effect| !matches!(effect, MirrorEffect::Report(_))), "nothing under RECOVERING");
    machine.facts(MirrorFacts { recovering: false, leader_epoch: LeaderEpoch(41), ..recovering });
    machine.read(Some(stopped));
    machine.aligned(80);
    assert_eq!(machine.saving().unwrap().last_mirrored_offset, Some(Offset(80)));
    machine.saved(MirrorState::Stopped);
    assert!(
        machine
            .wants(|effect| matches!(effect, MirrorEffect::ProposeRelease { offset: Some(Offset(80)), .. }))
    );
}

/// The same where the broker that wrote STOPPED(100) wins the unclean election itself.
#[test]
fn counterexample_19_the_same_leader_after_an_unclean_election_records_again() {
    let stopped = StateRecord { last_mirrored_offset: Some(Offset(100)), ..record(MirrorState::Stopped, 30) };
    let mut machine = Machine::lead(stopping_cut());
    machine.read(Some(stopped.clone()));
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::ProposeRelease { .. })));
    let recovering = MirrorFacts { recovering: true, leader_epoch: LeaderEpoch(40), ..stopping_cut() };
    machine.facts(recovering.clone());
    machine.facts(MirrorFacts { recovering: false, leader_epoch: LeaderEpoch(41), ..recovering });
    machine.read(Some(stopped));
    assert!(
        machine.wants(|effect| matches!(effect, MirrorEffect::AwaitReplicas { .. })),
        "{:?}",
        machine.effects
    );
    machine.aligned(80);
    assert_eq!(machine.saving().unwrap().last_mirrored_offset, Some(Offset(80)));
}

/// The source's name is re-pointed to another cluster: FAILED, nothing fetched.
#[test]
fn counterexample_20_another_source_cluster_fails() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::SourceMoved { epoch: None });
    let token = machine.token();
    let other = FailureReason::new(FailureKind::OtherSourceCluster, "x");
    machine.send(MirrorEvent::SourceChecked { token, result: Err(SourceFailure::Failed(other)) });
    assert_eq!(machine.saving().unwrap().state, MirrorState::Failed);
    assert!(!machine.wants(starts_fetch));
}

/// The state is lost while MIRRORING: PREPARING again, and done at once since the cut stands.
#[test]
fn counterexample_23_a_lost_state_costs_no_cut() {
    let mut machine = Machine::lead(cut());
    machine.read(None);
    machine.saved(MirrorState::Preparing);
    machine.aligned(5_000);
    machine.saved(MirrorState::Mirroring);
    machine.checked(check(2, 5_000));
    assert!(machine.wants(starts_fetch));
}

/// A retry after "source was cut" fails again until an operator decides.
#[test]
fn counterexample_25_a_cut_source_fails_at_every_retry() {
    let mut machine = Machine::lead(cut());
    let checked = StateRecord { checked_cut_id: Some(CutId(3)), ..record(MirrorState::Mirroring, 6) };
    machine.read(Some(checked));
    for _ in 0..5 {
        assert!(
            machine.wants(|effect| matches!(effect, MirrorEffect::CheckSource { seen: Some(CutId(3)), .. }))
        );
        let cuts = Some(SourceCuts { newest: Some(CutId(4)), lowest_since: Some(Offset(60)) });
        machine.checked(SourceCheck { cuts, ..check(6, 120) });
        machine.saved(MirrorState::Failed);
        machine.tick_after(400_000);
        machine.saved(MirrorState::Mirroring);
    }
}

/// C, stopped with data and added again while B stays a mirror of A, goes on with `--recopy`.
#[test]
fn counterexample_26_recopy_from_a_source_that_mirrors_a_third() {
    let mut machine = Machine::asking(MirrorFacts { recopy: true, ..added() }, 80);
    machine.answered(position(LastMirrored::NotWritable { mirrors_other: true }, 90));
    assert_eq!(machine.cut_wanted(), Some((CutKind::Preparing, Offset(0))));
}

/// A is added from B, which was released before it cut anything: A is not emptied.
#[test]
fn counterexample_27_released_uncut_at_the_source_waits() {
    let mut machine = Machine::asking(added(), 80);
    machine.answered(position(LastMirrored::OnlyUncut, 80));
    assert_eq!(machine.cut_wanted(), None);
}

/// A PREPARING cut that was refused because the suffix came first leads to STOPPING, uncut.
#[test]
fn counterexample_28_a_refused_cut_is_not_forced() {
    let mut machine = Machine::asking(added(), 0);
    machine.answered(position(LastMirrored::NotSupported, 50));
    machine.refused();
    machine.facts(MirrorFacts { removed: true, ..added() });
    machine.saved(MirrorState::Stopping);
    machine.quiesced(0);
    assert_eq!(machine.cut_wanted(), None);
}

/// Offset and cut id are of one answer, and are committed together.
#[test]
fn counterexample_29_the_checked_id_comes_with_the_cut() {
    let mut machine = Machine::asking(added(), 0);
    let told = |id| SourcePosition { newest_cut: Some(CutId(id)), ..position(LastMirrored::Nothing, 50) };
    for id in [3, 9] {
        machine.answered(told(id));
        assert_eq!(machine.noted(), Some(CutId(id)));
        assert_eq!(machine.state().checked_cut_id(), None, "not committed yet");
        machine.refused();
        machine.tick_after(10_000);
        machine.quiesced(0);
    }
    machine.answered(told(9));
    machine.facts(MirrorFacts { checked_source_cut: Some(CutId(9)), ..cut() });
    machine.aligned(0);
    assert_eq!(machine.saving().unwrap().checked_cut_id, Some(CutId(9)));
}

/// A cut whose proposal seemed lost is in the image before it is proposed again: it is completed.
#[test]
fn a_cut_that_seemed_lost_is_not_proposed_twice() {
    let mut machine = Machine::lead(removed());
    machine.read(Some(record(MirrorState::Stopping, 6)));
    machine.quiesced(120);
    let token = machine.token();
    machine.facts(stopping_cut());
    assert!(
        machine.wants(|effect| matches!(effect, MirrorEffect::AwaitReplicas { .. })),
        "{:?}",
        machine.effects
    );
    let (cut_point, highest_batch_epoch) = (Offset(100), LeaderEpoch(2));
    machine.send(MirrorEvent::HighWatermarkAtEnd { token, cut_point, highest_batch_epoch });
    assert_eq!(machine.cut_wanted(), None);
}
