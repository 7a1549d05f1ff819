//! Cutting logs that the cleaner has been through (decision 10d).

use common::ids::{CutId, Offset};

use super::cleaning_support::*;
use super::support::*;
use crate::log::PendingCut;

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
