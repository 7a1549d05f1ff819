//! The main path as a transcript, and the numbered cases of the reference.

use super::*;

fn names(effects: &[MirrorEffect]) -> Vec<String> {
    let name = |effect: &MirrorEffect| match effect {
        MirrorEffect::SaveState { record, expected, .. } => {
            format!("save {} over {}", record.state, expected.0)
        }
        MirrorEffect::Report(report) => format!("report {}", report.state),
        MirrorEffect::ProposeCut { kind, offset, leader_epoch, .. } => {
            format!("cut {kind:?} {offset} under {leader_epoch}")
        }
        MirrorEffect::ProposeRelease { offset, .. } => format!("release {:?}", offset.map(|offset| offset.0)),
        MirrorEffect::ProposeRaise { minimum, .. } => format!("raise {minimum}"),
        MirrorEffect::AwaitReplicas { epoch, high_watermark_at_end, .. } => {
            format!("replicas at {epoch} end {high_watermark_at_end}")
        }
        MirrorEffect::StartFetcher { source, leader_epoch, .. } => {
            format!("fetch epoch {} under {leader_epoch}", source.epoch)
        }
        MirrorEffect::AppendUnder { leader_epoch } => format!("append under {leader_epoch}"),
        MirrorEffect::Ignore { event, .. } => format!("ignore {event}"),
        MirrorEffect::WakeAt { .. } => "wake".to_owned(),
        other => format!("{other:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
    };
    effects.iter().map(name).collect()
}

#[test]
fn from_added_to_mirroring_to_released() {
    let mut machine = Machine::lead(added());
    assert_eq!(names(&machine.effects), ["ReadState"]);
    assert_eq!(names(machine.read(None)), ["save PREPARING over 0"]);
    assert_eq!(names(machine.saved(MirrorState::Preparing)), ["report PREPARING", "Quiesce"]);
    assert_eq!(names(machine.quiesced(0)), ["AskLastMirroredOffset"]);
    let plain = position(LastMirrored::NotSupported, 50);
    assert_eq!(names(machine.answered(plain)), ["cut Preparing 0 under 5"]);
    assert_eq!(names(machine.proposed()), Vec::<String>::new());
    assert_eq!(names(machine.facts(cut())), ["replicas at 6 end false"]);
    assert_eq!(names(machine.aligned(0)), ["save MIRRORING over 8"]);
    assert_eq!(names(machine.saved(MirrorState::Mirroring)), ["report MIRRORING", "CheckSource"]);
    assert_eq!(names(machine.checked(check(2, 0))), ["fetch epoch 2 under 6"]);
    machine.fetched();
    assert_eq!(names(machine.facts(removed())), ["save STOPPING over 9"]);
    assert_eq!(names(machine.saved(MirrorState::Stopping)), ["report STOPPING", "Quiesce"]);
    assert_eq!(names(machine.quiesced(120)), ["AwaitHighWatermark"]);
    let (token, cut_point) = (machine.token(), Offset(100));
    let highest_batch_epoch = LeaderEpoch(2);
    let reached = MirrorEvent::HighWatermarkAtEnd { token, cut_point, highest_batch_epoch };
    assert_eq!(names(machine.send(reached)), ["cut Stopping 100 under 6"]);
    machine.proposed();
    assert_eq!(names(machine.facts(stopping_cut())), ["replicas at 30 end true"]);
    assert_eq!(names(machine.aligned(100)), ["save STOPPED over 10"]);
    assert_eq!(machine.saving().unwrap().last_mirrored_offset, Some(Offset(100)));
    assert_eq!(names(machine.saved(MirrorState::Stopped)), ["report STOPPED", "release Some(100)"]);
    machine.proposed();
    assert_eq!(names(machine.facts(released())), Vec::<String>::new());
    assert_eq!(machine.shown(), MirrorState::Stopped);
}

/// Case 15: nothing is cut while the source cannot be asked, for however long.
#[test]
fn case_15_a_source_that_cannot_be_asked_cuts_nothing() {
    let mut machine = Machine::asking(added(), 80);
    for _ in 0..50 {
        let token = machine.token();
        let result = Err(SourceFailure::CouldNotAsk("timeout".to_owned()));
        machine.send(MirrorEvent::SourceAnswered { token, result });
        assert_eq!(machine.cut_wanted(), None);
        assert_eq!(machine.shown(), MirrorState::Preparing);
        assert!(machine.state().shown().reason.contains("timeout"));
        machine.tick_after(10_000);
        machine.quiesced(80);
    }
    machine.answered(position(LastMirrored::Recorded(Offset(60)), 90));
    assert_eq!(machine.cut_wanted(), Some((CutKind::Preparing, Offset(60))));
}

/// Cases 16 and 17: below min ISR, or with a follower that has not applied the cut, no fetch starts.
#[test]
fn case_16_17_preparing_waits_for_the_replicas() {
    let mut machine = Machine::asking(added(), 0);
    machine.answered(position(LastMirrored::NotSupported, 50));
    machine.proposed();
    machine.facts(cut());
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::AwaitReplicas { .. })));
    machine.tick_after(1_000_000);
    assert!(machine.effects.is_empty());
    machine.aligned(0);
    machine.saved(MirrorState::Mirroring);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::CheckSource { .. })));
}

/// Case 18: a new leader continues in each state.
#[test]
fn case_18_a_new_leader_repeats_the_recorded_states_action() {
    let led = |facts: MirrorFacts, recorded: StateRecord| {
        let state = recorded.state;
        let mut machine = Machine::lead(MirrorFacts { leader_epoch: LeaderEpoch(33), ..facts });
        machine.read(Some(recorded));
        if machine.saving().is_some() {
            // Its own epoch on the record first: that fences the old leader.
            assert_eq!(machine.saving().unwrap().leader_epoch, LeaderEpoch(33));
            machine.saved(state);
        }
        names(&machine.effects)
    };
    assert_eq!(led(added(), record(MirrorState::Preparing, 5)), ["report PREPARING", "Quiesce"]);
    let preparing = led(cut(), record(MirrorState::Preparing, 5));
    assert_eq!(preparing, ["report PREPARING", "replicas at 6 end false"]);
    assert_eq!(led(cut(), record(MirrorState::Mirroring, 6)), ["report MIRRORING", "CheckSource"]);
    assert_eq!(led(removed(), record(MirrorState::Stopping, 6)), ["report STOPPING", "Quiesce"]);
    let stopping = led(stopping_cut(), record(MirrorState::Stopping, 6));
    assert_eq!(stopping, ["report STOPPING", "replicas at 30 end true"]);
    let stopped = StateRecord { last_mirrored_offset: Some(Offset(100)), ..record(MirrorState::Stopped, 30) };
    assert_eq!(led(stopping_cut(), stopped), ["report STOPPED", "replicas at 30 end true"]);
}

/// Case 19: the coordinator moves during a write. The same write again either is the first, or is
/// refused because the first was done, and then the record is read.
#[test]
fn case_19_a_write_of_unknown_outcome_is_repeated_then_read() {
    let mut machine = Machine::lead(added());
    machine.read(None);
    let token = machine.token();
    let unavailable = Err(StoreError::Unavailable("coordinator is moving".to_owned()));
    machine.send(MirrorEvent::StateWritten { token, result: unavailable });
    machine.tick_after(10_000);
    assert_eq!(machine.saving().unwrap().state, MirrorState::Preparing);
    let token = machine.token();
    machine.send(MirrorEvent::StateWritten { token, result: Err(StoreError::FencedStateEpoch) });
    machine.tick_after(10_000);
    machine.read(Some(record(MirrorState::Preparing, 5)));
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::Quiesce { .. })), "{:?}", machine.effects);
}

/// Cases 20 and 21: the epoch is adopted, grows, and never falls.
#[test]
fn case_20_21_the_sources_epoch_is_adopted_and_never_falls() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::SourceMoved { epoch: Some(LeaderEpoch(4)) });
    assert!(
        machine.wants(|effect| matches!(
            effect,
            MirrorEffect::CheckSource { tracked_epoch: LeaderEpoch(4), .. }
        ))
    );
    // Metadata that still tells the old epoch is stale.
    machine.checked(check(2, 0));
    assert!(!machine.wants(|effect| matches!(effect, MirrorEffect::StartFetcher { .. })));
    machine.tick_after(10_000);
    machine.checked(check(4, 0));
    let started = machine.effects.iter().find_map(|effect| match effect {
        MirrorEffect::StartFetcher { source, .. } => Some(source.epoch),
        _ => None,
    });
    assert_eq!(started, Some(LeaderEpoch(4)));
    assert_eq!(machine.shown(), MirrorState::Mirroring);
}

/// Case 55: removed while PREPARING waits with local records that were never cut.
#[test]
fn case_55_removed_before_the_preparing_cut_records_nothing() {
    let mut machine = Machine::asking(added(), 80);
    machine.facts(MirrorFacts { removed: true, ..added() });
    machine.saved(MirrorState::Stopping);
    machine.quiesced(80);
    assert_eq!(machine.cut_wanted(), None);
    assert_eq!(machine.saving().unwrap().last_mirrored_offset, None);
    machine.saved(MirrorState::Stopped);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::ProposeRelease { offset: None, .. })));
}

/// Case 56: the leader dies between the cut and the record.
#[test]
fn case_56_a_new_leader_records_its_own_log_end() {
    let facts = MirrorFacts { leader_epoch: LeaderEpoch(31), ..stopping_cut() };
    let mut machine = Machine::lead(facts);
    machine.read(Some(record(MirrorState::Stopping, 6)));
    machine.saved(MirrorState::Stopping);
    machine.aligned(90);
    assert_eq!(machine.saving().unwrap().last_mirrored_offset, Some(Offset(90)));
}

/// Case 57: a released partition needs nobody's answer to be writable.
#[test]
fn case_57_a_released_partition_asks_nothing() {
    let machine = Machine::lead(released());
    assert_eq!(names(&machine.effects), ["report STOPPED"]);
}

/// Case 58: rebuilt connections go through a check and change no state.
#[test]
fn case_58_a_restarted_fetcher_keeps_the_state() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::SourceMoved { epoch: None });
    machine.checked(check(2, 0));
    assert_eq!(names(&machine.effects), ["fetch epoch 2 under 6"]);
    assert_eq!(machine.shown(), MirrorState::Mirroring);
}

#[test]
fn a_raise_of_the_epoch_comes_before_the_fetch() {
    let mut machine = Machine::lead(cut());
    machine.read(Some(record(MirrorState::Mirroring, 6)));
    machine.checked(check(9, 0));
    assert_eq!(names(&machine.effects), ["raise 19"]);
    machine.proposed();
    assert_eq!(
        names(machine.facts(MirrorFacts { leader_epoch: LeaderEpoch(19), ..cut() })),
        ["fetch epoch 9 under 19"]
    );
}

#[test]
fn a_batch_above_the_sources_own_epoch_is_asked_about_once() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::EpochAboveOwn { batch: LeaderEpoch(50) });
    machine.checked(check(2, 0));
    let failed = machine.saving().unwrap();
    assert_eq!(failed.state, MirrorState::Failed);
    assert!(failed.reason.starts_with(FailureKind::BatchEpochAboveSource.text()));
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::EpochAboveOwn { batch: LeaderEpoch(50) });
    machine.checked(check(50, 0));
    assert_eq!(names(&machine.effects), ["raise 60"], "it was only news");
}

#[test]
fn a_jump_of_more_than_a_million_epochs_is_damage() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::SourceMoved { epoch: Some(LeaderEpoch(2_000_000)) });
    machine.checked(check(2_000_000, 0));
    assert!(machine.saving().unwrap().reason.starts_with(FailureKind::EpochJump.text()));
}

#[test]
fn a_failure_is_retried_with_growing_pauses_and_forgotten_after_a_success() {
    let mut machine = Machine::mirroring();
    let corrupt = FetchStop::Failed(FailureReason::new(FailureKind::CorruptBatch, "at 7"));
    let mut retries = Vec::new();
    for _ in 0..3 {
        machine.stopped(corrupt.clone());
        let failed = machine.saving().unwrap().clone();
        assert_eq!((failed.state, failed.failed_state), (MirrorState::Failed, Some(MirrorState::Mirroring)));
        retries.push((failed.attempt, failed.next_retry_ms - machine.now_ms));
        machine.saved(MirrorState::Failed);
        assert!(machine.state().shown().reason.contains("at 7"));
        machine.tick_after(1);
        assert!(machine.effects.is_empty(), "not before its time");
        machine.tick_after(400_000);
        machine.saved(MirrorState::Mirroring);
        machine.checked(check(2, 0));
    }
    assert_eq!(retries, [(1, 999), (2, 1_998), (3, 3_996)]);
    machine.fetched();
    machine.stopped(corrupt);
    assert_eq!(machine.saving().unwrap().attempt, 1);
}

#[test]
fn what_failed_or_waits_is_tried_at_once_under_new_settings() {
    let mut machine = Machine::mirroring();
    for _ in 0..5 {
        machine.stopped(FetchStop::Failed(FailureReason::new(FailureKind::OtherSourceCluster, "")));
        machine.saved(MirrorState::Failed);
        machine.send(MirrorEvent::SettingsChanged);
        let saving = machine.saving().unwrap();
        assert_eq!((saving.state, saving.attempt), (MirrorState::Mirroring, 0));
        machine.saved(MirrorState::Mirroring);
        machine.checked(check(2, 0));
    }
    // What runs is started anew, behind another check.
    assert_eq!(names(machine.send(MirrorEvent::SettingsChanged)), ["StopFetcher", "CheckSource"]);
    let token = machine.token();
    let result = Err(SourceFailure::CouldNotAsk("refused".to_owned()));
    machine.send(MirrorEvent::SourceChecked { token, result });
    assert_eq!(names(machine.send(MirrorEvent::SettingsChanged)), ["CheckSource"]);
}

#[test]
fn a_failed_partition_follows_a_remove_at_once() {
    let mut machine = Machine::mirroring();
    machine.stopped(FetchStop::Failed(FailureReason::new(FailureKind::CorruptBatch, "")));
    machine.saved(MirrorState::Failed);
    machine.facts(removed());
    machine.saved(MirrorState::Stopping);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::Quiesce { .. })));
}

/// Case 22, the machine's part: the hole is recorded before the log is dropped.
#[test]
fn case_22_a_log_start_above_our_end_restarts_the_log_there() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::OffsetOutOfRange);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::CheckSource { bounds: true, .. })));
    let bounds = Some(SourceBounds { log_start: Offset(70), log_end: Offset(90) });
    machine.checked(SourceCheck { bounds, ..check(2, 50) });
    assert!(machine.saving().unwrap().reason.contains("50 to 69"));
    machine.saved(MirrorState::Mirroring);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::RestartLogAt { offset: Offset(70), .. })));
    let token = machine.token();
    machine.send(MirrorEvent::LogRestarted { token, result: Ok(()) });
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::CheckSource { .. })));
}

/// The partition's epoch was raised between the check and the restart: no failure, it is checked again.
#[test]
fn a_log_that_restarts_under_a_moving_epoch_is_checked_again() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::OffsetOutOfRange);
    let bounds = Some(SourceBounds { log_start: Offset(70), log_end: Offset(90) });
    machine.checked(SourceCheck { bounds, ..check(2, 50) });
    machine.saved(MirrorState::Mirroring);
    let token = machine.token();
    machine.send(MirrorEvent::LogRestarted { token, result: Err(FetchStop::NotLeader) });
    assert_eq!(machine.saving(), None, "not FAILED");
    machine.tick_after(10_000);
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::CheckSource { .. })));
}

/// A raise that is in the image already is not asked for again: nothing would follow it.
#[test]
fn a_batch_refused_under_the_old_epoch_is_fetched_under_the_new_one() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::SourceMoved { epoch: None });
    machine.checked(check(20, 0));
    assert!(machine.wants(|effect| matches!(effect, MirrorEffect::ProposeRaise { .. })));
    machine.facts(MirrorFacts { leader_epoch: LeaderEpoch(30), ..cut() });
    machine.stopped(FetchStop::EpochAboveOwn { batch: LeaderEpoch(20) });
    assert!(
        machine.wants(|effect| matches!(
            effect,
            MirrorEffect::StartFetcher { leader_epoch: LeaderEpoch(30), .. }
        )),
        "{:?}",
        machine.effects
    );
}

/// The largest jump that is allowed is not refused for its margin.
#[test]
fn a_raise_asks_for_no_more_than_the_controller_allows() {
    let mut machine = Machine::mirroring();
    machine.fetched();
    machine.stopped(FetchStop::SourceMoved { epoch: None });
    let own = cut().leader_epoch.0;
    machine.checked(check(own + 1_000_000, 0));
    assert!(
        machine.wants(|effect| matches!(
            effect,
            MirrorEffect::ProposeRaise { minimum, .. } if minimum.0 == own + 1_000_000
        )),
        "{:?}",
        machine.effects
    );
}

/// A topic added again is not shown in the state its earlier association ended with.
#[test]
fn a_new_association_shows_nothing_of_the_earlier_one() {
    let mut machine = Machine::lead(released());
    assert_eq!(machine.shown(), MirrorState::Stopped);
    machine.facts(MirrorFacts { association: Association(60), ..added() });
    assert_eq!(machine.shown(), MirrorState::Unknown);
}

/// The next association may be with another source, whose epochs are counted anew.
#[test]
fn another_source_may_be_at_a_lower_epoch() {
    let fetching =
        |machine: &Machine| machine.wants(|effect| matches!(effect, MirrorEffect::StartFetcher { .. }));
    let mut machine = Machine::lead(MirrorFacts { leader_epoch: LeaderEpoch(33), ..cut() });
    machine.read(Some(record(MirrorState::Mirroring, 33)));
    machine.checked(check(20, 100));
    assert!(fetching(&machine));
    let later = Association(ASSOCIATION.0 + 100);
    machine.facts(MirrorFacts { association: later, leader_epoch: LeaderEpoch(34), ..cut() });
    machine.read(Some(StateRecord { association: later, ..record(MirrorState::Mirroring, 34) }));
    machine.checked(check(2, 100));
    assert!(fetching(&machine), "{:?}", machine.effects);
}
