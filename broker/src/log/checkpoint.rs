//! Small text files that are replaced as a whole: written beside, synced, renamed over the old one,
//! and the directory synced, so that a crash leaves the old file or the new one, never none.

use std::path::Path;
use std::sync::Arc;

use common::ids::{Offset, TopicPartition};

use super::disk;
use super::error::LogError;

/// Kafka's name for the checkpoint of high watermarks.
pub(crate) const HIGH_WATERMARK_CHECKPOINT: &str = "replication-offset-checkpoint";
pub(crate) const RECOVERY_POINT_CHECKPOINT: &str = "recovery-point-offset-checkpoint";
pub(crate) const LOG_START_CHECKPOINT: &str = "log-start-offset-checkpoint";
pub(crate) const CLEANER_CHECKPOINT: &str = "cleaner-offset-checkpoint";

/// Whether a replaced file must survive a power cut, or a crash of the process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    Power,
    Process,
}

pub(crate) fn replace_file(path: &Path, content: &[u8], durability: Durability) -> Result<(), LogError> {
    let temporary = path.with_extension("tmp");
    let written = write_beside(&temporary, path, content, durability);
    if written.is_err() {
        // On a full disk every byte counts; where the disk is broken this fails too.
        let _ = disk::remove(&temporary);
    }
    written
}

fn write_beside(
    temporary: &Path,
    path: &Path,
    content: &[u8],
    durability: Durability,
) -> Result<(), LogError> {
    let file = disk::open(temporary)?;
    disk::set_length(&file, temporary, 0)?;
    disk::write_at(&file, temporary, content, 0)?;
    if durability == Durability::Power {
        disk::sync(&file, temporary)?;
    }
    drop(file);
    disk::rename(temporary, path)?;
    if durability == Durability::Power
        && let Some(parent) = path.parent()
    {
        disk::sync_directory(parent)?;
    }
    Ok(())
}

/// None where the file does not exist.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, LogError> {
    let Some(bytes) = disk::read_file(path)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(LogError::corrupt(path, "not a text file")),
    }
}

/// The lines of a checkpoint in Kafka's form: a line with the version 0, one with the number of
/// entries, one line an entry.
pub(crate) fn entries_of<'a>(path: &Path, text: &'a str) -> Result<Vec<&'a str>, LogError> {
    match text.split_once('\n') {
        Some(("0", counted)) => counted_entries(path, counted),
        Some((version, _)) => Err(LogError::corrupt(path, format!("unknown version `{version}`"))),
        None => Err(LogError::corrupt(path, "empty checkpoint")),
    }
}

/// A line with the number of entries, one line an entry.
pub(crate) fn counted_entries<'a>(path: &Path, text: &'a str) -> Result<Vec<&'a str>, LogError> {
    let mut lines = text.lines();
    let count: usize = lines
        .next()
        .and_then(|line| line.parse().ok())
        .ok_or_else(|| LogError::corrupt(path, "the number of entries is missing"))?;
    let entries: Vec<&str> = lines.collect();
    if entries.len() != count {
        return Err(LogError::corrupt(path, format!("{} entries instead of {count}", entries.len())));
    }
    Ok(entries)
}

/// Topic, partition, offset.
pub(crate) type PartitionOffsets = Vec<(Arc<str>, i32, Offset)>;

/// An offset for each partition: recovery points, high watermarks, log starts.
pub(crate) fn write_offsets(
    path: &Path,
    offsets: &[(Arc<str>, i32, Offset)],
    durability: Durability,
) -> Result<(), LogError> {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(8 + offsets.len() * 32);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "0\n{}", offsets.len());
    for (topic, partition, offset) in offsets {
        let _ = writeln!(text, "{topic} {partition} {offset}");
    }
    replace_file(path, text.as_bytes(), durability)
}

pub(crate) fn read_offsets(path: &Path) -> Result<Vec<(TopicPartition, Offset)>, LogError> {
    let Some(text) = read_text(path)? else { return Ok(Vec::new()) };
    entries_of(path, &text)?
        .into_iter()
        .map(|line| {
            let mut words = line.split(' ');
            let entry = (|| {
                let topic = words.next()?;
                let partition = words.next()?.parse().ok()?;
                let offset = words.next()?.parse().ok()?;
                words.next().is_none().then(|| (TopicPartition::new(topic, partition), Offset(offset)))
            })();
            entry.ok_or_else(|| LogError::corrupt(path, format!("malformed entry `{line}`")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn offsets_survive_a_round_trip_in_kafkas_form() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(HIGH_WATERMARK_CHECKPOINT);
        assert!(read_offsets(&path).unwrap().is_empty());
        let offsets = [(Arc::from("orders"), 0, Offset(7)), (Arc::from("a.b_c-d"), 12, Offset(0))];
        write_offsets(&path, &offsets, Durability::Power).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "0\n2\norders 0 7\na.b_c-d 12 0\n");
        assert_eq!(
            read_offsets(&path).unwrap(),
            [(TopicPartition::new("orders", 0), Offset(7)), (TopicPartition::new("a.b_c-d", 12), Offset(0))]
        );
    }

    #[test]
    fn what_is_cut_or_malformed_is_refused_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint");
        for text in [
            "",
            "0\n",
            "1\n0\n",
            "0\n1\n",
            "0\n2\na 0 1\n",
            "0\n1\na 0\n",
            "0\n1\na 0 1 2\n",
            "0\n1\na x 1\n",
        ] {
            fs::write(&path, text).unwrap();
            assert!(read_offsets(&path).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_half_written_replacement_leaves_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint");
        replace_file(&path, b"old", Durability::Power).unwrap();
        fs::write(path.with_extension("tmp"), b"ne").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace_file(&path, b"new", Durability::Power).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}
