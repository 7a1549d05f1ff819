//! Cutting logs that the cleaner has been through (decision 10d).

use common::ids::{CutId, Offset};
use protocol::record_batch::BatchHeader;

use super::cleaning_support::*;
use super::support::*;
use crate::log::disk::faults::{Fault, Faults};
use crate::log::{LogConfig, PendingCut};

/// k at 50 and at 120; the cleaner drops 50; the log is cut to 100.
fn cleaned() -> Compacted {
    let compacted = Compacted::new(compacting());
    for offset in 0..130 {
        let key = if offset == 50 || offset == 120 { "k".to_owned() } else { format!("key {offset}") };
        compacted.put(&[(&key, Some(&format!("value {offset}")))]);
    }
    compacted
}

fn cut(compacted: &Compacted, offset: i64) {
    let pending = PendingCut { log: compacted.log.clone(), offset: Offset(offset), cut: CutId(9) };
    for result in compacted.manager.apply_cuts(&[pending]) {
        result.unwrap();
    }
}

#[test]
fn counterexample_13_a_cut_below_what_was_compacted_drops_the_log() {
    let compacted = cleaned();
    let source = compacted.read_from(0);
    compacted.roll_and_clean(NOW);
    assert!(!compacted.rows().iter().any(|row| row.0 == 50), "the cleaner took it for the sake of 120");
    cut(&compacted, 100);
    {
        let log = compacted.log.read();
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(0), Offset(0)));
        assert_eq!((log.cleaned_to(), log.compacted_end()), (None, Offset(0)));
    }
    assert_eq!(compacted.log.high_watermark(), Offset(0));
    assert_eq!(compacted.manager.applied_cut(compacted.log.id()), Some(CutId(9)));
    let checkpoint = compacted.directory.path().join("cleaner-offset-checkpoint");
    assert_eq!(std::fs::read_to_string(checkpoint).unwrap(), "0\n0\n");
    for batch in &source[..100] {
        compacted.log.write().append_as_follower(batch, NOW).unwrap();
    }
    assert!(compacted.rows().contains(&row(50, "k", "value 50")));
    // A crash does not bring back what was forgotten.
    let compacted = compacted.crash();
    assert_eq!(compacted.log.read().compacted_end(), Offset(0));
    assert_eq!(compacted.rows().len(), 100);
}

#[test]
fn a_crash_before_the_checkpoint_does_not_hide_what_was_compacted() {
    let compacted = cleaned();
    compacted.roll_and_clean(NOW);
    std::fs::remove_file(compacted.directory.path().join("cleaner-offset-checkpoint")).unwrap();
    let compacted = compacted.crash();
    let log = compacted.log.read();
    assert_eq!((log.cleaned_to(), log.compacted_end()), (None, Offset(130)));
    drop(log);
    cut(&compacted, 100);
    assert_eq!(compacted.log.read().log_end_offset(), Offset(0));
}

#[test]
fn a_cut_above_what_was_compacted_is_an_ordinary_one() {
    let compacted = cleaned();
    compacted.roll_and_clean(NOW);
    compacted.put(&[("tail", Some("1"))]);
    compacted.put(&[("tail", Some("2"))]);
    cut(&compacted, 131);
    let log = compacted.log.read();
    assert_eq!((log.log_end_offset(), log.cleaned_to()), (Offset(131), Some(Offset(130))));
    drop(log);
    cut(&compacted, 130);
    assert_eq!(compacted.log.read().log_end_offset(), Offset(130));
    assert_eq!(compacted.rows().len(), 129);
}

#[test]
fn what_is_cleaned_while_the_log_is_cut_is_given_up() {
    let compacted = cleaned();
    compacted.roll();
    let plan = compacted.log.write().cleanable(Offset(130), NOW).unwrap().unwrap();
    let source = compacted.log.write().begin_cleaning(&plan, NOW).unwrap();
    compacted.log.write().truncate_to(Offset(60)).unwrap();
    let group = &source.segments[..2];
    assert!(compacted.log.write().replace_segments(&source, group, NOW).unwrap().is_none());
    let first = &source.segments[0];
    assert!(compacted.log.read().closed_segment(&source, first).unwrap().is_none());
    assert_eq!(compacted.rows().len(), 60);
}

/// The map is full in the middle of a segment, which is cleaned to its end all the same: above the last key of the map
/// aborted records go too, and their marker stands in the next segment.
#[test]
fn what_was_compacted_ends_with_the_last_segment_that_was_cleaned() {
    let compacted = Compacted::with_memory(LogConfig { segment_bytes: 1 << 20, ..compacting() }, 0);
    for number in 0..100 {
        compacted.put(&[(&format!("key {number}"), Some("v"))]);
    }
    assert_eq!(compacted.append(keyed_in_transaction(1, 0, &[("aborted", Some("v"))])), 100);
    compacted.roll();
    compacted.append(marker(1, false));
    compacted.append(keyed_in_transaction(1, 1, &[("committed", Some("v"))]));
    compacted.append(marker(1, true));
    compacted.roll();
    assert!(compacted.cleaner.clean_one(NOW));
    {
        let log = compacted.log.read();
        assert!(log.cleaned_to().unwrap() < Offset(100), "{:?}", log.cleaned_to());
        assert_eq!(log.compacted_end(), Offset(101));
    }
    assert!(!compacted.rows().iter().any(|row| row.1 == "aborted"));
    // A reader passes over the hole, and is not told that something is damaged.
    for from in [100, 101] {
        let next = BatchHeader::parse(&compacted.read_from(from)[0]).unwrap();
        assert_eq!((next.base_offset, next.is_control()), (101, true));
    }
    // Whether they were aborted is open again once the marker has gone.
    cut(&compacted, 101);
    assert_eq!(compacted.log.read().log_end_offset(), Offset(101));
    cut(&compacted, 100);
    assert_eq!(compacted.log.read().log_end_offset(), Offset(0));
}

#[test]
fn no_room_while_a_compacted_log_is_dropped_costs_nothing_that_comes_after() {
    let prepared = || {
        let compacted = cleaned();
        compacted.enlarge_segments();
        compacted.roll_and_clean(NOW);
        compacted
    };
    let steps = {
        let compacted = prepared();
        let faults = Faults::watch(compacted.directory.path());
        assert!(compacted.log.write().truncate_to(Offset(100)).unwrap());
        faults.steps()
    };
    let mut dropped = 0;
    for step in 0..steps {
        let compacted = prepared();
        let faults = Faults::watch(compacted.directory.path());
        faults.at(step, Fault::Full { steps: 1 });
        let cut = compacted.log.cut(|log| log.truncate_to(Offset(100)));
        drop(faults);
        if cut.is_err() && compacted.log.read().log_end_offset() == Offset(130) {
            // Nothing was begun.
            continue;
        }
        dropped += 1;
        assert_eq!(compacted.log.read().log_end_offset(), Offset(0), "step {step}");
        compacted.manager.checkpoint_lowered_recovery_points().unwrap();
        compacted.put(&[("k", Some("new"))]);
        let compacted = compacted.crash();
        assert_eq!(compacted.rows(), [row(0, "k", "new")], "no room at step {step} of {steps}");
    }
    assert!(dropped > 5, "{dropped} of {steps}");
}
