use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::ids::{BrokerEpoch, CutId, DirectoryId, MetadataOffset, Offset, TopicId, TopicIdPartition};
use uuid::Uuid;

use super::support::*;
use crate::log::disk::faults::Faults;
use crate::log::{
    AppendOrigin, LeaderAppend, LogManager, LogManagerConfig, LogPlacement, PendingCut, SharedLog,
};

fn id(number: u128, partition: i32) -> TopicIdPartition {
    TopicIdPartition::new(TopicId(Uuid::from_u128(number)), partition)
}

fn open(paths: &[&Path]) -> LogManager {
    open_counting(paths, &Arc::new(AtomicUsize::new(0)))
}

fn open_counting(paths: &[&Path], failures: &Arc<AtomicUsize>) -> LogManager {
    let failures = failures.clone();
    let config = LogManagerConfig {
        directories: paths
            .iter()
            .enumerate()
            .map(|(number, path)| (path.to_path_buf(), DirectoryId(Uuid::from_u128(1 + number as u128))))
            .collect(),
        unusable: Vec::new(),
        default_log_config: Arc::new(config()),
        recovery_threads: 2,
        close_threads: 2,
        on_directory_failure: Arc::new(move |_, _| {
            failures.fetch_add(1, Ordering::Relaxed);
        }),
    };
    LogManager::open(config, NOW).unwrap()
}

fn placement(number: u128, partition: i32) -> LogPlacement {
    LogPlacement {
        id: id(number, partition),
        topic: Arc::from(format!("topic-{number}")),
        topic_record: MetadataOffset(100 + number as i64),
        directory: None,
        config: Arc::new(config()),
    }
}

fn fill(log: &SharedLog, count: i64) {
    for number in 0..count {
        let append = LeaderAppend {
            leader_epoch: common::ids::LeaderEpoch(0),
            origin: AppendOrigin::Client,
            now_ms: NOW,
            relaxed: false,
        };
        log.write().append_as_leader(&mut plain(3, number), append).unwrap();
    }
    let end = log.read().log_end_offset();
    log.set_high_watermark(end);
}

#[test]
fn logs_come_back_after_an_orderly_stop_and_after_a_crash() {
    let (one, two) = (directory(), directory());
    let paths = [one.path(), two.path()];
    let manager = open(&paths);
    for partition in 0..4 {
        let log = manager.create(placement(1, partition), NOW).unwrap();
        fill(&log, 10 + i64::from(partition));
    }
    // Spread over both.
    for directory in manager.directories() {
        let mine = manager.logs().iter().filter(|log| log.directory().id() == directory.id()).count();
        assert_eq!(mine, 2);
    }
    manager.checkpoint(NOW);
    let recovery_point = manager.log(id(1, 0)).unwrap().read().recovery_point();
    assert!(recovery_point > Offset(0), "closed segments were flushed");
    manager.close(BrokerEpoch(77)).unwrap();
    drop(manager);

    let manager = open(&paths);
    assert!(manager.was_clean_shutdown());
    assert_eq!(manager.previous_broker_epoch(), Some(BrokerEpoch(77)));
    for partition in 0..4 {
        let log = manager.log(id(1, partition)).unwrap();
        let end = Offset(3 * (10 + i64::from(partition)));
        assert_eq!((log.read().log_end_offset(), log.high_watermark()), (end, end));
        assert!(log.read().recovery_report().is_none());
        assert_eq!(log.topic_record(), MetadataOffset(101));
    }
    fill(&manager.log(id(1, 0)).unwrap(), 1);
    drop(manager);

    let manager = open(&paths);
    assert!(!manager.was_clean_shutdown());
    assert_eq!(manager.previous_broker_epoch(), None);
    let log = manager.log(id(1, 0)).unwrap();
    assert_eq!(log.read().log_end_offset(), Offset(33));
    assert_eq!(log.high_watermark(), Offset(30), "as of the last checkpoint");
    assert_eq!(log.read().recovery_report().unwrap().segments, 1, "only the tail was read");
}

/// D9, D10: directories of other topics, of none, and of a topic that came back with its id.
#[test]
fn d09_d10_strays_are_set_aside() {
    let directory = directory();
    let manager = open(&[directory.path()]);
    for number in 1..=3 {
        fill(&manager.create(placement(number, 0), NOW).unwrap(), 1);
    }
    manager.close(BrokerEpoch(1)).unwrap();
    std::fs::remove_file(directory.path().join("topic-3-0/partition.metadata")).unwrap();
    let manager = open(&[directory.path()]);
    assert!(manager.log(id(3, 0)).is_none());
    let strays = manager.quarantine_strays(&|found| found.id != id(2, 0));
    assert_eq!(strays.len(), 1);
    assert!(manager.log(id(2, 0)).is_none() && manager.log(id(1, 0)).is_some());
    let aside = |suffix: &str| {
        std::fs::read_dir(directory.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().ends_with(suffix))
            .count()
    };
    assert_eq!(aside("-stray"), 2);
    // The same id under a later record is another topic.
    let again = LogPlacement { topic_record: MetadataOffset(900), ..placement(1, 0) };
    let log = manager.create(again.clone(), NOW).unwrap();
    assert!(log.read().is_empty());
    assert_eq!(aside("-stray"), 3);
    assert!(Arc::ptr_eq(&log, &manager.create(again, NOW).unwrap()));
}

#[test]
fn deleted_logs_go_in_the_background() {
    let directory = directory();
    let manager = open(&[directory.path()]);
    let log = manager.create(placement(1, 0), NOW).unwrap();
    fill(&log, 5);
    manager.note_cuts(&[(id(1, 0), CutId(5))]).unwrap();
    assert_eq!(manager.applied_cut(id(1, 0)), Some(CutId(5)));
    assert!(manager.delete(id(1, 0)).unwrap());
    assert!(!manager.delete(id(1, 0)).unwrap());
    assert!(manager.log(id(1, 0)).is_none());
    assert!(log.write().flush().is_err(), "whoever still holds it cannot write");
    assert!(!directory.path().join("topic-1-0").exists());
    let log = manager.create(placement(1, 0), NOW).unwrap();
    assert!(log.read().is_empty());
    assert_eq!(manager.applied_cut(id(1, 0)), None);
    drop(manager);
    // Also when the broker stopped in between.
    let manager = open(&[directory.path()]);
    manager.maintain(NOW);
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["topic-1-0"]);
}

/// What is synced without the log's lock may have another name by then.
#[test]
fn a_log_that_is_deleted_while_it_is_flushed_is_no_failure_of_the_disk() {
    let prepared = || {
        let directory = directory();
        let manager = Arc::new(open(&[directory.path()]));
        for partition in 0..2 {
            fill(&manager.create(placement(1, partition), NOW).unwrap(), 20);
        }
        (directory, manager)
    };
    let steps = {
        let (directory, manager) = prepared();
        let faults = Faults::watch(directory.path());
        manager.checkpoint(NOW);
        faults.steps()
    };
    let mut deleted = 0;
    for step in 0..steps {
        let (directory, manager) = prepared();
        let faults = Faults::watch(directory.path());
        let (deleting, log) = (manager.clone(), manager.log(id(1, 0)).unwrap());
        faults.meanwhile(step, move || {
            if log.is_free() {
                assert!(deleting.delete(log.id()).unwrap());
            }
        });
        manager.checkpoint(NOW);
        assert!(manager.directories()[0].is_online(), "deleted at step {step} of {steps}");
        let other = manager.log(id(1, 1)).unwrap();
        assert!(other.read().recovery_point() > Offset(0), "deleted at step {step} of {steps}");
        deleted += usize::from(manager.log(id(1, 0)).is_none());
    }
    assert!(deleted > 5, "{deleted} of {steps}");
}

#[test]
fn cuts_are_durable_before_they_are_noted() {
    for logs in [2, 20] {
        let directory = directory();
        let manager = open(&[directory.path()]);
        let cuts: Vec<PendingCut> = (0..logs)
            .map(|partition| {
                let log = manager.create(placement(1, partition), NOW).unwrap();
                fill(&log, 10);
                PendingCut {
                    log,
                    offset: Offset(3 * i64::from(partition)),
                    cut: CutId(40 + i64::from(partition)),
                }
            })
            .collect();
        assert!(manager.apply_cuts(&cuts).iter().all(Result::is_ok));
        drop(manager);
        let manager = open(&[directory.path()]);
        for partition in 0..logs {
            let log = manager.log(id(1, partition)).unwrap();
            let expected = Offset(3 * i64::from(partition)).min(Offset(30));
            assert_eq!(log.read().log_end_offset(), expected);
            assert_eq!(log.high_watermark(), expected);
            assert_eq!(manager.applied_cut(id(1, partition)), Some(CutId(40 + i64::from(partition))));
        }
    }
}

#[test]
fn damage_to_one_log_leaves_the_others() {
    let directory = directory();
    let manager = open(&[directory.path()]);
    for partition in 0..2 {
        fill(&manager.create(placement(1, partition), NOW).unwrap(), 5);
    }
    manager.close(BrokerEpoch(1)).unwrap();
    for entry in std::fs::read_dir(directory.path().join("topic-1-0")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let manager = open(&[directory.path()]);
    assert!(manager.log(id(1, 0)).is_none() && manager.log(id(1, 1)).is_some());
    assert!(manager.create(placement(1, 0), NOW).is_err(), "it does not begin again at 0");
    assert!(manager.directories()[0].is_online());
}

#[test]
fn a_failed_directory_goes_offline_once() {
    let (one, two) = (directory(), directory());
    let failures = Arc::new(AtomicUsize::new(0));
    let manager = open_counting(&[one.path(), two.path()], &failures);
    let mut lost = None;
    for partition in 0..2 {
        let log = manager.create(placement(1, partition), NOW).unwrap();
        fill(&log, 1);
        if log.directory().path() == one.path() {
            lost = Some(log);
        }
    }
    let lost = lost.unwrap();
    std::fs::remove_dir_all(one.path()).unwrap();
    for _ in 0..3 {
        manager.checkpoint(NOW);
    }
    assert_eq!(failures.load(Ordering::Relaxed), 1);
    assert!(!lost.directory().is_online());
    assert!(manager.directories()[1].is_online());
    // New logs go where there is a disk; the one that is left closes in order.
    let log = manager.create(placement(2, 0), NOW).unwrap();
    assert_eq!(log.directory().path(), two.path());
    manager.close(BrokerEpoch(3)).unwrap();
    assert!(two.path().join(".kafka_cleanshutdown").exists());
    std::fs::create_dir_all(one.path()).unwrap();
}

#[test]
fn retention_and_rolls_are_done_for_all() {
    let directory = directory();
    let manager = open(&[directory.path()]);
    let log = manager.create(placement(1, 0), NOW).unwrap();
    fill(&log, 20);
    let week = 7 * 24 * 3_600_000;
    manager.maintain(NOW + week / 2);
    assert_eq!(log.read().log_start_offset(), Offset(0));
    manager.maintain(NOW + 3 * week);
    assert_eq!(log.read().log_start_offset(), Offset(60));
    manager.checkpoint(NOW);
    drop((log, manager));
    let manager = open(&[directory.path()]);
    let log = manager.log(id(1, 0)).unwrap();
    assert_eq!((log.read().log_start_offset(), log.read().log_end_offset()), (Offset(60), Offset(60)));
}

/// 4,000 partitions have to be there in two seconds; a debug build on a busy machine gets more for fewer.
#[test]
fn creating_a_log_is_cheap() {
    let directory = directory();
    let manager = open(&[directory.path()]);
    let started = std::time::Instant::now();
    for partition in 0..1000 {
        manager.create(placement(1, partition), NOW).unwrap();
    }
    let each = started.elapsed() / 1000;
    assert!(each.as_micros() < 5000, "{each:?} a log");
    assert_eq!(
        std::fs::read_dir(directory.path().join("topic-1-7")).unwrap().count(),
        2,
        "no files before data"
    );
}

/// A cut into a gap leaves the log end there; a restart finds the end of the batches. What is written from there on
/// must be checked after a crash, and that the log ends there is no loss.
#[test]
fn a_recovery_point_is_not_noted_above_the_last_batch() {
    let directory = directory();
    let checkpoint = directory.path().join("recovery-point-offset-checkpoint");
    {
        let manager = open(&[directory.path()]);
        let log = manager.create(placement(1, 0), NOW).unwrap();
        for base_offset in [0, 20] {
            log.write().append_as_follower(&copied(base_offset, 0, 2), NOW).unwrap();
        }
        assert!(log.write().truncate_to(Offset(10)).unwrap());
        manager.close(BrokerEpoch(1)).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&checkpoint).unwrap(), "0\n1\ntopic-1 0 2\n");
    let manager = open(&[directory.path()]);
    assert_eq!(manager.log(id(1, 0)).unwrap().read().log_end_offset(), Offset(2));
    assert!(manager.was_clean_shutdown());
}

/// What is written below a recovery point that was noted would not be checked after a crash.
#[test]
fn a_recovery_point_above_the_end_is_lowered_when_the_log_is_opened() {
    let directory = directory();
    let checkpoint = directory.path().join("recovery-point-offset-checkpoint");
    {
        let manager = open(&[directory.path()]);
        fill(&manager.create(placement(1, 0), NOW).unwrap(), 2);
        manager.close(BrokerEpoch(1)).unwrap();
    }
    std::fs::write(&checkpoint, "0\n1\ntopic-1 0 10\n").unwrap();
    let manager = open(&[directory.path()]);
    assert_eq!(manager.log(id(1, 0)).unwrap().read().log_end_offset(), Offset(6));
    assert_eq!(std::fs::read_to_string(&checkpoint).unwrap(), "0\n1\ntopic-1 0 6\n");
    assert!(!manager.was_clean_shutdown());
}

/// KAFKA-16814: whatever stands in the place of a partition's metadata, the broker starts and serves the others.
#[test]
fn d10_a_directory_that_names_no_topic_or_another_is_no_log_of_ours() {
    let other = "version: 0\ntopic_id: -_v7-_v7-_v7-_v7-_v7-w\n";
    let damage: [(&str, Option<&str>); 7] = [
        ("partition.metadata", None),
        ("partition.metadata", Some("")),
        ("partition.metadata", Some("version: 1\ntopic_id: x\n")),
        ("partition.metadata", Some("version: 0\ntopic_id: nonsense\n")),
        ("partition.metadata", Some(other)),
        ("topic-record.metadata", None),
        ("topic-record.metadata", Some("version: 0\ntopic_record: -x\n")),
    ];
    for (file, content) in damage {
        let directory = directory();
        let manager = open(&[directory.path()]);
        for number in 1..=2 {
            fill(&manager.create(placement(number, 0), NOW).unwrap(), 2);
        }
        manager.close(BrokerEpoch(1)).unwrap();
        let path = directory.path().join("topic-1-0").join(file);
        match content {
            Some(content) => std::fs::write(path, content).unwrap(),
            None => std::fs::remove_file(path).unwrap(),
        }
        let manager = open(&[directory.path()]);
        assert!(manager.log(id(1, 0)).is_none(), "{file} {content:?}");
        assert_eq!(manager.log(id(2, 0)).unwrap().read().log_end_offset(), Offset(6));
        let live = [id(1, 0), id(2, 0)];
        manager.quarantine_strays(&|found| live.contains(&found.id));
        let left: Vec<_> = manager.logs().iter().map(|log| log.id()).collect();
        assert_eq!(left, [id(2, 0)], "{file} {content:?}");
        // Made anew it is empty, and the old one's files are kept for whoever wants to look.
        assert!(manager.create(placement(1, 0), NOW).unwrap().read().is_empty());
        let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.filter(|name| name.to_str().unwrap().ends_with("-stray")).count(), 1);
    }
}

/// What was flushed before the stop needs no more of it, and many logs are synced at once.
#[test]
fn an_orderly_stop_of_many_logs_needs_few_syncs_and_no_recovery_after_it() {
    for flushed in [false, true] {
        let directory = directory();
        let manager = open(&[directory.path()]);
        for partition in 0..60 {
            let log = manager.create(placement(1, partition), NOW).unwrap();
            log.write().start_epoch(common::ids::LeaderEpoch(0), Offset(0)).unwrap();
            fill(&log, i64::from(partition % 3));
            if flushed {
                log.flush().unwrap();
            }
        }
        let faults = Faults::watch(directory.path());
        manager.close(BrokerEpoch(7)).unwrap();
        assert!(faults.syncs() < 20, "{} syncs", faults.syncs());
        drop(manager);
        let manager = open(&[directory.path()]);
        assert_eq!(manager.previous_broker_epoch(), Some(BrokerEpoch(7)));
        for partition in 0..60 {
            let log = manager.log(id(1, partition)).unwrap();
            let log = log.read();
            assert!(log.recovery_report().is_none(), "flushed {flushed}: partition {partition} was scanned");
            assert_eq!(log.log_end_offset(), Offset(3 * i64::from(partition % 3)));
        }
    }
}

/// Thousands of logs that nobody wrote to stop and start without a write for each.
#[test]
fn logs_that_were_only_led_are_written_neither_at_a_stop_nor_at_a_start() {
    let directory = directory();
    let mut manager = open(&[directory.path()]);
    for partition in 0..60 {
        manager.create(placement(1, partition), NOW).unwrap();
    }
    for epoch in 0..3 {
        for partition in 0..60 {
            let log = manager.log(id(1, partition)).unwrap();
            log.write().start_epoch(common::ids::LeaderEpoch(epoch), Offset(0)).unwrap();
        }
        let faults = Faults::watch(directory.path());
        manager.close(BrokerEpoch(7)).unwrap();
        drop(manager);
        manager = open(&[directory.path()]);
        assert!(faults.steps() < 60, "{} steps", faults.steps());
        assert!(manager.was_clean_shutdown());
    }
}
