//! A cleaning, and the drop of a compacted log, ended at each of their steps on the disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::ids::Offset;

use super::cleaning_support::*;
use super::support::*;
use crate::log::disk::faults::{Fault, Faults};

/// Forty records of seven keys, an aborted one, and one in the active segment; all on the disk.
fn written(directory: &Arc<tempfile::TempDir>) -> Compacted {
    let compacted = Compacted::open(directory.clone(), compacting().into(), 1 << 20);
    for number in 0..40 {
        compacted.put(&[(&format!("key {}", number % 7), Some(&format!("value {number}")))]);
    }
    compacted.append(keyed_in_transaction(3, 0, &[("key 1", Some("aborted"))]));
    compacted.append(marker(3, false));
    compacted.roll();
    compacted.put(&[("tail", Some("1"))]);
    compacted.log.flush().unwrap();
    compacted.manager.checkpoint(NOW);
    compacted
}

fn clean_and_drop(compacted: &Compacted, one_segment: bool) {
    if one_segment {
        compacted.enlarge_segments();
    }
    compacted.clean(NOW);
    compacted.manager.checkpoint(NOW + 60_001);
    // Below what was compacted: everything goes.
    let _ = compacted.log.write().truncate_to(Offset(20));
}

fn newest(rows: &[Row]) -> BTreeMap<String, Row> {
    rows.iter().map(|row| (row.1.clone(), row.clone())).collect()
}

fn interrupt_each_step(one_segment: bool, power: bool) {
    let whole = Arc::new(directory());
    let compacted = written(&whole);
    let before = compacted.rows();
    let faults = Faults::watch(whole.path());
    clean_and_drop(&compacted, one_segment);
    let steps = faults.steps();
    assert_eq!(compacted.log.read().log_end_offset(), Offset(0));
    assert!(steps > 30, "{steps}");
    let (mut untouched, mut replaced, mut dropped) = (0, 0, 0);
    for step in 0..steps {
        let root = Arc::new(directory());
        let compacted = written(&root);
        let faults = Faults::watch(root.path());
        if power {
            faults.model_power();
        }
        faults.at(step, Fault::Died);
        clean_and_drop(&compacted, one_segment);
        drop(compacted);
        if power {
            faults.cut_power();
        }
        faults.revive();
        let reopened = Compacted::open(root, compacting().into(), 1 << 20);
        reopened.commit();
        let rows = reopened.rows();
        let log = reopened.log.read();
        let what = format!("{step} of {steps}");
        if rows.is_empty() {
            dropped += 1;
            assert_eq!(log.log_end_offset(), Offset(0), "{what}");
        } else {
            assert_eq!(log.log_end_offset(), Offset(43), "{what}");
            let mut expected = newest(&before);
            if rows.len() == before.len() {
                untouched += 1;
            } else {
                replaced += 1;
                // The aborted record is the newest of its key until it is cleaned away.
                expected.retain(|key, _| key != "key 1");
                assert!(log.compacted_end() >= Offset(42), "{what}");
                assert!(!one_segment || rows.len() == 8, "{what}: {rows:?}");
            }
            let found = newest(&rows);
            for (key, row) in expected {
                assert_eq!(found.get(&key), Some(&row), "{what}");
            }
        }
        drop(log);
        for suffix in [".cleaned", ".swap", ".deleted"] {
            assert!(!reopened.has_files_with(suffix), "{suffix} after {what}");
        }
        // And it can be cleaned, written and opened again.
        reopened.put(&[("tail", Some("2"))]);
        reopened.enlarge_segments();
        reopened.roll_and_clean(NOW);
        let rows = reopened.rows();
        assert_eq!(rows.len(), if rows[0].0 == 0 { 1 } else { 8 }, "{what}: {rows:?}");
        assert_eq!(reopened.crash().rows(), rows, "{what}");
    }
    assert!(untouched > 10 && replaced > 5 && dropped > 1, "{untouched}, {replaced}, {dropped}");
}

#[test]
fn a_crash_at_any_step_leaves_the_old_or_the_new() {
    interrupt_each_step(true, false);
}

#[test]
fn a_power_cut_at_any_step_leaves_the_old_or_the_new() {
    interrupt_each_step(true, true);
    interrupt_each_step(false, true);
}

#[test]
fn a_full_disk_costs_a_cleaning_and_nothing_else() {
    let whole = Arc::new(directory());
    let compacted = written(&whole);
    let faults = Faults::watch(whole.path());
    compacted.enlarge_segments();
    compacted.clean(NOW);
    let (steps, after) = (faults.steps(), compacted.rows());
    for step in 0..steps {
        let root = Arc::new(directory());
        let compacted = written(&root);
        let faults = Faults::watch(root.path());
        compacted.enlarge_segments();
        faults.at(step, Fault::Full { steps: 1 });
        compacted.clean(NOW);
        assert!(compacted.log.directory().is_online(), "step {step}");
        compacted.put(&[("tail", Some("2"))]);
        // The next look finds it again.
        compacted.clean(NOW);
        compacted.manager.checkpoint(NOW + 60_001);
        assert_eq!(compacted.rows()[..8], after[..], "step {step}");
        for suffix in [".cleaned", ".swap", ".deleted"] {
            assert!(!compacted.has_files_with(suffix), "{suffix} after step {step}");
        }
    }
}

/// The cleaner goes on with the files of a log that has none under their names any more.
#[test]
fn a_log_that_is_deleted_while_it_is_cleaned_is_no_failure_of_the_disk() {
    let steps = {
        let root = Arc::new(directory());
        let compacted = written(&root);
        let faults = Faults::watch(root.path());
        assert_eq!(compacted.clean(NOW), 1);
        faults.steps()
    };
    let mut deleted = 0;
    for step in 0..steps {
        let root = Arc::new(directory());
        let compacted = written(&root);
        let faults = Faults::watch(root.path());
        let (manager, log) = (compacted.manager.clone(), compacted.log.clone());
        faults.meanwhile(step, move || {
            if log.is_free() {
                assert!(manager.delete(log.id()).unwrap());
            }
        });
        compacted.clean(NOW);
        assert!(compacted.log.directory().is_online(), "deleted at step {step} of {steps}");
        assert_eq!(compacted.cleaner.metrics().failures.get(), 0, "deleted at step {step} of {steps}");
        deleted += usize::from(compacted.manager.log(compacted.log.id()).is_none());
    }
    assert!(deleted > 10, "{deleted} of {steps}");
}
