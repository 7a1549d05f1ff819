//! Tables of the two decisions that cut or refuse to.

use super::super::mirroring::{CheckDecision, decide_check};
use super::super::preparing::{
    CutDecision, WAITS_FOR_RECOPY, WAITS_SOURCE_EMPTY, WAITS_SOURCE_READ_ONLY, decide_cut,
};
use super::*;

#[test]
fn what_a_preparing_partition_cuts_to() {
    use LastMirrored::*;
    let to = |offset| CutDecision::Cut(Offset(offset));
    let wait = CutDecision::Wait;
    let read_only = NotWritable { mirrors_other: false };
    let copy_of_other = NotWritable { mirrors_other: true };
    // what the source says, its log end, ours, --recopy -> decision
    let table = [
        (NotSupported, 50, 0, false, to(0)),
        (NotSupported, 0, 0, false, to(0)),
        (NotSupported, 50, 80, false, wait(WAITS_FOR_RECOPY)),
        (NotSupported, 50, 80, true, to(0)),
        (NotSupported, 0, 80, true, wait(WAITS_SOURCE_EMPTY)),
        (Recorded(Offset(60)), 90, 80, false, to(60)),
        (Recorded(Offset(60)), 90, 80, true, to(60)),
        (Recorded(Offset(0)), 90, 80, false, to(0)),
        (Recorded(Offset(0)), 0, 0, false, to(0)),
        // It was released with data and lost its log since: the copy here is the last one.
        (Recorded(Offset(0)), 0, 80, false, wait(WAITS_SOURCE_EMPTY)),
        (Recorded(Offset(60)), 0, 80, true, wait(WAITS_SOURCE_EMPTY)),
        (Nothing, 50, 80, false, to(0)),
        (Nothing, 0, 80, false, wait(WAITS_SOURCE_EMPTY)),
        (Nothing, 0, 80, true, wait(WAITS_SOURCE_EMPTY)),
        (Nothing, 0, 0, false, to(0)),
        (OnlyUncut, 50, 80, false, wait(WAITS_FOR_RECOPY)),
        (OnlyUncut, 50, 80, true, to(0)),
        (OnlyUncut, 50, 0, false, to(0)),
        (read_only, 50, 80, false, wait(WAITS_SOURCE_READ_ONLY)),
        (read_only, 50, 80, true, wait(WAITS_SOURCE_READ_ONLY)),
        (read_only, 50, 0, false, to(0)),
        (copy_of_other, 50, 80, false, wait(WAITS_SOURCE_READ_ONLY)),
        (copy_of_other, 50, 80, true, to(0)),
        (copy_of_other, 0, 80, true, wait(WAITS_SOURCE_EMPTY)),
    ];
    for (said, log_end, local_end, recopy, expected) in table {
        let facts = MirrorFacts { recopy, ..added() };
        let decided = decide_cut(&position(said, log_end), Offset(local_end), &facts);
        assert_eq!(decided, expected, "{said:?} at {log_end}, here {local_end}, recopy {recopy}");
    }
}

#[test]
fn the_recorded_offset_is_lowered_to_our_own_later_cuts() {
    let facts = MirrorFacts { cut_log: vec![(CutId(5), Offset(30)), (CutId(8), Offset(70))], ..added() };
    let asked = |checked: Option<i64>| {
        let checked_own_cut = checked.map(CutId);
        let position =
            SourcePosition { checked_own_cut, ..position(LastMirrored::Recorded(Offset(100)), 100) };
        decide_cut(&position, Offset(100), &facts)
    };
    // Not known: what was recorded may be of another topic.
    assert_eq!(asked(None), CutDecision::Cut(Offset(0)));
    assert_eq!(asked(Some(3)), CutDecision::Cut(Offset(30)));
    assert_eq!(asked(Some(5)), CutDecision::Cut(Offset(70)));
    assert_eq!(asked(Some(8)), CutDecision::Cut(Offset(100)));
    // The topic was created at 3: an association that had checked only up to 2 knew another one.
    assert_eq!(asked(Some(2)), CutDecision::Cut(Offset(0)));
}

#[test]
fn what_a_check_allows() {
    let cuts =
        |lowest: Option<i64>| Some(SourceCuts { newest: Some(CutId(9)), lowest_since: lowest.map(Offset) });
    let bounds =
        |log_start, log_end| Some(SourceBounds { log_start: Offset(log_start), log_end: Offset(log_end) });
    let kind = |check: &SourceCheck| match decide_check(check) {
        CheckDecision::Fail(reason) => Some(reason.kind),
        _ => None,
    };
    let fine = check(2, 80);
    assert_eq!(decide_check(&fine), CheckDecision::Fetch);
    assert_eq!(decide_check(&SourceCheck { cuts: cuts(None), ..fine.clone() }), CheckDecision::Fetch);
    assert_eq!(decide_check(&SourceCheck { cuts: cuts(Some(80)), ..fine.clone() }), CheckDecision::Fetch);
    assert_eq!(kind(&SourceCheck { cuts: cuts(Some(79)), ..fine.clone() }), Some(FailureKind::SourceCut));
    let shorter = SourceCheck { end_of_last_epoch: EpochEnd::At(Offset(79)), ..fine.clone() };
    assert_eq!(kind(&shorter), Some(FailureKind::SourceShorter));
    // A plain source that does not know our last epoch has another log; Kagami's cuts tell for themselves.
    let unknown = SourceCheck { end_of_last_epoch: EpochEnd::Unknown, ..fine.clone() };
    assert_eq!(kind(&unknown), Some(FailureKind::SourceShorter));
    assert_eq!(decide_check(&SourceCheck { cuts: cuts(None), ..unknown }), CheckDecision::Fetch);
    assert_eq!(
        kind(&SourceCheck { bounds: bounds(0, 79), ..fine.clone() }),
        Some(FailureKind::SourceShorter)
    );
    assert_eq!(decide_check(&SourceCheck { bounds: bounds(0, 80), ..fine.clone() }), CheckDecision::Fetch);
    let gone = SourceCheck { bounds: bounds(90, 99), ..fine.clone() };
    assert_eq!(decide_check(&gone), CheckDecision::RestartAt(Offset(90)));
    // A cut below our end is told before anything is dropped for a higher log start.
    assert_eq!(kind(&SourceCheck { cuts: cuts(Some(10)), ..gone }), Some(FailureKind::SourceCut));
}
