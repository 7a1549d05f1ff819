//! One scripted life of a log manager: appends, rolls, indexes, truncations, checkpoints, snapshots,
//! retention, cuts, deletion, an orderly stop. Each of its steps on the disk is failed in turn, the
//! directory opened again, and compared with what had been acknowledged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use common::ids::*;

use super::support::*;
use crate::log::disk::faults::{Fault, Faults};
use crate::log::*;

const ORDERS: u128 = 1;
const COMMITS: u128 = 2;
const GONE: u128 = 3;

fn id(number: u128) -> TopicIdPartition {
    TopicIdPartition::new(TopicId(uuid::Uuid::from_u128(number)), 0)
}

/// What the script was told of one log.
#[derive(Clone, Debug, Default)]
struct Told {
    /// Each batch that was ever acknowledged or tried at an offset, as bytes.
    tried: BTreeMap<i64, Vec<Vec<u8>>>,
    /// The log as acknowledged, by base offset.
    present: BTreeMap<i64, Vec<u8>>,
    end: i64,
    /// Below it everything was synced.
    synced: i64,
    /// Of a cut that may or may not have happened.
    cut_under_way: Option<i64>,
    start: i64,
}

#[derive(Clone, Debug, Default)]
struct Ledger {
    logs: BTreeMap<u128, Told>,
    created: Vec<u128>,
    deleted: bool,
    cut_noted: bool,
    closed: bool,
}

struct Script<'a> {
    manager: &'a LogManager,
    ledger: Ledger,
    /// A step that fails is tried once more, as a client or a later pass does.
    tries: usize,
    stopped: bool,
}

impl Script<'_> {
    /// False: it failed for good, and the script ends here.
    fn step(&mut self, mut work: impl FnMut(&LogManager, &mut Ledger) -> bool) {
        for _ in 0..self.tries {
            if self.stopped {
                return;
            }
            if work(self.manager, &mut self.ledger) {
                return;
            }
        }
        self.stopped = true;
    }

    fn create(&mut self, number: u128) {
        self.step(|manager, ledger| {
            let placement = LogPlacement {
                id: id(number),
                topic: format!("topic{number}").into(),
                topic_record: MetadataOffset(number as i64),
                directory: None,
                config: Arc::new(config()),
            };
            let made = manager.create(placement, NOW).is_ok();
            if made {
                ledger.created.push(number);
                ledger.logs.entry(number).or_default();
            }
            made
        });
    }

    fn append(&mut self, number: u128, batch: impl Fn(i64) -> Vec<u8>, origin: AppendOrigin) {
        self.step(|manager, ledger| {
            let Some(log) = manager.log(id(number)) else { return false };
            let told = ledger.logs.get_mut(&number).unwrap();
            let mut bytes = batch(told.end);
            let append = LeaderAppend { leader_epoch: LeaderEpoch(3), origin, now_ms: NOW, relaxed: false };
            let appended = log.write().append_as_leader(&mut bytes, append);
            told.tried.entry(told.end).or_default().push(bytes.clone());
            let info = match appended {
                Ok(info) => info,
                Err(AppendError::Storage(error)) => {
                    log.directory().report(&error);
                    return false;
                }
                Err(error) => panic!("{error}"),
            };
            told.present.insert(info.first_offset.0, bytes);
            told.end = info.last_offset.0 + 1;
            true
        });
    }

    fn fill(&mut self, number: u128, count: usize) {
        for _ in 0..count {
            self.append(number, |end| plain(3, end), AppendOrigin::Client);
        }
    }

    fn flush(&mut self, number: u128) {
        self.step(|manager, ledger| {
            let Some(log) = manager.log(id(number)) else { return false };
            let told = ledger.logs.get_mut(&number).unwrap();
            let flushed = log.flush();
            if let Ok(up_to) = flushed {
                told.synced = up_to.0;
            }
            flushed.is_ok()
        });
    }

    fn truncate(&mut self, number: u128, target: i64) {
        self.step(|manager, ledger| {
            let Some(log) = manager.log(id(number)) else { return false };
            let told = ledger.logs.get_mut(&number).unwrap();
            told.cut_under_way = Some(target);
            let cut = log.write().truncate_to(Offset(target));
            let cut = log.reporting(cut);
            if cut.is_ok() {
                told.cut(log.read().log_end_offset().0);
            }
            cut.is_ok()
        });
    }

    fn run(&mut self) {
        for number in [ORDERS, COMMITS, GONE] {
            self.create(number);
        }
        self.fill(ORDERS, 9);
        self.append(COMMITS, |_| idempotent(7, 0, 0, 2), AppendOrigin::Client);
        self.append(COMMITS, |_| transactional(8, 0, 3), AppendOrigin::Coordinator);
        self.append(COMMITS, |_| marker(8, false), AppendOrigin::Coordinator);
        self.fill(GONE, 2);
        self.flush(ORDERS);
        self.fill(ORDERS, 7);
        self.truncate(ORDERS, 32);
        self.fill(ORDERS, 3);
        self.fill(COMMITS, 8);
        self.flush(COMMITS);
        self.step(|manager, _| {
            manager.checkpoint(NOW);
            manager.directories()[0].is_online()
        });
        // A cut at 20 by metadata: durable, then noted.
        self.step(|manager, ledger| {
            let Some(log) = manager.log(id(ORDERS)) else { return false };
            let told = ledger.logs.get_mut(&ORDERS).unwrap();
            told.cut_under_way = Some(20);
            let cut = PendingCut { log: log.clone(), offset: Offset(20), cut: CutId(5) };
            if manager.apply_cuts(&[cut]).iter().any(Result::is_err) {
                return false;
            }
            told.cut(log.read().log_end_offset().0);
            told.synced = told.end;
            // What was cut may never come back.
            told.tried.retain(|offset, _| *offset < told.end);
            ledger.cut_noted = true;
            true
        });
        self.fill(ORDERS, 6);
        // Records are given up, and with them whole segments.
        self.step(|manager, ledger| {
            let Some(log) = manager.log(id(COMMITS)) else { return false };
            let told = ledger.logs.get_mut(&COMMITS).unwrap();
            log.set_high_watermark(Offset(told.end));
            log.write().increase_log_start_offset(Offset(20));
            told.start = 20;
            manager.maintain(NOW);
            manager.checkpoint(NOW);
            manager.directories()[0].is_online()
        });
        self.step(|manager, ledger| {
            ledger.deleted = true;
            match manager.log(id(GONE)) {
                Some(_) => manager.delete(id(GONE)).is_ok(),
                None => true,
            }
        });
        self.step(|manager, ledger| {
            let closed = manager.close(BrokerEpoch(4)).is_ok() && manager.directories()[0].is_online();
            ledger.closed |= closed;
            closed
        });
    }
}

impl Told {
    fn cut(&mut self, end: i64) {
        self.present.retain(|offset, _| *offset < end);
        self.end = end;
        self.synced = self.synced.min(end);
        self.cut_under_way = None;
    }
}

/// Every batch from the log start on, by base offset.
fn content(log: &Log) -> BTreeMap<i64, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut from = log.log_start_offset();
    while let Some(slice) = log.read(from, 1, log.log_end_offset(), true).unwrap() {
        let bytes = bytes_of(&slice);
        protocol::record_batch::check_crc(&bytes).unwrap();
        found.insert(slice.first_offset.0, bytes);
        from = from.max(slice.end_offset);
    }
    found
}

fn run(path: &Path, tries: usize) -> Ledger {
    let manager = open_one(path);
    let mut script = Script { manager: &manager, ledger: Ledger::default(), tries, stopped: false };
    script.run();
    script.ledger
}

/// `kept` says up to where a log must be whole.
fn compare(path: &Path, ledger: &Ledger, what: &str, kept: fn(&Told) -> i64) {
    let manager = open_one(path);
    if ledger.cut_noted {
        assert_eq!(manager.applied_cut(id(ORDERS)), Some(CutId(5)), "{what}: the cut is forgotten");
    }
    for (number, told) in &ledger.logs {
        if *number == GONE && ledger.deleted {
            continue;
        }
        let Some(log) = manager.log(id(*number)) else {
            assert_eq!(kept(told).max(told.start), told.start, "{what}: log {number} is gone");
            continue;
        };
        let log = log.read();
        let found = content(&log);
        let end = log.log_end_offset().0;
        // No hole, and nothing that was never written.
        let mut next = None;
        for (offset, bytes) in &found {
            assert!(next.is_none_or(|next| next == *offset), "{what}: hole before {offset} in log {number}");
            let header = protocol::record_batch::BatchHeader::parse(bytes).unwrap();
            next = Some(header.next_offset());
            let known = told.tried.get(offset).is_some_and(|tried| tried.contains(bytes));
            assert!(known, "{what}: batch {offset} of log {number} was never written, or was cut off");
        }
        assert!(next.is_none_or(|next| next == end), "{what}: log {number} ends at {end}, not {next:?}");
        let must_reach = told.cut_under_way.map_or(kept(told), |cut| kept(told).min(cut - 2));
        let must = told.present.range(log.log_start_offset().0..must_reach);
        for (offset, bytes) in must.filter(|(offset, bytes)| **offset + records(bytes) <= must_reach) {
            assert_eq!(found.get(offset), Some(bytes), "{what}: log {number} lost {offset}; ends at {end}");
        }
        assert!(
            log.log_start_offset().0 <= told.start.max(0) || told.present.is_empty(),
            "{what}: log {number} starts at {}",
            log.log_start_offset()
        );
        if let Some((_, newest)) = found.last_key_value() {
            let epoch = protocol::record_batch::BatchHeader::parse(newest).unwrap().leader_epoch;
            assert_eq!(log.epoch_at(Offset(end - 1)), Some(LeaderEpoch(epoch)), "{what}: epochs of {number}");
        }
    }
    // What was recovered can be written, stopped and read again.
    for log in manager.logs() {
        let end = log.read().log_end_offset();
        let mut batch = plain(1, end.0);
        let append = LeaderAppend {
            leader_epoch: LeaderEpoch(9),
            origin: AppendOrigin::Client,
            now_ms: NOW,
            relaxed: false,
        };
        log.write().append_as_leader(&mut batch, append).unwrap();
    }
    manager.close(BrokerEpoch(5)).unwrap();
    let before: Vec<_> = manager.logs().iter().map(|log| (log.id(), content(&log.read()))).collect();
    drop(manager);
    let manager = open_one(path);
    assert!(manager.was_clean_shutdown());
    for (id, before) in before {
        assert_eq!(content(&manager.log(id).unwrap().read()), before, "{what}: after an orderly stop");
    }
}

fn records(batch: &[u8]) -> i64 {
    let header = protocol::record_batch::BatchHeader::parse(batch).unwrap();
    header.next_offset() - header.base_offset
}

/// How many steps the undisturbed script has.
fn steps() -> usize {
    let directory = directory();
    let faults = Faults::watch(directory.path());
    let ledger = run(directory.path(), 1);
    assert!(ledger.closed && ledger.cut_noted && ledger.deleted);
    faults.steps()
}

#[test]
fn the_process_dies_at_every_step() {
    let steps = steps();
    assert!(steps > 100, "{steps}");
    for step in 0..steps {
        let directory = directory();
        let faults = Faults::watch(directory.path());
        faults.at(step, Fault::Died);
        let ledger = run(directory.path(), 1);
        faults.revive();
        compare(directory.path(), &ledger, &format!("died at step {step}"), |told| told.end);
    }
}

#[test]
fn d06_every_step_fails_once_and_the_directory_is_left_alone_from_then_on() {
    for step in 0..steps() {
        let directory = directory();
        let faults = Faults::watch(directory.path());
        // Opening reports what it cannot do; here it can.
        let manager = open_one(directory.path());
        faults.at(step.max(faults.steps()), Fault::Broken);
        let mut script = Script { manager: &manager, ledger: Ledger::default(), tries: 2, stopped: false };
        script.run();
        // The step took the directory offline, and it was not closed in order.
        let offline = !manager.directories()[0].is_online();
        assert!(offline != script.ledger.closed, "step {step}: offline {offline}, closed in order too");
        let ledger = script.ledger;
        drop(manager);
        faults.revive();
        compare(directory.path(), &ledger, &format!("broken at step {step}"), |told| told.end);
    }
}

#[test]
fn d05_d07_power_fails_at_every_step_and_what_was_not_synced_is_lost() {
    for step in 0..steps() {
        let directory = directory();
        let faults = Faults::watch(directory.path());
        faults.model_power();
        faults.at(step, Fault::Died);
        let ledger = run(directory.path(), 1);
        faults.cut_power();
        faults.revive();
        compare(directory.path(), &ledger, &format!("power cut at step {step}"), |told| told.synced);
    }
}

#[test]
fn d01_the_disk_is_full_at_every_step_and_service_returns_with_space() {
    for full_for in [1, 3] {
        for step in 0..steps() {
            let directory = directory();
            let faults = Faults::watch(directory.path());
            let manager = open_one(directory.path());
            faults.at(step.max(faults.steps()), Fault::Full { steps: full_for });
            let mut script =
                Script { manager: &manager, ledger: Ledger::default(), tries: 5, stopped: false };
            script.run();
            let what = format!("full for {full_for} at step {step}");
            assert!(manager.directories()[0].is_online(), "{what}: the directory went offline");
            assert!(!script.stopped && script.ledger.closed, "{what}: service did not return");
            let ledger = script.ledger;
            for (number, told) in ledger.logs.iter().filter(|(number, _)| **number != GONE) {
                let log = manager.log(id(*number)).unwrap();
                let log = log.read();
                assert_eq!(log.log_end_offset().0, told.end, "{what}");
                let found = content(&log);
                let present = told.present.iter().filter(|(offset, _)| **offset >= told.start);
                for (offset, bytes) in present {
                    assert_eq!(found.get(offset), Some(bytes), "{what}: {offset} of log {number}");
                }
            }
            drop(manager);
            compare(directory.path(), &ledger, &what, |told| told.end);
        }
    }
}
