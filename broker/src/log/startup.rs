//! Finding and opening what the log directories hold.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::ids::{BrokerEpoch, Offset, TopicIdPartition, TopicPartition};
use parking_lot::Mutex;

use super::checkpoint::{
    CLEANER_CHECKPOINT, Durability, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT, read_offsets, replace_file, write_offsets,
};
use super::config::LogConfig;
use super::directory::LogDirectory;
use super::disk;
use super::error::LogError;
use super::future::{COMPLETE, FUTURE, FoundFuture, found_future, parse_aside, settle_moves};
use super::log::{Log, OpenState};
use super::manager::{LogManagerConfig, RefusedLog};
use super::partition_metadata::PartitionMetadata;
use super::recovery::RecoveryReport;
use super::shared_log::SharedLog;

/// Kafka's name; holds the broker epoch as JSON.
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
pub(super) const MAX_NAME_BYTES: usize = 255;

pub(super) struct Opened {
    pub directories: Vec<Arc<LogDirectory>>,
    pub logs: HashMap<TopicIdPartition, Arc<SharedLog>>,
    pub refused: HashMap<TopicIdPartition, RefusedLog>,
    pub deleted: Vec<PathBuf>,
    pub futures: Vec<FoundFuture>,
    pub previous_broker_epoch: Option<BrokerEpoch>,
    pub clean_shutdown: bool,
}

/// `topic-0` becomes `topic-0.<unique>-delete` or `-stray`, as in Kafka.
pub(super) fn aside_name(name: &str, suffix: &str) -> String {
    let tail = format!(".{}-{suffix}", uuid::Uuid::new_v4().simple());
    // Topic names are ASCII, so any byte is a boundary; a foreign directory's name may not be.
    let mut keep = name.len().min(MAX_NAME_BYTES - tail.len());
    while !name.is_char_boundary(keep) {
        keep -= 1;
    }
    format!("{}{tail}", &name[..keep])
}

/// The topic and partition of a directory's name.
pub(super) fn parse_name(name: &str) -> Option<TopicPartition> {
    let (topic, partition) = name.rsplit_once('-')?;
    if topic.is_empty() || !partition.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(TopicPartition::new(topic, partition.parse().ok()?))
}

pub(super) fn write_clean_shutdown(directory: &Path, broker_epoch: BrokerEpoch) -> Result<(), LogError> {
    let content = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
    replace_file(&directory.join(CLEAN_SHUTDOWN), content.as_bytes(), Durability::Power)
}

/// Some: closed in order. The epoch is unknown where the file does not tell it.
fn read_clean_shutdown(directory: &Path) -> Option<Option<BrokerEpoch>> {
    let content = fs::read(directory.join(CLEAN_SHUTDOWN)).ok()?;
    let epoch = std::str::from_utf8(&content).ok().and_then(|text| {
        let (_, value) = text.split_once("\"brokerEpoch\":")?;
        value.trim().trim_end_matches('}').trim().parse().ok()
    });
    Some(epoch.map(BrokerEpoch))
}

pub(super) fn open_directories(config: &LogManagerConfig, now_ms: i64) -> Result<Opened, LogError> {
    let mut opened = Opened {
        directories: Vec::new(),
        logs: HashMap::new(),
        refused: HashMap::new(),
        deleted: Vec::new(),
        futures: Vec::new(),
        previous_broker_epoch: None,
        clean_shutdown: true,
    };
    let mut epochs = Vec::new();
    let mut directories = Vec::new();
    for (path, id) in &config.directories {
        let directory = LogDirectory::open(path.clone(), *id, config.on_directory_failure.clone());
        directories.push(Arc::new(directory));
    }
    let all_there = config.unusable.is_empty() && directories.iter().all(|directory| directory.is_online());
    settle_moves(&directories, all_there)?;
    for directory in directories.iter().filter(|directory| directory.is_online()) {
        let clean = read_clean_shutdown(directory.path());
        opened.clean_shutdown &= clean.is_some();
        epochs.push(clean.flatten());
        match open_directory(directory, config, clean.is_some(), now_ms, &mut opened) {
            // What was opened of a failed directory is not served.
            Err(error) if error.is_fatal_to_directory() => {
                directory.report(&error);
                opened.logs.retain(|_, log| log.directory().id() != directory.id());
                epochs.pop();
            }
            other => other?,
        }
    }
    // What a log that is to be built anew had acknowledged is not here any more (KIP-966).
    opened.clean_shutdown &= opened.refused.is_empty();
    if !opened.clean_shutdown {
        epochs.clear();
    }
    opened.previous_broker_epoch = epochs.first().copied().flatten().filter(|first| {
        // Directories that were closed under different epochs were not all there at the last stop.
        epochs.iter().all(|epoch| *epoch == Some(*first))
    });
    opened.directories = directories;
    Ok(opened)
}

struct Candidate {
    path: PathBuf,
    name: TopicPartition,
    metadata: PartitionMetadata,
}

fn open_directory(
    directory: &Arc<LogDirectory>,
    config: &LogManagerConfig,
    clean: bool,
    now_ms: i64,
    opened: &mut Opened,
) -> Result<(), LogError> {
    let path = directory.path();
    let checkpoints = Checkpoints::read(path)?;
    let mut candidates = Vec::new();
    let failed = |error| LogError::io("list", path, error);
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_type().map_err(failed)?.is_dir() {
            continue;
        }
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if name.ends_with("-delete") {
            opened.deleted.push(entry.path());
            continue;
        }
        if name.ends_with("-stray") {
            continue;
        }
        if parse_aside(&name, COMPLETE).is_some() {
            // Left alone by `settle_moves`; one that is of no topic is of no use.
            if PartitionMetadata::read(&entry.path())?.is_none() {
                opened.deleted.push(entry.path());
            }
            continue;
        }
        if let Some(topic_partition) = parse_aside(&name, FUTURE) {
            match found_future(entry.path(), topic_partition, directory)? {
                Some(future) => opened.futures.push(future),
                None => opened.deleted.push(entry.path()),
            }
            continue;
        }
        let Some(topic_partition) = parse_name(&name) else { continue };
        match PartitionMetadata::read(&entry.path())? {
            Some(metadata) => {
                candidates.push(Candidate { path: entry.path(), name: topic_partition, metadata });
            }
            None => {
                // KAFKA-16814: a directory that names no topic must not stop the broker.
                let aside = path.join(aside_name(&name, "stray"));
                tracing::warn!(directory = %entry.path().display(), "partition.metadata is missing; set aside");
                disk::rename(&entry.path(), &aside)?;
            }
        }
    }
    let results = open_all(&candidates, directory, config, &checkpoints, clean, now_ms);
    let opened_logs = candidates.iter().zip(&results).filter_map(|(candidate, result)| match result {
        Some(Ok(log)) => Some((&candidate.name, log.read().recovery_point())),
        _ => None,
    });
    let has_lost = |(candidate, log): (&Candidate, &SharedLog)| {
        let (log, noted) = (log.read(), checkpoints.recovery_points.get(&candidate.name));
        let lost = log.recovery_report().is_some_and(RecoveryReport::has_lost_batches)
            || noted.is_some_and(|noted| log.log_end_offset() < *noted);
        if lost {
            tracing::warn!(log = %candidate.path.display(), log_end = %log.log_end_offset(), recovery_point = ?noted,
                "after an orderly stop the log lacks what was on disk");
        }
        lost
    };
    let logs = candidates.iter().zip(&results).filter_map(|(candidate, result)| match result {
        Some(Ok(log)) => Some((candidate, log)),
        _ => None,
    });
    // It is no replica any more that others may count on (KIP-966).
    if clean && logs.filter(|found| has_lost(*found)).count() > 0 {
        opened.clean_shutdown = false;
    }
    lower_recovery_points(path, checkpoints.recovery_points, opened_logs)?;
    for (candidate, result) in candidates.iter().zip(results) {
        let id = TopicIdPartition::new(candidate.metadata.topic_id, candidate.name.partition);
        match result {
            Some(Ok(log)) => {
                if let Some(other) = opened.logs.insert(id, Arc::new(log)) {
                    return Err(LogError::corrupt(
                        &candidate.path,
                        format!("the same partition is in {} too", other.directory().path().display()),
                    ));
                }
                directory.logs.fetch_add(1, Ordering::Relaxed);
            }
            Some(Err(error)) if error.is_fatal_to_directory() => return Err(error),
            Some(Err(error)) => {
                tracing::error!(log = %candidate.path.display(), %error, "log is damaged and stays offline");
                opened.refused.insert(
                    id,
                    RefusedLog { error, directory: directory.clone(), path: candidate.path.clone() },
                );
            }
            None => {}
        }
    }
    // From now on a crash is a crash.
    disk::remove(&path.join(CLEAN_SHUTDOWN))?;
    disk::sync_directory(path)
}

/// A log may end below the recovery point that was noted for it: its file has lost something. What is written there from now on is not on disk yet, so the checkpoint must not
/// say that it is.
fn lower_recovery_points<'a>(
    directory: &Path,
    mut noted: HashMap<TopicPartition, Offset>,
    logs: impl Iterator<Item = (&'a TopicPartition, Offset)>,
) -> Result<(), LogError> {
    let mut lowered = false;
    for (name, recovery_point) in logs {
        if let Some(noted) = noted.get_mut(name)
            && *noted > recovery_point
        {
            *noted = recovery_point;
            lowered = true;
        }
    }
    if !lowered {
        return Ok(());
    }
    let path = directory.join(RECOVERY_POINT_CHECKPOINT);
    let offsets: Vec<_> =
        noted.into_iter().map(|(name, offset)| (name.topic, name.partition, offset)).collect();
    match write_offsets(&path, &offsets, Durability::Power) {
        // None is safe as well: a crash then has everything checked.
        Err(error) if error.is_exhausted() => disk::remove(&path),
        other => other,
    }
}

fn open_all(
    candidates: &[Candidate],
    directory: &Arc<LogDirectory>,
    config: &LogManagerConfig,
    checkpoints: &Checkpoints,
    clean: bool,
    now_ms: i64,
) -> Vec<Option<Result<SharedLog, LogError>>> {
    let results: Mutex<Vec<Option<_>>> = Mutex::new(candidates.iter().map(|_| None).collect());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(candidate) = candidates.get(index) else { return };
            let result =
                open_one(candidate, directory, &config.default_log_config, checkpoints, clean, now_ms);
            if let Some(place) = results.lock().get_mut(index) {
                *place = Some(result);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..config.recovery_threads.min(candidates.len()) {
            scope.spawn(work);
        }
        work();
    });
    results.into_inner()
}

fn open_one(
    candidate: &Candidate,
    directory: &Arc<LogDirectory>,
    config: &Arc<LogConfig>,
    checkpoints: &Checkpoints,
    clean: bool,
    now_ms: i64,
) -> Result<SharedLog, LogError> {
    let offset = |offsets: &HashMap<TopicPartition, Offset>| {
        offsets.get(&candidate.name).copied().unwrap_or(Offset::ZERO)
    };
    let state = OpenState {
        clean_shutdown: clean,
        recovery_point: offset(&checkpoints.recovery_points),
        log_start_offset: offset(&checkpoints.log_starts),
    };
    let mut log = Log::open(&candidate.path, candidate.metadata.topic_id, config.clone(), state, now_ms)?;
    log.set_cleaned_to(checkpoints.cleaned.get(&candidate.name).copied());
    Ok(SharedLog::new(
        TopicIdPartition::new(candidate.metadata.topic_id, candidate.name.partition),
        candidate.name.topic.clone(),
        candidate.metadata.topic_record,
        directory.clone(),
        log,
        offset(&checkpoints.high_watermarks),
    ))
}

struct Checkpoints {
    recovery_points: HashMap<TopicPartition, Offset>,
    log_starts: HashMap<TopicPartition, Offset>,
    high_watermarks: HashMap<TopicPartition, Offset>,
    cleaned: HashMap<TopicPartition, Offset>,
}

impl Checkpoints {
    /// A damaged checkpoint is as good as none: more is scanned, the high watermark comes from the leader.
    fn read(directory: &Path) -> Result<Checkpoints, LogError> {
        let read = |name: &str| match read_offsets(&directory.join(name)) {
            Err(error @ LogError::Corrupt { .. }) => {
                tracing::warn!(%error, "checkpoint is damaged and not used");
                Ok(HashMap::new())
            }
            other => other.map(|offsets| offsets.into_iter().collect()),
        };
        Ok(Checkpoints {
            recovery_points: read(RECOVERY_POINT_CHECKPOINT)?,
            log_starts: read(LOG_START_CHECKPOINT)?,
            high_watermarks: read(HIGH_WATERMARK_CHECKPOINT)?,
            cleaned: read(CLEANER_CHECKPOINT)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names() {
        for (name, expected) in [
            ("orders-0", Some(("orders", 0))),
            ("a-b.c_d-12", Some(("a-b.c_d", 12))),
            ("orders", None),
            ("-3", None),
            ("orders-", None),
            ("orders--1", Some(("orders-", 1))),
            ("orders-+1", None),
            ("orders-99999999999", None),
        ] {
            let parsed = parse_name(name);
            assert_eq!(
                parsed,
                expected.map(|(topic, partition)| TopicPartition::new(topic, partition)),
                "{name}"
            );
        }
        let long = format!("{}-0", "t".repeat(249));
        let aside = aside_name(&long, "delete");
        assert!(aside.len() <= MAX_NAME_BYTES && aside.ends_with("-delete") && aside.starts_with("ttt"));
    }
}
