use common::ids::Offset;

use super::support::*;
use crate::log::AppendOrigin;

/// Writes one-record batches: lower case begins or goes on with the producer's transaction, upper case commits,
/// `!` after a letter aborts instead, `.` is a plain record.
fn write(test: &mut TestLog, script: &str) {
    let mut sequences = [0; 26];
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        let batch = match letter {
            '.' => plain(1, 0),
            'a'..='z' => {
                let producer = letter as usize - 'a' as usize;
                sequences[producer] += 1;
                transactional(producer as i64, sequences[producer] - 1, 1)
            }
            _ => marker(letter.to_ascii_lowercase() as i64 - 'a' as i64, letters.next_if_eq(&'!').is_none()),
        };
        test.append(batch, AppendOrigin::Coordinator, 0).unwrap();
    }
}

#[test]
fn cuts_lose_no_decision() {
    for (script, at_most, expected) in [
        ("...", 3, 3),
        ("...", 2, 2),
        ("...", 9, 3),
        (".a", 2, 1),
        (".aA", 3, 3),
        (".aA", 2, 1),
        // Counterexample 22: the last stable offset is 2, but a's commit at 3 would go with the cut.
        (".abA", 2, 1),
        (".abA", 4, 1),
        (".abA!", 4, 1),
        (".abAB", 5, 5),
        (".abAB", 4, 1),
        ("aAbBcC", 5, 4),
        ("aAbBcC", 4, 4),
        ("abcABC", 5, 0),
        ("aAb.cBd", 6, 2),
        ("aAb.cBd", 4, 2),
    ] {
        // Also when the state of producers has to be built from snapshots and batches.
        for segment_bytes in [1 << 20, 100] {
            let mut test = TestLog::new(crate::log::LogConfig { segment_bytes, ..config() });
            write(&mut test, script);
            let check = |test: &TestLog| {
                let cut = test.log.decided_cut_point(Offset(at_most)).unwrap();
                assert_eq!(cut, Offset(expected), "{script} at most {at_most}");
            };
            check(&test);
            test.crash();
            check(&test);
            test.log.truncate_to(Offset(expected)).unwrap();
            let end = test.log.log_end_offset();
            assert_eq!(test.log.last_stable_offset(end), end, "{script}: nothing is open after the cut");
        }
    }
}

#[test]
fn the_cut_is_never_below_the_log_start() {
    let mut test = TestLog::new(config());
    write(&mut test, "a....");
    test.log.increase_log_start_offset(Offset(3));
    assert_eq!(test.log.last_stable_offset(Offset(5)), Offset(3));
    assert_eq!(test.log.decided_cut_point(Offset(5)).unwrap(), Offset(3));
    assert_eq!(test.log.decided_cut_point(Offset(2)).unwrap(), Offset(2));
    test.log.truncate_to(Offset(3)).unwrap();
    assert_eq!(test.log.last_stable_offset(Offset(3)), Offset(3));
    test.fill(1);
    assert_eq!(test.log.last_stable_offset(Offset(6)), Offset(6));
}

#[test]
fn undecided_until_the_high_watermark_has_passed_the_marker() {
    let mut test = TestLog::new(config());
    write(&mut test, "a.A.");
    assert_eq!(test.log.last_stable_offset(Offset(2)), Offset(0));
    assert_eq!(test.log.last_stable_offset(Offset(3)), Offset(3));
    assert_eq!(test.log.last_stable_offset(Offset(4)), Offset(4));
}

/// Begin a at 1, begin b at 2, commit a at 3: cut at the last stable offset, a's commit would be gone and
/// a open again.
#[test]
fn counterexample_22_a_marker_above_the_last_stable_offset_is_not_lost_with_the_cut() {
    let mut test = TestLog::new(config());
    write(&mut test, ".abA");
    let last_stable = test.log.last_stable_offset(Offset(4));
    assert_eq!(last_stable, Offset(2));
    assert_eq!(test.log.decided_cut_point(last_stable).unwrap(), Offset(1));
}
