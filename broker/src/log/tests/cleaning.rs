//! Compaction of whole logs: what stays, what goes, and when.

use std::io::Write as _;

use common::ids::{Offset, ProducerId};
use protocol::record_batch::{BatchHeader, HEADER_BYTES};

use super::cleaning_support::*;
use super::support::*;
use crate::log::{AbortedTransaction, LogConfig};

#[test]
fn the_newest_record_of_each_key_stays_at_its_offset() {
    let compacted = Compacted::new(compacting());
    for number in 0..40 {
        let (key, value) = (format!("key {}", number % 7), format!("value {number}"));
        compacted.put(&[(&key, Some(&value)), ("always", Some(&value))]);
    }
    let before = compacted.rows();
    compacted.roll();
    let segments = compacted.log.read().segment_count();
    assert!(segments > 5);
    compacted.enlarge_segments();
    assert_eq!(compacted.clean(NOW), 1);
    let rows = compacted.rows();
    let expected: Vec<Row> = before
        .iter()
        .filter(|row| !before.iter().any(|later| later.1 == row.1 && later.0 > row.0))
        .cloned()
        .collect();
    assert_eq!(rows, expected);
    assert_eq!(rows.len(), 8);
    let log = compacted.log.read();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(0), Offset(80)));
    assert_eq!(log.segment_count(), 2, "what is left fits one segment");
    assert_eq!((log.cleaned_to(), log.compacted_end()), (Some(Offset(80)), Offset(80)));
    drop(log);
    let checkpoint = compacted.directory.path().join("cleaner-offset-checkpoint");
    assert_eq!(std::fs::read_to_string(checkpoint).unwrap(), "0\n1\ncompacted 0 80\n");
    assert_eq!(compacted.clean(NOW), 0, "there is nothing left to do");

    // Every offset, in a gap or not, gives the next batch.
    for from in 0..80 {
        let next = compacted.read_from(from);
        let found = BatchHeader::parse(&next[0]).unwrap();
        let expected = compacted.headers().into_iter().find(|header| header.last_offset() >= from).unwrap();
        assert_eq!(found, expected, "from {from}");
    }
    let compacted = compacted.crash();
    assert_eq!(compacted.rows(), expected);
    assert_eq!(compacted.log.read().cleaned_to(), Some(Offset(80)));
}

#[test]
fn replaced_files_are_deleted_later_and_open_readers_go_on() {
    let compacted = Compacted::new(LogConfig { file_delete_delay_ms: 5000, ..compacting() });
    for number in 0..20 {
        compacted.put(&[("k", Some(&format!("value {number}")))]);
    }
    let old = compacted.log.read().read(Offset(0), 1 << 20, Offset(20), true).unwrap().unwrap();
    let before = bytes_of(&old);
    compacted.roll_and_clean(NOW);
    assert!(compacted.has_files_with(".log.deleted") && compacted.has_files_with(".index.deleted"));
    assert!(!compacted.has_files_with(".swap") && !compacted.has_files_with(".cleaned"));
    compacted.manager.checkpoint(NOW + 4999);
    assert!(compacted.has_files_with(".deleted"));
    compacted.manager.checkpoint(NOW + 5000);
    assert!(!compacted.has_files_with(".deleted"));
    assert_eq!(bytes_of(&old), before, "whoever holds the file reads on");
    assert_eq!(compacted.rows(), [row(19, "k", "value 19")]);
}

#[test]
fn what_is_not_changed_stays_byte_by_byte() {
    let compacted = Compacted::new(compacting());
    for number in 0..10 {
        compacted.put(&[(&format!("key {number}"), Some("v")), ("replaced", Some("v"))]);
        compacted.put(&[(&format!("other {number}"), Some("v"))]);
    }
    let before = compacted.read_from(0);
    compacted.roll_and_clean(NOW);
    let after = compacted.read_from(0);
    assert_eq!(after.len(), before.len());
    for (number, (before, after)) in before.iter().zip(&after).enumerate() {
        assert_eq!(before == after, number % 2 == 1 || number == 18, "batch {number}");
        let (was, is) = (BatchHeader::parse(before).unwrap(), BatchHeader::parse(after).unwrap());
        assert_eq!(
            (was.base_offset, was.last_offset(), was.leader_epoch),
            (is.base_offset, is.last_offset(), is.leader_epoch)
        );
    }
}

type Codec = fn(&[u8]) -> Vec<u8>;

#[test]
fn every_codec_is_kept() {
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let snappy = |bytes: &[u8]| snap::raw::Encoder::new().compress_vec(bytes).unwrap();
    let lz4 = |bytes: &[u8]| {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::stream::encode_all(bytes, 3).unwrap();
    let codecs: [Codec; 4] = [gzip, snappy, lz4, zstd];
    let compacted = Compacted::new(compacting());
    for (number, codec) in codecs.iter().enumerate() {
        let own = format!("own {number}");
        let batch = keyed(&[("replaced", Some("old")), (&own, Some("kept")), ("replaced", Some("v"))]);
        compacted.append(compressed(&batch, number as u8 + 1, codec));
    }
    compacted.put(&[("replaced", Some("newest"))]);
    compacted.roll_and_clean(NOW);
    let mut expected: Vec<Row> =
        (0..4).map(|number| row(3 * number + 1, &format!("own {number}"), "kept")).collect();
    expected.push(row(12, "replaced", "newest"));
    assert_eq!(compacted.rows(), expected);
    let codes: Vec<i16> = compacted.headers().iter().map(|header| header.attributes & 7).collect();
    assert_eq!(codes, [1, 2, 3, 4, 0]);
    // Base timestamp of the first record that stayed; the greatest one of those that stayed.
    let first = &compacted.headers()[0];
    assert_eq!((first.base_timestamp, first.max_timestamp, first.records_count), (NOW + 1, NOW + 1, 1));
}

#[test]
fn tombstones_go_when_their_horizon_has_passed() {
    let compacted = Compacted::new(compacting());
    compacted.put(&[("a", Some("1")), ("b", Some("1"))]);
    compacted.put(&[("a", None), ("c", Some("1"))]);
    compacted.roll_and_clean(NOW);
    let tombstone = (2, "a".to_owned(), None);
    assert_eq!(compacted.rows(), [row(1, "b", "1"), tombstone.clone(), row(3, "c", "1")]);
    let header = compacted.headers()[1];
    assert!(header.has_delete_horizon());
    assert_eq!((header.base_timestamp, header.max_timestamp), (NOW + 1000, NOW + 1));

    // Later cleanings do not move the horizon.
    compacted.put(&[("d", Some("1"))]);
    compacted.roll_and_clean(NOW + 999);
    assert_eq!(compacted.headers()[1].base_timestamp, NOW + 1000);
    assert!(compacted.rows().contains(&tombstone));
    compacted.put(&[("d", Some("2"))]);
    compacted.roll_and_clean(NOW + 1000);
    assert_eq!(compacted.rows(), [row(1, "b", "1"), row(3, "c", "1"), row(5, "d", "2")]);
    assert_eq!(compacted.log.read().offset_for_timestamp(NOW + 1).unwrap().unwrap().offset, Offset(1));
}

#[test]
fn aborted_records_go_at_once_and_markers_when_nothing_is_left_to_decide() {
    let compacted = Compacted::new(compacting());
    compacted.put(&[("a", Some("before")), ("b", Some("before"))]);
    compacted.append(keyed_in_transaction(1, 0, &[("a", Some("aborted"))]));
    compacted.append(keyed_in_transaction(2, 0, &[("b", Some("committed")), ("c", Some("committed"))]));
    compacted.append(marker(1, false));
    compacted.append(marker(2, true));
    compacted.append(keyed_in_transaction(1, 1, &[("d", Some("kept"))]));
    compacted.append(marker(1, true));
    compacted.roll_and_clean(NOW);
    let expected =
        [row(0, "a", "before"), row(3, "b", "committed"), row(4, "c", "committed"), row(7, "d", "kept")];
    assert_eq!(compacted.rows(), expected, "an aborted record replaces nothing");
    let aborted = |compacted: &Compacted| -> Vec<AbortedTransaction> {
        compacted.log.read().aborted_transactions(Offset(0), Offset(6)).unwrap()
    };
    assert_eq!(aborted(&compacted).len(), 1, "the marker stands, so the index names it");
    let markers = |compacted: &Compacted| -> Vec<(i64, bool)> {
        let headers = compacted.headers();
        let markers = headers.iter().filter(|header| header.is_control());
        markers.map(|header| (header.base_offset, header.has_delete_horizon())).collect()
    };
    assert_eq!(markers(&compacted), [(5, false), (6, false), (8, false)]);

    // The aborted marker's data is gone: its time begins. c is replaced, b and the commit's marker stay.
    compacted.put(&[("c", Some("later"))]);
    compacted.roll_and_clean(NOW + 10);
    assert_eq!(markers(&compacted), [(5, true), (6, false), (8, false)]);
    assert!(aborted(&compacted).is_empty());
    compacted.put(&[("b", Some("later")), ("d", Some("later"))]);
    compacted.roll_and_clean(NOW + 1010);
    assert_eq!(markers(&compacted), [(6, false), (8, false)], "the first one's horizon has passed");
    let compacted = compacted.crash();
    compacted.put(&[("e", Some("later"))]);
    compacted.roll_and_clean(NOW + 2000);
    compacted.put(&[("e", Some("later"))]);
    compacted.roll_and_clean(NOW + 4000);
    // Producer 2's last data is emptied and stays, so its commit still decides something.
    let left: Vec<(i64, i32, bool)> = compacted
        .headers()
        .iter()
        .filter(|header| header.has_producer_id())
        .map(|header| (header.base_offset, header.records_count, header.is_control()))
        .collect();
    assert_eq!(left, [(3, 0, false), (6, 1, true), (7, 0, false), (8, 1, true)]);
}

#[test]
fn nothing_is_touched_above_the_last_stable_offset() {
    let compacted = Compacted::new(compacting());
    compacted.put(&[("a", Some("1"))]);
    compacted.roll();
    compacted.append(keyed_in_transaction(1, 0, &[("a", Some("open"))]));
    compacted.roll();
    compacted.put(&[("a", Some("2"))]);
    compacted.roll();
    assert_eq!(compacted.clean(NOW), 1);
    assert_eq!(compacted.rows().len(), 3, "the transaction is open");
    assert_eq!(compacted.log.read().cleaned_to(), Some(Offset(1)));
    compacted.append(marker(1, true));
    compacted.log.set_high_watermark(Offset(2));
    assert_eq!(compacted.clean(NOW), 0);
    compacted.commit();
    compacted.roll_and_clean(NOW);
    assert_eq!(compacted.rows(), [row(2, "a", "2")]);
}

#[test]
fn the_active_segment_is_never_touched() {
    let compacted = Compacted::new(LogConfig { segment_bytes: 1 << 20, ..compacting() });
    compacted.put(&[("a", Some("1"))]);
    compacted.put(&[("a", Some("2"))]);
    assert_eq!(compacted.clean(NOW), 0);
    assert_eq!(compacted.rows().len(), 2);
    // A compacted log rolls by max.compaction.lag.ms, so that it can be cleaned by then.
    let mut log = compacted.log.write();
    log.update_config(LogConfig { max_compaction_lag_ms: 500, ..(*compacted.config).clone() }.into());
    assert!(!log.roll_if_due(NOW + 500).unwrap());
    assert!(log.roll_if_due(NOW + 501).unwrap());
    drop(log);
    assert_eq!(compacted.clean(NOW + 501), 1);
    assert_eq!(compacted.rows(), [row(1, "a", "2")]);
}

#[test]
fn a_small_map_takes_several_passes() {
    let compacted = Compacted::with_memory(compacting(), 0);
    for number in 0..300 {
        compacted.put(&[(&format!("key {}", number % 100), Some(&format!("value {number}")))]);
    }
    compacted.roll();
    let cleanings = compacted.clean(NOW);
    assert!(cleanings > 2, "{cleanings}");
    let rows = compacted.rows();
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|row| row.0 >= 200));
}

#[test]
fn the_last_sequence_of_a_producer_survives_without_its_record() {
    let compacted = Compacted::new(compacting());
    compacted.append(keyed_by(5, 0, &[("a", Some("1")), ("b", Some("1"))]));
    compacted.append(keyed_by(5, 2, &[("a", Some("2")), ("b", Some("2"))]));
    compacted.put(&[("a", Some("3")), ("b", Some("3"))]);
    compacted.roll_and_clean(NOW);
    let headers = compacted.headers();
    assert_eq!(headers.len(), 2, "only the last batch of the producer stays");
    let empty = headers[0];
    assert_eq!((empty.base_offset, empty.last_offset(), empty.records_count), (2, 3, 0));
    assert_eq!((empty.base_sequence, empty.last_sequence()), (2, 3));
    assert_eq!((empty.base_timestamp, empty.max_timestamp), (-1, NOW + 1));
    assert_eq!(empty.size_bytes(), HEADER_BYTES);

    // From the batches alone, without a snapshot.
    for name in compacted.files() {
        if name.ends_with(".snapshot") {
            std::fs::remove_file(compacted.path().join(name)).unwrap();
        }
    }
    let compacted = compacted.crash();
    let producer = compacted.log.read().active_producers()[0];
    assert_eq!((producer.producer_id, producer.last_sequence), (ProducerId(5), 3));
    // Emptied once, it is not written anew.
    compacted.put(&[("c", Some("1"))]);
    compacted.roll_and_clean(NOW);
    assert_eq!(compacted.headers()[0], empty);
}

/// A follower of a log whose newest records the cleaner took must still come to its end.
#[test]
fn the_end_of_what_was_cleaned_stays_visible() {
    let compacted = Compacted::new(compacting());
    compacted.put(&[("a", Some("1"))]);
    compacted.put(&[("a", None)]);
    compacted.roll_and_clean(NOW);
    compacted.put(&[("b", Some("1"))]);
    compacted.roll_and_clean(NOW + 5000);
    assert_eq!(compacted.rows(), [row(2, "b", "1")]);
    compacted.put(&[("b", None)]);
    compacted.roll_and_clean(NOW + 6000);
    compacted.append(keyed_in_transaction(1, 0, &[("c", Some("aborted"))]));
    compacted.append(marker(1, false));
    compacted.roll_and_clean(NOW + 9000);
    let last = compacted.headers().last().copied().unwrap();
    assert_eq!(last.next_offset(), 6);

    let mut follower = TestLog::new(config());
    for batch in compacted.read_from(0) {
        follower.log.append_as_follower(&batch, NOW).unwrap();
    }
    assert_eq!(follower.log.log_end_offset(), compacted.log.read().log_end_offset());
}

#[test]
fn a_follower_copies_over_gaps_and_reads_in_them() {
    let compacted = Compacted::new(compacting());
    for number in 0..60 {
        compacted.put(&[(&format!("key {}", number % 25), Some(&format!("value {number}")))]);
    }
    compacted.roll_and_clean(NOW);
    let mut follower = TestLog::new(config());
    for batch in compacted.read_from(0) {
        follower.log.append_as_follower(&batch, NOW).unwrap();
    }
    let copied: Vec<(i64, i64)> = follower.batches(1 << 20);
    let source: Vec<(i64, i64)> =
        compacted.headers().iter().map(|header| (header.base_offset, header.last_offset())).collect();
    assert_eq!(copied, source);
    assert!(source[0].0 > 0, "it begins with a gap");
    for from in 0..60 {
        let slice = follower.log.read(Offset(from), 1, Offset(60), true).unwrap().unwrap();
        let expected = source.iter().find(|batch| batch.1 >= from).unwrap();
        assert_eq!(slice.first_offset.0, expected.0, "from {from}");
    }
    follower.crash();
    assert_eq!(follower.batches(1), source);
}

#[test]
fn a_damaged_segment_makes_the_partition_uncleanable_and_says_where() {
    let compacted = Compacted::new(compacting());
    for number in 0..20 {
        compacted.put(&[("k", Some(&format!("value {number}")))]);
    }
    compacted.roll();
    let first = compacted.path().join("00000000000000000000.log");
    let mut bytes = std::fs::read(&first).unwrap();
    let second = BatchHeader::parse(&bytes).unwrap().size_bytes();
    bytes[second + HEADER_BYTES + 6] ^= 0x55;
    std::fs::write(&first, &bytes).unwrap();
    assert_eq!(compacted.clean(NOW), 0);
    assert_eq!(compacted.cleaner.metrics().failures.get(), 1);
    assert_eq!(compacted.clean(NOW), 0);
    assert_eq!(compacted.cleaner.metrics().failures.get(), 1, "it is not tried again");
    assert_eq!(compacted.cleaner.metrics().uncleanable.get(), 1);
    assert!(!compacted.has_files_with(".cleaned"));
    assert_eq!(std::fs::read(&first).unwrap(), bytes, "damage is not written anew with a good CRC");
    assert!(compacted.log.directory().is_online());
    // Emptied and copied anew it is whole again.
    compacted.log.write().truncate_fully_and_start_at(Offset(0)).unwrap();
    compacted.put(&[("k", Some("1"))]);
    compacted.put(&[("k", Some("2"))]);
    assert_eq!(compacted.roll_and_clean(NOW), 1);
    assert_eq!(compacted.rows(), [row(1, "k", "2")]);
}

#[test]
fn compact_and_delete_together() {
    let config = LogConfig { delete: true, retention_ms: 10_000, ..compacting() };
    let compacted = Compacted::new(config);
    for number in 0..30 {
        compacted.put(&[(&format!("key {}", number % 10), Some("v"))]);
    }
    compacted.roll_and_clean(NOW);
    assert_eq!(compacted.rows().len(), 10);
    compacted.manager.maintain(NOW + 10_001);
    let log = compacted.log.read();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(30), Offset(30)));
    drop(log);
    assert!(compacted.rows().is_empty());
    // Below the log start the checkpoint says nothing any more.
    compacted.put(&[("k", Some("1"))]);
    compacted.put(&[("k", Some("2"))]);
    compacted.roll_and_clean(NOW);
    assert_eq!(compacted.rows(), [row(31, "k", "2")]);
}
