use super::*;
use protocol::record_batch::{BatchBuilder, EndTxnMarker, batches};

fn batch(base: i64, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new().base_offset(base).leader_epoch(3);
    for value in values {
        builder.push(7, Some(b"k"), Some(value.as_bytes()), &[]);
    }
    builder.build()
}

const RULES: CompactionRules = CompactionRules { now_ms: 1_000, delete_retention_ms: 100 };

fn compare(from: i64, to: i64, compacted: bool, local: &[Bytes], source: &[Bytes]) -> Tally {
    let mut comparison = Comparison::new(from, to, compacted.then_some(RULES));
    let (mut local, mut source) = (local.iter(), source.iter());
    loop {
        let side = match comparison.advance().unwrap() {
            Need::Done => return comparison.tally(),
            Need::More(side) => side,
        };
        let lane = if side == Side::Local { &mut local } else { &mut source };
        match lane.next() {
            Some(bytes) => {
                let header = batches(bytes).next().unwrap().unwrap().header;
                comparison.push(side, header, bytes.clone());
            }
            None => comparison.end(side),
        }
    }
}

#[test]
fn equal_logs() {
    let log = [batch(0, &["a", "b"]), batch(2, &["c"])];
    let tally = compare(0, 3, false, &log, &log);
    assert_eq!(tally, Tally { equal: 3, ..Tally::default() });
}

#[test]
fn only_the_common_range_counts() {
    let log = [batch(0, &["a", "b", "c", "d"]), batch(4, &["e"])];
    assert_eq!(compare(2, 4, false, &log, &log).equal, 2);
}

#[test]
fn another_value_differs_at_its_offset() {
    let here = [batch(0, &["a", "b"]), batch(2, &["c"])];
    let there = [batch(0, &["a", "x"]), batch(2, &["c"])];
    let tally = compare(0, 3, false, &here, &there);
    assert_eq!((tally.equal, tally.differing, tally.first_difference), (2, 1, Some(1)));
}

#[test]
fn other_batch_bounds_with_the_same_records_are_equal() {
    let here = [batch(0, &["a", "b", "c"])];
    let there = [batch(0, &["a"]), batch(1, &["b", "c"])];
    assert_eq!(compare(0, 3, false, &here, &there).equal, 3);
}

#[test]
fn a_record_of_one_side_only_is_missing() {
    let here = [batch(0, &["a", "b"])];
    let there = [batch(0, &["a"]), batch(1, &["b", "c"])];
    let tally = compare(0, 3, false, &here, &there);
    assert_eq!((tally.equal, tally.missing, tally.first_difference), (2, 1, Some(2)));
    // The newest of its key is dropped by no cleaner.
    let tally = compare(0, 3, true, &here, &there);
    assert_eq!((tally.equal, tally.missing, tally.first_difference), (2, 1, Some(2)));
}

/// One record: offset, key, value, time.
fn keyed(offset: i64, key: &str, value: Option<&str>, timestamp_ms: i64) -> Bytes {
    let mut builder = BatchBuilder::new().base_offset(offset).leader_epoch(3);
    builder.push(timestamp_ms, Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    builder.build()
}

/// (compacted, missing, first difference), with the sides one way and the other.
fn lacking(to: i64, less: &[Bytes], more: &[Bytes]) -> (i64, i64, Option<i64>) {
    let one = compare(0, to, true, less, more);
    let other = compare(0, to, true, more, less);
    assert_eq!(one, other);
    (one.compacted, one.missing, one.first_difference)
}

#[test]
fn a_newer_record_with_the_key_explains_older_ones() {
    let all = [keyed(0, "a", Some("1"), 7), keyed(1, "b", Some("2"), 7), keyed(2, "a", Some("3"), 7)];
    assert_eq!(lacking(3, &all[1..], &all), (1, 0, None));
    assert_eq!(lacking(3, &[all[0].clone(), all[2].clone()], &all), (0, 1, Some(1)), "nothing newer of b");
    assert_eq!(lacking(3, &all[..2], &all), (0, 1, Some(2)), "the newest of a");
    // What explains has to be on the side that lacks.
    assert_eq!(lacking(3, &all[1..2], &all), (0, 2, Some(0)));
}

#[test]
fn what_explains_may_lie_beyond_the_compared_range() {
    let all = [keyed(0, "a", Some("1"), 7), keyed(1, "b", Some("2"), 7), keyed(2, "a", Some("3"), 7)];
    let cleaned = compare(0, 2, true, &all[..2], &all[1..]);
    assert_eq!((cleaned.equal, cleaned.compacted, cleaned.missing), (1, 1, 0));
    let shorter = compare(0, 2, true, &all[1..2], &all[..2]);
    assert_eq!((shorter.compacted, shorter.missing), (0, 1));
}

#[test]
fn a_tombstone_explains_its_key_once_it_has_outlived_its_retention() {
    let deleted =
        |at_ms| [keyed(0, "a", Some("1"), 7), keyed(1, "a", None, at_ms), keyed(2, "b", Some("2"), 7)];
    let old = deleted(900);
    assert_eq!(lacking(3, &old[2..], &old), (2, 0, None));
    assert_eq!(lacking(3, &old[1..], &old), (1, 0, None));
    let fresh = deleted(901);
    assert_eq!(lacking(3, &fresh[2..], &fresh), (0, 2, Some(0)));
    assert_eq!(lacking(3, &fresh[1..], &fresh), (1, 0, None));
}

#[test]
fn records_without_a_key_are_dropped_by_cleaners() {
    let mut builder = BatchBuilder::new().base_offset(0).leader_epoch(3);
    builder.push(7, None, Some(b"from before the topic was compacted"), &[]);
    let all = [builder.build(), keyed(1, "a", Some("1"), 7)];
    assert_eq!(lacking(2, &all[1..], &all), (1, 0, None));
}

fn transactional(offset: i64, key: &str, producer: i64) -> Bytes {
    let mut builder = BatchBuilder::new().base_offset(offset).leader_epoch(3);
    builder.push(7, Some(key.as_bytes()), Some(b"v"), &[]);
    builder.producer(producer, 0, 0).transactional().build()
}

fn marker(offset: i64, producer: i64, commit: bool, timestamp_ms: i64) -> Bytes {
    let marker = EndTxnMarker { committed: commit, coordinator_epoch: 0 };
    let builder = BatchBuilder::new().base_offset(offset).leader_epoch(3).producer(producer, 0, -1);
    builder.end_txn_marker(timestamp_ms, marker).build()
}

#[test]
fn what_was_aborted_is_dropped_and_what_was_committed_is_not() {
    for commit in [false, true] {
        let all = [
            transactional(0, "a", 5),
            transactional(1, "b", 6),
            marker(2, 5, commit, 999),
            marker(3, 6, true, 999),
        ];
        let expected = if commit { (0, 1, Some(0)) } else { (1, 0, None) };
        assert_eq!(lacking(4, &all[1..], &all), expected, "commit {commit}");
        // The marker may be gone once it decides nothing, but not before its time.
        let without = [all[1].clone(), all[3].clone()];
        let (compacted, missing, _) = lacking(4, &without, &all);
        assert_eq!((compacted, missing), if commit { (0, 2) } else { (1, 1) });
    }
    let old = [transactional(0, "a", 5), marker(1, 5, false, 900), keyed(2, "b", Some("1"), 7)];
    assert_eq!(lacking(3, &old[2..], &old), (2, 0, None));
}

#[test]
fn another_leader_epoch_alone_is_not_a_difference_of_records() {
    let mut builder = BatchBuilder::new().base_offset(0).leader_epoch(9);
    builder.push(7, Some(b"k"), Some(b"a"), &[]);
    assert_eq!(compare(0, 1, false, &[batch(0, &["a"])], &[builder.build()]).equal, 1);
}

#[test]
fn a_damaged_batch_is_an_error_and_not_a_difference() {
    let mut damaged = batch(0, &["a"]).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let mut comparison = Comparison::new(0, 1, None);
    let header = batches(&damaged).next().unwrap().unwrap().header;
    comparison.push(Side::Local, header, Bytes::from(damaged));
    comparison.push(Side::Source, header, batch(0, &["a"]));
    assert!(comparison.advance().is_err());
}
