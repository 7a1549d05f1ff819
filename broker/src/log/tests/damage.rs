//! Bytes that rot, files that go: what was damaged answers with an error, what was not is still there, and
//! nobody reads what was never written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::ids::{BrokerEpoch, LeaderEpoch, MetadataOffset, Offset, TopicId, TopicIdPartition};
use protocol::record_batch::{batches, check_crc};
use uuid::Uuid;

use super::support::*;
use crate::log::{AppendOrigin, LeaderAppend, Log, LogError, LogPlacement, ReadError};

const TOPIC: &str = "orders-0";
/// Base offset, length, leader epoch and magic: what a batch's CRC does not cover.
const NOT_COVERED_BYTES: usize = 17;
/// More with KAGAMI_FLIPS.
const FLIPS: usize = 600;

fn id() -> TopicIdPartition {
    TopicIdPartition::new(TopicId(Uuid::from_u128(1)), 0)
}

/// A broker's directory with one log of several segments, stopped in order.
struct Stopped {
    directory: tempfile::TempDir,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// By base offset.
    batches: BTreeMap<i64, Vec<u8>>,
}

impl Stopped {
    fn new() -> Stopped {
        let directory = directory();
        let manager = open_one(directory.path());
        let placement = LogPlacement {
            id: id(),
            topic: "orders".into(),
            topic_record: MetadataOffset(7),
            directory: None,
            config: Arc::new(config()),
        };
        let log = manager.create(placement, NOW).unwrap();
        let append = |mut batch: Vec<u8>, number: i32| {
            let leader_epoch = LeaderEpoch(number / 8);
            let origin = AppendOrigin::Coordinator;
            let append = LeaderAppend { leader_epoch, origin, now_ms: NOW, relaxed: false };
            log.write().append_as_leader(&mut batch, append).unwrap();
        };
        for number in 0..8 {
            append(plain(3, i64::from(number)), 3 * number);
            append(transactional(6, number, 1), 3 * number + 1);
            append(marker(6, number % 2 == 0), 3 * number + 2);
        }
        log.set_high_watermark(Offset(40));
        assert!(log.read().segment_count() > 3);
        manager.close(BrokerEpoch(4)).unwrap();
        let found = readable(&log.read());
        assert!(found.errors.is_empty() && found.good.len() == 24);
        let mut files = BTreeMap::new();
        for folder in [directory.path().to_path_buf(), directory.path().join(TOPIC)] {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    files.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
        Stopped { directory, files, batches: found.good }
    }

    /// As it was when it stopped.
    fn restore(&self) {
        for entry in fs::read_dir(self.directory.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        fs::create_dir(self.directory.path().join(TOPIC)).unwrap();
        for (path, bytes) in &self.files {
            fs::write(path, bytes).unwrap();
        }
    }

    fn segments(&self) -> Vec<PathBuf> {
        let is_segment = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "log");
        self.files.keys().filter(is_segment).cloned().collect()
    }

    /// Every batch of these segments, by base offset.
    fn batches_in(&self, path: &Path) -> Vec<i64> {
        batches(&self.files[path]).map(|batch| batch.unwrap().header.base_offset).collect()
    }
}

/// What a client gets of a log that it reads offset by offset.
#[derive(Default)]
struct Readable {
    good: BTreeMap<i64, Vec<u8>>,
    /// Offsets that answered with an error, ours or the CRC's.
    errors: Vec<i64>,
}

fn readable(log: &Log) -> Readable {
    let mut found = Readable::default();
    let mut from = log.log_start_offset();
    while from < log.log_end_offset() {
        match log.read(from, 1, log.log_end_offset(), true) {
            Ok(Some(slice)) => {
                let bytes = bytes_of(&slice);
                match check_crc(&bytes) {
                    Ok(()) => drop(found.good.insert(slice.first_offset.0, bytes)),
                    Err(_) => found.errors.push(from.0),
                }
                from = Offset(from.0 + 1).max(slice.end_offset.min(log.log_end_offset()));
                continue;
            }
            Ok(None) => {}
            Err(ReadError::Storage(LogError::Corrupt { .. })) => found.errors.push(from.0),
            Err(error) => panic!("{error}"),
        }
        from = Offset(from.0 + 1);
    }
    found
}

fn flips() -> usize {
    std::env::var("KAGAMI_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(FLIPS)
}

#[test]
fn d03_a_flipped_bit_costs_its_readers_an_error_and_nothing_else() {
    let stopped = Stopped::new();
    let files: Vec<(&PathBuf, &Vec<u8>)> = stopped.files.iter().collect();
    let active = stopped.segments().pop().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let mut met = 0;
    for _ in 0..flips() {
        let (path, bytes) = files[next(files.len())];
        if bytes.is_empty() {
            continue;
        }
        let (byte, bit) = (next(bytes.len()), next(8));
        let what = format!("bit {bit} of byte {byte} in {}", path.display());
        stopped.restore();
        let mut damaged = bytes.clone();
        damaged[byte] ^= 1 << bit;
        fs::write(path, &damaged).unwrap();

        let manager = open_one(stopped.directory.path());
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(manager.directories()[0].is_online(), "{what}");
        let Some(log) = manager.log(id()) else {
            // It names another topic now; or the segment's own name says that it is damaged.
            assert!(name.ends_with(".metadata") || path == &active, "{what}: the log is not there");
            continue;
        };
        let found = readable(&log.read());
        let is_log = name.ends_with(".log");
        let in_batch = is_log.then(|| {
            let batch =
                batches(bytes).map(Result::unwrap).find(|batch| byte < batch.position + batch.bytes.len());
            byte - batch.unwrap().position
        });
        for (offset, batch) in &found.good {
            let known = match in_batch {
                Some(place) if place < NOT_COVERED_BYTES => stopped
                    .batches
                    .values()
                    .any(|known| known[NOT_COVERED_BYTES..] == batch[NOT_COVERED_BYTES..]),
                _ => stopped.batches.get(offset) == Some(batch),
            };
            assert!(known, "{what}: a batch at {offset} that was never written");
        }
        let mut expected: Vec<i64> = stopped.batches.keys().copied().collect();
        if is_log {
            // Who is found through the damaged batch may be lost with it.
            let lost = stopped.batches_in(path);
            expected.retain(|offset| !lost.contains(offset));
            met += usize::from(!found.errors.is_empty());
            let ended_early = log.read().log_end_offset() < Offset(40);
            assert!(
                !ended_early || !manager.was_clean_shutdown(),
                "{what}: others would count on this replica"
            );
        }
        // Kafka's checkpoint of log starts has no CRC: a higher start is believed.
        if name != "log-start-offset-checkpoint" {
            let missing = expected.iter().find(|offset| !found.good.contains_key(*offset));
            assert_eq!(missing, None, "{what}");
        }
    }
    assert!(met > flips() / 20, "only {met} flips were met by a reader");
}

#[test]
fn d04_missing_and_foreign_files_are_noticed() {
    let stopped = Stopped::new();
    let segments = stopped.segments();
    let whole: Vec<i64> = stopped.batches.keys().copied().collect();
    let first_of = |index: usize| stopped.batches_in(&segments[index])[0];
    let last = segments.len() - 1;
    let end = Offset(40);

    // The first is gone: the log begins with the second, not at 0.
    stopped.restore();
    fs::remove_file(&segments[0]).unwrap();
    let manager = open_one(stopped.directory.path());
    let log = manager.log(id()).unwrap();
    assert_eq!(log.read().log_start_offset(), Offset(first_of(1)));
    let found = readable(&log.read());
    assert!(found.errors.is_empty() && found.good.keys().eq(whole.iter().filter(|o| **o >= first_of(1))));

    // One in the middle is gone, or is empty: an error there, the rest as it was.
    for empty in [false, true] {
        stopped.restore();
        if empty {
            fs::write(&segments[1], []).unwrap()
        } else {
            fs::remove_file(&segments[1]).unwrap()
        }
        let manager = open_one(stopped.directory.path());
        let log = manager.log(id()).unwrap();
        assert_eq!(log.read().log_end_offset(), end);
        let found = readable(&log.read());
        assert!(found.errors.iter().copied().eq(first_of(1)..first_of(2)), "{:?}", found.errors);
        let kept = whole.iter().filter(|offset| !(first_of(1)..first_of(2)).contains(*offset));
        assert!(found.good.keys().eq(kept));
    }

    // The last is gone: the log is shorter, and nobody counts on it.
    stopped.restore();
    fs::remove_file(&segments[last]).unwrap();
    let manager = open_one(stopped.directory.path());
    assert_eq!(manager.log(id()).unwrap().read().log_end_offset(), Offset(first_of(last)));
    assert!(!manager.was_clean_shutdown() && manager.previous_broker_epoch().is_none());

    // It has a later offset's name: refused, with its name.
    stopped.restore();
    fs::rename(&segments[last], segments[last].with_file_name(format!("{:020}.log", 9_999))).unwrap();
    let manager = open_one(stopped.directory.path());
    assert!(manager.log(id()).is_none() && manager.directories()[0].is_online());
    assert!(!manager.was_clean_shutdown());

    // A closed one has another's name.
    stopped.restore();
    let renamed = segments[1].with_file_name(format!("{:020}.log", first_of(1) + 3));
    fs::rename(&segments[1], renamed).unwrap();
    let manager = open_one(stopped.directory.path());
    assert!(manager.log(id()).is_none() && manager.directories()[0].is_online());

    // Indexes of another partition, or none.
    for extension in ["index", "timeindex", "txnindex"] {
        for (foreign, target) in [(Some(0), 1), (Some(2), 1), (Some(1), 0), (None, 1)] {
            stopped.restore();
            let path = segments[target].with_extension(extension);
            match foreign {
                Some(foreign) => drop(fs::copy(segments[foreign].with_extension(extension), &path)),
                None => drop(fs::remove_file(&path)),
            }
            let manager = open_one(stopped.directory.path());
            let found = readable(&manager.log(id()).unwrap().read());
            assert!(found.errors.is_empty(), "{extension} of {foreign:?}: {:?}", found.errors);
            assert_eq!(found.good, stopped.batches, "{extension} of {foreign:?}");
        }
    }
}

/// A disk that fails under a reader is no better than one that fails under a writer.
#[test]
fn d06_a_failed_read_is_the_disks_and_a_short_file_the_logs() {
    let stopped = Stopped::new();
    stopped.restore();
    let faults = crate::log::disk::faults::Faults::watch(stopped.directory.path());
    let manager = open_one(stopped.directory.path());
    let log = manager.log(id()).unwrap();
    let segment = &stopped.segments()[0];
    fs::File::options().write(true).open(segment).unwrap().set_len(100).unwrap();
    let read = |offset| log.read().read(Offset(offset), 1 << 20, Offset(40), true);
    assert!(matches!(read(3), Err(ReadError::Storage(LogError::Corrupt { .. }))));
    assert!(manager.directories()[0].is_online() && matches!(read(20), Ok(Some(_))));
    faults.fail_reads(true);
    let Err(ReadError::Storage(error)) = read(20) else { panic!("the disk fails") };
    assert!(error.is_fatal_to_directory(), "{error}");
    faults.fail_reads(false);
}
